//! [`Spread`]: the answers of several data nodes to one select, on their way to the client as one.
//!
//! ```text
//!   node 0 ── row ──▶ ┌────────┐   least row, or      ┌────────┐
//!   node 1 ── row ──▶ │ Spread │ ── folded group ───▶ │ client │
//!   node 2 ── row ──▶ └────────┘                      └────────┘
//! ```
//!
//! It keeps one row of each node and one group. A client that reads slowly stops it, the windows of the
//! answers, and thereby the nodes.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::fmt::Display;
use std::sync::Arc;

use epoll_group::client::{Answer, Piece, Summary};
use epoll_group::codec::encoder::{Encoder, OutBuffer, RowWriter};
use epoll_group::codec::error::EncodeError;
use epoll_group::codec::frame::{Dialect, HEADER_BYTES};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ServerKind, ServerMessage};
use epoll_group::codec::proto::resultset::{ColumnMetaData, FieldType, OriginalType};
use epoll_group::codec::row::{self, Row, RowReader};
use epoll_group::codec::value::Value;
use epoll_group::session::{Relay, Relayed, SessionError, Wake};

use crate::ask::is_said;
use crate::cell::{Cell, check_order, different as different_types};
use crate::passage::ending;
use crate::refuse::{of_node, unroutable};
use crate::route::{Combine, Merge, Place, RowRange};
use crate::scatter::Lent;

/// The answers of several nodes as one.
pub struct Spread {
    // Dropped before their sessions go back.
    streams: Vec<Stream>,
    lent: Lent,
    merge: Arc<Merge>,
    range: RowRange,
    /// Known when each node has sent its columns.
    layout: Option<Layout>,
    /// Number of columns that were passed on.
    columns_sent: usize,
    group: Option<Group>,
    summary: Summary,
    /// The frame that is passed on.
    body: Vec<u8>,
    buffer: OutBuffer,
}

/// The answer of one node.
struct Stream {
    /// `None` when it has ended.
    answer: Option<Answer>,
    /// Frames of its columns.
    columns: Vec<Vec<u8>>,
    /// Memory of these frames.
    column_bytes: usize,
    /// The first row that was not passed on.
    row: Option<Vec<u8>>,
    /// Values that this row, or the one before it, is ordered by.
    keys: Vec<Cell>,
    /// Numbers of the BIGINT columns whose cells are converted to DOUBLE, as other nodes have them.
    widened: Vec<usize>,
}

/// The columns of all nodes.
struct Layout {
    columns: Vec<ColumnMetaData>,
    /// Frames of the columns that the client sees.
    visible: Vec<Vec<u8>>,
    /// Columns that rows are ordered by, and whether they are descending.
    order: Vec<(usize, bool)>,
}

/// The rows of a group so far.
struct Group {
    keys: Vec<Cell>,
    /// The first of its rows.
    row: Vec<u8>,
    /// Values of all columns; NULL for those of keys and averages, which are not read.
    values: Vec<Cell>,
}

/// Result of a step.
enum Step {
    Frame(ServerKind),
    Later,
    End,
}

/// Number of rows that one call skips, and that it drops of each node at the end.
const ROWS_A_CALL: usize = 256;

/// Memory for the columns of one node: 1 KiB for each of 4 096 columns, MySQL's limit.
const MOST_COLUMN_BYTES: usize = 4 << 20;

/// Number of warnings that are passed on, of all nodes together.
const MOST_WARNINGS: usize = 64;

impl Spread {
    pub fn new(answers: Vec<Answer>, merge: Arc<Merge>, range: RowRange, lent: Lent) -> Self {
        let stream = |answer| Stream {
            answer: Some(answer),
            columns: Vec::new(),
            column_bytes: 0,
            row: None,
            keys: Vec::new(),
            widened: Vec::new(),
        };
        Self {
            streams: answers.into_iter().map(stream).collect(),
            lent,
            merge,
            range,
            layout: None,
            columns_sent: 0,
            group: None,
            summary: Summary::default(),
            body: Vec::new(),
            buffer: OutBuffer::default(),
        }
    }

    fn step(&mut self, wake: &Wake) -> Result<Step, SessionError> {
        if self.layout.is_none() {
            if !self.fill(wake)? {
                return Ok(Step::Later);
            }
            self.lay_out()?;
        }
        if let Some(layout) = &self.layout
            && let Some(column) = layout.visible.get(self.columns_sent)
        {
            self.body.clone_from(column);
            self.columns_sent += 1;
            return Ok(Step::Frame(ServerKind::ColumnMetaData));
        }
        for _ in 0..ROWS_A_CALL {
            if self.range.rows == 0 {
                self.finish(wake);
                return Ok(Step::End);
            }
            let step = match &self.merge.combine {
                Some(_) => self.next_group(wake)?,
                None => self.next_row(wake)?,
            };
            if !matches!(step, Step::Frame(_)) {
                return Ok(step);
            }
            if self.range.skip > 0 {
                self.range.skip -= 1;
                continue;
            }
            self.range.rows -= 1;
            return Ok(step);
        }
        // The worker does other work before it skips more.
        wake.wake();
        Ok(Step::Later)
    }

    /// Reads until each node has a row here or has ended. Returns false if one is still to send it.
    fn fill(&mut self, wake: &Wake) -> Result<bool, SessionError> {
        let mut is_full = true;
        for at in 0..self.streams.len() {
            is_full &= self.pull(at, wake)?;
        }
        Ok(is_full)
    }

    /// Reads until one node has a row here, and returns the number of that node. The flag is false
    /// if a node is still to send its row.
    fn first_here(&mut self, wake: &Wake) -> Result<(bool, Option<usize>), SessionError> {
        let mut is_full = true;
        for at in 0..self.streams.len() {
            is_full &= self.pull(at, wake)?;
            if self.streams[at].row.is_some() {
                return Ok((is_full, Some(at)));
            }
        }
        Ok((is_full, None))
    }

    /// Reads the next row of a node, unless it is here. Returns false if it is still to come.
    fn pull(&mut self, at: usize, wake: &Wake) -> Result<bool, SessionError> {
        let stream = &mut self.streams[at];
        while let (None, Some(answer)) = (&stream.row, &mut stream.answer) {
            match answer.try_frame() {
                Ok(Piece::Frame(ServerKind::ColumnMetaData, body)) if self.layout.is_none() => {
                    stream.column_bytes += body.len() + size_of::<Vec<u8>>();
                    if stream.column_bytes > MOST_COLUMN_BYTES {
                        let name = self.lent.name(at);
                        let why = format!(
                            "the columns from data node {name} have more than {MOST_COLUMN_BYTES} bytes"
                        );
                        return Err(unroutable("the answer to the select", why));
                    }
                    stream.columns.push(body.to_vec());
                }
                Ok(Piece::Frame(ServerKind::Row, body)) => {
                    stream.row = Some(body.to_vec());
                    if let Some(layout) = &self.layout {
                        stream.receive(layout, self.lent.name(at), &mut self.buffer)?;
                    }
                }
                Ok(Piece::Frame(kind, _)) => {
                    let why = format!("data node {} sent {kind:?}", self.lent.name(at));
                    return Err(unroutable("the answer to the select", why));
                }
                Ok(Piece::Later) => {
                    let wake = wake.clone();
                    answer.when_more(move || wake.wake());
                    return Ok(false);
                }
                Ok(Piece::End) => {
                    add(&mut self.summary, answer.summary());
                    stream.answer = None;
                    self.lent.back(at);
                }
                Err(error) => {
                    let text = of_node(self.lent.name(at), &error);
                    if !is_said(&error) {
                        self.lent.lost(at);
                    }
                    return Err(text);
                }
            }
        }
        Ok(true)
    }

    /// Compares the columns of the nodes.
    fn lay_out(&mut self) -> Result<(), SessionError> {
        let layout = Layout::of(&self.streams, &self.merge)?;
        for (at, stream) in self.streams.iter_mut().enumerate() {
            for (number, frame) in std::mem::take(&mut stream.columns).iter().enumerate() {
                if is_wider(&layout.columns[number], &column(frame)?) {
                    stream.widened.push(number);
                }
            }
            stream.receive(&layout, self.lent.name(at), &mut self.buffer)?;
        }
        self.layout = Some(layout);
        Ok(())
    }

    /// Passes on the least of the first rows, or any row if there is no order.
    fn next_row(&mut self, wake: &Wake) -> Result<Step, SessionError> {
        let (is_full, found) = if self.merge.order.is_empty() {
            self.first_here(wake)?
        } else if self.fill(wake)? {
            (true, self.least()?)
        } else {
            (false, None)
        };
        let at = match found {
            Some(at) => at,
            None if is_full => return Ok(Step::End),
            None => return Ok(Step::Later),
        };
        self.body = self.streams[at].row.take().unwrap_or_default();
        if self.merge.hidden > 0 {
            let body = std::mem::take(&mut self.body);
            let mut reader = RowReader::default();
            let row = read(&mut reader, &body, self.layout()?)?;
            let visible = row.len().saturating_sub(self.merge.hidden);
            self.write(|to| {
                (0..visible).for_each(|at| row.cell(at).into_iter().for_each(|cell| to.cell(cell)));
            })?;
        }
        Ok(Step::Frame(ServerKind::Row))
    }

    /// Passes on the next group when all its rows have come.
    fn next_group(&mut self, wake: &Wake) -> Result<Step, SessionError> {
        loop {
            if !self.fill(wake)? {
                return Ok(Step::Later);
            }
            let least = self.least()?;
            let is_in_group = match (&self.group, least) {
                (None, None) => return Ok(Step::End),
                (None, Some(_)) => true,
                (Some(_), None) => false,
                (Some(group), Some(at)) => {
                    compared(&group.keys, &self.streams[at].keys, self.layout()?)?.is_eq()
                }
            };
            if let Some(at) = least.filter(|_| is_in_group) {
                self.fold(at)?;
            } else if let Some(group) = self.group.take() {
                self.write_group(&group)?;
                return Ok(Step::Frame(ServerKind::Row));
            }
        }
    }

    fn layout(&self) -> Result<&Layout, SessionError> {
        self.layout.as_ref().ok_or_else(|| unroutable("the select", "no columns came"))
    }

    /// The node whose row comes first.
    fn least(&self) -> Result<Option<usize>, SessionError> {
        let layout = self.layout()?;
        let mut least = None;
        for (at, stream) in self.streams.iter().enumerate() {
            if stream.row.is_none() {
                continue;
            }
            let is_less = match least {
                None => true,
                Some(least) => {
                    let least: &Stream = &self.streams[least];
                    compared(&stream.keys, &least.keys, layout)?.is_lt()
                }
            };
            if is_less {
                least = Some(at);
            }
        }
        Ok(least)
    }

    /// Adds the row of a node to the group, which it may begin.
    fn fold(&mut self, at: usize) -> Result<(), SessionError> {
        let layout = self.layout()?;
        let stream = &self.streams[at];
        let Some(body) = &stream.row else { return Ok(()) };
        let mut reader = RowReader::default();
        let row = read(&mut reader, body, layout)?;
        let combine = self.merge.combine.as_deref().unwrap_or_default();
        let mut values = Vec::with_capacity(layout.columns.len());
        for (number, column) in layout.columns.iter().enumerate() {
            values.push(match combine.get(number) {
                // Keys and averages are not read.
                Some(Combine::Key | Combine::Average { .. }) => Cell::Null,
                _ => Cell::read(cell(&row, number)?, column, self.lent.name(at))?,
            });
        }
        let group = match self.group.take() {
            None => Group { keys: stream.keys.clone(), row: body.clone(), values },
            Some(group) => {
                let mut folded = Vec::with_capacity(values.len());
                for (number, (one, other)) in group.values.into_iter().zip(values).enumerate() {
                    folded.push(match combine.get(number) {
                        Some(Combine::Least) => one.chosen(other, Ordering::Less)?,
                        Some(Combine::Greatest) => one.chosen(other, Ordering::Greater)?,
                        // A hidden column is a key, which stays the same, or a sum.
                        None if self.is_order(number) => one,
                        _ => one.plus(other)?,
                    });
                }
                Group { values: folded, ..group }
            }
        };
        self.group = Some(group);
        self.streams[at].row = None;
        Ok(())
    }

    fn is_order(&self, column: usize) -> bool {
        let layout = self.layout.as_ref();
        layout.is_some_and(|layout| layout.order.iter().any(|(at, _)| *at == column))
    }

    fn write_group(&mut self, group: &Group) -> Result<(), SessionError> {
        let mut reader = RowReader::default();
        let layout = self.layout()?;
        let row = read(&mut reader, &group.row, layout)?;
        let mut averages = Vec::new();
        for (at, combine) in self.merge.combine.iter().flatten().enumerate() {
            if let Combine::Average { sum, count } = *combine {
                let [sum, count] = [sum, count].map(|place| layout.index(place));
                let value = group.values[sum].average(&group.values[count], &layout.columns[at])?;
                averages.push(value);
            }
        }
        let merge = Arc::clone(&self.merge);
        let mut averages = averages.iter();
        self.write(|to| {
            for (at, combine) in merge.combine.iter().flatten().enumerate() {
                match combine {
                    Combine::Key => row.cell(at).into_iter().for_each(|cell| to.cell(cell)),
                    Combine::Average { .. } => {
                        averages.next().into_iter().for_each(|cell| cell.write(to))
                    }
                    _ => group.values[at].write(to),
                }
            }
        })
    }

    /// Writes a row for the client.
    fn write(&mut self, fill: impl FnOnce(&mut RowWriter<'_>)) -> Result<(), SessionError> {
        self.body = written(&mut self.buffer, fill)?;
        Ok(())
    }

    /// Ends before the nodes do: the client has all that it wanted. An answer that is there to its end
    /// gives its session back. Others are given up.
    fn finish(&mut self, wake: &Wake) {
        for at in 0..self.streams.len() {
            for _ in 0..ROWS_A_CALL {
                self.streams[at].row = None;
                let is_here = self.pull(at, wake);
                if !matches!(is_here, Ok(true)) || self.streams[at].answer.is_none() {
                    break;
                }
            }
        }
    }
}

impl Stream {
    /// Converts the row, if there is one, to the columns of all nodes, and reads its keys.
    fn receive(
        &mut self,
        layout: &Layout,
        node: impl Display,
        buffer: &mut OutBuffer,
    ) -> Result<(), SessionError> {
        if let Some(body) = self.row.as_ref().filter(|_| !self.widened.is_empty()) {
            let mut reader = RowReader::default();
            let row = read(&mut reader, body, layout)?;
            let mut is_exact = true;
            let widened = written(buffer, |to| {
                for (at, cell) in (0..row.len()).filter_map(|at| Some((at, row.cell(at).ok()?))) {
                    let integer = self
                        .widened
                        .contains(&at)
                        .then(|| cell.value(FieldType::Sint, OriginalType::MysqlTypeLonglong));
                    match integer {
                        None | Some(Ok(Value::Null)) => to.cell(cell),
                        Some(Ok(Value::Signed(number))) => {
                            is_exact &= i128::from(number) == number as f64 as i128;
                            to.value(&Value::Double(number as f64));
                        }
                        Some(_) => is_exact = false,
                    }
                }
            })?;
            if !is_exact {
                return Err(different_types());
            }
            self.row = Some(widened);
        }
        self.read_keys(layout, node)
    }

    /// Reads the values that the row is ordered by. A row that sorts before the previous row is an
    /// error: the node has another order than the proxy.
    fn read_keys(&mut self, layout: &Layout, node: impl Display) -> Result<(), SessionError> {
        let Some(body) = self.row.as_ref().filter(|_| !layout.order.is_empty()) else {
            return Ok(());
        };
        let mut reader = RowReader::default();
        let row = read(&mut reader, body, layout)?;
        let mut keys = Vec::with_capacity(layout.order.len());
        for (number, _) in &layout.order {
            keys.push(Cell::read(cell(&row, *number)?, &layout.columns[*number], &node)?);
        }
        if !self.keys.is_empty() && compared(&keys, &self.keys, layout)?.is_lt() {
            let why = format!("data node {node} sends rows in another order than the proxy has");
            return Err(unroutable("the select", why));
        }
        self.keys = keys;
        Ok(())
    }
}

impl Layout {
    fn of(streams: &[Stream], merge: &Merge) -> Result<Self, SessionError> {
        let different = |why: &str| unroutable("the select", format_args!("the data nodes {why}"));
        let count = streams.first().map_or(0, |stream| stream.columns.len());
        let is_expected = match &merge.combine {
            Some(columns) => count == columns.len() + merge.hidden,
            None => count > merge.hidden,
        };
        if streams.iter().any(|stream| stream.columns.len() != count) || !is_expected {
            return Err(different("answered with other columns"));
        }
        let mut layout = Self { columns: Vec::new(), visible: Vec::new(), order: Vec::new() };
        let (with_rows, without): (Vec<_>, Vec<_>) =
            streams.iter().partition(|stream| stream.row.is_some());
        for number in 0..count {
            let mut chosen: Option<(ColumnMetaData, &Vec<u8>)> = None;
            for stream in with_rows.iter().chain(&without) {
                let frame = &stream.columns[number];
                let column = column(frame)?;
                // A node may know the type of an expression only from a value, so not without rows.
                let is_known = column.original_type != OriginalType::MysqlTypeNull;
                match &chosen {
                    Some((known, _)) if known.original_type != OriginalType::MysqlTypeNull => {
                        let is_same = known.r#type == column.r#type
                            && known.original_type == column.original_type
                            && known.content_type == column.content_type;
                        if !is_known || stream.row.is_none() || is_same {
                            continue;
                        }
                        if is_wider(&column, known) {
                            chosen = Some((column, frame));
                        } else if !is_wider(known, &column) {
                            return Err(different_types());
                        }
                    }
                    None => chosen = Some((column, frame)),
                    Some(_) if is_known => chosen = Some((column, frame)),
                    Some(_) => {}
                }
            }
            let Some((column, frame)) = chosen else { continue };
            if number < count - merge.hidden {
                layout.visible.push(frame.clone());
            }
            layout.columns.push(column);
        }
        for key in &merge.order {
            layout.order.push((layout.index(key.column), key.is_descending));
        }
        let ordered = layout.order.iter().map(|(at, _)| *at);
        let chosen = merge.combine.iter().flatten().enumerate();
        let chosen = chosen
            .filter(|(_, combine)| matches!(combine, Combine::Least | Combine::Greatest))
            .map(|(at, _)| at);
        // Without rows the type of an expression may be unknown, and there is nothing to compare.
        for at in ordered.chain(chosen).filter(|_| !with_rows.is_empty()) {
            let column = layout.columns.get(at);
            let column = column.ok_or_else(|| different("answered with other columns"))?;
            check_order(column, merge.texts_by_bytes)?;
        }
        Ok(layout)
    }

    fn index(&self, place: Place) -> usize {
        match place {
            Place::FromStart(at) => at,
            Place::FromEnd(behind) => self.columns.len().saturating_sub(behind),
        }
    }
}

/// True if the values of one column are floating-point numbers and those of the other are BIGINT. A node
/// types an expression by its first rows: if they are integers, it reports BIGINT.
fn is_wider(one: &ColumnMetaData, other: &ColumnMetaData) -> bool {
    one.r#type == FieldType::Double
        && other.original_type == OriginalType::MysqlTypeLonglong
        && other.r#type == FieldType::Sint
}

/// Returns the body of a row that `fill` writes.
fn written(
    buffer: &mut OutBuffer,
    fill: impl FnOnce(&mut RowWriter<'_>),
) -> Result<Vec<u8>, SessionError> {
    buffer.clear();
    let done = Encoder::new(buffer, 0).row(fill);
    done.map_err(|error: EncodeError| SessionError::new(1153, b"08S01", error.to_string()))?;
    Ok(buffer.to_vec().split_off(HEADER_BYTES))
}

fn column(frame: &[u8]) -> Result<ColumnMetaData, SessionError> {
    let kind = ServerKind::ColumnMetaData.number();
    match ServerMessage::decode(Dialect::Legacy, kind, frame, &Limits::default()) {
        Ok(ServerMessage::ColumnMetaData(column)) => Ok(column),
        Ok(_) => Err(malformed("no column")),
        Err(error) => Err(malformed(error)),
    }
}

fn read<'a>(
    reader: &'a mut RowReader,
    body: &'a [u8],
    layout: &Layout,
) -> Result<Row<'a>, SessionError> {
    let row = reader.row(body).map_err(malformed)?;
    let (cells, columns) = (row.len(), layout.columns.len());
    if cells != columns {
        return Err(malformed(format_args!("{cells} cells in {columns} columns")));
    }
    Ok(row)
}

fn cell<'a>(row: &Row<'a>, at: usize) -> Result<row::Cell<'a>, SessionError> {
    row.cell(at).map_err(malformed)
}

fn malformed(error: impl Display) -> SessionError {
    SessionError::new(2027, b"HY000", format!("a data node sent a malformed answer: {error}"))
}

/// The order of two rows with these keys.
fn compared(one: &[Cell], other: &[Cell], layout: &Layout) -> Result<Ordering, SessionError> {
    for ((one, other), (_, is_descending)) in one.iter().zip(other).zip(&layout.order) {
        let order = one.compared(other)?;
        if order.is_ne() {
            return Ok(if *is_descending { order.reverse() } else { order });
        }
    }
    Ok(Ordering::Equal)
}

/// Adds what one node says about its part of the result.
pub fn add(to: &mut Summary, part: &Summary) {
    to.affected = to.affected.saturating_add(part.affected);
    let room = MOST_WARNINGS.saturating_sub(to.warnings.len());
    to.warnings.extend(part.warnings.iter().take(room).cloned());
    match (&mut to.feedback, &part.feedback) {
        (Some(sum), Some(cost)) => {
            let rows = [&*sum, cost].map(|cost| cost.examined_row_count.unwrap_or(0));
            sum.examined_row_count = rows.into_iter().reduce(u64::saturating_add);
        }
        (sum @ None, Some(cost)) => *sum = Some(cost.clone()),
        (_, None) => {}
    }
    to.server_state |= part.server_state;
}

impl Relay for Spread {
    fn next(&mut self, wake: &Wake) -> Result<Relayed<'_>, SessionError> {
        let step = self.step(wake);
        match step.inspect_err(|error| self.lent.front().state().told.failed(error))? {
            Step::Frame(kind) => Ok(Relayed::Frame { kind, body: &self.body }),
            Step::Later => Ok(Relayed::Later),
            Step::End => {
                self.lent.front().state().told.note(&self.summary);
                Ok(Relayed::End(ending(&self.summary, true)))
            }
        }
    }
}

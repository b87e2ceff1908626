//! [`Answer`]: the answer of a server, read while it arrives.

use std::fmt;
use std::ops::Range;

use prost::Message as _;

use super::error::{Error, ErrorKind};
use super::exchange::Taken;
use super::joined::Joined;
use super::pending::Outstanding;
use crate::codec::frame::{Dialect, Frame};
use crate::codec::limits::Limits;
use crate::codec::message::{Notice, ServerKind, ServerMessage};
use crate::codec::proto::notice::Warning;
use crate::codec::proto::resultset::{ColumnMetaData, FetchDone};
use crate::codec::row::{self, RowReader};
use crate::codec::value::Value;

/// Answer of a server to one request: columns, rows, and the result.
///
/// It can be read before it is complete. Reading then waits, as an announced wait;
/// [`try_frame`](Self::try_frame) never waits. If it is dropped before its end, the statement is
/// interrupted, unless a request that a caller waits for was sent behind it. Its session runs no
/// other request until the statement is answered.
///
/// ```no_run
/// # use epoll_group::client::{Error, Session};
/// # fn show(session: &mut Session) -> Result<(), Error> {
/// let mut answer = session.execute("select id, c from sbtest1 limit 10")?;
/// while let Some(row) = answer.next_row()? {
///     println!("{:?} {:?}", row.get(0)?, row.get(1)?);
/// }
/// println!("{} warnings", answer.summary().warnings.len());
/// # Ok(())
/// # }
/// ```
pub struct Answer {
    outstanding: Option<Outstanding>,
    /// Frames that were not read yet, from `at` on.
    bytes: Vec<u8>,
    at: usize,
    /// Place of the frame that was returned last.
    body: Range<usize>,
    dialect: Dialect,
    result: Option<Result<(), Error>>,
    summary: Summary,
    columns: Vec<ColumnMetaData>,
    /// Set behind a row or a mark between results. The next column begins another result.
    is_past_columns: bool,
    /// Bytes of the columns on the wire.
    column_bytes: usize,
    reader: RowReader,
    joined: Joined,
    /// Limit of the memory for columns, warnings and texts: `max_answer_bytes`.
    max_bytes: usize,
}

/// Result of an answer beside its rows. It is complete when the answer was read to its end.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Summary {
    /// Number of changed rows.
    pub affected: u64,
    /// First id that the database generated.
    pub insert_id: Option<u64>,
    /// The first 64 warnings.
    pub warnings: Vec<Warning>,
    /// Number of further warnings.
    pub warnings_left_out: u64,
    /// Text for people about the result.
    pub info: Vec<u8>,
    /// Cost of the result, if the request asked for it: examined rows, indexes used.
    pub feedback: Option<FetchDone>,
    /// Bits about the state of the server: 1 while it hands its leadership over.
    pub server_state: u64,
}

/// Part of an answer.
#[derive(Debug)]
#[expect(clippy::exhaustive_enums, reason = "readers of pieces must handle all of them")]
pub enum Piece<'a> {
    /// Frame of a result: column metadata, a row, a chunk, or the mark between two results.
    Frame(ServerKind, &'a [u8]),
    /// No part is there yet, see [`Answer::when_more`].
    Later,
    /// The answer is complete, see [`Answer::summary`].
    End,
}

/// Row of an answer.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    cells: row::Row<'a>,
    columns: &'a [ColumnMetaData],
}

impl<'a> Row<'a> {
    /// Value of a column, from 0.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such column, or if its bytes are no value of its type.
    pub fn get(&self, index: usize) -> Result<Value<'a>, Error> {
        let cell = self.cells.cell(index).map_err(Error::malformed)?;
        let column = self.columns.get(index);
        let column = column.ok_or_else(|| Error::protocol("a cell without a column"))?;
        cell.value(column.r#type, column.original_type).map_err(Error::malformed)
    }

    /// Values of all columns.
    ///
    /// # Errors
    ///
    /// Each value can be an error of [`get`](Self::get).
    pub fn values(self) -> impl Iterator<Item = Result<Value<'a>, Error>> {
        (0..self.columns.len()).map(move |index| self.get(index))
    }

    /// Encoded cells of the row, for callers that know the types.
    #[must_use]
    pub const fn cells(&self) -> row::Row<'a> {
        self.cells
    }
}

impl Answer {
    pub(super) fn new(outstanding: Outstanding, taken: Taken) -> Result<Self, Error> {
        let options = &outstanding.fleet.options;
        let (max_bytes, dialect) = (options.max_answer_bytes, options.dialect);
        let mut answer = Self {
            outstanding: Some(outstanding),
            bytes: taken.bytes,
            at: 0,
            body: 0..0,
            dialect,
            result: None,
            summary: Summary::default(),
            columns: Vec::new(),
            is_past_columns: false,
            column_bytes: 0,
            reader: RowReader::default(),
            joined: Joined::new(max_bytes),
            max_bytes,
        };
        answer.set_result(taken.result);
        match &answer.result {
            // An answer that is only an error has nothing to read.
            Some(Err(error)) if !answer.has_result() => Err(error.clone()),
            _ => Ok(answer),
        }
    }

    fn has_result(&self) -> bool {
        let mut rest = &self.bytes[self.at..];
        while let Ok(Some((frame, bytes))) = parse(rest, self.dialect) {
            if frame.kind() == ServerKind::ColumnMetaData.number() {
                return true;
            }
            rest = &rest[bytes..];
        }
        false
    }

    fn set_result(&mut self, result: Option<Result<(), Error>>) {
        if result.is_some() {
            self.result = result;
            self.outstanding = None;
        }
    }

    /// Returns the next part, without waiting. It suits a proxy that passes the answer on, or a
    /// caller that reads several answers. Do not mix it with [`next_row`](Self::next_row), which
    /// reads the same frames.
    ///
    /// # Errors
    ///
    /// Returns the error that ends the answer.
    pub fn try_frame(&mut self) -> Result<Piece<'_>, Error> {
        Ok(match self.next(Outstanding::take)? {
            Found::Frame(kind, start, end) => {
                self.body = start..end;
                Piece::Frame(kind, self.frame_body())
            }
            Found::Nothing => Piece::Later,
            Found::End => Piece::End,
        })
    }

    /// Body of the frame that the last call of [`try_frame`](Self::try_frame) returned, for callers that
    /// cannot keep the borrow of that call. Not to be used if that call returned no frame.
    #[must_use]
    pub fn frame_body(&self) -> &[u8] {
        self.bytes.get(self.body.clone()).unwrap_or_default()
    }

    /// Calls `code` once, when another part is there: on a worker of the runtime, or on this thread
    /// if the result of the answer has been taken. The call may happen before `when_more` returns.
    /// Unless it has happened, another `when_more`, and each method that waits, replaces `code`. A
    /// replaced `code` is never called.
    pub fn when_more(&self, code: impl FnOnce() + Send + 'static) {
        match &self.outstanding {
            Some(outstanding) => outstanding.when_more(code),
            None => code(),
        }
    }

    /// Finds the next frame of a result. If none is there, looks in the bytes that `more` takes.
    fn next(&mut self, more: impl Fn(&mut Outstanding) -> Taken) -> Result<Found, Error> {
        loop {
            let found = self.find()?;
            let (Found::Nothing, Some(outstanding)) = (&found, &mut self.outstanding) else {
                return Ok(found);
            };
            let taken = more(outstanding);
            if taken.is_nothing() {
                return Ok(found);
            }
            self.bytes = taken.bytes;
            self.at = 0;
            self.body = 0..0;
            self.set_result(taken.result);
        }
    }

    /// Finds the next frame of a result. Notices before it go into the summary.
    fn find(&mut self) -> Result<Found, Error> {
        loop {
            let rest = &self.bytes[self.at..];
            let Some((frame, bytes)) = parse(rest, self.dialect)? else {
                return match &self.result {
                    Some(Ok(())) => Ok(Found::End),
                    Some(Err(error)) => Err(error.clone()),
                    None => Ok(Found::Nothing),
                };
            };
            let end = self.at + bytes;
            let start = end - frame.body().len();
            self.at = end;
            let kind = ServerKind::from_number(frame.kind());
            match kind {
                None => {}
                Some(ServerKind::FetchDone) if frame.body().is_empty() => {}
                Some(ServerKind::FetchDone | ServerKind::Notice) => {
                    self.allow(frame.body().len())?;
                    let limits = Limits::default();
                    match frame.server_message(&limits).map_err(Error::malformed)? {
                        ServerMessage::FetchDone(done) => self.summary.feedback = Some(done),
                        ServerMessage::Notice(notice) => {
                            let notice = Notice::read(&notice, &limits);
                            self.summary.add(notice.map_err(Error::malformed)?);
                        }
                        _ => {}
                    }
                }
                Some(kind) => return Ok(Found::Frame(kind, start, end)),
            }
        }
    }

    /// Returns an error if `more` bytes beside the rows exceed the limit.
    fn allow(&self, more: usize) -> Result<(), Error> {
        let (bytes, limit) = (self.column_bytes + self.summary.bytes() + more, self.max_bytes);
        if bytes > limit {
            return Err(Error::unknown(ErrorKind::TooMuch { bytes, limit }));
        }
        Ok(())
    }

    /// Columns of the current result; empty without a result. Waits for them.
    ///
    /// # Errors
    ///
    /// Returns the error that ends the answer.
    pub fn columns(&mut self) -> Result<&[ColumnMetaData], Error> {
        while self.joined.is_empty() {
            let Found::Frame(kind, start, end) = self.next(Outstanding::wait)? else { break };
            if !self.take_columns(kind, start, end)? {
                // The next call reads the frame again.
                self.at = start - self.dialect.header_bytes();
                break;
            }
        }
        Ok(&self.columns)
    }

    /// Reads a frame of metadata. Returns false if the frame is of another kind.
    fn take_columns(&mut self, kind: ServerKind, start: usize, end: usize) -> Result<bool, Error> {
        match kind {
            ServerKind::ColumnMetaData => {
                if std::mem::take(&mut self.is_past_columns) {
                    self.columns.clear();
                    self.column_bytes = 0;
                    self.joined.check_whole()?;
                    self.joined.clear();
                }
                self.allow(end - start)?;
                let body = &self.bytes[start..end];
                let limits = Limits::default();
                let message = ServerMessage::decode(self.dialect, kind.number(), body, &limits);
                let ServerMessage::ColumnMetaData(column) = message.map_err(Error::malformed)?
                else {
                    return Ok(true);
                };
                if self.columns.len() == RowReader::MAX_COLUMNS {
                    return Err(Error::protocol("too many columns"));
                }
                self.columns.push(column);
                self.column_bytes += end - start;
                Ok(true)
            }
            ServerKind::FetchDoneMoreResultsets | ServerKind::FetchDoneMoreOutParams => {
                self.is_past_columns = true;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Returns the next row, or `None` at the end. Waits for it. The rows of all results follow one
    /// another, see [`columns`](Self::columns).
    ///
    /// # Errors
    ///
    /// Returns the error that ends the answer, or an error if the answer is malformed.
    pub fn next_row(&mut self) -> Result<Option<Row<'_>>, Error> {
        loop {
            if self.joined.step()? {
                let cells = self.reader.row(self.joined.row()).map_err(Error::malformed)?;
                return Ok(Some(Row { cells, columns: &self.columns }));
            }
            let Found::Frame(kind, start, end) = self.next(Outstanding::wait)? else {
                self.joined.check_whole()?;
                return Ok(None);
            };
            if self.take_columns(kind, start, end)? {
                continue;
            }
            self.is_past_columns = true;
            match kind {
                ServerKind::Row => {
                    self.joined.check_whole()?;
                    let cells =
                        self.reader.row(&self.bytes[start..end]).map_err(Error::malformed)?;
                    if cells.len() != self.columns.len() {
                        let (cells, columns) = (cells.len(), self.columns.len());
                        return Err(Error::malformed(format!(
                            "{cells} cells for {columns} columns"
                        )));
                    }
                    return Ok(Some(Row { cells, columns: &self.columns }));
                }
                ServerKind::Chunk => self.joined.push(&self.columns, &self.bytes[start..end])?,
                _ => {}
            }
        }
    }

    /// Summary of what was read so far; complete at the end of the answer.
    #[must_use]
    pub const fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Reads to the end of the answer and returns its summary. Waits.
    ///
    /// # Errors
    ///
    /// Returns the error that ends the answer.
    pub fn finish(mut self) -> Result<Summary, Error> {
        while let Found::Frame(..) = self.next(Outstanding::wait)? {}
        Ok(self.summary)
    }
}

/// Number of warnings that MySQL 5.7 keeps by default (`max_error_count`), and that servers of this
/// crate send at most.
const MOST_WARNINGS: usize = 64;

enum Found {
    /// Kind of the frame, and start and end of its body.
    Frame(ServerKind, usize, usize),
    /// No frame is there yet. Never returned by a call that waits.
    Nothing,
    End,
}

fn parse(bytes: &[u8], dialect: Dialect) -> Result<Option<(Frame<'_>, usize)>, Error> {
    // The length of a frame was checked when it arrived.
    let limits = Limits { frame_bytes: u32::MAX, ..Limits::default() };
    Frame::parse(bytes, dialect, &limits).map_err(Error::malformed)
}

impl Summary {
    fn add(&mut self, notice: Notice) {
        match notice {
            Notice::Warning(warning) if self.warnings.len() < MOST_WARNINGS => {
                self.warnings.push(warning);
            }
            Notice::Warning(_) => self.warnings_left_out += 1,
            Notice::RowsAffected(rows) => self.affected = rows,
            Notice::InsertId(id) => self.insert_id = Some(id),
            Notice::Produced(text) => self.info = text,
            Notice::ServerState(bits) => self.server_state = bits,
            _ => {}
        }
    }

    /// Bytes of the fields whose length the server chooses.
    fn bytes(&self) -> usize {
        let warnings: usize = self.warnings.iter().map(Warning::encoded_len).sum();
        let feedback = self.feedback.as_ref().map_or(0, FetchDone::encoded_len);
        warnings + self.info.len() + feedback
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer")
            .field("columns", &self.columns.len())
            .field("ended", &self.result.is_some())
            .finish_non_exhaustive()
    }
}

/// First timestamp of the answer to a request for timestamps.
pub(super) fn timestamp(taken: &Taken, dialect: Dialect) -> Result<u64, Error> {
    match &taken.result {
        Some(Err(error)) => return Err(error.clone()),
        Some(Ok(())) => {}
        None => return Err(Error::unknown(ErrorKind::SessionEnded)),
    }
    let mut rest = &taken.bytes[..];
    while let Some((frame, bytes)) = parse(rest, dialect)? {
        if let ServerMessage::Tso(tso) =
            frame.server_message(&Limits::default()).map_err(Error::malformed)?
        {
            return match tso.error_no {
                0 => Ok(tso.ts),
                number => Err(Error::protocol(format!("timestamp error {number}"))),
            };
        }
        rest = &rest[bytes..];
    }
    Err(Error::protocol("no timestamp"))
}

//! Frames in, lines out.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

use epoll_group::codec::auth::{Challenge, Reply};
use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkJoiner};
use epoll_group::codec::frame::{Decoder, Dialect, Frame};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientKind, ClientMessage, ServerKind, ServerMessage};
use epoll_group::codec::proto::resultset::{FieldType, OriginalType};
use epoll_group::codec::row::cells;

use super::fields;
use super::input::Part;
use super::values::{digits, text, value};

/// Sender of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    #[default]
    Client,
    Server,
}

/// Counts of a dissection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) frames: usize,
    /// Rows whose columns were described, of chunks too.
    pub(crate) rows: usize,
    pub(crate) unknown: usize,
    pub(crate) errors: usize,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { frames, rows, unknown, errors } = self;
        write!(f, "{frames} frames, {rows} rows, {unknown} of unknown kind, {errors} errors")
    }
}

/// Shows frames in the order in which they come.
pub(crate) struct Dissector<'a, W> {
    out: &'a mut W,
    dialect: Dialect,
    limits: Limits,
    max_rows: usize,
    streams: HashMap<(u64, Side), Stream>,
    /// The result that each session of each connection is in.
    results: HashMap<(u64, u64), ResultSet>,
    tally: Tally,
}

/// One direction of a connection.
struct Stream {
    decoder: Decoder,
    /// Where the next frame begins.
    offset: usize,
    failed: bool,
}

/// Facts about a column that are needed to read its values.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) field_type: FieldType,
    pub(crate) original_type: OriginalType,
}

/// Columns of a result, and chunks that wait for their rest.
#[derive(Default)]
struct ResultSet {
    columns: Vec<Column>,
    joiner: Option<ChunkJoiner>,
    /// A column that comes now belongs to the next result.
    ended: bool,
}

impl<'a, W: Write> Dissector<'a, W> {
    pub(crate) fn new(dialect: Dialect, max_rows: usize, out: &'a mut W) -> Self {
        let limits = Limits::default();
        let (streams, results) = (HashMap::new(), HashMap::new());
        Self { out, dialect, limits, max_rows, streams, results, tally: Tally::default() }
    }

    /// Takes the next bytes of one direction, and shows their frames.
    pub(crate) fn part(&mut self, part: &Part, side: Side) -> io::Result<()> {
        let key = (part.connection, side);
        let mut stream = self.streams.remove(&key).unwrap_or_else(|| Stream {
            decoder: Decoder::with_dialect(self.limits, self.dialect),
            offset: 0,
            failed: false,
        });
        stream.decoder.feed(&part.bytes);
        loop {
            match stream.decoder.next_frame() {
                Ok(Some(frame)) => {
                    if !part.columns.is_empty() {
                        let columns = part.columns.clone();
                        let result = ResultSet { columns, ..ResultSet::default() };
                        self.results.insert((part.connection, frame.session()), result);
                    }
                    self.frame(part.connection, side, &frame, stream.offset)?;
                    stream.offset += frame.bytes().len();
                }
                Ok(None) => break,
                Err(error) => {
                    if !std::mem::replace(&mut stream.failed, true) {
                        let note = format!("no header at {:#x}: {error}", stream.offset);
                        self.error(&format!("{note}; this direction cannot be read on"))?;
                    }
                    break;
                }
            }
        }
        self.streams.insert(key, stream);
        Ok(())
    }

    /// Reports each direction that ends inside of a frame. Returns the counts.
    pub(crate) fn finish(mut self) -> io::Result<Tally> {
        let streams = std::mem::take(&mut self.streams);
        for ((_, side), stream) in streams {
            let held = stream.decoder.held_bytes();
            if held > 0 {
                let at = stream.offset;
                self.error(&format!("{side:?}: {held} bytes of a frame that is cut at {at:#x}"))?;
            }
        }
        Ok(self.tally)
    }

    fn frame(
        &mut self,
        connection: u64,
        side: Side,
        frame: &Frame<'_>,
        offset: usize,
    ) -> io::Result<()> {
        self.tally.frames += 1;
        let kind = frame.kind();
        let name = match side {
            Side::Client => ClientKind::from_number(kind).map(ClientKind::protocol_name),
            Side::Server => ServerKind::from_number(kind).map(ServerKind::protocol_name),
        };
        let (session, bytes) = (session(frame.session()), frame.body().len());
        let mark = if side == Side::Client { "C" } else { "S" };
        let name = name.unwrap_or("unknown");
        writeln!(self.out, "{offset:08x} {mark} {session} {name} ({kind}), {bytes} bytes")?;
        match side {
            Side::Client => self.client(frame),
            Side::Server => self.server(connection, frame),
        }
    }

    fn client(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        let message = match frame.client_message(&self.limits) {
            Ok(message) => message,
            Err(error) if frame.kind() == ClientKind::AuthenticateContinue.number() => {
                return self.error(&format!("body, with a proof and not shown: {error}"));
            }
            Err(error) => return self.body_error(frame, &error),
        };
        match message {
            ClientMessage::Unknown(..) => self.unknown(frame),
            ClientMessage::AuthenticateContinue(message) => {
                match Reply::parse(&message.auth_data) {
                    Ok(reply) => {
                        writeln!(self.out, "    schema: {}", text(reply.schema))?;
                        writeln!(self.out, "    user: {}", text(reply.user))?;
                        let proof = if reply.proof.is_some() { "there, not shown" } else { "none" };
                        writeln!(self.out, "    proof: {proof}")
                    }
                    Err(error) => self.error(&format!("auth_data: {error}")),
                }
            }
            _ => {
                let name = ClientKind::from_number(frame.kind()).and_then(proto::client_message);
                fields::write(self.out, name.unwrap_or_default(), frame.body())
            }
        }
    }

    fn server(&mut self, connection: u64, frame: &Frame<'_>) -> io::Result<()> {
        let message = match frame.server_message(&self.limits) {
            Ok(message) => message,
            Err(error) => return self.body_error(frame, &error),
        };
        let key = (connection, frame.session());
        let mut result = self.results.remove(&key).unwrap_or_default();
        match &message {
            ServerMessage::Unknown(..) => self.unknown(frame)?,
            ServerMessage::Row(_) => {
                self.row(&result, frame.body())?;
                result.ended = true;
            }
            ServerMessage::Chunk(_) => {
                self.chunk(&mut result, frame.body())?;
                result.ended = true;
            }
            _ => {
                let galaxy = frame.dialect() != Dialect::Legacy;
                let name = ServerKind::from_number(frame.kind())
                    .and_then(|kind| proto::server_message(kind, galaxy));
                fields::write(self.out, name.unwrap_or_default(), frame.body())?;
            }
        }
        match message {
            ServerMessage::ColumnMetaData(column) => {
                let name = column.name.as_deref().unwrap_or_default();
                result.describe(name, column.r#type, column.original_type);
            }
            ServerMessage::Notice(notice) => {
                let payload = notice.payload.as_deref().unwrap_or_default();
                if let Some(message) = proto::notice_message(notice.r#type) {
                    writeln!(self.out, "    {message}:")?;
                    fields::write(self.out, message, payload)?;
                }
            }
            ServerMessage::AuthenticateContinue(message) => {
                match Challenge::parse(&message.auth_data) {
                    Ok(challenge) => {
                        let bytes = challenge.hashed().len();
                        writeln!(self.out, "    challenge: {bytes} bytes are hashed")?;
                    }
                    Err(error) => self.error(&format!("auth_data: {error}"))?,
                }
            }
            ServerMessage::Row(_) | ServerMessage::Chunk(_) | ServerMessage::TokenDone(_) => {}
            _ => result.ended = true,
        }
        self.results.insert(key, result);
        Ok(())
    }

    fn row(&mut self, result: &ResultSet, body: &[u8]) -> io::Result<()> {
        let cells = cells(body).filter_map(Result::ok).collect::<Vec<_>>();
        if cells.len() != result.columns.len() {
            writeln!(self.out, "    (these columns were not described)")?;
            for (at, cell) in cells.iter().enumerate() {
                writeln!(self.out, "    [{at}]: {}", digits(cell.as_bytes()))?;
            }
            return Ok(());
        }
        self.tally.rows += 1;
        for (cell, column) in cells.iter().zip(&result.columns) {
            let name = &column.name;
            match cell.value(column.field_type, column.original_type) {
                Ok(found) => writeln!(self.out, "    {name} = {}", value(&found))?,
                Err(error) => {
                    let (field, bytes) = (column.field_type, digits(cell.as_bytes()));
                    self.error(&format!("{name}, a {field:?}: {error}: {bytes}"))?;
                }
            }
        }
        Ok(())
    }

    fn chunk(&mut self, result: &mut ResultSet, body: &[u8]) -> io::Result<()> {
        let frame = match ChunkFrame::parse(body) {
            Ok(frame) => frame,
            Err(error) => return self.error(&error.to_string()),
        };
        writeln!(self.out, "    rows: {}", frame.row_count())?;
        for (at, block) in frame.columns().enumerate() {
            let (bytes, nulls) = (block.values.len(), block.null_count(frame.row_count()));
            writeln!(
                self.out,
                "    column[{at}]: {nulls} NULL, {:?}, {bytes} bytes",
                block.member
            )?;
        }
        if result.columns.is_empty() {
            return writeln!(self.out, "    (the columns were not described)");
        }
        let limit = usize::try_from(self.limits.frame_bytes).unwrap_or(usize::MAX);
        let (columns, joiner) = (&result.columns, &mut result.joiner);
        let joiner = joiner.get_or_insert_with(|| {
            let kinds = columns
                .iter()
                .filter_map(|column| BlockKind::of_types(column.field_type, column.original_type));
            ChunkJoiner::new(&kinds.collect::<Vec<_>>(), limit)
        });
        let chunk = match joiner.push(frame) {
            Ok(Some(chunk)) => chunk,
            Ok(None) => return writeln!(self.out, "    (more columns follow)"),
            Err(error) => return self.error(&error.to_string()),
        };
        let mut rows = chunk.rows();
        let mut count = 0;
        loop {
            match rows.next_row() {
                Ok(Some(row)) if count < self.max_rows => {
                    let row: Vec<_> = row.iter().map(value).collect();
                    writeln!(self.out, "    row[{count}] = {}", row.join(", "))?;
                }
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(error) => return self.error(&error.to_string()),
            }
            count += 1;
        }
        if count > self.max_rows {
            writeln!(self.out, "    … {} rows more", count - self.max_rows)?;
        }
        self.tally.rows += count;
        Ok(())
    }

    fn unknown(&mut self, frame: &Frame<'_>) -> io::Result<()> {
        self.tally.unknown += 1;
        writeln!(self.out, "    body: {}", digits(frame.body()))
    }

    fn body_error(&mut self, frame: &Frame<'_>, error: &dyn fmt::Display) -> io::Result<()> {
        self.error(&format!("body: {error}"))?;
        writeln!(self.out, "    body: {}", digits(frame.body()))
    }

    fn error(&mut self, error: &str) -> io::Result<()> {
        self.tally.errors += 1;
        writeln!(self.out, "  ! {error}")
    }
}

impl ResultSet {
    fn describe(&mut self, name: &[u8], field_type: FieldType, original_type: OriginalType) {
        if std::mem::take(&mut self.ended) {
            self.columns.clear();
        }
        self.joiner = None;
        // The name goes to a terminal, which must not obey its control characters.
        let printable = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        let name = match String::from_utf8_lossy(name) {
            name if name.is_empty() => format!("[{}]", self.columns.len()),
            name => name.chars().map(printable).collect(),
        };
        self.columns.push(Column { name, field_type, original_type });
    }
}

/// Sessions for single statements have the highest bit set.
fn session(number: u64) -> String {
    match number.checked_sub(1 << 63) {
        Some(number) => format!("session auto-{number}"),
        None => format!("session {number}"),
    }
}

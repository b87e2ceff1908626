//! [`Reply`]: the assembled answer of a server to one request.

use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkJoiner};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{Notice, ServerMessage};
use epoll_group::codec::proto::connection::Capabilities;
use epoll_group::codec::proto::generic::Severity;
use epoll_group::codec::proto::generic::{ErrorReply, OkReply};
use epoll_group::codec::proto::notice::Warning;
use epoll_group::codec::proto::resultset::{ColumnMetaData, FetchDone, Row};
use epoll_group::codec::row::Cell;

use super::datum::Datum;
use super::legal::Asked;

/// An error that a server answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub fatal: bool,
    pub code: u32,
    pub state: String,
    pub text: String,
}

impl From<&ErrorReply> for Failure {
    fn from(error: &ErrorReply) -> Self {
        Self {
            fatal: error.severity == Some(Severity::Fatal),
            code: error.code,
            state: String::from_utf8_lossy(&error.sql_state).into_owned(),
            text: String::from_utf8_lossy(&error.msg).into_owned(),
        }
    }
}

/// The answer to one request, whole or as far as it came.
#[derive(Clone, Debug)]
pub struct Reply {
    pub session: u64,
    pub asked: Asked,
    /// True if the last frame has arrived.
    pub done: bool,
    pub columns: Vec<ColumnMetaData>,
    /// From rows or chunks; none if they are only counted.
    pub rows: Vec<Vec<Datum>>,
    pub row_count: u64,
    /// Chunk frames.
    pub chunks: usize,
    pub fetch_done: Option<FetchDone>,
    pub warnings: Vec<Warning>,
    /// Notices of kinds that have no other field here.
    pub notices: Vec<Notice>,
    pub affected: Option<u64>,
    pub insert_id: Option<u64>,
    /// Text about the statement, for people.
    pub produced: Option<Vec<u8>>,
    pub error: Option<Failure>,
    /// The error answered more requests than this one.
    pub shared: bool,
    /// Number of times that the server waited for an offer.
    pub token_done: usize,
    pub timestamp: Option<u64>,
    pub challenge: Option<Vec<u8>>,
    pub ok: Option<OkReply>,
    pub capabilities: Option<Capabilities>,
    /// All frames and their bytes, headers too.
    pub frames: usize,
    pub bytes: usize,
    joiner: Option<ChunkJoiner>,
}

impl Reply {
    pub fn new(session: u64, asked: Asked) -> Self {
        Self {
            session,
            asked,
            done: false,
            columns: Vec::new(),
            rows: Vec::new(),
            row_count: 0,
            chunks: 0,
            fetch_done: None,
            warnings: Vec::new(),
            notices: Vec::new(),
            affected: None,
            insert_id: None,
            produced: None,
            error: None,
            shared: false,
            token_done: 0,
            timestamp: None,
            challenge: None,
            ok: None,
            capabilities: None,
            frames: 0,
            bytes: 0,
            joiner: None,
        }
    }

    /// Adds a frame that is legal here; or says why its content is not right.
    pub fn add(
        &mut self,
        message: &ServerMessage,
        body: &[u8],
        keep_rows: bool,
    ) -> Result<(), String> {
        match message {
            ServerMessage::ColumnMetaData(column) => self.columns.push(column.clone()),
            ServerMessage::Row(row) => self.row(row, keep_rows)?,
            ServerMessage::Chunk(_) => self.chunk(body, keep_rows)?,
            ServerMessage::FetchDone(done) => {
                let pending = self.joiner.as_ref().map_or(0, ChunkJoiner::pending_columns);
                if pending > 0 {
                    return Err(format!("the last chunk has {pending} columns only"));
                }
                self.fetch_done = Some(done.clone());
            }
            ServerMessage::Notice(frame) => {
                match Notice::read(frame, &Limits::default()).map_err(|error| error.to_string())? {
                    Notice::Warning(warning) => self.warnings.push(warning),
                    Notice::RowsAffected(rows) => self.affected = Some(rows),
                    Notice::InsertId(id) => self.insert_id = Some(id),
                    Notice::Produced(text) => self.produced = Some(text),
                    other => self.notices.push(other),
                }
            }
            ServerMessage::Error(error) => self.error = Some(error.into()),
            ServerMessage::TokenDone(_) => self.token_done += 1,
            ServerMessage::Tso(tso) if tso.error_no == 0 => self.timestamp = Some(tso.ts),
            ServerMessage::Tso(tso) => return Err(format!("timestamp error {}", tso.error_no)),
            ServerMessage::AuthenticateContinue(data) => {
                self.challenge = Some(data.auth_data.clone());
            }
            ServerMessage::Ok(ok) => self.ok = Some(ok.clone()),
            ServerMessage::Capabilities(capabilities) => {
                self.capabilities = Some(capabilities.clone());
            }
            _ => {}
        }
        Ok(())
    }

    fn row(&mut self, row: &Row, keep: bool) -> Result<(), String> {
        let (found, expected) = (row.field.len(), self.columns.len());
        if found != expected {
            return Err(format!("a row of {found} cells, but {expected} columns"));
        }
        let cells = self.columns.iter().zip(&row.field).map(|(column, cell)| {
            Cell::new(cell).value(column.r#type, column.original_type).map(Datum::from)
        });
        let row = cells.collect::<Result<Vec<_>, _>>().map_err(|error| error.to_string())?;
        self.row_count += 1;
        if keep {
            self.rows.push(row);
        }
        Ok(())
    }

    fn chunk(&mut self, body: &[u8], keep: bool) -> Result<(), String> {
        self.chunks += 1;
        if self.joiner.is_none() {
            let kinds = self.columns.iter().map(|column| {
                BlockKind::of_types(column.r#type, column.original_type).ok_or("no kind")
            });
            let kinds = kinds.collect::<Result<Vec<_>, _>>()?;
            self.joiner = Some(ChunkJoiner::new(&kinds, 64 << 20));
        }
        let joiner = self.joiner.as_mut().expect("made above");
        let frame = ChunkFrame::parse(body).map_err(|error| error.to_string())?;
        let Some(chunk) = joiner.push(frame).map_err(|error| error.to_string())? else {
            return Ok(());
        };
        let mut rows = chunk.rows();
        while let Some(row) = rows.next_row().map_err(|error| error.to_string())? {
            self.row_count += 1;
            if keep {
                self.rows.push(row.iter().copied().map(Datum::from).collect());
            }
        }
        Ok(())
    }

    /// This reply, which is no error.
    #[track_caller]
    pub fn good(self) -> Self {
        assert!(self.done, "the reply has no end: {self:?}");
        assert_eq!(self.error, None, "after {} rows", self.row_count);
        self
    }

    /// The error that this reply is.
    #[track_caller]
    pub fn failure(self) -> Failure {
        assert!(self.error.is_some(), "no error: {self:?}");
        self.error.expect("checked above")
    }

    /// The only cell of the only row of this reply, which is no error.
    #[track_caller]
    pub fn one(self) -> Datum {
        let mut reply = self.good();
        let shape = (reply.rows.len(), reply.columns.len());
        assert_eq!(shape, (1, 1), "rows and columns of {reply:?}");
        reply.rows.remove(0).remove(0)
    }

    /// The labels of the columns.
    pub fn labels(&self) -> Vec<String> {
        let label = |column: &ColumnMetaData| {
            let name = column.name.as_deref().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        };
        self.columns.iter().map(label).collect()
    }
}

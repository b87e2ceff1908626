//! The protocol of the servers that give threads to clients: login, capabilities, new session, statements in
//! text form, close.
//!
//! That is enough for a benchmark. All other requests are answered with an error. The codec is the
//! library's.

#![expect(single_use_lifetimes, reason = "`impl Trait` takes no other on stable")]

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};

use epoll_group::codec::auth::{Reply, SALT_BYTES, StoredPassword, printable_salt};
use epoll_group::codec::chunk::{BlockKind, ChunkWriter};
use epoll_group::codec::encoder::{Encoder, Metadata, OutBuffer};
use epoll_group::codec::error::{GENERAL_STATE, code};
use epoll_group::codec::frame::Frame;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};
use epoll_group::codec::proto::connection::{Capabilities, Capability};
use epoll_group::codec::proto::generic::Severity;
use epoll_group::codec::proto::session::{AuthenticateContinue, AuthenticateOk};
use epoll_group::codec::proto::value::{Any, AnyType, Scalar};
use epoll_group::codec::row::Column;
use epoll_group::codec::value::Value;
use epoll_group::session::SessionError;

/// Runs the statements. One engine fits all servers.
pub trait Engine: Send + Sync + 'static {
    /// Data of one session.
    type Session: Default + Send + 'static;

    /// Runs one statement. Threads of many sessions call this at once.
    ///
    /// # Errors
    /// Sent to the client after the rows that were written.
    fn execute(
        &self,
        session: &mut Self::Session,
        sql: &[u8],
        out: &mut impl Answer,
    ) -> Result<Outcome, SessionError>;

    /// True if the session may hold a lock that others wait for.
    fn holds_lock(_: &Self::Session) -> bool {
        false
    }
}

/// Output of a statement.
pub trait Answer {
    /// # Errors
    /// They cannot be encoded.
    fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError>;

    /// # Errors
    /// The first value that is an error.
    fn row<'v>(
        &mut self,
        values: impl Iterator<Item = Result<Value<'v>, SessionError>>,
    ) -> Result<(), SessionError>;
}

/// End of a statement.
#[derive(Clone, Copy, Debug)]
pub enum Outcome {
    /// It returns rows, possibly none.
    Result,
    /// It has changed this many rows.
    Changed(u64),
}

/// Account that may log in.
#[derive(Clone, Debug)]
pub struct Account {
    user: Vec<u8>,
    password: StoredPassword,
}

/// Request of a client that has logged in.
#[derive(Debug)]
pub enum Request {
    Open,
    Statement(Statement),
    Close,
}

#[derive(Debug)]
pub struct Statement {
    sql: Vec<u8>,
    metadata: Metadata,
    /// Set if its rows are to come in chunks.
    in_chunks: bool,
}

/// Answer of a thread, which sends it in parts.
struct Sending<'a, F> {
    id: u64,
    metadata: Metadata,
    /// Present while the rows go into a chunk.
    chunks: Option<ChunkWriter>,
    in_chunks: bool,
    out: &'a mut OutBuffer,
    /// Sends the buffer and empties it.
    send: F,
}

/// State of one connection.
#[derive(Debug, Default)]
pub struct Client {
    login: Login,
    limits: Limits,
}

#[derive(Debug, Default)]
enum Login {
    #[default]
    Expected,
    Challenged([u8; SALT_BYTES]),
    Done,
}

/// Bytes of rows that are sent before the answer is complete, as in the library.
const FULL: usize = 16 << 10;
/// Bit of session ids that need no opening, which are not served here.
const AUTO_COMMIT: u64 = 1 << 63;

impl Account {
    pub fn new(user: &str, password: &str) -> Self {
        Self { user: user.into(), password: StoredPassword::of(password.as_bytes()) }
    }

    fn accepts(&self, challenge: &[u8; SALT_BYTES], auth_data: &[u8]) -> bool {
        Reply::parse(auth_data).is_ok_and(|reply| {
            reply.user == self.user && self.password.accepts(challenge, reply.proof.as_ref())
        })
    }
}

impl Client {
    /// The request of a frame. `None`: the frame is done. Its answer, if it needs one, is in `out`.
    ///
    /// # Errors
    /// The frame breaks the protocol.
    pub fn take(
        &mut self,
        frame: &Frame<'_>,
        account: &Account,
        out: &mut OutBuffer,
    ) -> io::Result<Option<Request>> {
        let id = frame.session();
        let message = frame.client_message(&self.limits).map_err(broken)?;
        let mut out = Encoder::new(out, id);
        let answer = match (&self.login, message) {
            (_, ClientMessage::CapabilitiesGet) => capabilities(),
            (Login::Done, message) => return asked(id, message, &mut out),
            (Login::Expected, ClientMessage::AuthenticateStart(_)) => {
                let challenge = challenge();
                self.login = Login::Challenged(challenge);
                let auth_data = challenge.to_vec();
                ServerMessage::AuthenticateContinue(AuthenticateContinue { auth_data })
            }
            (Login::Challenged(challenge), ClientMessage::AuthenticateContinue(message)) => {
                if !account.accepts(challenge, &message.auth_data) {
                    self.login = Login::Expected;
                    let text = "Invalid user or password";
                    refuse(&mut out, Severity::Error, code::ACCESS_DENIED, text)?;
                    return Ok(None);
                }
                self.login = Login::Done;
                ServerMessage::AuthenticateOk(AuthenticateOk { auth_data: Some(Vec::new()) })
            }
            _ => {
                refuse(&mut out, Severity::Fatal, code::SERVER, "Login expected.")?;
                return Ok(None);
            }
        };
        out.message(&answer).map_err(broken)?;
        Ok(None)
    }
}

impl Statement {
    /// Runs the statement and writes its answer. Calls `send` when the buffer is full.
    ///
    /// # Errors
    /// The answer cannot be encoded.
    pub fn run<E: Engine>(
        &self,
        id: u64,
        engine: &E,
        session: &mut E::Session,
        out: &mut OutBuffer,
        send: impl FnMut(&mut OutBuffer) -> io::Result<()>,
    ) -> io::Result<()> {
        let &Self { metadata, in_chunks, .. } = self;
        let mut sending = Sending { id, metadata, chunks: None, in_chunks, out, send };
        let outcome = engine.execute(session, &self.sql, &mut sending);
        let outcome = outcome.and_then(|outcome| sending.end_chunk().map(|()| outcome));
        let mut out = sending.encoder().0;
        match outcome {
            Ok(Outcome::Result) => {
                out.fetch_done();
                out.rows_affected(0);
            }
            Ok(Outcome::Changed(rows)) => out.rows_affected(rows),
            Err(error) => {
                let SessionError { severity, code, state, message, .. } = error;
                return out.error(severity, code, &state, &message).map_err(broken);
            }
        }
        out.execute_ok();
        Ok(())
    }
}

impl<F> Sending<'_, F> {
    fn encoder(&mut self) -> (Encoder<'_>, &mut Option<ChunkWriter>) {
        (Encoder::new(self.out, self.id).metadata(self.metadata), &mut self.chunks)
    }

    fn end_chunk(&mut self) -> Result<(), SessionError> {
        let (mut out, chunks) = self.encoder();
        Ok(chunks.iter_mut().try_for_each(|chunk| chunk.write_to(&mut out))?)
    }
}

impl<F: FnMut(&mut OutBuffer) -> io::Result<()>> Answer for Sending<'_, F> {
    fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError> {
        if self.in_chunks {
            let kind =
                |column: &Column<'_>| BlockKind::of_types(column.field_type, column.original_type);
            let kinds: Option<Vec<_>> = columns.iter().map(kind).collect();
            self.chunks = kinds.map(|kinds| ChunkWriter::new(&kinds));
        }
        let (mut out, _) = self.encoder();
        Ok(columns.iter().try_for_each(|column| out.column(column))?)
    }

    fn row<'v>(
        &mut self,
        values: impl Iterator<Item = Result<Value<'v>, SessionError>>,
    ) -> Result<(), SessionError> {
        match self.encoder() {
            (_, Some(chunk)) => {
                let mut row = chunk.begin_row();
                for value in values {
                    row.value(&value?);
                }
                row.finish()?;
                if chunk.is_full() {
                    self.end_chunk()?;
                }
            }
            (mut out, None) => {
                let mut row = out.begin_row();
                for value in values {
                    row.value(&value?);
                }
                row.finish()?;
            }
        }
        if self.out.len() < FULL {
            return Ok(());
        }
        // The end of the answer meets the same error of the socket.
        (self.send)(self.out).map_err(|_| SessionError::interrupted())
    }
}

/// Writes that a session was opened or closed.
pub fn done(id: u64, out: &mut OutBuffer) {
    Encoder::new(out, id).ok(None);
}

/// Writes that a session does not exist, or cannot be opened.
///
/// # Errors
/// The text cannot be encoded.
pub fn refuse_session(id: u64, text: &str, out: &mut OutBuffer) -> io::Result<()> {
    refuse(&mut Encoder::new(out, id), Severity::Fatal, code::SERVER, text)
}

fn asked(id: u64, message: ClientMessage, out: &mut Encoder<'_>) -> io::Result<Option<Request>> {
    match message {
        ClientMessage::SessionNew if id & AUTO_COMMIT == 0 => return Ok(Some(Request::Open)),
        ClientMessage::SessionClose => return Ok(Some(Request::Close)),
        // The socket alone limits what is sent. Clients accept that.
        ClientMessage::TokenOffer(_) => return Ok(None),
        ClientMessage::ExecSql(statement) => {
            let metadata = match statement.compact_metadata.unwrap_or_default() {
                true => Metadata::Compact,
                false => Metadata::Full,
            };
            let in_chunks = statement.chunk_result.unwrap_or_default();
            match statement.stmt {
                Some(sql) if statement.args.is_empty() => {
                    let statement = Statement { sql, metadata, in_chunks };
                    return Ok(Some(Request::Statement(statement)));
                }
                Some(_) => {}
                None => {
                    // There is no cache of digests. The client must send the text.
                    let text = "do not exist query!";
                    refuse(out, Severity::Error, code::CACHE_MISS, text)?;
                    return Ok(None);
                }
            }
        }
        _ => {}
    }
    refuse(out, Severity::Error, code::SERVER, "Not support for polarx rpc.")?;
    Ok(None)
}

fn refuse(out: &mut Encoder<'_>, severity: Severity, code: u32, text: &str) -> io::Result<()> {
    out.error(severity, code, GENERAL_STATE, text).map_err(broken)
}

fn capabilities() -> ServerMessage {
    let value =
        Any { r#type: AnyType::Scalar, scalar: Some(Scalar::unsigned(1)), ..Any::default() };
    let capabilities = vec![Capability { name: b"polarx_rpc".to_vec(), value }];
    ServerMessage::Capabilities(Capabilities { capabilities })
}

/// A new challenge. The seed of a hash map is random enough for a benchmark.
fn challenge() -> [u8; SALT_BYTES] {
    let mut random = [0; SALT_BYTES];
    for (place, byte) in random.iter_mut().enumerate() {
        *byte = RandomState::new().hash_one(place) as u8;
    }
    printable_salt(random)
}

/// The stream cannot be parsed.
pub fn broken(error: impl std::error::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error.to_string())
}

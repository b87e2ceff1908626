//! The protocol of the servers that give threads to clients: login, capabilities, new session, statements in
//! text form, close.
//!
//! That is enough for a benchmark. All other requests are answered with an error. The codec is the
//! library's.

#![expect(single_use_lifetimes, reason = "`impl Trait` takes no other on stable")]

use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};

use epoll_group::codec::auth::{Reply, SALT_BYTES, StoredPassword, printable_salt};
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
    /// Runs one statement. Threads of many sessions call this at once.
    ///
    /// # Errors
    /// Sent to the client after the rows that were written.
    fn execute(&self, sql: &[u8], out: &mut impl Answer) -> Result<Outcome, SessionError>;
}

/// Output of a statement.
pub trait Answer {
    /// # Errors
    /// They cannot be encoded.
    fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError>;

    /// # Errors
    /// The first value that is one.
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
    /// The request of a frame. `None`: the frame is answered already, in `out`.
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
    /// Runs the statement and writes its answer.
    ///
    /// # Errors
    /// The answer cannot be encoded.
    pub fn run(&self, id: u64, engine: &impl Engine, out: &mut OutBuffer) -> io::Result<()> {
        let mut out = Encoder::new(out, id).metadata(self.metadata);
        match engine.execute(&self.sql, &mut out) {
            Ok(Outcome::Result) => {
                out.fetch_done();
                out.rows_affected(0);
            }
            Ok(Outcome::Changed(rows)) => out.rows_affected(rows),
            Err(error) => {
                let (severity, code, state) = (error.severity(), error.code(), error.state());
                return out.error(severity, code, state, error.message()).map_err(broken);
            }
        }
        out.execute_ok();
        Ok(())
    }
}

impl Answer for Encoder<'_> {
    fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError> {
        Ok(columns.iter().try_for_each(|column| self.column(column))?)
    }

    fn row<'v>(
        &mut self,
        values: impl Iterator<Item = Result<Value<'v>, SessionError>>,
    ) -> Result<(), SessionError> {
        self.try_row(|cells| {
            for value in values {
                cells.value(&value?);
            }
            Ok(())
        })
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
        ClientMessage::ExecSql(statement) => {
            let metadata = match statement.compact_metadata.unwrap_or_default() {
                true => Metadata::Compact,
                false => Metadata::Full,
            };
            match statement.stmt {
                Some(sql) if statement.args.is_empty() => {
                    return Ok(Some(Request::Statement(Statement { sql, metadata })));
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

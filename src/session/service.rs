//! [`Service`]: what the embedder implements.

use std::fmt;
use std::sync::Arc;

use super::auth::Login;
use super::error::{AuthError, SessionError};
use super::reply::Reply;
use super::request::Request;
use crate::net::{Address, ConnectionId};

/// A database, or whatever answers statements.
///
/// One value serves all connections of a [`Server`](super::Server), from many threads; what belongs
/// to one session is a [`Session`](Self::Session), which is never used by two threads at once. All
/// calls may wait; those that wait for long should say so (see [`stall`](crate::stall)). A panic ends
/// the session with a fatal error to its client and is counted.
///
/// ```
/// use epoll_group::Runtime;
/// use epoll_group::codec::auth::StoredPassword;
/// use epoll_group::codec::column::Column;
/// use epoll_group::session::{
///     Account, AuthError, Cancel, Login, Peer, Reply, Request, Server, Service, SessionError, SessionId,
/// };
///
/// struct One(StoredPassword);
///
/// impl Service for One {
///     type Session = ();
///
///     fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
///         login.check((login.user() == b"app").then_some(&self.0))?; // same time for any user
///         Ok(Account::new("app"))
///     }
///
///     fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
///         Ok(((), Cancel::none()))
///     }
///
///     fn execute(&self, _: &mut (), request: Request<'_>, reply: &mut Reply<'_>) -> Result<(), SessionError> {
///         match request {
///             Request::Sql(sql) if sql.text() == b"select 1" => {
///                 reply.columns(&[Column::signed("1")])?;
///                 reply.row(|row| row.int(1)) // an announced wait if the client does not read
///             }
///             _ => Err(SessionError::unsupported("not here")),
///         }
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder().start()?;
/// runtime.listen("127.0.0.1:0", Server::new(One(StoredPassword::of(b"secret"))))?;
/// # Ok(())
/// # }
/// ```
pub trait Service: Send + Sync + 'static {
    /// What belongs to one session.
    type Session: Send + 'static;

    /// Decides about a login. [`Login::check`] does the comparison, in the same time for a user that
    /// does not exist; call it also then.
    ///
    /// Runs before anything else on its connection.
    ///
    /// # Errors
    ///
    /// An [`AuthError`] refuses the login; the client may try again, up to `max_login_attempts`.
    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError>;

    /// Opens a session, on a worker, before its first request.
    ///
    /// The [`Cancel`] that comes with it is how a client interrupts what the session is doing.
    ///
    /// # Errors
    ///
    /// Goes to the client as a fatal error: there is no such session then.
    fn open(&self, peer: &Peer, id: SessionId) -> Result<(Self::Session, Cancel), SessionError>;

    /// Runs one request of a session and writes its reply.
    ///
    /// The ends of the reply are written by the layer: behind rows, behind a change that
    /// [`Reply::affected`] reported, or behind the error that is returned.
    ///
    /// # Errors
    ///
    /// Goes to the client behind what was written. One that is
    /// [fatal](SessionError::fatal) ends the session.
    fn execute(
        &self,
        session: &mut Self::Session,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError>;

    /// Whether the session may hold what others wait for: asked after each request. Its next
    /// requests then go first, and get a thread also when all others wait.
    fn in_transaction(&self, session: &Self::Session) -> bool {
        let _ = session;
        false
    }

    /// The request that has just ended was cancelled, and its [`Cancel`] called: the place to clear
    /// what that left, so that the next request does not find it.
    fn cancelled(&self, session: &mut Self::Session) {
        let _ = session;
    }

    /// The session has ended, for whatever reason: its last call, on a worker.
    fn closed(&self, session: Self::Session) {
        drop(session);
    }

    /// The first of `count` timestamps in a row, none of which is given to anybody else.
    ///
    /// # Errors
    ///
    /// Goes to the client; that is the default.
    fn timestamp(&self, peer: &Peer, count: u32) -> Result<u64, SessionError> {
        let _ = (peer, count);
        Err(SessionError::unsupported("Failed to get tso."))
    }
}

/// Who logged in. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Account {
    name: Arc<str>,
}

impl Account {
    /// An account by its name, which also keeps apart what clients of different accounts cache.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.into() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What keeps apart what it caches.
    pub(super) fn key(&self) -> Arc<[u8]> {
        Arc::clone(&self.name).into()
    }
}

/// The other end of a connection, logged in.
#[derive(Clone, Debug)]
pub struct Peer {
    pub(super) account: Account,
    pub(super) address: Address,
    pub(super) connection: ConnectionId,
}

impl Peer {
    /// Who logged in.
    #[must_use]
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// From where.
    #[must_use]
    pub const fn address(&self) -> &Address {
        &self.address
    }

    /// On which connection.
    #[must_use]
    pub const fn connection(&self) -> ConnectionId {
        self.connection
    }
}

/// Identifies a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SessionId {
    pub(super) wire: u64,
    pub(super) number: u32,
}

/// Session ids with this bit are of sessions for one statement.
pub(super) const AUTO_COMMIT: u64 = 1 << 63;

impl SessionId {
    /// The number that the client chose, unique among the open sessions of its connection.
    #[must_use]
    pub const fn wire(self) -> u64 {
        self.wire
    }

    /// A number of the server, from 1, not used again before 2³² sessions: what clients see as
    /// `connection_id()`.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.number
    }

    /// Whether the session is there for one statement only, which commits by itself.
    #[must_use]
    pub const fn is_auto_commit(self) -> bool {
        self.wire & AUTO_COMMIT != 0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x})", self.number, self.wire)
    }
}

/// Why a request is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The client interrupts the statement; the session goes on.
    Query,
    /// The client ends the session.
    Session,
    /// `request_timeout` has passed.
    Deadline,
    /// The connection has ended, or the runtime does.
    Connection,
}

/// How a session is interrupted from another thread.
pub struct Cancel(Option<Box<dyn Fn(CancelReason) + Send + Sync>>);

impl Cancel {
    /// Calls `code` while a request of the session runs that is to be cut short, at most once a
    /// request and never between two. It must be quick and must not wait for that request; what it
    /// causes (an error of the engine, say) is returned by [`Service::execute`].
    #[must_use]
    pub fn new(code: impl Fn(CancelReason) + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(code)))
    }

    /// Nothing: requests of this session end by themselves, or look at
    /// [`Reply::is_cancelled`].
    #[must_use]
    pub const fn none() -> Self {
        Self(None)
    }

    pub(super) fn call(&self, reason: CancelReason) {
        if let Some(code) = &self.0 {
            code(reason);
        }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cancel").field("present", &self.0.is_some()).finish()
    }
}

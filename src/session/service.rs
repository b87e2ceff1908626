//! [`Service`]: the trait that a database implements.

use super::accounts::{Account, Peer};
use super::auth::Login;
use super::error::{AuthError, SessionError};
use super::reply::Reply;
use super::request::Request;
use super::session_shared::{Cancel, SessionId};
use crate::codec::auth::DigestSalt;

/// Database, or another program that answers statements.
///
/// One value serves all connections of a [`Server`](super::Server), from many threads. Data of one
/// session is a [`Session`](Self::Session), which two threads never use at once. All calls may
/// wait; long waits should be [announced](crate::stall). A panic is counted. In `open` and
/// `execute` it ends the session with a fatal error, during the login it closes the connection, and
/// in `timestamp` the client gets an error.
///
/// ```
/// use epoll_group::Runtime;
/// use epoll_group::codec::auth::StoredPassword;
/// use epoll_group::codec::row::Column;
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
///         login.check((login.user == b"app").then_some(&self.0))?; // same time for any user
///         Ok(Account::new("app"))
///     }
///
///     fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
///         Ok(((), Cancel::default()))
///     }
///
///     fn execute(&self, _: &mut (), request: Request<'_>, reply: &mut Reply<'_>) -> Result<(), SessionError> {
///         match request {
///             Request::Sql(sql) if sql.text == b"select 1" => {
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
/// let listener = runtime.listen("127.0.0.1:0", Server::new(One(StoredPassword::of(b"secret"))))?;
/// println!("listening on {}", listener.local_addr());
/// # Ok(())
/// # }
/// ```
pub trait Service: Send + Sync + 'static {
    /// Data of one session.
    type Session: Send + 'static;

    /// Accepts or refuses a login. [`Login::check`] compares the password. It takes the same time
    /// for an unknown user, so call it for unknown users too.
    ///
    /// Runs before any other call for the connection but [`digest_salt`](Self::digest_salt).
    ///
    /// # Errors
    ///
    /// An [`AuthError`] refuses the login. The client may try again, up to `max_login_attempts`.
    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError>;

    /// Returns the salt of a user's digest, for accounts whose passwords are kept as SHA-256-crypt
    /// digests (MySQL's `caching_sha2_password`, [`PasswordDigest`](crate::codec::auth::PasswordDigest)).
    ///
    /// Called at the start of a login, if the client names the user there, as newer clients do. The
    /// client then proves that it knows the digest. An older client cannot log in to such an account.
    /// This library's client refuses more than 10 000 rounds.
    ///
    /// A client needs no password for this, and may ask as often as it connects, so the look-up should be
    /// cheap. A client learns whether a name has a digest, and the salt. To hide which names exist, keep
    /// all passwords as digests with the same rounds, and return a salt for unknown names too, made from
    /// the name and a secret.
    fn digest_salt(&self, user: &[u8]) -> Option<DigestSalt> {
        let _ = user;
        None
    }

    /// Opens a session, on a worker, before its first request.
    ///
    /// The returned [`Cancel`] lets a client interrupt a request of the session.
    ///
    /// # Errors
    ///
    /// The client gets the error as a fatal one, and the session is not opened.
    fn open(&self, peer: &Peer, id: SessionId) -> Result<(Self::Session, Cancel), SessionError>;

    /// Runs one request of a session and writes its reply.
    ///
    /// Behind the rows the layer writes the [end](Reply::ending) of the reply, or the returned error.
    ///
    /// # Errors
    ///
    /// The client gets the error behind the rows written before. A [fatal](SessionError::fatal)
    /// error ends the session.
    fn execute(
        &self,
        session: &mut Self::Session,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError>;

    /// Returns true if the session may hold locks that others wait for. Called after each request, and
    /// after a handler that leaves the rest of its answer to another thread, a source or a relay. For a
    /// source or relay it says whether the rest may take locks too. The rest and the next requests of
    /// such a session go first, and get a thread even if all ordinary threads wait.
    fn in_transaction(&self, session: &Self::Session) -> bool {
        let _ = session;
        false
    }

    /// Called when a cancelled request has ended, after its [`Cancel`] was called. Clears the
    /// effects of the call, so that they do not reach the next request.
    fn cancelled(&self, session: &mut Self::Session) {
        let _ = session;
    }

    /// Called when the session has ended, for any reason. It is the last call for the session, on a
    /// worker.
    fn closed(&self, session: Self::Session) {
        drop(session);
    }

    /// Returns the first of `count` consecutive timestamps. No other call may return any of them.
    ///
    /// # Errors
    ///
    /// The client gets the error. The default implementation returns one.
    fn timestamp(&self, peer: &Peer, count: u32) -> Result<u64, SessionError> {
        let _ = (peer, count);
        Err(SessionError::unsupported("Failed to get tso."))
    }
}

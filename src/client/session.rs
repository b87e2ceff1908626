//! [`Session`]: one session of a server.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::answer::{Answer, Summary};
use super::deadline;
use super::error::Error;
use super::fleet::Fleet;
use super::link::Link;
use super::pending::{Outstanding, Pending};
use super::request::Request;

/// Session of a server. Its requests run in order, and effects of statements on the session stay.
///
/// *Shape*: used by one thread at a time; it can be sent between threads. When it is dropped,
/// requests that a caller wants are still answered. Then the server closes it and rolls back an open
/// transaction.
///
/// If its connection ends, the session has [ended](Self::is_alive), and the
/// [`Client`](super::Client) can open another one. [`Error::fate`] tells the fate of its
/// outstanding requests.
pub struct Session {
    fleet: Arc<Fleet>,
    link: Arc<Link>,
    id: u64,
    /// Set when the session has a canceller.
    is_cancellable: AtomicBool,
}

impl Session {
    pub(super) const fn new(fleet: Arc<Fleet>, link: Arc<Link>, id: u64) -> Self {
        Self { fleet, link, id, is_cancellable: AtomicBool::new(false) }
    }

    /// Connection of the session.
    pub(super) fn into_link(self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Number of the session on its connection. It is not reused.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Number of the connection. It is not reused.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.link.number
    }

    /// Sends a request without waiting. Several requests may be outstanding, at most
    /// [`max_outstanding`](super::Options::max_outstanding); they are answered in order.
    ///
    /// An answer whose rows exceed `window_bytes` delays the later ones until it is read or
    /// dropped. A caller that waits for a later answer before it has read the earlier one waits
    /// until the deadline.
    ///
    /// # Errors
    ///
    /// Returns an error if the request was not sent: the session has ended, the request is too long,
    /// or too many requests are outstanding
    /// ([`TooManyOutstanding`](super::ErrorKind::TooManyOutstanding)).
    pub fn send(&mut self, request: impl Into<Request>) -> Result<Pending, Error> {
        let request = request.into();
        let options = &self.fleet.options;
        let deadline = deadline(request.timeout.unwrap_or(options.request_timeout));
        let wire = request.into_wire(Some(options.window_kib()));
        let seq = self.link.act(|state, _| state.ask(self.id, wire, deadline))?;
        let (link, fleet) = (Arc::clone(&self.link), Arc::clone(&self.fleet));
        Ok(Pending(Outstanding::new(link, (self.id, seq), deadline, fleet)))
    }

    /// Sends a request and waits for its answer, or for the first part.
    ///
    /// # Errors
    ///
    /// Returns the error of the request, with its fate.
    pub fn execute(&mut self, request: impl Into<Request>) -> Result<Answer, Error> {
        self.send(request)?.wait()
    }

    /// Sends a request, waits for the end of its answer, and discards the rows.
    ///
    /// # Errors
    ///
    /// Errors of [`execute`](Self::execute).
    pub fn run(&mut self, request: impl Into<Request>) -> Result<Summary, Error> {
        self.execute(request)?.finish()
    }

    /// Sends a request and calls `code` with its answer. No thread waits. If [`send`](Self::send)
    /// fails, the call is made on this thread, otherwise as in [`Pending::then`].
    pub fn execute_then(
        &mut self,
        request: impl Into<Request>,
        code: impl FnOnce(Result<Answer, Error>) + Send + 'static,
    ) {
        match self.send(request) {
            Ok(pending) => pending.then(code),
            Err(error) => code(Err(error)),
        }
    }

    /// Handle by which another thread interrupts requests of this session.
    ///
    /// From now on the session sends one request at a time. The protocol's kill names a session and
    /// no request, so a late one would reach the next request on the wire.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        // Acquire, Release: a thread that finds it set returns after the change.
        if !self.is_cancellable.load(Ordering::Acquire) {
            self.link.act(|state, _| state.make_cancellable(self.id));
            self.is_cancellable.store(true, Ordering::Release);
        }
        Canceller { link: Arc::clone(&self.link), id: self.id }
    }

    /// Returns true if the session is usable: neither the server nor the connection has ended it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.link.look_at(|state| state.is_alive(self.id))
    }

    /// Returns true if the session is usable and has no unanswered request. So no answer of an
    /// earlier user can delay the next one.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.link.look_at(|state| state.is_session_idle(self.id))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.link.act(|state, now| state.close(self.id, now));
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("connection", &self.link.number)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

/// Handle that interrupts requests of a session, from any thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Canceller {
    link: Arc<Link>,
    id: u64,
}

impl Canceller {
    /// Interrupts the running statement of the session. It then fails with error 1317, unless it has
    /// ended before. Does not wait.
    ///
    /// Never interrupts a statement behind it. If several statements were sent before the session had
    /// a canceller, only the last one can be interrupted.
    pub fn cancel(&self) {
        self.link.act(|state, _| state.cancel(self.id));
    }
}

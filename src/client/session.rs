//! [`Session`]: one session of a server, and how it is used.

use std::fmt;
use std::sync::Arc;

use super::answer::{Answer, Summary};
use super::deadline;
use super::error::Error;
use super::exchange::Asked;
use super::fleet::Fleet;
use super::link::Link;
use super::pending::{Pending, Place};
use super::request::Request;

/// A session: what it is asked is done in order, and what a statement changes of it stays.
///
/// *Shape*: used by one thread at a time, sent between threads. Dropped, it is closed at the server,
/// where an open transaction is rolled back; what it was asked and is waited for is answered before.
///
/// Its connection may end: then it has [ended](Self::is_alive), and another is to be had from the
/// [`Client`](super::Client). What was asked of it is told apart by [`Error::fate`].
pub struct Session {
    fleet: Arc<Fleet>,
    link: Arc<Link>,
    id: u64,
}

impl Session {
    pub(super) const fn new(fleet: Arc<Fleet>, link: Arc<Link>, id: u64) -> Self {
        Self { fleet, link, id }
    }

    /// Its connection.
    pub(super) fn into_link(self) -> Arc<Link> {
        Arc::clone(&self.link)
    }

    /// Its number on its connection. Numbers are not used again.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Number of its connection, which is not used again.
    #[must_use]
    pub fn connection(&self) -> u64 {
        self.link.number
    }

    /// Sends a request. Does not wait: several may be on their way, and are answered in order.
    ///
    /// One with more rows than `window_bytes` holds up those behind it until it is read, or dropped: who
    /// waits for a later one first waits for ever, or until the deadline.
    ///
    /// # Errors
    ///
    /// It was not sent: the session has ended, or the request is too long.
    pub fn send(&mut self, request: impl Into<Request>) -> Result<Pending, Error> {
        let request = request.into();
        let options = &self.fleet.options;
        let deadline = deadline(request.timeout.unwrap_or(options.request_timeout));
        let wire = request.into_wire(Some(options.window_kib()));
        let asked = if wire.has_rows { Asked::Statement } else { Asked::Plain };
        let seq = self.link.act(|state, _| state.ask(self.id, asked, wire, deadline))?;
        let place = Place {
            link: Arc::clone(&self.link),
            session: self.id,
            seq,
            deadline,
            fleet: Arc::clone(&self.fleet),
        };
        Ok(Pending { at: Some(place) })
    }

    /// Sends a request and waits for its answer, as far as that comes with its beginning.
    ///
    /// # Errors
    ///
    /// What went wrong, and what became of the request.
    pub fn execute(&mut self, request: impl Into<Request>) -> Result<Answer, Error> {
        self.send(request)?.wait()
    }

    /// Sends a request and waits for the end of its answer, whose rows are thrown away.
    ///
    /// # Errors
    ///
    /// Those of [`execute`](Self::execute).
    pub fn run(&mut self, request: impl Into<Request>) -> Result<Summary, Error> {
        self.execute(request)?.finish()
    }

    /// Sends a request and calls `code` with its answer; no thread waits. See [`Pending::then`].
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

    /// A way to interrupt what it does, for another thread.
    #[must_use]
    pub fn canceller(&self) -> Canceller {
        Canceller { link: Arc::clone(&self.link), id: self.id }
    }

    /// Whether it can be used: neither its server nor its connection has ended it.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.link.look_at(|state| state.is_alive(self.id))
    }

    /// Whether it can be used and nothing of it is on its way: no answer of one who had it before can
    /// come in the way of the next.
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

/// Interrupts what a session does, from any thread. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Canceller {
    link: Arc<Link>,
    id: u64,
}

impl Canceller {
    /// Interrupts the statement that the session runs, the oldest that is not answered; that then
    /// fails with error 1317, unless it is over by then. Does not wait.
    pub fn cancel(&self) {
        self.link.act(|state, _| state.cancel(self.id));
    }
}

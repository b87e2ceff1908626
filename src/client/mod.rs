//! Client of one server: many sessions over few connections.
//!
//! ```text
//!  your threads, handlers      sessions        connections            server
//!  ┌───────────────────┐     ┌─────────┐     ┌────────────┐
//!  │ execute()    waits│────▶│ in order│──┐  │ least      │  frames  ┌────────┐
//!  │ execute_then()    │────▶│ in order│──┼─▶│ loaded     │◀────────▶│ XRPC   │
//!  │   no thread waits │◀────│         │◀─┘  │            │          └────────┘
//!  └───────────────────┘     └─────────┘     └────────────┘
//!                                     workers of the runtime receive
//! ```
//!
//! ```no_run
//! use epoll_group::Runtime;
//! use epoll_group::client::{Client, Options};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().start()?;
//! let options = Options::new("127.0.0.1:33660", "root").password("secret");
//! let client = Client::new(&runtime.handle(), options)?;
//!
//! let mut session = client.session()?;
//! let mut answer = session.execute("select id, c from sbtest1 where id < 10")?;
//! while let Some(row) = answer.next_row()? {
//!     println!("{:?}: {:?}", row.get(0)?, row.get(1)?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Promises
//!
//! * **Replies never cross.** Each answer goes to its request. Session numbers are not reused on a
//!   connection. A session runs no other request until its abandoned request is answered.
//! * **One result.** Each request has one: an answer, or an [`Error`] whose [`fate`](Error::fate)
//!   says whether it was never sent, was refused, or may have been executed. The client sends a
//!   request again only if the server does not know its digest, and so has not executed it.
//! * **Deadlines.** Connecting, the login, the wait for a session, the wait for sending, and the
//!   answer each have a deadline. Probes detect a silent server.
//! * **Bounded memory.** Windows of credit bound the unread part of an answer, see
//!   [`window_bytes`](Options::window_bytes). If a server exceeds its window,
//!   [`max_answer_bytes`](Options::max_answer_bytes) bounds the unread part. The same limit bounds
//!   columns, warnings and the rows of a chunk.
#![forbid(unsafe_code)]

mod answer;
mod error;
mod exchange;
mod fleet;
#[cfg(any(test, feature = "internal"))]
pub(crate) mod fuzzed;
mod joined;
mod link;
mod links;
mod login;
mod options;
mod pending;
mod request;
mod retry;
mod session;
#[cfg(feature = "internal")]
pub(crate) mod simulated;
mod slot;
mod state;
mod status;
mod waiting;

pub use answer::{Answer, Piece, Row, Summary};
pub use error::{Error, ErrorKind, Fate, Stage};
pub use options::Options;
pub use pending::Pending;
pub use request::Request;
pub use session::{Canceller, Session};
pub use status::{ConnectionPhase, ConnectionStatus, Status};

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use fleet::Fleet;
use link::{Link, SECOND_LOOK};
use pending::Outstanding;
use request::Wire;
use slot::Asked;
use waiting::Receiver;

use crate::codec::message::ClientMessage;
use crate::codec::proto::tso::GetTso;
use crate::config::ConfigError;
use crate::runtime::{Handle, is_late};
use crate::stall::{Wait, run_as};
use crate::sys::clock::{self, Instant};

/// Client of one server.
///
/// *Shape*: cheap to clone, usable from any thread. It makes connections on demand, and again after
/// they end. They close when the client, its sessions and its answers were dropped. For each connection a
/// worker looks up the server's name, as an announced wait.
#[derive(Clone, Debug)]
pub struct Client {
    fleet: Arc<Fleet>,
}

impl Client {
    /// Creates a client whose connections are served by the workers of this runtime. It does not
    /// connect yet. A connection keeps the limit of frames,
    /// [`max_allowed_packet`](crate::Config::max_allowed_packet), that the runtime has when the
    /// connection is made.
    ///
    /// # Errors
    ///
    /// Returns an error if an option is out of its range.
    pub fn new(handle: &Handle, options: Options) -> Result<Self, ConfigError> {
        options.check()?;
        Ok(Self { fleet: Fleet::new(handle.clone(), options) })
    }

    /// Opens a session. Waits for a connection with room for it, up to `session_timeout`. On a
    /// worker this is an announced wait.
    ///
    /// # Errors
    ///
    /// Returns an error if no connection could be made, if the login was refused, or if no
    /// connection had room in time.
    pub fn session(&self) -> Result<Session, Error> {
        self.session_within(self.fleet.options.session_timeout)
    }

    /// Opens a session, and waits at most `timeout`.
    ///
    /// # Errors
    ///
    /// Errors of [`session`](Self::session).
    pub fn session_within(&self, timeout: Duration) -> Result<Session, Error> {
        self.session_until(deadline(timeout))
    }

    fn session_until(&self, deadline: Instant) -> Result<Session, Error> {
        let (give, given) = mpsc::sync_channel(1);
        let ticket = self.fleet.open(deadline, Receiver::Thread(give));
        let given = given.try_recv().or_else(|_| {
            run_as(Wait::Reply, || {
                let left = deadline.duration_since(clock::now());
                let mut outcome = given.recv_timeout(left);
                if outcome.is_err() && is_late(deadline, clock::now()) {
                    // The process was stopped. The answer to the login may be unread in the socket.
                    outcome = given.recv_timeout(SECOND_LOOK);
                }
                outcome.or_else(|_| {
                    self.fleet.expire(ticket);
                    given.recv()
                })
            })
        });
        given.unwrap_or_else(|_| Err(Error::not_sent(ErrorKind::Closed)))
    }

    /// Calls `code` with a session when there is one. The call is made at once on this thread if
    /// possible, else on a worker, where it may wait like a handler. After `session_timeout`, or
    /// when the client or its runtime ends, `code` gets an error.
    pub fn session_then(&self, code: impl FnOnce(Result<Session, Error>) + Send + 'static) {
        self.session_then_until(self.session_deadline(), code);
    }

    fn session_then_until(
        &self,
        deadline: Instant,
        code: impl FnOnce(Result<Session, Error>) + Send + 'static,
    ) {
        self.fleet.open(deadline, Receiver::Call(Box::new(code)));
    }

    /// Runs a statement in a session of its own, which commits by itself and ends with the
    /// statement. It needs fewer messages than a session. Such statements can use chunks, but no
    /// digests. Their rows have no window: [`Options::max_answer_bytes`] bounds the memory. The
    /// wait for a connection is part of the request's timeout, and takes `session_timeout` at most.
    ///
    /// # Errors
    ///
    /// Errors of [`session`](Self::session) and [`Session::execute`].
    pub fn execute(&self, request: impl Into<Request>) -> Result<Answer, Error> {
        let request = request.into();
        let deadline = deadline(request.timeout.unwrap_or(self.fleet.options.request_timeout));
        let wire = request.into_wire(None);
        let link = self.some_link(deadline)?;
        Pending(self.ask_once(link, wire, deadline)?).wait()
    }

    /// Returns the first of `count` consecutive timestamps. `count` is at most 2 147 483 647.
    ///
    /// # Errors
    ///
    /// Errors of [`session`](Self::session), and errors of the server.
    pub fn timestamps(&self, count: u32) -> Result<u64, Error> {
        let wire = timestamps_wire(count)?;
        let deadline = self.request_deadline();
        let link = self.some_link(deadline)?;
        // The answer is one frame, so it is complete or absent.
        let taken = self.ask_once(link, wire, deadline)?.wait();
        answer::timestamp(&taken, self.fleet.options.dialect)
    }

    /// Like [`timestamps`](Self::timestamps), but calls `code` with the result, and no thread
    /// waits.
    pub fn timestamps_then(
        &self,
        count: u32,
        code: impl FnOnce(Result<u64, Error>) + Send + 'static,
    ) {
        let wire = match timestamps_wire(count) {
            Ok(wire) => wire,
            Err(error) => return code(Err(error)),
        };
        let deadline = self.request_deadline();
        if let Some(link) = self.fleet.least_loaded() {
            return self.timestamps_of(link, wire, deadline, code);
        }
        let client = self.clone();
        self.session_then_until(
            deadline.min(self.session_deadline()),
            move |session| match session {
                Ok(session) => client.timestamps_of(session.into_link(), wire, deadline, code),
                Err(error) => code(Err(error)),
            },
        );
    }

    fn timestamps_of(
        &self,
        link: Arc<Link>,
        wire: Wire,
        deadline: Instant,
        code: impl FnOnce(Result<u64, Error>) + Send + 'static,
    ) {
        match self.ask_once(link, wire, deadline) {
            Ok(outstanding) => {
                let dialect = self.fleet.options.dialect;
                outstanding
                    .then(usize::MAX, move |_, taken| code(answer::timestamp(&taken, dialect)));
            }
            Err(error) => code(Err(error)),
        }
    }

    fn request_deadline(&self) -> Instant {
        deadline(self.fleet.options.request_timeout)
    }

    fn session_deadline(&self) -> Instant {
        deadline(self.fleet.options.session_timeout)
    }

    fn ask_once(
        &self,
        link: Arc<Link>,
        wire: Wire,
        deadline: Instant,
    ) -> Result<Outstanding, Error> {
        // The connection may have been ready only when the time was over.
        if clock::now() >= deadline {
            return Err(Error::not_sent(ErrorKind::Deadline(Stage::Enqueue)));
        }
        let asked = link.act(|state, _| state.ask_once(wire, deadline))?;
        Ok(Outstanding::new(link, asked, deadline, Arc::clone(&self.fleet)))
    }

    /// Returns a ready connection. Waits for one, until `deadline` and at most `session_timeout`.
    fn some_link(&self, deadline: Instant) -> Result<Arc<Link>, Error> {
        match self.fleet.least_loaded() {
            Some(link) => Ok(link),
            // The server never learns of this session, because it gets no request.
            None => Ok(self.session_until(deadline.min(self.session_deadline()))?.into_link()),
        }
    }

    /// State of the client.
    #[must_use]
    pub fn status(&self) -> Status {
        self.fleet.status()
    }

    /// Closes the connections. Sessions and outstanding requests end with an error.
    pub fn close(&self) {
        self.fleet.close();
    }
}

/// Request for `count` timestamps.
fn timestamps_wire(count: u32) -> Result<Wire, Error> {
    let batch_count =
        i32::try_from(count).map_err(|_| Error::not_sent(ErrorKind::TooManyTimestamps(count)))?;
    let message = ClientMessage::GetTso(GetTso { leader_name: Vec::new(), batch_count });
    Ok(Wire::new(Asked::Timestamps, message))
}

/// Time `timeout` from now, or a time that is never reached.
fn deadline(timeout: Duration) -> Instant {
    clock::now() + timeout.min(LONGEST)
}

/// Longer than any wait.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

#[cfg(all(test, feature = "internal"))]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::runtime::Simulated;

    #[test]
    fn a_thread_that_notices_late_that_it_has_no_session_waits_for_a_login_that_is_being_read() {
        let (now, begin) = (clock::now(), Instant::now());
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        // The kernel accepts the connection, and the login gets no answer.
        let server = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = server.local_addr().expect("bound").to_string();
        let client = Client::new(runtime.handle(), Options::new(address, "root"));
        clock::simulate(Some(now));
        // Each look at the clock is a second after the last one, as if the process had been stopped
        // in between.
        let mut looks = 0;
        clock::at_each_look(move || {
            looks += 1;
            clock::simulate(Some(now + Duration::from_secs(looks)));
        });
        let error = client.expect("good options").session_within(Duration::from_millis(1));
        clock::at_each_look(|| ());
        clock::simulate(None);
        assert!(error.expect_err("no session").is_timeout());
        assert!(begin.elapsed() >= SECOND_LOOK);
    }
}

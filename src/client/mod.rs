//! A client: sessions of a server, any number of them over few connections.
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
//! # What is promised
//!
//! * **Replies never cross.** An answer goes to the request that it belongs to. Session numbers are not
//!   used twice on a connection, and a session whose answer nobody waited for does nothing else
//!   before that has come.
//! * **One outcome.** Each request has one: an answer, or an [`Error`] whose [`fate`](Error::fate) says
//!   whether it was never sent, was refused, or may have been executed. Nothing is sent twice, but for a
//!   digest that the server did not know, which was not executed.
//! * **Deadlines.** Connecting, logging in, waiting for a session, waiting to be sent, and the answer
//!   each have theirs; a server that is silent is found out by a probe.
//! * **Bounded.** What is kept of an answer that nobody reads is bounded by a window that the server is
//!   granted, and if it does not keep to it, by [`max_answer_bytes`](Options::max_answer_bytes); so is what
//!   reading keeps: columns, warnings, the rows of a chunk.
#![forbid(unsafe_code)]

mod answer;
mod calls;
mod error;
mod exchange;
mod fleet;
#[cfg(any(test, feature = "internal"))]
pub(crate) mod fuzzed;
mod joined;
mod link;
mod login;
mod options;
mod pending;
mod request;
mod retry;
mod session;
#[cfg(feature = "internal")]
pub(crate) mod simulated;
mod state;

pub use answer::{Answer, Piece, Row, Summary};
pub use error::{Error, ErrorKind, Fate, ServerError, Stage};
pub use fleet::{ConnectionPhase, ConnectionStatus, Status};
pub use options::{Options, OptionsError};
pub use pending::Pending;
pub use request::Request;
pub use session::{Canceller, Session};

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use exchange::Asked;
use fleet::{Fleet, Receiver};
use link::Link;
use pending::Place;
use request::Wire;

use crate::codec::message::ClientMessage;
use crate::codec::message::tso::GetTso;
use crate::runtime::Handle;
use crate::sync::stall::{Wait, run_as};

/// A client of one server.
///
/// *Shape*: cheap to clone, used from any thread. Connections are made when they are needed, and made
/// again when they ended; they close when the client, its sessions and its answers are gone.
#[derive(Clone, Debug)]
pub struct Client {
    fleet: Arc<Fleet>,
}

impl Client {
    /// A client whose connections are served by the workers of this runtime. Nothing is connected yet.
    ///
    /// # Errors
    ///
    /// An option is out of its range.
    pub fn new(handle: &Handle, options: Options) -> Result<Self, OptionsError> {
        options.check()?;
        Ok(Self { fleet: Fleet::new(handle.clone(), options) })
    }

    /// A session; waits for a connection with room for it, up to `session_timeout`. On a worker this is
    /// an announced wait.
    ///
    /// # Errors
    ///
    /// No connection could be made, the login was refused, or there was none with room in time.
    pub fn session(&self) -> Result<Session, Error> {
        self.session_within(self.fleet.options.session_timeout)
    }

    /// A session; waits no longer than this.
    ///
    /// # Errors
    ///
    /// Those of [`session`](Self::session).
    pub fn session_within(&self, timeout: Duration) -> Result<Session, Error> {
        let deadline = deadline(timeout);
        let (give, given) = mpsc::sync_channel(1);
        let ticket = self.fleet.open(deadline, Receiver::Thread(give));
        let given = given.try_recv().or_else(|_| {
            run_as(Wait::Reply, || {
                let left = deadline.saturating_duration_since(Instant::now());
                given.recv_timeout(left).or_else(|_| {
                    self.fleet.expire(ticket);
                    given.recv()
                })
            })
        });
        given.unwrap_or_else(|_| Err(Error::not_sent(ErrorKind::Closed)))
    }

    /// Calls `code` with a session as soon as there is one, on this thread if that is at once, else on a
    /// worker, where it may wait like any handler. After `session_timeout`, or when the client is closed
    /// or its runtime ends, it is called with an error.
    pub fn session_then(&self, code: impl FnOnce(Result<Session, Error>) + Send + 'static) {
        let deadline = deadline(self.fleet.options.session_timeout);
        self.fleet.open(deadline, Receiver::Call(Box::new(code)));
    }

    /// Runs a statement in a session of its own, which commits by itself and is over with it; less to
    /// send than for a session. Such statements cannot be cached or have chunks, and their rows have no
    /// window: [`Options::max_answer_bytes`] bounds what is kept.
    ///
    /// # Errors
    ///
    /// Those of [`session`](Self::session) and [`Session::execute`].
    pub fn execute(&self, request: impl Into<Request>) -> Result<Answer, Error> {
        let request = request.into();
        let timeout = request.timeout.unwrap_or(self.fleet.options.request_timeout);
        let wire = request.into_wire(None);
        let link = self.some_link()?;
        self.ask_once(link, Asked::Statement, wire, timeout)?.wait()
    }

    /// The first of `count` timestamps in a row.
    ///
    /// # Errors
    ///
    /// Those of [`session`](Self::session), and what the server says.
    pub fn timestamps(&self, count: u32) -> Result<u64, Error> {
        let link = self.some_link()?;
        let pending = self.ask_timestamps(link, count)?;
        // Nothing of it is there before its end.
        answer::timestamp(&pending.into_place().wait())
    }

    /// The same; calls `code`, and no thread waits.
    pub fn timestamps_then(
        &self,
        count: u32,
        code: impl FnOnce(Result<u64, Error>) + Send + 'static,
    ) {
        if let Some(link) = self.fleet.least_loaded() {
            return self.timestamps_of(link, count, code);
        }
        let client = self.clone();
        self.session_then(move |session| match session {
            Ok(session) => client.timestamps_of(session.into_link(), count, code),
            Err(error) => code(Err(error)),
        });
    }

    fn timestamps_of(
        &self,
        link: Arc<Link>,
        count: u32,
        code: impl FnOnce(Result<u64, Error>) + Send + 'static,
    ) {
        let place = match self.ask_timestamps(link, count) {
            Ok(pending) => pending.into_place(),
            Err(error) => return code(Err(error)),
        };
        let link = Arc::clone(&place.link);
        let (session, seq) = (place.session, place.seq);
        let call = move || code(answer::timestamp(&place.take()));
        let watcher = exchange::Watcher::Call(Box::new(call));
        link.act(|state, _| state.watch(session, seq, usize::MAX, watcher));
    }

    fn ask_timestamps(&self, link: Arc<Link>, count: u32) -> Result<Pending, Error> {
        let batch_count = i32::try_from(count).unwrap_or(i32::MAX);
        let message = ClientMessage::GetTso(GetTso { leader_name: Vec::new(), batch_count });
        let wire = Wire { message, again: None, has_rows: false };
        self.ask_once(link, Asked::Timestamps, wire, self.fleet.options.request_timeout)
    }

    fn ask_once(
        &self,
        link: Arc<Link>,
        asked: Asked,
        wire: Wire,
        timeout: Duration,
    ) -> Result<Pending, Error> {
        let deadline = deadline(timeout);
        let asked = link.act(|state, _| {
            let session = state.open_once(asked);
            state.ask(session, asked, wire, deadline).map(|seq| (session, seq))
        });
        let (session, seq) = asked?;
        let place = Place { link, session, seq, deadline, fleet: Arc::clone(&self.fleet) };
        Ok(Pending { at: Some(place) })
    }

    /// A connection that is ready; waits for one.
    fn some_link(&self) -> Result<Arc<Link>, Error> {
        match self.fleet.least_loaded() {
            Some(link) => Ok(link),
            // The session is not opened at the server as nothing is asked of it.
            None => Ok(self.session()?.into_link()),
        }
    }

    /// How it stands.
    #[must_use]
    pub fn status(&self) -> Status {
        self.fleet.status()
    }

    /// Closes the connections: sessions and requests end, with an error for who waits for them.
    pub fn close(&self) {
        self.fleet.close();
    }
}

/// So long from now, or as late as any clock can say.
fn deadline(timeout: Duration) -> Instant {
    Instant::now() + timeout.min(LONGEST)
}

/// Longer than anything waits.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

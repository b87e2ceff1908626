//! Load through the client library: many sessions, each in a closed loop of callbacks.
//!
//! ```text
//!   ┌─▶ next question ──send──▶ (no thread waits) ──answer, on a worker──▶ check ──▶ count ─┐
//!   └───────────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Each session has one request in flight, so a thousand sessions need no more threads than one. A
//! session that dies is replaced by another. The loop of a session ends when the load is over, or when
//! no other session can be opened.
//!
//! [`load`](crate::load) and [`sessions`](crate::sessions) are the cheaper drivers for benches: they
//! write frames themselves and know no client.

mod summary;
mod tally;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::client::{self, Answer, Client, Options, Request, Session};

pub use summary::Summary;
pub use tally::{Access, Failure, Tally};

/// Questions of one session, and the check of their answers.
pub trait Asker: Send + 'static {
    /// The part of a question that the check of its answer needs.
    type Question: Send + 'static;

    /// Returns the next question and how it is sent, or `None` if this session asks no more.
    /// `number` counts the requests of all sessions, from 0.
    fn next(&mut self, number: u64) -> Option<(Self::Question, Request)>;

    /// Checks the answer to a question.
    ///
    /// # Errors
    ///
    /// The answer is wrong, or its rest did not come.
    fn check(&mut self, question: Self::Question, answer: Answer) -> Result<Access, Failure>;
}

/// Address of a server, and an account there.
#[derive(Clone, Debug)]
pub struct Target {
    /// `HOST:PORT`, or `unix:PATH`.
    pub address: String,
    pub user: String,
    pub password: String,
}

/// End of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// After so many requests of all sessions together.
    Requests(u64),
    /// After this time. Each session asks once at least, and requests that are in flight at the end are
    /// still answered and counted.
    Time(Duration),
}

/// State of a load.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub elapsed: Duration,
    /// Right answers.
    pub answers: u64,
    /// Wrong answers and errors.
    pub failures: u64,
    /// Share of the load that is done, from 0 to 1.
    pub done: f64,
}

/// Sessions of a server, kept from one load to the next.
#[derive(Debug)]
pub struct Driver {
    client: Client,
    _runtime: Runtime,
    idle: Mutex<Vec<Session>>,
    patience: Duration,
}

/// Interval of reports on progress.
const TICK: Duration = Duration::from_millis(100);
/// Logins at the same time.
const CONNECTING: usize = 16;

impl Driver {
    /// Makes a driver of `sessions` sessions that share `connections` connections. The first load
    /// opens them. A request may take `patience`, and so may opening a session.
    ///
    /// # Errors
    ///
    /// The options make no sense, or the system has no threads left.
    pub fn new(
        target: &Target,
        sessions: usize,
        connections: usize,
        patience: Duration,
    ) -> Result<Self, Box<dyn Error>> {
        let runtime = Runtime::builder().name("load").start()?;
        let connections = connections.min(sessions);
        let options = Options::new(target.address.as_str(), target.user.as_str())
            .password(target.password.as_str())
            .connections(connections)
            // Each connection has its share from the beginning.
            .sessions_per_connection(sessions.div_ceil(connections.max(1)))
            .max_connecting(connections.min(CONNECTING))
            .request_timeout(patience)
            .session_timeout(patience);
        let client = Client::new(&runtime.handle(), options)?;
        Ok(Self { client, _runtime: runtime, idle: Mutex::default(), patience })
    }

    /// The client, for requests beside the load.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Lets each asker ask in a session of its own, checks and counts, and gives the askers back in no
    /// order. Calls `progress` ten times a second.
    ///
    /// # Errors
    ///
    /// No session could be opened, or answers do not come although the load is over. Failures of
    /// single requests are counted.
    pub fn run<A: Asker>(
        &self,
        askers: Vec<A>,
        until: Until,
        mut progress: impl FnMut(&Progress),
    ) -> Result<(Summary, Vec<A>), Box<dyn Error>> {
        let sessions = self.take(askers.len())?;
        let begun = Instant::now();
        let (requests, end) = match until {
            Until::Requests(requests) => (requests, None),
            Until::Time(time) => (u64::MAX, Some(begun + time)),
        };
        let shared = Arc::new(Shared {
            client: self.client.clone(),
            requests,
            end,
            next: AtomicU64::new(0),
            tallies: tally::several(),
        });
        let (give, given) = mpsc::channel();
        for (place, (asker, session)) in askers.into_iter().zip(sessions).enumerate() {
            let (shared, give) = (Arc::clone(&shared), give.clone());
            let asking = Asking { shared, asker, place, begun: false, back: give };
            without_recursion(move || asking.ask(session));
        }
        drop(give);

        let mut askers = Vec::new();
        let mut told = begun;
        loop {
            match given.recv_timeout(TICK) {
                Ok((asker, session)) => {
                    askers.push(asker);
                    lock(&self.idle).extend(session);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            let now = Instant::now();
            if end.is_some_and(|end| now > end + self.patience * 2) {
                return Err("some requests have neither an answer nor an error".into());
            }
            if now >= told + TICK {
                told = now;
                progress(&shared.progress(until, begun.elapsed()));
            }
        }
        let total = tally::total(&shared.tallies);
        let time = total.last.map_or(Duration::ZERO, |last| last.duration_since(begun));
        Ok((Summary::new(total, time), askers))
    }

    /// Sessions that are alive: those of the load before, and new ones.
    fn take(&self, count: usize) -> Result<Vec<Session>, client::Error> {
        let mut idle = lock(&self.idle);
        idle.retain(Session::is_alive);
        let kept = idle.len().min(count);
        let mut sessions: Vec<_> = idle.drain(..kept).collect();
        drop(idle);
        let (give, given) = mpsc::channel();
        for _ in kept..count {
            let give = give.clone();
            self.client.session_then(move |session| {
                // After the first error the receiver is gone.
                let _ = give.send(session);
            });
        }
        for session in given.iter().take(count - kept) {
            sessions.push(session?);
        }
        Ok(sessions)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.client.close();
    }
}

/// State that the sessions of one load share.
#[derive(Debug)]
struct Shared {
    client: Client,
    requests: u64,
    end: Option<Instant>,
    /// Number of the next request.
    next: AtomicU64,
    tallies: Vec<Mutex<Tally>>,
}

impl Shared {
    fn progress(&self, until: Until, elapsed: Duration) -> Progress {
        let (answers, failures) = tally::progress(&self.tallies);
        let done = match until {
            Until::Requests(requests) => answers as f64 / requests as f64,
            Until::Time(time) => elapsed.as_secs_f64() / time.as_secs_f64(),
        };
        Progress { elapsed, answers, failures, done: done.min(1.0) }
    }
}

/// An asker in its loop, on its way from one callback to the next.
struct Asking<A: Asker> {
    shared: Arc<Shared>,
    asker: A,
    place: usize,
    /// Set by the first request, which is sent even if the time of the load is over.
    begun: bool,
    back: Sender<(A, Option<Session>)>,
}

impl<A: Asker> Asking<A> {
    fn ask(mut self, mut session: Session) {
        let sent = Instant::now();
        if self.begun && self.shared.end.is_some_and(|end| sent >= end) {
            return self.end(Some(session));
        }
        self.begun = true;
        let number = self.shared.next.fetch_add(1, Ordering::Relaxed);
        let next = (number < self.shared.requests).then(|| self.asker.next(number));
        let Some((question, request)) = next.flatten() else { return self.end(Some(session)) };
        match session.send(request) {
            Ok(pending) => {
                pending.then(move |answer| self.answered(session, question, sent, answer));
            }
            Err(error) => {
                self.failed(error.into());
                self.go_on(session);
            }
        }
    }

    fn answered(
        mut self,
        session: Session,
        question: A::Question,
        sent: Instant,
        answer: Result<Answer, client::Error>,
    ) {
        let answer = answer.map_err(Failure::from);
        match answer.and_then(|answer| self.asker.check(question, answer)) {
            Ok(access) => self.tally().answered(access, sent),
            Err(failure) => self.failed(failure),
        }
        self.go_on(session);
    }

    /// Asks again, through another session if this one has ended.
    fn go_on(self, session: Session) {
        if session.is_alive() {
            return without_recursion(move || self.ask(session));
        }
        // The server may have room for the next session only without this one.
        drop(session);
        let client = self.shared.client.clone();
        client.session_then(move |opened| match opened {
            Ok(session) => without_recursion(move || self.ask(session)),
            Err(error) => {
                self.failed(error.into());
                self.end(None);
            }
        });
    }

    fn end(self, session: Option<Session>) {
        // The load may have been given up.
        let _ = self.back.send((self.asker, session));
    }

    fn failed(&self, failure: Failure) {
        self.tally().failed(failure);
    }

    fn tally(&self) -> MutexGuard<'_, Tally> {
        tally::of(&self.shared.tallies, self.place)
    }
}

thread_local! {
    /// Work that waits for the call of `without_recursion` on this thread; `None` if there is no call.
    static LATER: RefCell<Option<VecDeque<Work>>> = const { RefCell::new(None) };
}

type Work = Box<dyn FnOnce()>;

/// Runs `work`. If this thread is inside a call of this function already, that call runs `work`
/// later. An answer that is there at once makes its session ask again inside of the call that sent
/// the question: without this, the stack would grow with each such answer.
fn without_recursion(work: impl FnOnce() + 'static) {
    let mut work: Option<Work> = Some(Box::new(work));
    LATER.with_borrow_mut(|later| match later {
        Some(later) => later.extend(work.take()),
        None => *later = Some(VecDeque::new()),
    });
    let Some(work) = work else { return };
    let _end = EndOfCall;
    work();
    while let Some(next) = LATER.with_borrow_mut(|later| later.as_mut()?.pop_front()) {
        next();
    }
}

/// Ends the outermost call of `without_recursion`, also by a panic.
struct EndOfCall;

impl Drop for EndOfCall {
    fn drop(&mut self) {
        drop(LATER.take());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn nested_work_is_done_behind_the_call_that_it_comes_from() {
        let order = Rc::new(RefCell::new(Vec::new()));
        let say = |what| {
            let order = Rc::clone(&order);
            move || order.borrow_mut().push(what)
        };
        let (inner, after) = (say("inner"), say("outer"));
        without_recursion(move || {
            without_recursion(inner);
            after();
        });
        without_recursion(say("next"));
        assert_eq!(*order.borrow(), ["outer", "inner", "next"]);
    }

    #[test]
    fn work_goes_on_behind_a_panic() {
        let panicked = std::panic::catch_unwind(|| without_recursion(|| panic!("on purpose")));
        assert!(panicked.is_err());
        let done = Rc::new(RefCell::new(false));
        let set = Rc::clone(&done);
        without_recursion(move || *set.borrow_mut() = true);
        assert!(*done.borrow());
    }
}

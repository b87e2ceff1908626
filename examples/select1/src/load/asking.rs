//! [`Asking`]: one session in its closed loop.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use epoll_group::Handle;
use epoll_group::client::{Answer, Client, Error, Session};

use super::Mode;
use super::tally::{self, Tally};

/// What all sessions share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) handle: Handle,
    pub(super) mode: Mode,
    /// Point selects ask for an id from 1 to this.
    pub(super) rows: u32,
    /// Nothing is asked from now on.
    pub(super) stop: AtomicBool,
    pub(super) tallies: Vec<Mutex<Tally>>,
}

/// A session that asks again as soon as it has its answer. It goes from one callback to the next.
#[derive(Debug)]
pub(super) struct Asking {
    shared: Arc<Shared>,
    session: Session,
    next: Next,
}

/// What stays of it when its session is replaced.
#[derive(Debug)]
struct Next {
    place: usize,
    /// What ids are drawn from (xorshift).
    dice: u64,
    /// Dropped with the last callback: that is how the end is seen.
    _hold: Sender<()>,
}

/// What went wrong with one request.
#[derive(Clone, Debug)]
pub(super) enum Failure {
    /// The answer is not the one to this question.
    Wrong(String),
    Error(Error),
}

impl Asking {
    pub(super) fn new(
        shared: &Arc<Shared>,
        session: Session,
        place: usize,
        hold: Sender<()>,
    ) -> Self {
        let dice = (place as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Self { shared: Arc::clone(shared), session, next: Next { place, dice, _hold: hold } }
    }

    /// Asks, unless it is over.
    pub(super) fn ask(mut self) {
        if self.shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let id = self.next.draw(self.shared.rows);
        let sent = Instant::now();
        match self.session.send(self.shared.mode.request(id)) {
            // The callback owns the session: `execute_then` would borrow it.
            Ok(pending) => pending.then(move |answer| self.answered(id, sent, answer)),
            Err(error) => {
                self.failed(error.into());
                self.replace();
            }
        }
    }

    fn answered(self, id: i64, sent: Instant, answer: Result<Answer, Error>) {
        let checked = answer.map_err(Failure::from);
        match checked.and_then(|answer| self.shared.mode.check(id, answer)) {
            Ok(()) => {
                let (tallies, place) = (&self.shared.tallies, self.next.place);
                tally::count(tallies, place, |tally| tally.answered(sent));
            }
            Err(failure) => self.failed(failure),
        }
        if self.session.is_alive() { self.ask() } else { self.replace() }
    }

    fn failed(&self, failure: Failure) {
        let (tallies, place) = (&self.shared.tallies, self.next.place);
        tally::count(tallies, place, |tally| tally.failed(failure));
    }

    /// Goes on with another session.
    fn replace(self) {
        let Self { shared, session, next } = self;
        drop(session);
        next.open(shared);
    }
}

impl Next {
    /// Opens a session, again and again; the client waits longer between tries that fail.
    fn open(self, shared: Arc<Shared>) {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let client = shared.client.clone();
        client.session_then(move |session| match session {
            Ok(session) => {
                let asking = Asking { shared: Arc::clone(&shared), session, next: self };
                // Elsewhere: if this fails at once as well, the stack does not grow.
                let _ = shared.handle.spawn(move || asking.ask());
            }
            Err(error) => {
                tally::count(&shared.tallies, self.place, |tally| tally.failed(error.into()));
                let again = Arc::clone(&shared);
                let _ = shared.handle.spawn(move || self.open(again));
            }
        });
    }

    /// The id for the next request.
    fn draw(&mut self, rows: u32) -> i64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        (self.dice % u64::from(rows.max(1))) as i64 + 1
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(text) => f.write_str(text),
            Self::Error(error) => error.fmt(f),
        }
    }
}

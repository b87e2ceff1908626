//! [`Asking`]: one client in its closed loop.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use epoll_group::Handle;
use epoll_group::client::{Client, Session};

use super::question::{Question, Read, Shape, check_written};
use super::tally::{self, Answered, Failure, Tally};
use super::workload::Workload;
use crate::client::{Done, Kv, KvError};
use crate::txn::Found;

/// What all clients share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) client: Client,
    pub(super) handle: Handle,
    pub(super) shape: Shape,
    pub(super) workload: Workload,
    /// How many requests are asked, all clients together.
    pub(super) requests: u64,
    /// The number of the next.
    pub(super) next: AtomicU64,
    /// Nothing is asked from now on.
    pub(super) stop: AtomicBool,
    pub(super) tallies: Vec<Mutex<Tally>>,
}

/// A client that asks again as soon as it has its answer. It goes from one callback to the next.
#[derive(Debug)]
pub(super) struct Asking {
    shared: Arc<Shared>,
    place: usize,
    /// None while another session is waited for.
    kv: Mutex<Option<Kv>>,
    /// How often it has to ask: more than once when an answer comes while the request is still being
    /// sent. Who makes it more than 0 asks until it is 0: so callbacks neither wait for `kv` nor call
    /// each other.
    due: AtomicUsize,
    /// The newest revision that this client has seen. Only the one answer that comes next uses it.
    newest: AtomicU64,
    /// Dropped with the last callback: that is how the end is seen.
    _hold: Sender<()>,
}

impl Shared {
    fn next(&self) -> Option<Question> {
        if self.stop.load(Ordering::Relaxed) {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.requests).then(|| self.shape.question(self.workload, number))
    }
}

impl Asking {
    /// Lets a session ask until it is over.
    pub(super) fn begin(shared: &Arc<Shared>, session: Session, place: usize, hold: Sender<()>) {
        let asking = Self {
            shared: Arc::clone(shared),
            place,
            kv: Mutex::new(Some(Kv::new(session))),
            due: AtomicUsize::new(0),
            newest: AtomicU64::new(0),
            _hold: hold,
        };
        Arc::new(asking).ask();
    }

    fn ask(self: &Arc<Self>) {
        // Acquire and release: the next in turn sees what this one did to `newest`.
        if self.due.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        loop {
            self.send();
            if self.due.fetch_sub(1, Ordering::AcqRel) == 1 {
                return;
            }
        }
    }

    fn send(self: &Arc<Self>) {
        let Some(question) = self.shared.next() else { return };
        let mut kv = self.kv();
        let Some(kv) = kv.as_mut() else { return };
        let me = Arc::clone(self);
        let sent = Instant::now();
        match question {
            Question::Write(txn) => {
                let operations = txn.then.len() as u64;
                kv.txn_then(&txn, move |done| me.written(operations, sent, done));
            }
            Question::Read(read) => {
                let (range, limit) = (read.range.clone(), read.limit);
                kv.read_then(&range, None, limit, move |found| me.found(&read, sent, found));
            }
        }
    }

    fn written(self: Arc<Self>, operations: u64, sent: Instant, done: Result<Done, KvError>) {
        let newest = self.newest.load(Ordering::Relaxed);
        self.heard(sent, done, |done| {
            check_written(done, operations, newest)?;
            Ok((done.revision, Answered::Write(done.revision)))
        });
    }

    fn found(self: Arc<Self>, read: &Read, sent: Instant, found: Result<Found, KvError>) {
        let (shape, newest) = (self.shared.shape, self.newest.load(Ordering::Relaxed));
        self.heard(sent, found, |found| {
            shape.check_found(read, found, newest)?;
            Ok((found.revision, Answered::Read))
        });
    }

    /// Checks an answer, counts it, and goes on.
    fn heard<T>(
        self: Arc<Self>,
        sent: Instant,
        answer: Result<T, KvError>,
        check: impl FnOnce(&T) -> Result<(u64, Answered), String>,
    ) {
        match answer {
            Ok(answer) => {
                match check(&answer) {
                    Ok((revision, answered)) => {
                        self.newest.store(revision, Ordering::Relaxed);
                        self.count(|tally| tally.answered(answered, sent));
                    }
                    Err(wrong) => self.count(|tally| tally.failed(Failure::Wrong(wrong))),
                }
                self.ask();
            }
            Err(error) => {
                self.count(|tally| tally.failed(Failure::Error(error.to_string())));
                // Elsewhere: this may be a callback within `send`, which has `kv`.
                let handle = self.shared.handle.clone();
                let _ = handle.spawn(move || self.go_on());
            }
        }
    }

    /// Goes on, with another session if it has to; ends if there is none to be had.
    fn go_on(self: Arc<Self>) {
        if self.kv().as_ref().is_some_and(Kv::is_alive) {
            return self.ask();
        }
        // There may be room for the next only without this one.
        let ended = self.kv().take();
        drop(ended);
        let client = self.shared.client.clone();
        client.session_then(move |session| match session {
            Ok(session) => {
                *self.kv() = Some(Kv::new(session));
                self.ask();
            }
            Err(error) => self.count(|tally| tally.failed(Failure::Error(error.to_string()))),
        });
    }

    fn count(&self, code: impl FnOnce(&mut Tally)) {
        tally::count(&self.shared.tallies, self.place, code);
    }

    fn kv(&self) -> MutexGuard<'_, Option<Kv>> {
        self.kv.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

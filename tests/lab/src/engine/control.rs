//! [`Control`]: a test's view of an engine, and its means to steer it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use epoll_group::session::{AccountLimits, CancelReason, Deferred, Reply, SessionError};
use epoll_group::{stall, sync};

use super::super::{LONG, eventually};

/// Code that one handler runs once.
pub type Script = Box<dyn FnOnce(&mut Reply<'_>) -> Result<(), SessionError> + Send>;

#[derive(Default)]
pub struct Control {
    pub counts: Counts,
    gates: Mutex<HashMap<String, Gate>>,
    changed: Condvar,
    deferred: Mutex<HashMap<String, Vec<Deferred>>>,
    scripts: Mutex<HashMap<String, Script>>,
    cancels: Mutex<Vec<CancelReason>>,
    logins: Mutex<Vec<String>>,
    /// Number of the session that has the row lock.
    owner: sync::Mutex<Option<u32>>,
    unlocked: sync::Condvar,
    pub waiting_for_lock: AtomicU64,
    /// Limits of the accounts that log in from now on.
    pub limits: Mutex<AccountLimits>,
    last_timestamp: AtomicU64,
}

/// Counts of events.
#[derive(Debug, Default)]
pub struct Counts {
    pub opened: AtomicU64,
    pub closed: AtomicU64,
    /// Sessions that were dropped, by whatever way.
    pub dropped: AtomicU64,
    pub executed: AtomicU64,
    pub cancelled: AtomicU64,
    pub sources_dropped: AtomicU64,
    pub rows_pulled: AtomicU64,
    /// Handlers that have returned from writing rows.
    pub writers_ended: AtomicU64,
}

impl Counts {
    pub fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::SeqCst);
    }

    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::SeqCst)
    }
}

#[derive(Default)]
struct Gate {
    open: bool,
    held: usize,
}

impl Control {
    // Gates.

    /// Waits until the gate is open. Returns false if the request was cancelled before.
    pub(super) fn pass(&self, name: &str, announced: bool, cancelled: &AtomicBool) -> bool {
        if announced {
            stall::run(|| self.wait(name, cancelled))
        } else {
            self.wait(name, cancelled)
        }
    }

    fn wait(&self, name: &str, cancelled: &AtomicBool) -> bool {
        let mut gates = lock(&self.gates);
        gates.entry(name.into()).or_default().held += 1;
        self.changed.notify_all();
        let passable = |gates: &mut HashMap<String, Gate>| {
            gates[name].open || cancelled.load(Ordering::SeqCst)
        };
        // Gives up, so that a test that fails ends.
        let waited = self.changed.wait_timeout_while(gates, LONG, |gates| !passable(gates));
        let (mut gates, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let gate = gates.get_mut(name).expect("made above");
        gate.held -= 1;
        gate.open
    }

    /// Waits at a gate, if there is one.
    pub(super) fn pass_held(&self, name: &str) {
        if lock(&self.gates).contains_key(name) {
            self.wait(name, &AtomicBool::new(false));
        }
    }

    /// Closes a gate that stands open at first: `open` holds new sessions, `closed` their ends,
    /// `clock` requests for timestamps, `login` logins of the user `other`.
    pub fn hold(&self, name: &str) {
        lock(&self.gates).entry(name.into()).or_default();
    }

    pub fn open(&self, name: &str) {
        lock(&self.gates).entry(name.into()).or_default().open = true;
        self.changed.notify_all();
    }

    /// Waits until `count` handlers are held at the same time.
    #[track_caller]
    pub fn wait_at(&self, name: &str, count: usize) {
        let held = |gates: &mut HashMap<String, Gate>| gates.get(name).map_or(0, |gate| gate.held);
        let gates = lock(&self.gates);
        let waited = self.changed.wait_timeout_while(gates, LONG, |gates| held(gates) < count);
        let (mut gates, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "{} of {count} came to gate {name}", held(&mut gates));
    }

    pub fn held_at(&self, name: &str) -> usize {
        lock(&self.gates).get(name).map_or(0, |gate| gate.held)
    }

    // Deferred requests.

    pub(super) fn put_deferred(&self, name: &str, deferred: Deferred) {
        lock(&self.deferred).entry(name.into()).or_default().push(deferred);
    }

    /// Waits until `count` requests are deferred under that name, and takes them.
    #[track_caller]
    pub fn take_deferred(&self, name: &str, count: usize) -> Vec<Deferred> {
        eventually(LONG, || self.deferred(name) >= count);
        lock(&self.deferred).remove(name).expect("they are there")
    }

    /// Takes the requests that are deferred now.
    pub fn deferred_by_now(&self, name: &str) -> Vec<Deferred> {
        lock(&self.deferred).remove(name).unwrap_or_default()
    }

    /// Waits until a request is deferred, and takes it.
    #[track_caller]
    pub fn take_one_deferred(&self, name: &str) -> Deferred {
        self.take_deferred(name, 1).pop().expect("one was waited for")
    }

    /// Number of requests that are deferred under that name.
    pub fn deferred(&self, name: &str) -> usize {
        lock(&self.deferred).get(name).map_or(0, Vec::len)
    }

    /// Drops all deferred requests.
    pub fn drop_deferred(&self) {
        let all = std::mem::take(&mut *lock(&self.deferred));
        drop(all);
    }

    // Scripts.

    /// Plants the code for the next statement `script NAME`.
    pub fn plant(
        &self,
        name: &str,
        script: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError> + Send + 'static,
    ) {
        lock(&self.scripts).insert(name.into(), Box::new(script));
    }

    pub(super) fn run_script(&self, name: &str, reply: &mut Reply<'_>) -> Result<(), SessionError> {
        let script = lock(&self.scripts).remove(name);
        script.ok_or_else(|| SessionError::unsupported("no such script"))?(reply)
    }

    // The row lock.

    /// Returns false if the session was cancelled while it waited.
    pub(super) fn lock(&self, session: u32, cancelled: &AtomicBool) -> bool {
        let owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        self.waiting_for_lock.fetch_add(1, Ordering::SeqCst);
        let taken = |owner: &mut Option<u32>| {
            owner.is_some_and(|owner| owner != session) && !cancelled.load(Ordering::SeqCst)
        };
        let waited = self.unlocked.wait_timeout_while(owner, LONG, taken);
        let (mut owner, _) = waited.unwrap_or_else(PoisonError::into_inner);
        self.waiting_for_lock.fetch_sub(1, Ordering::SeqCst);
        let free = owner.is_none_or(|owner| owner == session);
        if free {
            *owner = Some(session);
        }
        free
    }

    pub(super) fn unlock(&self, session: u32) {
        let mut owner = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if *owner == Some(session) {
            *owner = None;
            drop(owner);
            self.unlocked.notify_all();
        }
    }

    pub(super) fn is_locked_by(&self, session: u32) -> bool {
        *self.owner.lock().unwrap_or_else(PoisonError::into_inner) == Some(session)
    }

    /// Gives the free row lock to a session.
    pub fn lock_for(&self, session: u32) {
        assert!(self.lock(session, &AtomicBool::new(false)), "the row lock was not free");
    }

    // The rest.

    pub(super) fn note_cancel(&self, reason: CancelReason) {
        lock(&self.cancels).push(reason);
        // A waiter checks its condition under these locks. Taking them makes sure that it sees the
        // cancellation or gets the notification.
        drop(lock(&self.gates));
        self.changed.notify_all();
        drop(self.owner.lock().unwrap_or_else(PoisonError::into_inner));
        self.unlocked.notify_all();
    }

    /// Reasons for which requests were cancelled, in order.
    pub fn cancels(&self) -> Vec<CancelReason> {
        lock(&self.cancels).clone()
    }

    pub(super) fn note_login(&self, text: String) {
        lock(&self.logins).push(text);
    }

    /// Descriptions of the login attempts.
    pub fn logins(&self) -> Vec<String> {
        lock(&self.logins).clone()
    }

    /// Forgets the logins and cancels so far, and frees their memory.
    pub fn forget(&self) {
        *lock(&self.logins) = Vec::new();
        *lock(&self.cancels) = Vec::new();
    }

    pub(super) fn timestamps(&self, count: u32) -> u64 {
        self.last_timestamp.fetch_add(count.into(), Ordering::SeqCst)
    }

    /// True if every opened session was closed and dropped once.
    pub fn is_even(&self) -> bool {
        let counts = &self.counts;
        let [opened, closed, dropped] =
            [&counts.opened, &counts.closed, &counts.dropped].map(Counts::of);
        assert!(closed <= opened && dropped <= opened, "{counts:?}");
        opened == closed && opened == dropped
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

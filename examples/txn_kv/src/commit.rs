//! Group commit: transactions that wait for the disk at the same time share one flush.
//!
//! ```text
//!  staged, in the order of their revisions        one leader at a time
//!  ┌───┬───┬───┬───┬───┬───┐   take, up to flush_bytes    ┌──────────────────────────────┐
//!  │ 4 │ 5 │ 6 │ 7 │ 8 │ 9 │─────────────────────────────▶│ write, publish, lead on,     │
//!  └───┴───┴───┴───┴───┴───┘                              │ answer                       │
//!                                                         └──────────────────────────────┘
//! ```
//!
//! 1. A transaction is pushed while its rows are held, and gets its revision there. If there is no
//!    leader, its thread leads. If this thread is answering another transaction, it leads after that.
//! 2. The leader takes what waits and gives it to the engine, in one batch.
//! 3. It publishes the whole batch in the index in one step.
//! 4. If transactions came meanwhile, they get another leader: a task of the runtime, so that no
//!    thread leads for longer than one flush.
//! 5. It answers the transactions of its batch, while the next flush is under way.
//!
//! When a flush fails, all staged transactions fail, because they may build on its writes. The next
//! transaction is evaluated on the visible revisions.
//!
//! Records that a compaction takes out of the index are removed from the engine with the next
//! flushes, some with each, and in the same order. If an older record of a key outlived a crash
//! that a newer one did not, the key would have its old value again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use epoll_group::net;

use crate::design::Design;
use crate::engine::{Batch, EngineError, Head};
use crate::error::StoreError;
use crate::index::compact::Removed;
use crate::record::{Record, Revision};
use crate::store::{Limits, Shared};

/// Called with how the flush went.
pub(crate) type Told = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// A transaction or a compaction that waits for a flush. A transaction may have written nothing.
pub(crate) struct Waiting {
    pub(crate) records: Vec<(Revision, Arc<Record>)>,
    /// Bytes of its answer.
    pub(crate) found_bytes: usize,
    /// Transaction before which readers are refused after the flush; 0 for none.
    pub(crate) compacted: u64,
    pub(crate) told: Told,
}

/// Queue of the work that waits for a flush.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    /// A compaction holds it while it moves records from the index to `unremoved`. So records of
    /// concurrent compactions keep their order. Locked before `state`.
    removing: Mutex<()>,
    /// Notified when a leader leaves the lead to another thread, and by `wake`.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Newest transaction that has a revision.
    registered: u64,
    /// Head of the engine.
    head: Head,
    /// Records that are not in the index any more, in the order in which they left it. The leader
    /// removes the first ones, which stay in here until that has succeeded.
    unremoved: VecDeque<Removed>,
    leader: Leader,
}

/// State of the leader, which flushes the queue. If the queue is not empty, there is a leader, or
/// one is on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Leader {
    #[default]
    Nobody,
    /// The thread that calls `take` first.
    Offered,
    Somebody,
}

/// Part of the queue that one flush writes.
struct Taken {
    batch: Batch,
    /// There is something to write.
    writes: bool,
    told: Vec<Told>,
}

/// Duty of the caller: to lead, or none because there is a leader or no work.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Lead,
    Led,
}

impl Queue {
    pub(crate) fn new(head: Head) -> Self {
        let state = State { head, registered: head.revision, ..State::default() };
        Self { state: Mutex::new(state), ..Self::default() }
    }

    /// Puts a transaction behind all others. If it `writes`, it gets a new revision, else that of
    /// the newest; `make` is called with this revision. The rows of the transaction are held.
    pub(crate) fn push(
        &self,
        writes: bool,
        limits: &Limits,
        make: impl FnOnce(u64) -> Waiting,
    ) -> Result<Turn, StoreError> {
        let mut state = self.lock();
        let (bytes, limit) = (state.bytes, limits.waiting_bytes);
        if bytes > limit {
            let what = "bytes that wait to be written";
            return Err(StoreError::Busy { what, bytes, limit });
        }
        state.registered += u64::from(writes);
        let waiting = make(state.registered);
        Ok(state.push(waiting))
    }

    /// Puts a small entry at the end of the queue, also of a full one. If there is no leader, the
    /// caller leads.
    pub(crate) fn push_small(&self, waiting: Waiting) {
        let (Turn::Lead | Turn::Led) = self.lock().push(waiting);
    }

    /// Takes records out of the index. The next flushes remove these records from the engine.
    pub(crate) fn remove(&self, take_out: impl FnOnce() -> Vec<Removed>) {
        let _removing = self.removing.lock().unwrap_or_else(PoisonError::into_inner);
        // Without the lock of the queue: transactions are pushed meanwhile.
        let removed = take_out();
        self.lock().unremoved.extend(removed);
    }

    /// True if records wait to be removed.
    pub(crate) fn removes(&self) -> bool {
        !self.lock().unremoved.is_empty()
    }

    /// Takes the next part of the queue. Only the first caller after an offer gets it.
    fn take(&self, limits: &Limits) -> Option<Taken> {
        let mut state = self.lock();
        if state.leader != Leader::Offered {
            return None;
        }
        state.leader = Leader::Somebody;
        let head = state.head;
        let mut batch = Batch { head, ..Batch::default() };
        let mut bytes = 0;
        for removed in state.unremoved.iter().take(REMOVED_AT_ONCE) {
            // The engine reads the record, to put it back if the flush fails.
            bytes += removed.bytes as usize;
            if bytes > limits.flush_bytes && !batch.removed.is_empty() {
                break;
            }
            batch.removed.push(removed.revision);
        }
        let (mut bytes, mut told) = (0, Vec::new());
        while let Some(next) = state.waiting.front().map(Waiting::written_bytes) {
            if bytes > 0 && bytes + next > limits.flush_bytes {
                break;
            }
            bytes += next;
            let Some(next) = state.waiting.pop_front() else { break };
            state.bytes -= next.bytes();
            told.push(next.join(&mut batch));
        }
        let writes = batch.head != head || !batch.records.is_empty() || !batch.removed.is_empty();
        Some(Taken { batch, writes, told })
    }

    /// Ends the turn of the leader. Tells if the caller must see to the next one.
    fn flushed(&self, batch: &Batch) -> Turn {
        let mut state = self.lock();
        state.head = batch.head;
        state.unremoved.drain(..batch.removed.len());
        state.leader = Leader::Nobody;
        if state.waiting.is_empty() {
            return Turn::Led;
        }
        self.changed.notify_all();
        state.offer()
    }

    /// Waits for an outcome, or until the lead is offered. The sender of the outcome calls `wake`.
    /// If the lead is offered, the caller leads: perhaps no thread is free for the task that
    /// should.
    pub(crate) fn wait<T>(&self, told: &Receiver<T>) -> Result<T, TryRecvError> {
        let mut state = self.lock();
        loop {
            match told.try_recv() {
                Err(TryRecvError::Empty) if state.leader != Leader::Offered => {}
                told => return told,
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Has the callers of `wait` look for their outcomes.
    pub(crate) fn wake(&self) {
        let _state = self.lock();
        self.changed.notify_all();
    }

    /// Empties the queue after a failed flush, because all that waits may build on the lost writes.
    /// Called with all rows held.
    fn fail(&self, Taken { batch, told, .. }: &mut Taken) {
        let mut state = self.lock();
        for waiting in std::mem::take(&mut state.waiting) {
            told.push(waiting.join(batch));
        }
        state.bytes = 0;
        state.registered = state.head.revision;
        state.leader = Leader::Nobody;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn push(&mut self, waiting: Waiting) -> Turn {
        self.bytes += waiting.bytes();
        self.waiting.push_back(waiting);
        self.offer()
    }

    fn offer(&mut self) -> Turn {
        if self.leader != Leader::Nobody {
            return Turn::Led;
        }
        self.leader = Leader::Offered;
        Turn::Lead
    }
}

impl Waiting {
    /// About how much memory it takes.
    fn bytes(&self) -> usize {
        self.written_bytes() + self.found_bytes
    }

    fn written_bytes(&self) -> usize {
        let records: usize = self.records.iter().map(|(_, record)| record.bytes()).sum();
        size_of::<Self>() + records
    }

    fn join(self, batch: &mut Batch) -> Told {
        if let Some((revision, _)) = self.records.last() {
            batch.head.revision = revision.main;
        }
        batch.head.compacted = batch.head.compacted.max(self.compacted);
        batch.records.extend(self.records);
        self.told
    }
}

impl Shared {
    /// Flushes the queue if there is no leader. Called from an answer, it leaves that to the caller
    /// of the answer: answers that begin transactions would otherwise need ever more stack.
    pub(crate) fn lead(self: &Arc<Self>) {
        let later = LEADS.with_borrow_mut(|leads| {
            leads.as_mut().map(|leads| leads.push(Arc::clone(self))).is_some()
        });
        if !later {
            self.lead_now();
        }
    }

    /// The same, but at once also from an answer, for a caller that waits for the flush. Returns
    /// true if it has flushed something.
    pub(crate) fn lead_now(self: &Arc<Self>) -> bool {
        let before = LEADS.replace(Some(vec![Arc::clone(self)]));
        let next = || LEADS.with_borrow_mut(|leads| leads.as_mut().and_then(Vec::pop));
        let mut flushed = false;
        while let Some(shared) = next() {
            flushed |= shared.flush_next();
        }
        LEADS.set(before);
        flushed
    }

    fn flush_next(self: &Arc<Self>) -> bool {
        let Some(taken) = self.queue.take(&self.limits) else { return false };
        if taken.writes {
            if let Err(error) = self.write(&taken.batch) {
                self.fail(taken, &StoreError::Write(error));
                return true;
            }
            if self.index.design() == Design::MarkPersisted {
                // A mark in a record costs writing the record again. If this fails, nothing is lost: when
                // a store is opened, it takes all records as available.
                let _ = self.write(&taken.batch);
            }
            self.index.insert_revisions(&taken.batch.records, taken.batch.head);
            self.rows.published(&taken.batch.records);
        }
        if self.queue.flushed(&taken.batch) == Turn::Lead {
            self.lead_elsewhere();
        }
        answer(taken.told, &Ok(()));
        true
    }

    fn write(&self, batch: &Batch) -> Result<(), EngineError> {
        // The leader must end its turn, or there is never a leader again.
        let result = catch_unwind(AssertUnwindSafe(|| self.engine.commit(batch)));
        let result = result.unwrap_or_else(|_| Err(EngineError::new("commit", "it panicked")));
        self.counts.flushed(result.is_ok());
        result
    }

    /// Has a task of the runtime lead. If there is no runtime, or it refuses the task, this thread
    /// leads after its answers.
    fn lead_elsewhere(self: &Arc<Self>) {
        let duty = Duty(Arc::clone(self));
        if let Some(handle) = &self.handle {
            // If the runtime refuses the task, or ends and drops it, the drop of `duty` leads as
            // well.
            drop(handle.spawn(move || drop(duty)));
        }
    }

    fn fail(&self, mut taken: Taken, error: &StoreError) {
        // While all rows are held, no transaction has read staged rows without being in the queue.
        let mut held = self.rows.hold_all();
        self.queue.fail(&mut taken);
        self.index.withdraw(&taken.batch.records);
        held.forget_staged();
        drop(held);
        answer(taken.told, &Err(error.clone()));
    }
}

/// Leads when it is dropped, wherever that is.
struct Duty(Arc<Shared>);

impl Drop for Duty {
    fn drop(&mut self) {
        self.0.lead();
    }
}

/// Calls the answers. Data that they send to one connection leaves together. A panic of one answer
/// affects neither the others nor the leader.
fn answer(told: Vec<Told>, result: &Result<(), StoreError>) {
    net::together(|| {
        for told in told {
            drop(catch_unwind(AssertUnwindSafe(|| told(result.clone()))));
        }
    });
}

thread_local! {
    /// Stores that this thread must flush after its answers; `None` if it does not lead.
    static LEADS: RefCell<Option<Vec<Arc<Shared>>>> = const { RefCell::new(None) };
}

/// Most records that one flush removes. The limit keeps the flush short for the transactions in it.
const REMOVED_AT_ONCE: usize = 1_000;

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use lab::LONG;

    use super::*;

    #[test]
    fn transactions_are_pushed_while_a_compaction_takes_records_out_of_the_index() {
        let queue = Arc::new(Queue::default());
        let (tell, told) = mpsc::channel();
        queue.remove(|| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || {
                let (records, told) = (Vec::new(), Box::new(|_| ()));
                queue.push_small(Waiting { records, found_bytes: 0, compacted: 0, told });
                tell.send(()).expect("the test waits");
            });
            told.recv_timeout(LONG).expect("it waits for no compaction");
            Vec::new()
        });
    }
}

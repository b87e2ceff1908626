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
//! 1. A transaction is pushed while its rows are held, and gets its revision there. If nobody leads, its
//!    thread does.
//! 2. The leader takes what waits and gives it to the engine, in one batch.
//! 3. It publishes the batch in the index, at once.
//! 4. What came meanwhile gets another leader: a task of the runtime, so that no thread leads for longer
//!    than one flush.
//! 5. It answers the transactions of its batch, while the next flush is under way.
//!
//! When a flush fails, all that was staged fails, because it may build on what was in it; then the next
//! transaction is evaluated on what is visible.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoll_group::net;

use crate::engine::{Batch, EngineError, Head};
use crate::error::StoreError;
use crate::record::{Record, Revision};
use crate::store::{Limits, Shared};

/// Called with how the flush went.
pub(crate) type Told = Box<dyn FnOnce(Result<(), StoreError>) + Send>;

/// Something that waits for a flush: a transaction, one that wrote nothing, or a piece of a compaction.
pub(crate) struct Waiting {
    pub(crate) records: Vec<(Revision, Arc<Record>)>,
    pub(crate) removed: Vec<Revision>,
    /// Readers at earlier transactions are refused from then on.
    pub(crate) compacted: u64,
    pub(crate) told: Told,
}

/// What waits, in order.
#[derive(Default)]
pub(crate) struct Queue(Mutex<State>);

#[derive(Default)]
struct State {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// The newest transaction that has a revision.
    registered: u64,
    /// What the engine has.
    head: Head,
    /// Records that are not in the index any more and whose removal failed.
    unremoved: Vec<Revision>,
    is_led: bool,
}

/// What is flushed at once.
struct Taken {
    batch: Batch,
    /// There is something to write.
    writes: bool,
    told: Vec<Told>,
}

/// Who pushes first leads.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Lead,
    Led,
}

impl Queue {
    pub(crate) fn new(head: Head) -> Self {
        Self(Mutex::new(State { head, registered: head.revision, ..State::default() }))
    }

    /// Puts a transaction that writes, or does not, behind all others; `make` gets its revision.
    /// Called with its rows held.
    pub(crate) fn push(
        &self,
        writes: bool,
        limits: &Limits,
        make: impl FnOnce(u64) -> Waiting,
    ) -> Result<Turn, StoreError> {
        let mut state = self.lock();
        let (bytes, limit) = (state.bytes, limits.waiting_bytes);
        if bytes > limit {
            return Err(StoreError::Busy { bytes, limit });
        }
        state.registered += u64::from(writes);
        let waiting = make(state.registered);
        state.bytes += waiting.bytes();
        state.waiting.push_back(waiting);
        Ok(if std::mem::replace(&mut state.is_led, true) { Turn::Led } else { Turn::Lead })
    }

    /// What is flushed next.
    fn take(&self, limits: &Limits) -> Taken {
        let mut state = self.lock();
        let head = state.head;
        let mut batch = Batch { head, ..Batch::default() };
        batch.removed = std::mem::take(&mut state.unremoved);
        let (mut bytes, mut told) = (0, Vec::new());
        while let Some(next) = state.waiting.front().map(Waiting::bytes) {
            if bytes > 0 && bytes + next > limits.flush_bytes {
                break;
            }
            bytes += next;
            told.extend(state.waiting.pop_front().map(|next| next.join(&mut batch)));
        }
        state.bytes -= bytes;
        let writes = batch.head != head || !batch.records.is_empty() || !batch.removed.is_empty();
        Taken { batch, writes, told }
    }

    /// Whether somebody has to lead on.
    fn flushed(&self, head: Head) -> Turn {
        let mut state = self.lock();
        state.head = head;
        state.is_led = !state.waiting.is_empty();
        if state.is_led { Turn::Lead } else { Turn::Led }
    }

    /// Nothing that waits can be done: it builds on what was lost. Called with all rows held.
    fn fail(&self, Taken { batch, told, .. }: &mut Taken) {
        let mut state = self.lock();
        for waiting in std::mem::take(&mut state.waiting) {
            told.push(waiting.join(batch));
        }
        state.bytes = 0;
        state.registered = state.head.revision;
        state.unremoved = std::mem::take(&mut batch.removed);
        state.is_led = false;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn bytes(&self) -> usize {
        let records: usize = self.records.iter().map(|(_, record)| record.bytes()).sum();
        size_of::<Self>() + records + size_of_val(&*self.removed)
    }

    fn join(self, batch: &mut Batch) -> Told {
        if let Some((revision, _)) = self.records.last() {
            batch.head.revision = revision.main;
        }
        batch.head.compacted = batch.head.compacted.max(self.compacted);
        batch.records.extend(self.records);
        batch.removed.extend(self.removed);
        self.told
    }
}

impl Shared {
    /// Flushes what waits, until another thread does.
    pub(crate) fn lead(self: &Arc<Self>) {
        loop {
            let taken = self.queue.take(&self.limits);
            if taken.writes {
                if let Err(error) = self.write(&taken.batch) {
                    return self.fail(taken, &StoreError::Write(error));
                }
                self.index.insert_revisions(&taken.batch.records, taken.batch.head);
                self.rows.published(&taken.batch.records);
            }
            let turn = self.queue.flushed(taken.batch.head);
            let goes_on = turn == Turn::Lead && !self.lead_elsewhere();
            tell(taken.told, &Ok(()));
            if !goes_on {
                return;
            }
        }
    }

    fn write(&self, batch: &Batch) -> Result<(), EngineError> {
        // Whoever leads must come to an end, or nobody ever leads again.
        let result = catch_unwind(AssertUnwindSafe(|| self.engine.commit(batch)));
        let result = result.unwrap_or_else(|_| Err(EngineError::new("commit", "it panicked")));
        self.counts.flushed(result.is_ok());
        result
    }

    /// Has a task lead, if there is a runtime that takes one.
    fn lead_elsewhere(self: &Arc<Self>) -> bool {
        let shared = Arc::clone(self);
        self.handle.as_ref().is_some_and(|handle| handle.spawn(move || shared.lead()).is_ok())
    }

    fn fail(&self, mut taken: Taken, error: &StoreError) {
        // With all rows held nobody is between what a row shows and the queue.
        let mut held = self.rows.hold_all();
        self.queue.fail(&mut taken);
        self.index.withdraw(&taken.batch.records);
        held.forget_staged();
        drop(held);
        tell(taken.told, &Err(error.clone()));
    }
}

/// Answers them; what that sends leaves together.
fn tell(waiting: Vec<Told>, result: &Result<(), StoreError>) {
    net::together(|| {
        for told in waiting {
            told(result.clone());
        }
    });
}

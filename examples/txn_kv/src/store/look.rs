//! Transactions that wait for no flush: those without writes, which read one revision, and refused ones.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Store;
use crate::error::StoreError;
use crate::evaluate::{holds, read};
use crate::index::KeyRevision;
use crate::record::Key;
use crate::txn::{KeyRange, Op, OpResult, Outcome, Txn};

type Looked = Result<Outcome, StoreError>;

/// Called with the outcome of a transaction.
type Done = Box<dyn FnOnce(Looked) + Send>;

/// Answers in the order in which they are called, each with its outcome.
type Answers = VecDeque<(Done, Looked)>;

thread_local! {
    /// Answers that this thread has still to call; `None` if it is not calling any. An answer may begin the
    /// next transaction, whose answer must not need more stack.
    static ANSWERS: RefCell<Option<Answers>> = const { RefCell::new(None) };
}

/// Calls an answer: at once, or after the answer that runs on this thread. A panic of it affects nothing else.
pub(super) fn answer(done: Done, outcome: Looked) {
    let is_outermost = ANSWERS.with_borrow_mut(|answers| {
        let is_outermost = answers.is_none();
        answers.get_or_insert_default().push_back((done, outcome));
        is_outermost
    });
    if !is_outermost {
        return;
    }
    let next = || ANSWERS.with_borrow_mut(|answers| answers.as_mut()?.pop_front());
    while let Some((done, outcome)) = next() {
        drop(catch_unwind(AssertUnwindSafe(|| done(outcome))));
    }
    ANSWERS.set(None);
}

impl Store {
    /// Does a transaction without writes on the last durable revision. Takes no row locks and no place in
    /// the commit queue.
    pub(super) fn look(&self, txn: Txn, done: Done) {
        let looked = self.look_at(&txn, self.revision());
        if let Err(StoreError::Compacted { .. }) = looked {
            // A compaction has passed this revision, and may pass the next one.
            return self.0.run(txn, done);
        }
        self.0.counts.transaction(looked.is_ok());
        answer(done, looked);
    }

    fn look_at(&self, txn: &Txn, at: u64) -> Looked {
        let limits = &self.0.limits;
        let view = |range: &KeyRange, limit| {
            let snapshot = || self.0.engine.snapshot().map_err(StoreError::Read);
            let view = self.0.index.view(range, Some(at), limit, snapshot)?;
            let live = view.candidates.into_iter().map(|candidate| candidate.newest);
            Ok::<_, StoreError>((live.collect::<Vec<_>>(), view.snapshot))
        };
        let mut succeeded = true;
        for compare in &txn.compares {
            let (live, snapshot) = view(&KeyRange::One(Key::clone(&compare.key)), 1)?;
            let load = |own: &KeyRevision| read(&*snapshot, own.revision);
            let entry = || live.first().map(load).transpose();
            succeeded &= holds(compare, live.first().copied(), entry)?;
        }
        let (mut results, mut bytes) = (Vec::new(), 0);
        for op in if succeeded { &txn.then } else { &txn.otherwise } {
            let Op::Get { range, limit } = op else {
                unreachable!("the transaction has no writes")
            };
            let (live, snapshot) = view(range, (*limit).min(limits.found))?;
            let mut entries = Vec::with_capacity(live.len());
            for newest in live {
                let entry = read(&*snapshot, newest.revision)?;
                limits.count_found(&mut bytes, entry.record.bytes())?;
                entries.push(entry);
            }
            results.push(OpResult::Found(entries));
        }
        Ok(Outcome { revision: at, succeeded, results })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use lab::LONG;

    use super::*;
    use crate::design::Design;
    use crate::engine::Memory;
    use crate::store::Limits;

    #[test]
    fn a_transaction_without_writes_waits_for_no_row() {
        let store = Store::open(Memory::new(), Design::Publish, Limits::default(), None).unwrap();
        let rows = store.0.rows.hold_all();
        let get = Op::Get { range: KeyRange::Span(Key::from(&b""[..]), None), limit: 1 };
        let (tell, told) = mpsc::channel();
        let again = store.clone();
        thread::spawn(move || {
            let txn = Txn { then: vec![get], ..Txn::default() };
            again.txn(txn, move |outcome| drop(tell.send(outcome)));
        });
        let outcome = told.recv_timeout(LONG).expect("it waits for no row").unwrap();
        assert_eq!(outcome.results, [OpResult::Found(Vec::new())]);
        drop(rows);
    }
}

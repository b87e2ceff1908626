//! Transactions without writes, which read one revision.

use super::Store;
use crate::error::StoreError;
use crate::evaluate::{holds, read};
use crate::index::KeyRevision;
use crate::record::Key;
use crate::txn::{KeyRange, Op, OpResult, Outcome, Txn};

impl Store {
    /// Does a transaction without writes on the newest revision that can be read, which is durable.
    /// Takes no row locks and no place in the commit queue.
    pub(super) fn look(&self, txn: &Txn) -> Result<Outcome, StoreError> {
        let looked = loop {
            match self.look_at(txn, self.revision()) {
                // A compaction has passed this revision, so there is a newer one.
                Err(StoreError::Compacted { .. }) => {}
                looked => break looked,
            }
        };
        self.0.counts.transaction(looked.is_ok());
        looked
    }

    fn look_at(&self, txn: &Txn, at: u64) -> Result<Outcome, StoreError> {
        let limits = &self.0.limits;
        let view = |range: &KeyRange, limit| {
            let snapshot = || self.0.engine.snapshot().map_err(StoreError::Read);
            let view = self.0.index.view(range, Some(at), limit, snapshot)?;
            let newest = view.candidates.into_iter().map(|candidate| candidate.newest);
            let live: Vec<_> = newest.filter(|newest| !newest.is_deletion()).collect();
            Ok::<_, StoreError>((live, view.snapshot))
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

//! [`Memory`]: records in a tree, gone with the process.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::{Batch, Engine, EngineError, Head, Snapshot};
use crate::record::{Record, Revision};

/// Keeps records in memory: nothing survives the process, and no commit fails.
///
/// *Shape*: one tree under one read-write lock. A snapshot is the read guard: commits wait for it.
#[derive(Debug, Default)]
pub struct Memory {
    state: RwLock<State>,
}

#[derive(Debug, Default)]
struct State {
    records: BTreeMap<Revision, Arc<Record>>,
    head: Head,
}

impl Memory {
    /// Returns an engine without records.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl Engine for Memory {
    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        let mut state = self.state.write().unwrap_or_else(PoisonError::into_inner);
        let records = batch.records.iter().map(|(revision, record)| (*revision, record.clone()));
        state.records.extend(records);
        let removed: Vec<_> =
            batch.removed.iter().filter_map(|revision| state.records.remove(revision)).collect();
        state.head = batch.head;
        drop(state);
        // Their memory is given back when readers need not wait for it any more.
        drop(removed);
        Ok(())
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        Ok(Box::new(Held(state)))
    }
}

/// Snapshot of the records. Commits wait as long as it lives.
struct Held<'a>(RwLockReadGuard<'a, State>);

impl Snapshot for Held<'_> {
    fn get(&self, revision: Revision) -> Result<Option<Arc<Record>>, EngineError> {
        Ok(self.0.records.get(&revision).cloned())
    }

    fn head(&self) -> Result<Head, EngineError> {
        Ok(self.0.head)
    }

    fn scan(&self, visit: &mut dyn FnMut(Revision, Record)) -> Result<(), EngineError> {
        for (revision, record) in &self.0.records {
            visit(*revision, Record::clone(record));
        }
        Ok(())
    }
}

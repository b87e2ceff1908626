//! An engine whose commits and reads wait, and whose commits fail, on command.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use epoll_group::stall;
use lab::workers::Gate;
use txn_kv::engine::{Batch, Engine, EngineError, Memory, Snapshot};

/// Memory, with a gate before each commit and each read. Its clones are one engine.
#[derive(Clone)]
pub(crate) struct Scripted {
    memory: Arc<Memory>,
    pub(crate) commits: Gate,
    pub(crate) reads: Gate,
    failing: Arc<AtomicBool>,
}

impl Default for Scripted {
    fn default() -> Self {
        let [commits, reads] = [Gate::opened(), Gate::opened()];
        Self { memory: Arc::default(), commits, reads, failing: Arc::default() }
    }
}

impl Scripted {
    /// Makes commits fail, or succeed again.
    pub(crate) fn fail(&self, failing: bool) {
        self.failing.store(failing, Ordering::SeqCst);
    }
}

impl Engine for Scripted {
    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        stall::run(|| self.commits.pass());
        if self.failing.load(Ordering::SeqCst) {
            return Err(EngineError::new("commit", "no space left on device"));
        }
        self.memory.commit(batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        stall::run(|| self.reads.pass());
        self.memory.snapshot()
    }
}

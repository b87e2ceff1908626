//! An engine whose commits wait and fail on command.

use std::sync::{Arc, Condvar, Mutex};

use epoll_group::stall;
use txn_kv::engine::{Batch, Engine, EngineError, Memory, Snapshot};

/// Memory, with a gate before each commit. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scripted(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    memory: Memory,
    script: Mutex<Script>,
    changed: Condvar,
}

#[derive(Clone, Copy, Debug, Default)]
struct Script {
    closed: bool,
    failing: bool,
    /// Commits that wait.
    waiting: usize,
}

impl Scripted {
    /// Commits wait from now on.
    pub(crate) fn close(&self) {
        self.change(|script| script.closed = true);
    }

    /// Those that wait go on, and the next do not wait.
    pub(crate) fn open(&self) {
        self.change(|script| script.closed = false);
    }

    /// Commits fail, or do not.
    pub(crate) fn fail(&self, failing: bool) {
        self.change(|script| script.failing = failing);
    }

    pub(crate) fn waiting(&self) -> usize {
        self.0.script.lock().expect("no panic").waiting
    }

    fn change(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.0.script.lock().expect("no panic"));
        self.0.changed.notify_all();
    }

    fn pass(&self) -> Script {
        let mut script = self.0.script.lock().expect("no panic");
        if script.closed {
            script.waiting += 1;
            self.0.changed.notify_all();
            while script.closed {
                script = self.0.changed.wait(script).expect("no panic");
            }
            script.waiting -= 1;
        }
        *script
    }
}

impl Engine for Scripted {
    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        if stall::run(|| self.pass()).failing {
            return Err(EngineError::new("commit", "no space left on device"));
        }
        self.0.memory.commit(batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        self.0.memory.snapshot()
    }
}

//! [`Gated`]: an engine whose commits wait, and which fails on command.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use lab::LONG;
use txn_kv::Design;
use txn_kv::engine::{Batch, Engine, EngineError, Memory, Snapshot};
use txn_kv::store::{Limits, Store};

/// Memory that outlives its store, and whose commits wait while the gate is shut. Its clones are one
/// engine.
#[derive(Clone, Default)]
pub(crate) struct Gated(Arc<Inner>);

#[derive(Default)]
struct Inner {
    memory: Memory,
    state: Mutex<State>,
    changed: Condvar,
    fails: AtomicBool,
    cannot_read: AtomicBool,
    removed_at_once: AtomicU64,
    removed_bytes_at_once: AtomicU64,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    arrived: usize,
    passes: usize,
}

impl Gated {
    fn change(&self, code: impl FnOnce(&mut State)) {
        code(&mut self.0.state.lock().unwrap());
        self.0.changed.notify_all();
    }

    /// Makes commits wait from now on.
    pub(crate) fn shut(&self) {
        self.change(|state| *state = State { is_shut: true, ..State::default() });
    }

    /// Opens the gate: waiting commits go on, and later commits do not wait.
    pub(crate) fn open(&self) {
        self.change(|state| state.is_shut = false);
    }

    /// Lets one commit through.
    pub(crate) fn pass(&self) {
        self.change(|state| state.passes += 1);
    }

    /// Waits until `arrived` commits have begun since the gate was shut.
    pub(crate) fn wait_for(&self, arrived: usize) {
        let state = self.0.state.lock().unwrap();
        let before = |state: &mut State| state.arrived < arrived;
        let wait = self.0.changed.wait_timeout_while(state, LONG, before).unwrap();
        assert!(!wait.1.timed_out(), "commit {arrived} has not begun");
    }

    /// Makes commits that pass fail from now on, or succeed again.
    pub(crate) fn fails(&self, fails: bool) {
        self.0.fails.store(fails, Ordering::Relaxed);
    }

    /// Makes snapshots fail from now on, or succeed again.
    pub(crate) fn cannot_read(&self, cannot: bool) {
        self.0.cannot_read.store(cannot, Ordering::Relaxed);
    }

    /// Most records that a single commit has removed.
    pub(crate) fn removed_at_once(&self) -> u64 {
        self.0.removed_at_once.load(Ordering::Relaxed)
    }

    /// Most bytes of records that a single commit has removed.
    pub(crate) fn removed_bytes_at_once(&self) -> u64 {
        self.0.removed_bytes_at_once.load(Ordering::Relaxed)
    }

    /// Opens a store on this engine, without a runtime.
    pub(crate) fn store(&self, design: Design, limits: Limits) -> Store {
        Store::open(self.clone(), design, limits, None).unwrap()
    }
}

impl Engine for Gated {
    fn commit(&self, batch: &Batch) -> Result<(), EngineError> {
        self.change(|state| state.arrived += 1);
        let shut = |state: &mut State| state.is_shut && state.passes == 0;
        let mut state = self.0.changed.wait_while(self.0.state.lock().unwrap(), shut).unwrap();
        state.passes = state.passes.saturating_sub(1);
        drop(state);
        if self.0.fails.load(Ordering::Relaxed) {
            return Err(EngineError::new("commit", "it is told to fail"));
        }
        self.0.removed_at_once.fetch_max(batch.removed.len() as u64, Ordering::Relaxed);
        let before = self.0.memory.snapshot()?;
        let removed = batch.removed.iter().filter_map(|revision| before.get(*revision).unwrap());
        let bytes: usize = removed.map(|record| record.bytes()).sum();
        drop(before);
        self.0.removed_bytes_at_once.fetch_max(bytes as u64, Ordering::Relaxed);
        self.0.memory.commit(batch)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot + '_>, EngineError> {
        if self.0.cannot_read.load(Ordering::Relaxed) {
            return Err(EngineError::new("read", "it is told to fail"));
        }
        self.0.memory.snapshot()
    }
}

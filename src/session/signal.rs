//! [`Signal`]: notifies a handler that waits for its peer.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

#[cfg(feature = "internal")]
use crate::sync::shim::lock;

/// Condition variable of a handler. On a thread of a simulation the other parts of the simulation
/// take steps within the wait.
#[derive(Debug, Default)]
pub(super) struct Signal {
    condvar: Condvar,
    /// Number of notifications. A simulated wait ends with the next one.
    #[cfg(feature = "internal")]
    times: std::sync::atomic::AtomicU64,
}

impl Signal {
    pub(super) fn notify_all(&self) {
        #[cfg(feature = "internal")]
        self.times.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.condvar.notify_all();
    }

    /// Waits for a notification. `guard` is that of `mutex`.
    #[cfg_attr(not(feature = "internal"), expect(unused_variables, reason = "for simulations"))]
    pub(super) fn wait<'a, T>(
        &self,
        mutex: &'a Mutex<T>,
        guard: MutexGuard<'a, T>,
    ) -> MutexGuard<'a, T> {
        #[cfg(feature = "internal")]
        if let Some(take_step) = SIMULATED.get() {
            let times = || self.times.load(std::sync::atomic::Ordering::Relaxed);
            let before = times();
            drop(guard);
            while times() == before {
                take_step();
            }
            return lock(mutex);
        }
        self.condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the code that takes a step of the simulation on this thread; `None` makes handlers wait.
#[cfg(feature = "internal")]
pub(crate) fn simulate_waits(take_step: Option<fn()>) {
    SIMULATED.set(take_step);
}

#[cfg(feature = "internal")]
thread_local! {
    static SIMULATED: std::cell::Cell<Option<fn()>> = const { std::cell::Cell::new(None) };
}

//! [`Interrupt`]: how the statement of a session is stopped from outside, and what it may wait for.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use epoll_group::sync::{Condvar, Mutex};

/// Shared by a session, by who may cancel it, and by the lock it waits for.
#[derive(Default)]
pub struct Interrupt {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    cancelled: bool,
    /// The lock that it waited for is its own.
    granted: bool,
    /// Told to what runs for it in SQLite, which looks at it every now and then.
    stop: Option<Arc<AtomicBool>>,
    /// Ends what runs for it on no thread.
    ending: Option<Box<dyn FnOnce() + Send>>,
    /// Called before the next grant.
    #[cfg(test)]
    before_grant: Option<Box<dyn FnOnce() + Send>>,
}

/// Nothing waits for longer, whatever a client says: what is added to the time now must fit.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// End of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    Granted,
    Cancelled,
    TimedOut,
}

impl Interrupt {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the statement, whatever it does.
    pub fn cancel(&self) {
        let mut state = self.state();
        state.cancelled = true;
        if let Some(stop) = &state.stop {
            stop.store(true, Ordering::Relaxed);
        }
        let ending = state.ending.take();
        drop(state);
        self.changed.notify_all();
        if let Some(ending) = ending {
            ending();
        }
    }

    /// Calls `ending` if it is cancelled from now on, or was before; until the next statement begins.
    pub fn end_by(&self, ending: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.cancelled {
            drop(state);
            return ending();
        }
        state.ending = Some(Box::new(ending));
    }

    /// A statement begins.
    pub fn begin(&self) {
        let ending = self.state().ending.take();
        drop(ending);
    }

    /// The statement has ended.
    pub fn clear(&self) {
        self.state().cancelled = false;
    }

    /// From now on `stop` says when to stop, until it is another one.
    pub fn stop_by(&self, stop: &Arc<AtomicBool>) {
        let mut state = self.state();
        stop.store(state.cancelled, Ordering::Relaxed);
        state.stop = Some(Arc::clone(stop));
    }

    /// Forgets `stop`: its connection runs for another session from now on.
    pub fn let_go(&self, stop: &Arc<AtomicBool>) {
        self.state().stop.take_if(|own| Arc::ptr_eq(own, stop));
    }

    /// Before it waits for a lock.
    pub fn expect_grant(&self) {
        self.state().granted = false;
    }

    /// The lock is its own now.
    pub fn grant(&self) {
        #[cfg(test)]
        {
            let before = self.state().before_grant.take();
            before.into_iter().for_each(|before| before());
        }
        self.state().granted = true;
        self.changed.notify_all();
    }

    /// Calls `code` before the next grant.
    #[cfg(test)]
    pub fn when_granted(&self, code: impl FnOnce() + Send + 'static) {
        self.state().before_grant = Some(Box::new(code));
    }

    /// Waits for the lock, as an announced stall.
    pub fn wait_for_grant(&self, limit: Duration) -> Waited {
        self.wait(limit, |state| state.granted)
    }

    /// Waits for time to pass. `false` if it was cancelled before.
    pub fn sleep(&self, time: Duration) -> bool {
        self.wait(time, |_| false) == Waited::TimedOut
    }

    fn wait(&self, limit: Duration, is_over: impl Fn(&State) -> bool) -> Waited {
        let end = Instant::now() + limit.min(LONGEST);
        let mut state = self.state();
        loop {
            if is_over(&state) {
                return Waited::Granted;
            }
            if state.cancelled {
                return Waited::Cancelled;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::TimedOut;
            }
            let waited = self.changed.wait_timeout(state, left);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Interrupt")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_let_go_is_not_stopped() {
        let (interrupt, stop) = (Interrupt::default(), Arc::new(AtomicBool::new(false)));
        interrupt.stop_by(&stop);
        interrupt.let_go(&Arc::default());
        interrupt.cancel();
        assert!(stop.swap(false, Ordering::Relaxed), "it was another one's");
        interrupt.let_go(&stop);
        interrupt.cancel();
        assert!(!stop.load(Ordering::Relaxed));
    }
}

//! [`Interrupt`]: how the statement of a session is stopped from outside, and what it may wait for.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use epoll_group::sync::{Condvar, Mutex};

/// Cancels and wakes one session. Shared by the session, its cancel handle and the lock that it
/// waits for.
#[derive(Default)]
pub struct Interrupt {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    cancelled: bool,
    /// True if the session has got the lock that it waited for.
    granted: bool,
    /// Flag that stops what SQLite runs for the session. SQLite looks at the flag from time to
    /// time.
    stop: Option<Arc<AtomicBool>>,
    /// Ends a statement that waits without a thread, such as `sleep`.
    ending: Option<Box<dyn FnOnce() + Send>>,
    /// Called before the next grant.
    #[cfg(test)]
    before_grant: Option<Box<dyn FnOnce() + Send>>,
}

/// Longest wait, whatever a client asks for: the sum with the time now must not overflow.
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

    /// Calls `ending` when the statement is cancelled, or at once if it was cancelled before. The
    /// next statement drops `ending`.
    pub fn end_by(&self, ending: impl FnOnce() + Send + 'static) {
        let mut state = self.state();
        if state.cancelled {
            drop(state);
            return ending();
        }
        state.ending = Some(Box::new(ending));
    }

    /// Called when a statement begins. Drops the `ending` of the last statement.
    pub fn begin(&self) {
        let ending = self.state().ending.take();
        drop(ending);
    }

    /// Called when a cancelled statement has ended. Forgets the cancel.
    pub fn clear(&self) {
        self.state().cancelled = false;
    }

    /// Lets a cancel, also an earlier one, set `stop` from now on, in place of an earlier flag.
    pub fn stop_by(&self, stop: &Arc<AtomicBool>) {
        let mut state = self.state();
        stop.store(state.cancelled, Ordering::Relaxed);
        state.stop = Some(Arc::clone(stop));
    }

    /// Forgets `stop`: its connection runs for another session from now on.
    pub fn let_go(&self, stop: &Arc<AtomicBool>) {
        self.state().stop.take_if(|own| Arc::ptr_eq(own, stop));
    }

    /// Called before the session waits for a lock. Forgets an earlier grant.
    pub fn expect_grant(&self) {
        self.state().granted = false;
    }

    /// Gives the session the lock that it waits for.
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

//! [`Watch`]: how the watchdog sleeps, and how workers wake it.
//!
//! While a worker holds something that others could do, the watchdog naps and looks. While no worker
//! does, it sleeps until a worker alerts it.
//!
//! A worker shows what it holds, and then looks if the watchdog sleeps. The watchdog shows that it
//! sleeps, and then looks what workers hold. Both pass a SeqCst fence in between, so one of the two
//! sees the other.

use std::time::Duration;

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicBool, Ordering, fence};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};

/// Shared by the watchdog of a runtime and all its workers.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Set while an alert must end the sleep. Written by the watchdog, and by the worker that wakes it.
    asleep: AtomicBool,
    /// Set when the runtime ends.
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// Reason why the watchdog woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woke {
    /// The time is over.
    TimeOut,
    /// A worker runs, or may hold something.
    Alerted,
    /// The runtime ends.
    Stopped,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { asleep: AtomicBool::new(false), stopped: Mutex::new(false), changed: Condvar::new() }
    }

    /// Wakes the watchdog if it sleeps. The caller must pass a SeqCst fence before this call, after it
    /// has shown what it does.
    pub(crate) fn alert(&self) {
        if self.asleep.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.asleep.swap(false, Ordering::Relaxed) {
            drop(lock(&self.stopped));
            self.changed.notify_one();
        }
    }

    pub(crate) fn stop(&self) {
        *lock(&self.stopped) = true;
        self.changed.notify_one();
    }

    /// Waits for the whole time, unless the runtime ends. Alerts do not end it.
    pub(crate) fn nap(&self, time: Duration) -> Woke {
        self.wait(Some(time), |_| true)
    }

    /// Sleeps until a worker alerts, but for `limit` at most. Returns at once if `is_quiet` returns
    /// false.
    pub(crate) fn sleep(&self, limit: Option<Duration>, is_quiet: impl FnOnce() -> bool) -> Woke {
        self.asleep.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fences in `Park::rise` and `Schedule::show_to_watchdog`. Either
        // the worker sees the flag, or `is_quiet` sees that the worker runs and what it holds.
        mutant!(fence(Ordering::SeqCst), WatchWithoutFence => ());
        if !is_quiet() {
            self.asleep.store(false, Ordering::Relaxed);
            return Woke::Alerted;
        }
        let woke = self.wait(limit, |asleep| asleep.load(Ordering::Relaxed));
        self.asleep.store(false, Ordering::Relaxed);
        woke
    }

    fn wait(&self, limit: Option<Duration>, goes_on: impl Fn(&AtomicBool) -> bool) -> Woke {
        let stopped = lock(&self.stopped);
        let goes_on = |stopped: &mut bool| !*stopped && goes_on(&self.asleep);
        let (stopped, over) = wait_while(&self.changed, stopped, limit, goes_on);
        match over {
            _ if *stopped => Woke::Stopped,
            true => Woke::TimeOut,
            false => Woke::Alerted,
        }
    }
}

#[cfg(all(test, loom))]
mod model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn sleep_returns_at_once_if_it_is_not_quiet() {
        assert_eq!(Watch::new().sleep(None, || false), Woke::Alerted);
    }

    #[test]
    fn sleep_ends_at_its_limit() {
        assert_eq!(Watch::new().sleep(Some(SHORT), || true), Woke::TimeOut);
    }

    #[test]
    fn an_alert_ends_a_sleep() {
        let watch = Watch::new();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| watch.sleep(None, || true));
            while !sleeper.is_finished() {
                watch.alert();
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().expect("no panic"), Woke::Alerted);
        });
    }

    #[test]
    fn a_wake_up_that_comes_late_ends_no_nap() {
        let watch = Watch::new();
        let time = Duration::from_millis(20);
        std::thread::scope(|scope| {
            let began = std::time::Instant::now();
            let watchdog = scope.spawn(|| watch.nap(time));
            while !watchdog.is_finished() {
                watch.changed.notify_one();
                std::thread::yield_now();
            }
            assert!(began.elapsed() >= time);
        });
    }

    #[test]
    fn a_stop_is_not_missed() {
        let watch = Watch::new();
        watch.stop();
        assert_eq!(watch.sleep(None, || true), Woke::Stopped);
        assert_eq!(watch.nap(Duration::MAX), Woke::Stopped);
    }
}

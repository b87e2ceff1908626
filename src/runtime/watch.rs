//! [`Watch`]: how the watchdog sleeps while everybody rests, and is woken by the first who does not.
//!
//! A worker ends its rest, and then looks whether the watchdog sleeps; the watchdog says that it
//! sleeps, and then looks whether everybody rests. Both with a SeqCst fence between, so one of the two
//! sees the other.

use std::time::Duration;

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicBool, Ordering, fence};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};

/// Shared by the watchdog of a runtime and all its workers.
#[derive(Debug)]
pub(crate) struct Watch {
    /// Written by the watchdog, and by the worker that wakes it.
    asleep: AtomicBool,
    /// The runtime ends.
    stopped: Mutex<bool>,
    changed: Condvar,
}

/// Why the watchdog woke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Woke {
    /// To look: the interval is over.
    Look,
    /// To look: everybody rested, and somebody does not any more.
    Roused,
    /// To end.
    Stop,
}

impl Watch {
    pub(crate) fn new() -> Self {
        Self { asleep: AtomicBool::new(false), stopped: Mutex::new(false), changed: Condvar::new() }
    }

    /// After the end of a rest, which has passed a SeqCst fence.
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

    /// Sleeps for as long as everybody rests; else for `interval`.
    pub(crate) fn sleep(&self, interval: Duration, mut all_rest: impl FnMut() -> bool) -> Woke {
        if !all_rest() {
            return self.wait(Some(interval));
        }
        self.asleep.store(true, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `Park::rise`. Either that worker sees the flag, or this
        // look sees that it does not rest.
        mutant!(fence(Ordering::SeqCst), WatchWithoutFence => ());
        if all_rest() {
            return self.wait(None);
        }
        self.asleep.store(false, Ordering::Relaxed);
        self.wait(Some(interval))
    }

    /// For the interval; without one, until somebody is up.
    fn wait(&self, interval: Option<Duration>) -> Woke {
        let stopped = lock(&self.stopped);
        // Until the interval is over: who wakes the watchdog may come late, when it is up already.
        let goes_on = |stopped: &mut bool| {
            !*stopped && (interval.is_some() || self.asleep.load(Ordering::Relaxed))
        };
        let (stopped, _) = wait_while(&self.changed, stopped, interval, goes_on);
        self.asleep.store(false, Ordering::Relaxed);
        match interval {
            _ if *stopped => Woke::Stop,
            Some(_) => Woke::Look,
            None => Woke::Roused,
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
    fn it_looks_again_while_somebody_works() {
        assert_eq!(Watch::new().sleep(SHORT, || false), Woke::Look);
    }

    #[test]
    fn who_rises_wakes_it() {
        let watch = Watch::new();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| watch.sleep(Duration::MAX, || true));
            while !sleeper.is_finished() {
                watch.alert();
                std::thread::yield_now();
            }
            assert_eq!(sleeper.join().expect("no panic"), Woke::Roused);
        });
    }

    #[test]
    fn a_wake_up_that_comes_late_ends_no_interval() {
        let watch = Watch::new();
        let interval = Duration::from_millis(20);
        std::thread::scope(|scope| {
            let began = std::time::Instant::now();
            let watchdog = scope.spawn(|| watch.sleep(interval, || false));
            while !watchdog.is_finished() {
                watch.changed.notify_one();
                std::thread::yield_now();
            }
            assert!(began.elapsed() >= interval);
        });
    }

    #[test]
    fn a_stop_is_not_missed() {
        let watch = Watch::new();
        watch.stop();
        assert_eq!(watch.sleep(Duration::MAX, || true), Woke::Stop);
        assert_eq!(watch.sleep(Duration::MAX, || false), Woke::Stop);
    }
}

//! Clock: the system's, or on a thread of a simulation the simulated one.
//!
//! Runtime, connections, sessions and pools read the time here, so that a simulation can skip hours at
//! once. The simulated time exists only in tests and with the feature `internal`.

#[cfg(any(test, feature = "internal"))]
use std::cell::Cell;
use std::time::{Duration, Instant};

#[cfg(any(test, feature = "internal"))]
thread_local! {
    static SIMULATED: Cell<Option<Instant>> = const { Cell::new(None) };
}

#[cfg(test)]
thread_local! {
    static AT_LOOK: Cell<Option<Box<dyn FnMut()>>> = const { Cell::new(None) };
}

/// Present time.
#[inline]
pub(crate) fn now() -> Instant {
    #[cfg(test)]
    if let Some(mut code) = AT_LOOK.take() {
        code();
        AT_LOOK.set(Some(code));
    }
    #[cfg(any(test, feature = "internal"))]
    if let Some(now) = SIMULATED.get() {
        return now;
    }
    Instant::now()
}

/// Time from `then` to now; 0 if `then` is later.
pub(crate) fn since(then: Instant) -> Duration {
    now().saturating_duration_since(then)
}

/// Time `delay` after `from`; in a hundred years if the clock does not reach that far.
pub(crate) fn later(from: Instant, delay: Duration) -> Instant {
    from.checked_add(delay).unwrap_or_else(|| from + FAR)
}

const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Nanoseconds from `from` to `to`, for an atomic; 0 if `to` is earlier.
pub(crate) fn nanos_between(from: Instant, to: Instant) -> u64 {
    u64::try_from(to.saturating_duration_since(from).as_nanos()).unwrap_or(u64::MAX)
}

/// Sets the time of this thread to `now`, until the next call; `None` restores the system's clock.
#[cfg(any(test, feature = "internal"))]
pub(crate) fn simulate(now: Option<Instant>) {
    SIMULATED.set(now);
}

/// Runs `code` at each look of this thread at the clock, so that a test gets into the middle of a run.
#[cfg(test)]
pub(crate) fn at_each_look(code: impl FnMut() + 'static) {
    AT_LOOK.set(Some(Box::new(code)));
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_simulated_time_stands_still_and_is_that_of_one_thread() {
        let start = Instant::now();
        let hour = Duration::from_secs(3600);
        simulate(Some(start + hour));
        assert_eq!((now(), now()), (start + hour, start + hour));
        let elsewhere = thread::spawn(now).join().expect("it asks for the time");
        assert!(elsewhere < start + hour);
        simulate(None);
        assert!(now() < start + hour);
    }
}

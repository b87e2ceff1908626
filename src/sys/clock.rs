//! Clock: the system's, or on a thread of a simulation the simulated one.
//!
//! Runtime, connections, sessions and pools read the time here, so that a simulation can skip hours at
//! once. The simulated time exists only in tests and with the feature `internal`.

#[cfg(any(test, feature = "internal"))]
use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Sub};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{self, Duration};

/// Time of a monotonic clock. Like [`std::time::Instant`], but a difference takes one instruction
/// instead of forty, and an `Option` has 8 bytes: a request compares several times, and a connection
/// keeps several.
///
/// Arithmetic stops at the ends of the range, which are a century or more away.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instant(NonZeroU64);

/// Nanoseconds of an [`Instant`] at the zero of the system's clock.
const ZERO: u64 = 100 * 365 * 24 * 3600 * SECOND;
const SECOND: u64 = 1_000_000_000;

impl Instant {
    /// Time of the system's clock.
    #[cfg(all(feature = "server", target_os = "linux"))]
    #[inline]
    pub(crate) fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is live for the call.
        let read = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        debug_assert_eq!(read, 0, "the system has this clock");
        let part = |number: libc::c_long| u64::try_from(number).unwrap_or(0);
        let nanos = part(time.tv_sec) * SECOND + part(time.tv_nsec);
        Self::from_nanos(ZERO + nanos)
    }

    /// Time of the system's clock.
    #[cfg(not(all(feature = "server", target_os = "linux")))]
    pub(crate) fn now() -> Self {
        Self::from(time::Instant::now())
    }

    fn from_nanos(nanos: u64) -> Self {
        Self(NonZeroU64::new(nanos).unwrap_or(NonZeroU64::MIN))
    }

    /// The time `time` later; `None` beyond the end of the range.
    pub(crate) fn checked_add(self, time: Duration) -> Option<Self> {
        self.0.checked_add(nanos(time)).map(Self)
    }

    /// Time since `earlier`; 0 if that is later.
    pub(crate) const fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }

    /// Nanoseconds since `earlier`; 0 if that is later.
    pub(crate) const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.get().saturating_sub(earlier.0.get())
    }

    #[cfg(test)]
    pub(crate) fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }
}

/// Nanoseconds of a duration, at most [`u64::MAX`].
pub(crate) fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(SECOND).saturating_add(u64::from(duration.subsec_nanos()))
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(nanos(time)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        Self::from_nanos(self.0.get().saturating_sub(nanos(time)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// One moment on both clocks. All conversions use the same one, so they keep the order of times.
fn one_moment() -> (time::Instant, Instant) {
    static MOMENT: OnceLock<(time::Instant, Instant)> = OnceLock::new();
    *MOMENT.get_or_init(|| {
        // The thread may be preempted between the looks at the two clocks.
        let looks = (0..LOOKS).map(|_| {
            let theirs = time::Instant::now();
            #[cfg(all(feature = "server", target_os = "linux"))]
            let ours = Instant::now();
            #[cfg(not(all(feature = "server", target_os = "linux")))]
            let ours = Instant::from_nanos(ZERO);
            (theirs.elapsed(), (theirs, ours))
        });
        let closest = looks.min_by_key(|(took, _)| *took).map(|(_, moment)| moment);
        closest.expect("it looks more than once")
    })
}

/// Number of looks, of which the closest count.
const LOOKS: usize = 4;

impl From<time::Instant> for Instant {
    fn from(time: time::Instant) -> Self {
        let (theirs, ours) = one_moment();
        ours + time.saturating_duration_since(theirs) - theirs.saturating_duration_since(time)
    }
}

impl From<Instant> for time::Instant {
    fn from(time: Instant) -> Self {
        let (theirs, ours) = one_moment();
        let later = theirs.checked_add(time.duration_since(ours)).unwrap_or(theirs + FAR);
        later.checked_sub(ours.duration_since(time)).unwrap_or(theirs)
    }
}

const FAR: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", Duration::from_nanos(self.0.get().saturating_sub(ZERO)))
    }
}

/// Time that threads share, as a hint. The first value is a time in the past.
#[derive(Debug, Default)]
pub(crate) struct AtomicInstant(AtomicU64);

impl AtomicInstant {
    pub(crate) fn get(&self) -> Instant {
        Instant::from_nanos(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, time: Instant) {
        self.0.store(time.0.get(), Ordering::Relaxed);
    }

    /// Sets a time if it is later than the present one.
    pub(crate) fn raise(&self, time: Instant) {
        self.0.fetch_max(time.0.get(), Ordering::Relaxed);
    }
}

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
    now().duration_since(then)
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

    #[test]
    fn a_time_of_the_standard_library_comes_back_as_it_was() {
        let (now, second) = (time::Instant::now(), Duration::from_secs(1));
        for time in [now, now + 3 * second, now + FAR, now.checked_sub(second).unwrap_or(now)] {
            assert_eq!(time::Instant::from(Instant::from(time)), time);
        }
        let (before, between, after) = (Instant::now(), time::Instant::now(), Instant::now());
        let slack = Duration::from_millis(100);
        let between = Instant::from(between);
        assert!(before < between + slack && between < after + slack);
    }

    #[test]
    fn arithmetic_stops_at_the_ends() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let end = now + Duration::MAX;
        assert_eq!((end + second, end - end), (end, Duration::ZERO));
        let begin = now - Duration::MAX;
        assert_eq!((begin - second, begin - now), (begin, Duration::ZERO));
        assert!(end - begin > 5 * FAR);
        assert_eq!((now + second) - now, second);
        assert_eq!(size_of::<Option<Instant>>(), 8);
    }
}

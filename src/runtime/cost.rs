//! [`Cost`]: how long a run of something takes, as far as known.

use std::time::Duration;

use crate::sync::shim::atomic::{AtomicU32, Ordering};

/// Running estimate of how long a run takes.
///
/// Multiplicative, in both directions bounded by the sample: up by at most four, down by at most
/// two. So a single sample that was spoilt by preemption does not make a quick connection dear, but
/// two slow ones in a row do, or every second one. What nobody measured yet is dear.
#[derive(Debug)]
pub(crate) struct Cost {
    /// Nanoseconds; statistics, so a lost update does not matter.
    nanos: AtomicU32,
}

/// What to expect of the next run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// It will be over before another thread would be awake.
    Cheap,
    /// Nobody knows yet; treated as if it were dear.
    Unknown,
    /// Nothing may wait behind it.
    Dear,
}

const UNKNOWN: u32 = u32::MAX;
/// Below this a run counts as cheap: about ten times a receive and a send on loopback, and a
/// wake-up of another thread would cost as much.
const CHEAP_NANOS: u32 = 64_000;
/// Estimates start here, so that rising by factors cannot take for ever.
const FLOOR_NANOS: u32 = 4_000;

impl Cost {
    pub(crate) fn unknown() -> Self {
        Self { nanos: AtomicU32::new(UNKNOWN) }
    }

    pub(crate) fn pace(&self) -> Pace {
        match self.nanos.load(Ordering::Relaxed) {
            UNKNOWN => Pace::Unknown,
            nanos if nanos < CHEAP_NANOS => Pace::Cheap,
            _ => Pace::Dear,
        }
    }

    /// The estimate, once something was measured.
    pub(crate) fn nanos(&self) -> Option<u32> {
        match self.nanos.load(Ordering::Relaxed) {
            UNKNOWN => None,
            nanos => Some(nanos),
        }
    }

    pub(crate) fn add(&self, sample: Duration) {
        let sample = u32::try_from(sample.as_nanos()).unwrap_or(UNKNOWN - 1);
        let before = self.nanos.load(Ordering::Relaxed);
        let after = match before {
            UNKNOWN => sample,
            _ if sample > before => sample.min(before.saturating_mul(4)),
            _ => sample.max(before / 2),
        };
        let after = after.max(FLOOR_NANOS);
        if after != before {
            self.nanos.store(after, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const QUICK: Duration = Duration::from_micros(6);
    const SLOW: Duration = Duration::from_millis(5);

    #[test]
    fn unknown_is_dear_and_one_quick_run_makes_it_cheap() {
        let cost = Cost::unknown();
        assert_eq!((cost.pace(), cost.nanos()), (Pace::Unknown, None));
        cost.add(QUICK);
        assert_eq!((cost.pace(), cost.nanos()), (Pace::Cheap, Some(6_000)));
    }

    #[test]
    fn one_slow_run_is_forgiven_and_two_are_not() {
        let cost = Cost::unknown();
        cost.add(QUICK);
        cost.add(SLOW);
        assert_eq!(cost.pace(), Pace::Cheap, "it may have been preempted");
        cost.add(SLOW);
        assert_eq!(cost.pace(), Pace::Dear);
    }

    #[test]
    fn every_second_run_slow_is_dear_before_long() {
        let cost = Cost::unknown();
        for _ in 0..6 {
            cost.add(SLOW);
            cost.add(QUICK);
        }
        assert_eq!(cost.pace(), Pace::Dear);
    }
}

//! [`Retry`]: pauses between attempts to connect. Pure: `now` is an argument.

use super::options::Options;
use crate::sys::clock::Instant;

/// Number of failures, and the time of the next attempt.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// Consecutive connections that failed, or ended before they had lasted.
    failures: u32,
    /// Time of the last failure.
    failed_at: Option<Instant>,
    /// Earliest time of the next attempt.
    at: Option<Instant>,
}

impl Retry {
    /// Time of the next attempt. `None` if it may begin now.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        self.at.filter(|&at| at > now)
    }

    /// Returns true from a failure until a newer connection has lasted.
    pub(super) const fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Returns true if a connection begun at `since` has lasted. A connection that its server ends
    /// right after the login lengthens the pauses, too.
    pub(super) fn has_lasted(since: Instant, now: Instant, options: &Options) -> bool {
        now.duration_since(since) >= options.reconnect_max
    }

    /// Notes that a connection begun at `since` is open. If it has lasted and is newer than the
    /// last failure, failures are forgotten.
    pub(super) fn see(&mut self, since: Instant, now: Instant, options: &Options) {
        if Self::has_lasted(since, now, options) && self.failed_at.is_some_and(|at| at <= since) {
            *self = Self::default();
        }
    }

    /// Notes a connection that failed, or ended before it had lasted. The next attempt follows
    /// after half of the pause up to all of it: `random` is at least 0 and below 1.
    pub(super) fn fail(&mut self, now: Instant, options: &Options, random: f64) {
        let (min, max) = (options.reconnect_min, options.reconnect_max);
        let wait = min.saturating_mul(1 << self.failures.min(20)).min(max);
        self.at = Some(now + wait / 2 + (wait / 2).mul_f64(random));
        self.failed_at = Some(now);
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);
    const LONGEST: Duration = Duration::from_secs(2);

    fn options() -> Options {
        Options::new("127.0.0.1:1", "root").reconnect_min(50 * MILLISECOND).reconnect_max(LONGEST)
    }

    /// Connects as early as allowed, this many times. Each connection ends a moment later. Returns
    /// the pauses.
    fn meet(
        retry: &mut Retry,
        now: &mut Instant,
        others: &[Instant],
        times: usize,
    ) -> Vec<Duration> {
        let options = options();
        let once = |_| {
            let since = *now;
            *now += MILLISECOND;
            for &since in others.iter().chain([&since]) {
                retry.see(since, *now, &options);
            }
            assert!(!Retry::has_lasted(since, *now, &options));
            retry.fail(*now, &options, 0.5);
            let at = retry.due(*now).expect("not at once");
            at - std::mem::replace(now, at)
        };
        (0..times).map(once).collect()
    }

    /// Three quarters of each pause: half, and half of the rest.
    fn doubling() -> [Duration; 8] {
        [50, 100, 200, 400, 800, 1600, 2000, 2000].map(|whole| whole * MILLISECOND * 3 / 4)
    }

    #[test]
    fn a_server_that_ends_what_has_just_logged_in_is_met_ever_more_rarely() {
        let (mut retry, mut now) = (Retry::default(), Instant::now());
        assert_eq!(meet(&mut retry, &mut now, &[], 8), doubling());
        assert!(retry.is_failing());
    }

    #[test]
    fn a_wait_is_half_as_long_at_least_and_never_longer_than_it_may_be() {
        for (random, part) in [(0.0, 0.5), (0.25, 0.625), (1.0, 1.0)] {
            let (mut retry, now) = (Retry::default(), Instant::now());
            for whole in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
                retry.fail(now, &options(), random);
                let wait = retry.due(now).expect("not at once") - now;
                assert_eq!(wait, (whole * MILLISECOND).mul_f64(part), "{random}");
                assert_eq!(retry.due(now + wait), None, "the wait is over");
            }
        }
    }

    #[test]
    fn a_connection_that_was_there_before_does_not_make_it_be_met_more_often() {
        let before = Instant::now();
        let (mut retry, mut now) = (Retry::default(), before + 100 * LONGEST);
        assert_eq!(meet(&mut retry, &mut now, &[before], 8), doubling());
    }

    #[test]
    fn one_that_lasts_makes_failures_forgotten() {
        let (mut retry, mut now) = (Retry::default(), Instant::now());
        meet(&mut retry, &mut now, &[], 8);
        let since = now;
        assert_eq!(retry.due(now), None);
        retry.see(since, since + LONGEST - MILLISECOND, &options());
        assert!(retry.is_failing());
        retry.see(since, since + LONGEST, &options());
        assert!(!retry.is_failing());
        assert_eq!(meet(&mut retry, &mut now, &[], 8), doubling());
    }
}

//! [`Sharing`]: decides by trials if the workers of a calm group share long batches.
//!
//! While a worker runs a long batch, another one could poll. On a machine with free CPUs this serves
//! more events. On a busy machine it only takes CPU time from the threads that produce the work.
//!
//! So the group shares for a window of time. It goes on if clearly more events were served in it. Now
//! and then the group stops sharing for a window. It stays so if about as many events were served.

use crate::sys::clock::Instant;
use std::time::Duration;

/// Decides if a group shares. Pure: takes events and times, and returns true while the group
/// shares.
#[derive(Debug)]
pub(super) struct Sharing {
    on: bool,
    /// Start of the window, and number of events that all workers had taken then.
    began: Instant,
    events: u64,
    /// Events per second before the trial that is under way.
    rate_before: Option<f64>,
    /// Time between the last trial and the next one.
    hold: Duration,
    next_trial: Instant,
}

/// Batches that a worker has waited for since it last judged. On one CPU it never judges.
#[derive(Debug, Default)]
pub(super) struct Batches {
    all: u64,
    long: u64,
}

impl Batches {
    /// Notes a batch. `is_long` tells that it takes longer than to wake another worker.
    pub(super) fn note(&mut self, is_long: bool) {
        self.all += 1;
        self.long += u64::from(is_long);
    }

    const fn are_long(&self) -> bool {
        self.long * 10 >= self.all * 8
    }
}

const WINDOW: Duration = Duration::from_millis(20);
/// Events per second, over a window with a pause in it, below which the group does not share: one full
/// batch for each window.
const FEW: f64 = 800.0;
const SHORTEST_HOLD: Duration = Duration::from_millis(100);
const LONGEST_HOLD: Duration = Duration::from_secs(2);
/// The group goes on sharing if the rate rises at least by this factor.
const GAIN: f64 = 1.15;
/// The group does without sharing if at least this part of the rate remains.
const LOSS: f64 = 0.95;

impl Sharing {
    pub(super) fn new(now: Instant) -> Self {
        let hold = SHORTEST_HOLD;
        Self { on: false, began: now, events: 0, rate_before: None, hold, next_trial: now }
    }

    /// Time at which the window ends. Before it, [`judge`](Self::judge) changes nothing.
    pub(super) fn window_ends(&self) -> Instant {
        self.began + WINDOW
    }

    /// Judges the window if it is over. `events` is the number that all workers have taken so far.
    /// Returns true if the group shares from now on.
    pub(super) fn judge(&mut self, now: Instant, events: u64, batches: &mut Batches) -> bool {
        let elapsed = now.duration_since(self.began);
        if elapsed < WINDOW {
            return self.on;
        }
        let rate = (events - self.events) as f64 / elapsed.as_secs_f64();
        if elapsed < WINDOW * 2 {
            self.compare(now, rate, batches.are_long());
        } else if rate < FEW {
            (self.on, self.rate_before) = (false, None);
        }
        // Otherwise the group was open in between, and the window tells nothing.
        (self.began, self.events) = (now, events);
        *batches = Batches::default();
        self.on
    }

    fn compare(&mut self, now: Instant, rate: f64, are_long: bool) {
        if let Some(before) = self.rate_before.take() {
            if rate >= before * if self.on { GAIN } else { LOSS } {
                self.hold = SHORTEST_HOLD;
            } else {
                self.on = !self.on;
                self.hold = (self.hold * 2).min(LONGEST_HOLD);
            }
            self.next_trial = now + self.hold;
        } else if now >= self.next_trial && (self.on || are_long) {
            self.on = !self.on;
            self.rate_before = Some(rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a group for a minute that serves 1 000 events per millisecond, and `gain` times as many
    /// while it shares. Returns the milliseconds for which it shared.
    fn shared(gain: f64, long: bool) -> u32 {
        let mut now = Instant::now();
        let mut sharing = Sharing::new(now);
        let (mut events, mut on, mut shared) = (0, false, 0);
        let mut batches = Batches::default();
        for _ in 0..60_000 {
            now += Duration::from_millis(1);
            events += if on { (1_000.0 * gain) as u64 } else { 1_000 };
            batches.note(long);
            on = sharing.judge(now, events, &mut batches);
            shared += u32::from(on);
        }
        shared
    }

    #[test]
    fn a_group_shares_where_it_helps() {
        let shared = shared(1.5, true);
        assert!(shared > 55_000, "all the time but for trials without it: {shared} ms");
    }

    #[test]
    fn where_sharing_does_not_help_it_is_tried_seldom() {
        for gain in [0.8, 1.0] {
            let shared = shared(gain, true);
            // After the first trials there are 2 s between two of them.
            assert!((40..1_200).contains(&shared), "{shared} ms of a minute");
        }
    }

    #[test]
    fn short_batches_are_not_shared() {
        assert_eq!(shared(2.0, false), 0);
    }

    #[test]
    fn batches_that_are_never_judged_do_not_overflow() {
        let most = u32::MAX.into();
        let mut batches = Batches { all: most, long: most };
        batches.note(true);
        assert!(batches.are_long());
    }

    #[test]
    fn a_pause_ends_the_sharing_and_an_open_group_does_not() {
        // Events in 50 ms.
        for (events, on) in [(39, false), (41, true)] {
            let now = Instant::now();
            let mut sharing = Sharing::new(now);
            let mut batches = Batches::default();
            batches.note(true);
            assert!(sharing.judge(now + WINDOW, 1, &mut batches), "a trial begins");
            let later = now + WINDOW + Duration::from_millis(50);
            assert_eq!(sharing.judge(later, 1 + events, &mut batches), on);
        }
    }
}

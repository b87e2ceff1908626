//! [`Climb`]: number of pollers that a calm group needs, found by trials.
//!
//! Full batches show that there is more work than one poller takes at a time. They do not show that
//! another poller would help. On a busy machine, it only takes CPU time from the threads that produce
//! the work.
//!
//! So one more poller is tried for a window of time. It stays if clearly more events were served in it.
//! Now and then, one poller fewer is tried. The lower number stays if about as many events were served.

use std::time::{Duration, Instant};

/// Pure: takes events and times, and returns the number of extra pollers.
#[derive(Debug)]
pub(super) struct Climb {
    most: u32,
    extra: u32,
    window: Window,
    trial: Option<Trial>,
    /// Time between the last trial and the next one.
    hold: Duration,
    next_trial: Instant,
}

#[derive(Debug)]
struct Window {
    began: Instant,
    events: u64,
    waits: u32,
    full: u32,
}

#[derive(Debug)]
struct Trial {
    /// Number of extra pollers before the trial.
    before: u32,
    /// Events per second before the trial.
    rate: f64,
}

const WINDOW: Duration = Duration::from_millis(20);
const SHORTEST_HOLD: Duration = Duration::from_millis(100);
const LONGEST_HOLD: Duration = Duration::from_secs(2);
/// One more poller stays if the rate rises at least by this factor.
const GAIN: f64 = 1.15;
/// One poller fewer is enough if at least this part of the rate remains.
const LOSS: f64 = 0.95;

impl Climb {
    pub(super) fn new(most: u32, now: Instant) -> Self {
        let window = Window { began: now, events: 0, waits: 0, full: 0 };
        Self { most, extra: 0, window, trial: None, hold: SHORTEST_HOLD, next_trial: now }
    }

    /// Notes a wait of the first poller. `events` is the number that all pollers have taken so far.
    /// Returns the number of extra pollers.
    pub(super) fn note(&mut self, now: Instant, events: u64, full: bool) -> u32 {
        self.window.waits += 1;
        self.window.full += u32::from(full);
        let elapsed = now.saturating_duration_since(self.window.began);
        if elapsed >= WINDOW {
            // A window with a pause in it tells nothing.
            if elapsed < WINDOW * 2 {
                self.judge(now, (events - self.window.events) as f64 / elapsed.as_secs_f64());
            }
            self.window = Window { began: now, events, waits: 0, full: 0 };
        }
        self.extra
    }

    /// Notes that an extra poller looked and found nothing, so it is not needed. Returns the number of
    /// extra pollers.
    pub(super) fn note_idle(&mut self, now: Instant) -> u32 {
        if let Some(trial) = self.trial.take() {
            self.extra = trial.before.min(self.extra);
        } else {
            self.extra = self.extra.saturating_sub(1);
        }
        self.wait_longer(now);
        self.extra
    }

    fn judge(&mut self, now: Instant, rate: f64) {
        let busy = self.window.full * 10 >= self.window.waits * 8;
        match self.trial.take() {
            Some(trial) => {
                let more = self.extra > trial.before;
                let stays = rate >= trial.rate * if more { GAIN } else { LOSS };
                if stays {
                    self.hold = SHORTEST_HOLD;
                    self.next_trial = now + self.hold;
                } else {
                    self.extra = trial.before;
                    self.wait_longer(now);
                }
            }
            None if now >= self.next_trial => {
                let before = self.extra;
                if busy && self.extra < self.most {
                    self.extra += 1;
                } else if self.extra > 0 {
                    self.extra -= 1;
                } else {
                    return;
                }
                self.trial = Some(Trial { before, rate });
            }
            None => {}
        }
    }

    fn wait_longer(&mut self, now: Instant) {
        self.hold = (self.hold * 2).min(LONGEST_HOLD);
        self.next_trial = now + self.hold;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a machine on which `useful` pollers serve 1 000 events per millisecond each, and other
    /// pollers none. Returns the number of extra pollers at the end, and how often it changed.
    fn settle(useful: u32, most: u32, full: bool) -> (u32, u32) {
        let mut now = Instant::now();
        let mut climb = Climb::new(most, now);
        let (mut events, mut extra, mut changes) = (0, 0, 0);
        for _ in 0..60_000 {
            now += Duration::from_millis(1);
            events += 1_000 * u64::from((1 + extra).min(useful));
            let next = climb.note(now, events, full);
            changes += u32::from(next != extra);
            extra = next;
        }
        (extra, changes)
    }

    #[test]
    fn it_climbs_as_far_as_it_helps() {
        assert_eq!(settle(4, 3, true).0, 3);
        let (extra, _) = settle(2, 3, true);
        assert!((1..=2).contains(&extra), "one extra, or a trial of one more: {extra}");
    }

    #[test]
    fn where_it_does_not_help_it_is_tried_seldom() {
        let (extra, changes) = settle(1, 3, true);
        assert!(extra <= 1);
        // A trial is two changes. After the first trials there are 2 s between two of them.
        assert!(changes < 80, "{changes} changes in a minute");
    }

    #[test]
    fn batches_that_are_not_full_call_for_nobody() {
        assert_eq!(settle(4, 3, false), (0, 0));
    }

    #[test]
    fn who_finds_nothing_ends_the_trial() {
        let mut now = Instant::now();
        let mut climb = Climb::new(1, now);
        let mut events = 0;
        let mut extra = 0;
        while extra == 0 {
            now += Duration::from_millis(1);
            events += 1_000;
            extra = climb.note(now, events, true);
        }
        assert_eq!(climb.note_idle(now), 0);
        assert_eq!(climb.note(now + WINDOW, events, true), 0, "not again at once");
    }
}

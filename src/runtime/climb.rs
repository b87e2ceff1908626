//! [`Climb`]: how many pollers a calm group needs, found out by trying.
//!
//! Full batches say that there is more to do than one poller takes at a time. They do not say that
//! another poller would help: on a machine that is full it only takes the CPU of those who produce
//! the work. So one more is tried for a window of time, and stays if clearly more was done in it;
//! now and then one less is tried, and is enough if about as much was done.

use std::time::{Duration, Instant};

/// Pure: told what happened and when, it says how many extra pollers there are to be.
#[derive(Debug)]
pub(super) struct Climb {
    most: u32,
    extra: u32,
    window: Window,
    trial: Option<Trial>,
    /// How long the next trial has to wait, and since when.
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
    /// The number of extra pollers before.
    before: u32,
    /// Events per second before.
    rate: f64,
}

const WINDOW: Duration = Duration::from_millis(20);
const SHORTEST_HOLD: Duration = Duration::from_millis(100);
const LONGEST_HOLD: Duration = Duration::from_secs(2);
/// One more has to bring so much, or it goes.
const GAIN: f64 = 1.15;
/// One less may cost so much, and stays away.
const LOSS: f64 = 0.95;

impl Climb {
    pub(super) fn new(most: u32, now: Instant) -> Self {
        let window = Window { began: now, events: 0, waits: 0, full: 0 };
        Self { most, extra: 0, window, trial: None, hold: SHORTEST_HOLD, next_trial: now }
    }

    /// After each wait of the first poller. `events` were taken by all pollers so far.
    pub(super) fn note(&mut self, now: Instant, events: u64, full: bool) -> u32 {
        self.window.waits += 1;
        self.window.full += u32::from(full);
        let elapsed = now.saturating_duration_since(self.window.began);
        if elapsed >= WINDOW {
            // A window with a pause in it says nothing.
            if elapsed < WINDOW * 2 {
                self.judge(now, (events - self.window.events) as f64 / elapsed.as_secs_f64());
            }
            self.window = Window { began: now, events, waits: 0, full: 0 };
        }
        self.extra
    }

    /// An extra poller looked and found nothing: it is not needed.
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

    /// A machine on which `useful` pollers do 1 000 events per millisecond each, the others nothing.
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
        // A trial is two changes, and after the first ones there are two seconds between.
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

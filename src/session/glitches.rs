//! [`Glitches`]: limits the useless messages of a connection. Time refills the budget.
//!
//! A glitch is a complete message that was of no use. One glitch is harmless, but a peer that sends
//! ten thousand makes the server work for nothing. Each glitch costs its connection a part of
//! `glitch_window`. A connection that owes more than the whole window has exceeded `max_glitches`
//! and is closed with an error.
//!
//! The page [`sessions`](crate::guide::sessions#glitches) lists what counts as a glitch.
//!
//! Existing clients kill before they close, grant credit to ended requests, and write to sessions
//! that the server has closed. These messages are late, and no fault. So each opened session and
//! each queued request excuses two late messages.
//!
//! *Shape*: [`Glitches`] is pure; the time is an argument. 24 bytes for each connection.

use crate::sys::clock::Instant;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Glitches {
    /// Time at which all glitches are paid for.
    paid_at: Option<Instant>,
    /// Number of late messages that do not count.
    excused: u32,
    spent: bool,
}

/// Number of late messages that each opened session and each queued request excuses.
const EXCUSED_EACH: u32 = 2;
/// Largest number of late messages that a connection may send later without a glitch.
const MOST_EXCUSED: u32 = 1 << 16;

impl Glitches {
    /// Excuses the late messages of a session that was opened, or of a request that was queued.
    pub(super) fn excuse(&mut self) {
        self.excused = (self.excused + EXCUSED_EACH).min(MOST_EXCUSED);
    }

    /// Notes a message that may be late. Returns true if it is a glitch.
    pub(super) const fn is_late(&mut self) -> bool {
        let excused = self.excused > 0;
        self.excused = self.excused.saturating_sub(1);
        !excused
    }

    /// Adds a glitch. `window` pays for `most` of them; 0 sets no limit.
    pub(super) fn add(&mut self, most: usize, window: Duration, now: Instant) {
        if most == 0 {
            return;
        }
        let owed = self.paid_at.map_or(Duration::ZERO, |at| at.duration_since(now));
        let owed = owed + window / u32::try_from(most).unwrap_or(u32::MAX);
        self.paid_at = now.checked_add(owed);
        self.spent |= owed > window;
    }

    /// Returns true if there were too many glitches.
    pub(super) const fn is_spent(&self) -> bool {
        self.spent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn so_many_at_once_and_no_more() {
        let now = Instant::now();
        let mut glitches = Glitches::default();
        for _ in 0..100 {
            glitches.add(100, MINUTE, now);
            assert!(!glitches.is_spent());
        }
        glitches.add(100, MINUTE, now);
        assert!(glitches.is_spent());
    }

    #[test]
    fn time_pays() {
        let mut now = Instant::now();
        let mut glitches = Glitches::default();
        for _ in 0..1000 {
            glitches.add(100, MINUTE, now);
            now += Duration::from_millis(600);
        }
        assert!(!glitches.is_spent());
        // Time pays for half of each.
        for _ in 0..190 {
            glitches.add(100, MINUTE, now);
            now += Duration::from_millis(300);
        }
        assert!(!glitches.is_spent());
        for _ in 0..200 {
            glitches.add(100, MINUTE, now);
        }
        assert!(glitches.is_spent());
        now += Duration::from_secs(1000);
        glitches.add(100, MINUTE, now);
        assert!(glitches.is_spent(), "once and for all");
    }

    #[test]
    fn without_a_limit_nothing_is_owed() {
        let now = Instant::now();
        let mut glitches = Glitches::default();
        (0..1_000_000).for_each(|_| glitches.add(0, MINUTE, now));
        assert!(!glitches.is_spent());
    }

    #[test]
    fn what_was_done_excuses_what_is_late() {
        let mut glitches = Glitches::default();
        assert!(glitches.is_late());
        glitches.excuse();
        glitches.excuse();
        assert_eq!([(); 5].map(|()| glitches.is_late()), [false, false, false, false, true]);
        (0..MOST_EXCUSED).for_each(|_| glitches.excuse());
        let excused = (0..=MOST_EXCUSED).take_while(|_| !glitches.is_late()).count();
        assert_eq!(excused, MOST_EXCUSED as usize, "not without end");
    }
}

//! [`Glitches`]: what a connection does wrong, or for nothing, against a budget that time refills.
//!
//! A glitch is a message that was read, understood and answered, or passed over, and of which no good
//! came: of one nobody has to think anything, of ten thousand in a row somebody wants us to work for
//! nothing. Each costs its connection a part of `glitch_window`. Who owes more than all of it has had
//! `max_glitches`, and is told so and closed.
//!
//! ```text
//!   counts                                          does not
//!   ─────────────────────────────────────────────   ──────────────────────────────────────────
//!   a message to a session that is not there,       as many as two for each session opened and
//!   credit for nobody                               each request taken in: see below
//!   the id of a session that is there, for another  an error of the service
//!   a session, request or kind refused by a limit   a digest that is not in the cache
//!   a message that is beyond the codec's limits     an expectation of an expect block that fails
//!   a kill that came together with what it kills,   any other kill
//!   or with all that its session was used for
//!   a session closed that was never used            a probe, a question for the time
//!   negative credit, a login behind the login
//! ```
//!
//! Existing clients kill before they close, grant credit to what has ended, and write to sessions that
//! we have closed: all that is late, and nobody's fault. So each session that is opened and each request
//! that is taken in excuses two messages that are late.
//!
//! *Shape*: [`Glitches`] is pure; the time is an argument. 24 bytes for each connection.

use std::time::{Duration, Instant};

use super::error::SessionError;
use super::server::Reader;
use super::service::Service;
use crate::config::Config;
use crate::net::Close;
use crate::stats::Counter;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Glitches {
    /// When time will have paid for all of them.
    paid_at: Option<Instant>,
    /// Messages that may be late.
    excused: u32,
    spent: bool,
}

/// The limits as they are now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    most: usize,
    window: Duration,
}

impl From<&Config> for Budget {
    fn from(config: &Config) -> Self {
        Self { most: config.max_glitches, window: config.glitch_window }
    }
}

/// Late messages that a session that is opened, or a request that is taken in, excuses.
const EXCUSED_EACH: u32 = 2;
/// As many as may be kept for later.
const MOST_EXCUSED: u32 = 1 << 16;

impl Glitches {
    /// A session was opened, or a request taken in: there may be late messages for it.
    pub(super) fn excuse(&mut self) {
        self.excused = (self.excused + EXCUSED_EACH).min(MOST_EXCUSED);
    }

    /// A message that came too late, perhaps; whether it is a glitch.
    pub(super) const fn is_late(&mut self) -> bool {
        let excused = self.excused > 0;
        self.excused = self.excused.saturating_sub(1);
        !excused
    }

    /// One glitch.
    pub(super) fn add(&mut self, budget: Budget, now: Instant) {
        if budget.most == 0 {
            return;
        }
        let owed = self.paid_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let most = u32::try_from(budget.most).unwrap_or(u32::MAX);
        let owed = owed + budget.window / most;
        self.paid_at = now.checked_add(owed);
        self.spent |= owed > budget.window;
    }

    /// There were too many.
    pub(super) const fn is_spent(&self) -> bool {
        self.spent
    }
}

impl<S: Service> Reader<S> {
    pub(super) fn glitch(&mut self) {
        let line = &self.link.line;
        line.count(Counter::Glitches);
        self.glitches.add(Budget::from(line.config()), self.now);
    }

    /// What nobody is there for any more, or nobody ever was.
    pub(super) fn late(&mut self) {
        if self.glitches.is_late() {
            self.glitch();
        }
    }

    pub(super) fn not_found(&mut self, session: u64) {
        self.late();
        self.refuse(session, &SessionError::not_found());
    }

    /// What sessions of this kind do not do.
    pub(super) fn unsupported(&mut self, session: u64) {
        self.glitch();
        self.refuse(session, &SessionError::unsupported("Not support for polarx rpc."));
    }

    /// The end of a connection that has done too much for nothing.
    pub(super) fn too_many_glitches(&mut self, session: u64) -> Close {
        let line = &self.link.line;
        line.count(Counter::ClosedGlitches);
        let Budget { most, window } = Budget::from(line.config());
        let text = format!("more than max_glitches {most} in {window:?}");
        self.refuse(session, &SessionError::unsupported(&*text).into_fatal());
        Close::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(most: usize) -> Budget {
        Budget { most, window: Duration::from_secs(60) }
    }

    #[test]
    fn so_many_at_once_and_no_more() {
        let now = Instant::now();
        let mut glitches = Glitches::default();
        for _ in 0..100 {
            glitches.add(budget(100), now);
            assert!(!glitches.is_spent());
        }
        glitches.add(budget(100), now);
        assert!(glitches.is_spent());
    }

    #[test]
    fn time_pays() {
        let mut now = Instant::now();
        let mut glitches = Glitches::default();
        for _ in 0..1000 {
            glitches.add(budget(100), now);
            now += Duration::from_millis(600);
        }
        assert!(!glitches.is_spent());
        // Half of it is paid for.
        for _ in 0..190 {
            glitches.add(budget(100), now);
            now += Duration::from_millis(300);
        }
        assert!(!glitches.is_spent());
        for _ in 0..200 {
            glitches.add(budget(100), now);
        }
        assert!(glitches.is_spent());
        now += Duration::from_secs(1000);
        glitches.add(budget(100), now);
        assert!(glitches.is_spent(), "once and for all");
    }

    #[test]
    fn without_a_limit_nothing_is_owed() {
        let now = Instant::now();
        let mut glitches = Glitches::default();
        (0..1_000_000).for_each(|_| glitches.add(budget(0), now));
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

//! The lookout: a worker at rest that sees whether another one is stuck, and takes over from it what
//! others could do. Part of the [`Worker`].

use std::mem;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::park::Rest;
use super::worker::Worker;
use crate::sys::clock;

/// What a lookout remembers between two looks.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    /// Beat of every seat at the last look.
    beats: Vec<u64>,
    tick: Duration,
    /// Time since a worker held something that others could take.
    quiet: Duration,
    /// When to look again in the midst of running.
    passes_at: Option<Instant>,
    /// This worker got up, and nobody may be on the lookout since.
    got_up: bool,
}

/// What a lookout has taken over.
#[derive(Debug, Default)]
struct Relieved {
    /// There is something in the queue now.
    work: bool,
    permit: bool,
}

/// Time between two looks while something happens; a worker that completed nothing in between is
/// stuck. Doubles while nothing happens.
pub(super) const SHORTEST_TICK: Duration = Duration::from_micros(500);
const LONGEST_TICK: Duration = Duration::from_millis(10);
/// Time without a worker that holds something, after which the lookout sleeps. A worker that takes
/// something wakes it.
const QUIET: Duration = Duration::from_millis(30);

impl Worker {
    /// Sleeps until woken. The lookout wakes by itself to see whether somebody is stuck.
    pub(super) fn sleep(&mut self, mut rest: Rest) {
        self.lookout.tick = SHORTEST_TICK;
        self.lookout.quiet = Duration::ZERO;
        // With this one at rest, somebody is.
        self.lookout.got_up = false;
        self.note_beats();
        let until = self.patience().map(|patience| clock::now() + patience);
        let mut permit = false;
        let woken = loop {
            let watching = rest.is_lookout();
            let limit = if watching { Some(self.lookout.tick) } else { self.patience() };
            let woken = self.group.park.sleep(rest, limit);
            if woken || !watching {
                break woken;
            }
            let relieved = self.relieve_the_stuck();
            permit = relieved.permit;
            // Who was added or called also looks whether it is to leave.
            let patient = until.is_none_or(|until| clock::now() < until);
            if permit || relieved.work || !patient {
                break false;
            }
            if self.lookout.quiet >= QUIET {
                rest = self.group.park.end_lookout(rest);
                // Somebody may have begun since the look, and have counted on this one.
                self.group.see_to_lookout();
            }
        };
        self.group.park.rise(rest);
        self.rise(permit);
        self.group.watch.alert();
        self.lookout.got_up = true;
        self.now = clock::now();
        // The beats may have been noted just now.
        self.lookout.passes_at = Some(self.now + SHORTEST_TICK);
        if woken {
            self.count_wake_up();
        }
    }

    /// Before it does anything but sleep again, when it would be on the lookout itself: it may have
    /// been until it got up, or was woken to be the next one and finds something else.
    ///
    /// Not as soon as it gets up: it would wake somebody, find nothing, sleep, and take that wake-up
    /// before the other one could, again and again for as long as anybody runs.
    pub(super) fn leave_lookout(&mut self) {
        if mem::take(&mut self.lookout.got_up) {
            self.group.see_to_lookout();
        }
    }

    /// Takes from workers that completed nothing since the last look what others could do: what they
    /// have set aside, the rest of their batch, and the permit.
    fn relieve_the_stuck(&mut self) -> Relieved {
        let group = Arc::clone(&self.group);
        let mut any_holds = false;
        let mut relieved = Relieved::default();
        for (seat, beat) in group.crew.seats.iter().zip(&self.lookout.beats) {
            if !seat.state.runs() {
                continue;
            }
            any_holds |= seat.holds();
            if seat.beat.load(Ordering::Relaxed) != *beat {
                continue;
            }
            relieved.work |= group.relieve(seat);
            if seat.state.take_permit() {
                if relieved.permit {
                    // One is enough for this worker.
                    group.park.give_permit();
                }
                relieved.permit = true;
            }
        }
        self.note_beats();
        if any_holds {
            self.lookout.quiet = Duration::ZERO;
            self.lookout.tick = SHORTEST_TICK;
        } else {
            self.lookout.quiet += self.lookout.tick;
            self.lookout.tick = (self.lookout.tick * 2).min(LONGEST_TICK);
        }
        relieved
    }

    /// The same in the midst of running, now and then: while all are busy nobody is on the lookout. Who
    /// polls keeps his permit.
    pub(super) fn relieve_in_passing(&mut self) {
        if self.lookout.passes_at.is_some_and(|at| self.now < at) {
            return;
        }
        self.lookout.passes_at = Some(self.now + SHORTEST_TICK);
        let group = Arc::clone(&self.group);
        let seats = group.crew.seats.iter().zip(&self.lookout.beats).enumerate();
        for (index, (seat, beat)) in seats {
            let stuck = seat.state.runs() && seat.beat.load(Ordering::Relaxed) == *beat;
            if stuck && index != self.seat {
                group.relieve(seat);
            }
        }
        self.note_beats();
    }

    fn note_beats(&mut self) {
        let beats = self.group.crew.seats.iter().map(|seat| seat.beat.load(Ordering::Relaxed));
        self.lookout.beats.clear();
        self.lookout.beats.extend(beats);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::runtime::Builder;
    use crate::runtime::threads::ThreadKind;
    use crate::runtime::worker::Role;

    #[test]
    fn a_lookout_sleeps_beside_a_handler_that_holds_nothing() {
        let config = Config::default().epoll_groups(1).epoll_threads_per_group(2).max_threads(2);
        let config = config.reserve_threads_per_group(0);
        // No thread runs but this one.
        let (runtime, _) = Builder::default().config(config).assemble(None).expect("descriptors");
        let group = Arc::clone(&runtime.handle.shared.groups[0]);
        let seats = [(); 2].map(|()| group.crew.sit(ThreadKind::Base));
        let mut lookout = Worker::new(Arc::clone(&group), seats[1], ThreadKind::Base, Role::Called);
        let blocked = &group.crew.seats[seats[0]].state;
        for has_permit in [false, true] {
            blocked.run(has_permit);
            lookout.lookout = Lookout { tick: SHORTEST_TICK, ..Lookout::default() };
            lookout.note_beats();
            let mut looks = 0;
            let mut permits = 0;
            while lookout.lookout.quiet < QUIET {
                permits += u32::from(lookout.relieve_the_stuck().permit);
                looks += 1;
                assert!(looks < 10, "a worker with nothing to take keeps the lookout awake");
            }
            assert_eq!(permits, u32::from(has_permit), "the permit is taken first");
        }
        let _ = blocked.rest();
    }
}

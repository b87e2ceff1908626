//! The door: where a group's threads compete for CPUs, one of them takes what comes, runs what is
//! quick, and leaves the rest to the others. Part of the [`Worker`].
//!
//! A thread that runs much is interrupted by others that do, also while it runs something quick, which
//! then takes as long as all of theirs. One that runs little gets a CPU at once when it wakes.
//!
//! ```text
//!  threads compete, others run ──▶ keeps the door ──▶ the queue is empty, or nobody competes: rests
//!                                        └──────────▶ the others complete nothing: runs tasks
//! ```

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::end::RUN;
use super::seats::Seat;
use super::worker::Worker;
use crate::sys::clock;

/// Who keeps it: at most one worker of a group, who has to come back in time. Hints, and no more: two
/// that keep it take each other's events, and with nobody all workers look.
#[derive(Debug)]
pub(super) struct Door {
    started: Instant,
    /// Nanoseconds after `started` until which it is kept.
    until: AtomicU64,
}

/// In this time the others have to complete something, or who keeps the door runs tasks himself.
const TICK: Duration = Duration::from_millis(1);
/// After this time without a look who keeps the door is stuck.
const STUCK: Duration = Duration::from_millis(3);

/// What who keeps it has to show.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key(u64);

impl Door {
    pub(super) fn new(now: Instant) -> Self {
        Self { started: now, until: AtomicU64::new(0) }
    }

    pub(super) fn is_kept(&self, now: Instant) -> bool {
        self.nanos(now) < self.until.load(Ordering::Relaxed)
    }

    fn take(&self, now: Instant) -> Option<Key> {
        let before = self.until.load(Ordering::Relaxed);
        if self.nanos(now) < before { None } else { self.exchange(Key(before), now) }
    }

    /// `None` if another one has taken it meanwhile.
    fn exchange(&self, key: Key, now: Instant) -> Option<Key> {
        let until = self.nanos(now + STUCK);
        let order = Ordering::Relaxed;
        self.until.compare_exchange(key.0, until, order, order).ok().map(|_| Key(until))
    }

    fn leave(&self, key: Key) {
        let order = Ordering::Relaxed;
        let _ = self.until.compare_exchange(key.0, 0, order, order);
    }

    fn nanos(&self, at: Instant) -> u64 {
        clock::nanos_between(self.started, at)
    }
}

impl Worker {
    /// Keeps the door for as long as others run what is in the queue.
    pub(super) fn keep_door(&mut self) {
        if !self.polls() || !self.others_run() {
            return;
        }
        let Some(mut key) = self.group.door.take(self.now) else { return };
        let (mut beats, mut looked) = (self.beats_of_others(), self.now);
        loop {
            let demand = self.group.mode.demand(self.now);
            self.poll(None, demand, TICK);
            self.beat();
            match self.group.door.exchange(key, self.now) {
                Some(next) => key = next,
                None => return,
            }
            let over = self.group.lanes.is_empty() || self.group.stopping() != RUN;
            if over || !self.group.is_crowded(self.now) {
                break;
            }
            if self.now.saturating_duration_since(looked) >= TICK {
                looked = self.now;
                let before = mem::replace(&mut beats, self.beats_of_others());
                if before == beats {
                    break;
                }
            }
        }
        self.group.door.leave(key);
    }

    fn others(&self) -> impl Iterator<Item = &Seat> {
        let seats = self.group.crew.seats.iter().enumerate();
        seats.filter(|(index, _)| *index != self.seat).map(|(_, seat)| seat)
    }

    fn others_run(&self) -> bool {
        self.others().any(|seat| seat.state.runs())
    }

    /// Changes with everything that they complete.
    fn beats_of_others(&self) -> u64 {
        let beats = self.others().map(|seat| seat.beat.load(Ordering::Relaxed));
        beats.fold(0, u64::wrapping_add)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::config::Config;
    use crate::runtime::{Builder, Runtime};

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(30);

    /// Two workers, and never more, that take themselves to compete for CPUs all the time.
    fn crowded() -> Runtime {
        let config = Config::default()
            .epoll_groups(1)
            .epoll_threads_per_group(2)
            .max_threads(2)
            .reserve_threads_per_group(0);
        let runtime = Builder::default().config(config).start().expect("a runtime");
        let group = Arc::clone(&runtime.handle.shared.groups[0]);
        group.mode.note_crowded(Instant::now() + 4 * LONG);
        runtime
    }

    #[test]
    fn one_keeps_the_door_and_loses_it_when_he_is_stuck() {
        let now = Instant::now();
        let door = Door::new(now);
        assert!(!door.is_kept(now));
        let key = door.take(now).expect("nobody has it");
        assert!(door.is_kept(now) && door.take(now + TICK).is_none());
        let key = door.exchange(key, now + TICK).expect("it is still his");
        let late = now + TICK + STUCK;
        assert!(!door.is_kept(late));
        let other = door.take(late).expect("he is stuck");
        assert!(door.exchange(key, late).is_none());
        door.leave(key);
        assert!(door.is_kept(late), "by the other one");
        door.leave(other);
        assert!(!door.is_kept(late));
    }

    #[test]
    fn who_keeps_the_door_runs_tasks_when_the_other_one_is_stuck() {
        let runtime = crowded();
        let (release, stuck) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let begun = tell.clone();
        let block = move || {
            begun.send(0).expect("waited for");
            let _ = stuck.recv_timeout(2 * LONG);
        };
        runtime.handle.spawn(block).expect("there is room");
        assert_eq!(told.recv_timeout(LONG), Ok(0));
        for number in 1..10 {
            let tell = tell.clone();
            let task = move || tell.send(number).expect("waited for");
            runtime.handle.spawn(task).expect("there is room");
            assert_eq!(told.recv_timeout(LONG), Ok(number));
        }
        drop(release);
    }

    #[test]
    fn tasks_of_a_crowded_group_all_run_once() {
        let runtime = crowded();
        let (tell, told) = mpsc::channel();
        let mut numbers = Vec::new();
        for number in 0..1000 {
            let tell = tell.clone();
            let task = move || tell.send(number).expect("waited for");
            runtime.handle.spawn_wait(task).expect("it runs");
            numbers.push(number);
        }
        let mut ran: Vec<_> =
            numbers.iter().map(|_| told.recv_timeout(LONG).expect("it runs")).collect();
        ran.sort_unstable();
        assert_eq!(ran, numbers);
        drop(tell);
        assert!(told.recv_timeout(LONG).is_err(), "once");
    }
}

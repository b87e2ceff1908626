//! The door: where a group's threads compete for CPUs, one of them takes what comes, runs what is
//! quick, and leaves the rest to the others. Part of the [`Worker`].
//!
//! A thread that runs much is interrupted by others that do, also while it runs something quick, which
//! then takes as long as all of theirs. One that runs little gets a CPU at once when it wakes.
//!
//! ```text
//!  threads compete, others run, ──▶ keeps the door ──▶ the queue is empty, somebody rests, or nobody
//!  nobody rests                            │           competes: goes on as ever
//!                                          └─────────▶ the others complete nothing: runs tasks, until
//!                                                      they do
//! ```

use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::end::RUN;
use super::seats::Seat;
use super::threads::ThreadKind;
use super::worker::Worker;
use crate::stats::Counter;
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
        if !self.polls() || self.group.runs_urgent_alone() {
            return;
        }
        if self.group.door.is_kept(self.now) || !self.others_run() || self.is_door_over() {
            return;
        }
        let mut beats = self.beats_of_others();
        if self.left_door_at == Some(beats) {
            return;
        }
        let Some(mut key) = self.group.door.take(self.now) else { return };
        self.count(Counter::DoorsKept, 1);
        let mut looked = self.now;
        loop {
            // The one before may have been stuck, with events that he took.
            self.relieve_in_passing();
            let demand = self.group.mode.demand(self.now);
            self.poll(None, demand, TICK);
            self.beat();
            match self.group.door.exchange(key, self.now) {
                Some(next) => key = next,
                None => return,
            }
            if self.is_door_over() || !self.group.is_crowded(self.now) {
                break;
            }
            if self.now.saturating_duration_since(looked) >= TICK {
                looked = self.now;
                self.stay_bound();
                let before = mem::replace(&mut beats, self.beats_of_others());
                if before == beats {
                    self.left_door_at = Some(beats);
                    break;
                }
            }
        }
        self.group.door.leave(key);
    }

    /// Nothing is left for others; or somebody rests, who takes what comes, and who is woken for what is
    /// queued: not for this one to keep it from.
    fn is_door_over(&self) -> bool {
        let group = &self.group;
        group.lanes.is_empty() || group.park.resting() > 0 || group.stopping() != RUN
    }

    /// Those that run whatever is queued.
    fn others(&self) -> impl Iterator<Item = &Seat> {
        let seats = self.group.crew.seats.iter().enumerate();
        let others = seats.filter(|(index, _)| *index != self.seat).map(|(_, seat)| seat);
        others.filter(|seat| seat.kind() != Some(ThreadKind::Reserve))
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
    use std::sync::atomic::AtomicBool;
    use std::sync::{Arc, mpsc};

    use super::*;
    use crate::config::Config;
    use crate::runtime::source::{Lent, Source};
    use crate::runtime::worker::Role;
    use crate::runtime::{Builder, Class, Cost, Handle, Runtime};
    use crate::sync::runner::Marks;
    use crate::sync::stall;
    use crate::sys::epoll::Readiness;

    /// Longer than anything here takes.
    const LONG: Duration = Duration::from_secs(30);

    /// So many workers, and never more, that take themselves to compete for CPUs all the time.
    fn crowded(base: usize, reserve: usize) -> Runtime {
        let config = Config::default()
            .epoll_groups(1)
            .epoll_threads_per_group(base)
            .max_threads(base + reserve)
            .reserve_threads_per_group(reserve);
        let runtime = Builder::default().config(config).start().expect("a runtime");
        let group = Arc::clone(&runtime.handle.shared.groups[0]);
        group.mode.note_crowded(Instant::now() + 4 * LONG);
        runtime
    }

    /// What somebody has taken and not begun. Only queued, and never run.
    struct Taken(Cost);

    impl Source for Taken {
        fn ready(&self, _: Readiness, _: &mut Lent<'_>) {}

        fn queue_ready(&self, _: Readiness) -> bool {
            true
        }

        fn queue_marks(&self, _: Marks) -> bool {
            false
        }

        fn resume(&self, _: &mut Lent<'_>) {}

        fn cost(&self) -> &Cost {
            &self.0
        }

        fn class(&self) -> Class {
            Class::Ordinary
        }
    }

    #[test]
    fn who_keeps_the_door_after_a_stuck_one_takes_over_what_that_one_has_taken() {
        let config = Config::default()
            .epoll_groups(1)
            .epoll_threads_per_group(2)
            .max_threads(2)
            .reserve_threads_per_group(0);
        // Nobody runs but this thread.
        let (runtime, _) = Builder::default().config(config).assemble(None).expect("descriptors");
        let group = Arc::clone(&runtime.handle.shared.groups[0]);
        group.mode.note_crowded(Instant::now() + 4 * LONG);
        runtime.handle.spawn(|| {}).expect("there is room");
        let seats = [(); 2].map(|()| group.crew.sit(ThreadKind::Base));
        let mut other = Worker::new(Arc::clone(&group), seats[1], ThreadKind::Base, Role::Called);
        other.rise(false);
        // The first one keeps the door, has taken an event, and is stuck before it.
        let began = Instant::now();
        let stuck = &group.crew.seats[seats[0]];
        stuck.state.run(false);
        let _key = group.door.take(began).expect("nobody has it");
        let token = group.prepare(|_| Box::new(Taken(Cost::unknown()))).expect("a slot");
        assert!(group.pin(token));
        stuck.batch[0].put(token, Readiness::from_bits(libc::EPOLLIN.cast_unsigned()));
        let seen = || {
            let stats = runtime.stats();
            let counts = [Counter::DoorsKept, Counter::BatchEventsStolen];
            (counts.map(|counter| stats.get(counter)), stuck.batch[0].is_empty())
        };
        // The other one takes note of the beats: none comes from now on.
        other.now = began;
        other.relieve_in_passing();
        other.now = began + TICK;
        other.keep_door();
        assert_eq!(seen(), ([0, 0], false), "it is his in time");
        other.now = began + STUCK;
        other.keep_door();
        assert_eq!(seen(), ([1, 1], true), "he has not come back");
        assert_eq!(group.lanes.len(), 2, "what waited, and what he had taken");
        assert!(other.left_door_at.is_some(), "nobody completes anything");
        group.release(token);
    }

    /// A closure that runs, and waits unannounced until it is dropped.
    #[must_use]
    fn block(handle: &Handle) -> mpsc::Sender<()> {
        let (release, stuck) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let wait = move || {
            tell.send(()).expect("waited for");
            let _ = stuck.recv_timeout(2 * LONG);
        };
        handle.spawn(wait).expect("there is room");
        told.recv_timeout(LONG).expect("it runs");
        release
    }

    /// A closure that tells this.
    fn spawn_number(handle: &Handle, tell: &mpsc::Sender<u32>, number: u32) {
        let tell = tell.clone();
        let task = move || tell.send(number).expect("waited for");
        handle.spawn(task).expect("there is room");
    }

    fn doors_kept(runtime: &Runtime) -> u64 {
        runtime.stats().get(Counter::DoorsKept)
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
        let runtime = crowded(2, 0);
        let release = block(&runtime.handle);
        let (tell, told) = mpsc::channel();
        for number in 1..10 {
            spawn_number(&runtime.handle, &tell, number);
            assert_eq!(told.recv_timeout(LONG), Ok(number));
        }
        drop(release);
    }

    #[test]
    fn a_queue_beside_a_stuck_worker_is_not_run_one_task_each_tick() {
        let runtime = crowded(2, 0);
        let stuck = block(&runtime.handle);
        let other = block(&runtime.handle);
        let (tell, told) = mpsc::channel();
        for number in 0..250 {
            spawn_number(&runtime.handle, &tell, number);
        }
        drop(other);
        for number in 0..250 {
            assert_eq!(told.recv_timeout(LONG), Ok(number));
        }
        let kept = doors_kept(&runtime);
        assert!(kept <= 1, "{kept} times");
        drop(stuck);
    }

    #[test]
    fn who_is_woken_does_not_keep_the_door_while_others_rest() {
        let runtime = crowded(4, 0);
        let stuck = block(&runtime.handle);
        let (tell, told) = mpsc::channel();
        for number in 0..400 {
            spawn_number(&runtime.handle, &tell, number);
            assert_eq!(told.recv_timeout(LONG), Ok(number));
        }
        // All may have been awake at once, now and then.
        let kept = doors_kept(&runtime);
        assert!(kept < 15, "{kept} times");
        drop(stuck);
    }

    #[test]
    fn ordinary_work_does_not_wait_for_the_reserve() {
        let runtime = crowded(1, 1);
        let (release, waits) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let begun = tell.clone();
        let wait = move || {
            stall::run(|| {
                begun.send(0).expect("waited for");
                let _ = waits.recv_timeout(2 * LONG);
            });
        };
        runtime.handle.spawn(wait).expect("there is room");
        assert_eq!(told.recv_timeout(LONG), Ok(0));
        // Its work never ends.
        let stop = Arc::new(AtomicBool::new(false));
        let urgent = runtime.handle.clone().with_class(Class::InProgress);
        again(&urgent, &stop, &tell);
        assert_eq!(told.recv_timeout(LONG), Ok(1), "of the reserve");
        let ordinary = move || tell.send(2).expect("waited for");
        runtime.handle.spawn(ordinary).expect("there is room");
        drop(release);
        while told.recv_timeout(LONG).expect("there is always more") == 1 {}
        stop.store(true, Ordering::Relaxed);
        assert_eq!(doors_kept(&runtime), 0);
    }

    /// Tells that it has run, and queues another one like it.
    fn again(handle: &Handle, stop: &Arc<AtomicBool>, tell: &mpsc::Sender<u32>) {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (next, stop, tell) = (handle.clone(), Arc::clone(stop), tell.clone());
        let task = move || {
            let _ = tell.send(1);
            again(&next, &stop, &tell);
        };
        let _ = handle.spawn(task);
    }

    #[test]
    fn tasks_of_a_crowded_group_all_run_once() {
        let runtime = crowded(2, 0);
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

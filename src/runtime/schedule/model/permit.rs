//! The watchdog takes the permit of a worker that it finds stuck, while that worker goes to rest, waits
//! or runs on.
//!
//! The models assume that the worker completed nothing since the last tick.

use super::*;
use crate::sync::mutant::{explore, explore_up_to, mutants};

/// A group of two workers without threads. The first one runs with the permit, the second sleeps.
fn one_runs_and_one_sleeps() -> (Arc<Group>, Rest) {
    let group = Group::new(2);
    for _ in 0..2 {
        group.slot(ThreadKind::Base);
    }
    let first = group.park.rest(false, CALM);
    group.park.rise(first);
    group.thread_set.slots[0].state.run(true);
    let sleeping = group.park.rest(false, CALM);
    (group, sleeping)
}

fn relieve(group: &Group, slot: usize) {
    group.relieve_with(&group.thread_set.slots[slot], CALM, || ());
}

/// The stuck worker goes to rest at the same moment.
fn permit_is_taken_from_the_stuck() {
    explore(|| {
        let (group, sleeping) = one_runs_and_one_sleeps();
        let here = Arc::clone(&group);
        let stuck = thread::spawn(move || {
            let has_permit = here.thread_set.rest(&here.thread_set.slots[0]);
            here.park.rest(has_permit, CALM)
        });
        relieve(&group, 0);
        let woken = group.wake_ups.load(Ordering::Relaxed) > 0;
        let mine = woken.then(|| {
            group.park.rise(sleeping);
            group.park.rest(false, CALM)
        });
        let theirs = stuck.join().expect("no panic");
        let waits = [mine, Some(theirs)].map(|rest| rest == Some(Rest::Wait));
        // If a worker looked while the other waits, it would do so without end.
        assert!(waits[0] != waits[1] && mine != Some(Rest::Look), "one waits and the other sleeps");
        assert_eq!(group.park.permits(), 1);
    });
}

/// The stuck worker begins to wait. The thread that gives the permit back wakes the sleeper, which then
/// polls.
fn permit_of_one_that_waits() {
    explore(|| {
        let (group, sleeping) = one_runs_and_one_sleeps();
        let here = Arc::clone(&group);
        let waits = thread::spawn(move || {
            let slot = &here.thread_set.slots[0];
            here.begin_stall(ThreadKind::Base, slot, || CALM);
            // The wait is over.
            here.thread_set.go_on(slot);
        });
        relieve(&group, 0);
        let _ = group.park.sleep(None);
        group.park.rise(sleeping);
        let mine = group.park.rest(false, CALM);
        waits.join().expect("no panic");
        assert_eq!((mine, group.park.permits()), (Rest::Wait, 1), "one polls, with one permit");
    });
}

/// A handler that was known to be quick hangs. When the watchdog has taken the permit, another worker
/// takes the next event.
fn permit_of_one_that_hangs() {
    explore(|| {
        let group = Group::that_tells(2);
        let workers = start_workers(&group, &[CALM; 2]);
        group.epoll.add(Edge::Conn(Task::Hangs));
        group.wait_until_begun(1);
        group.epoll.add(Edge::Conn(Task::Stuck));
        (0..2).for_each(|slot| relieve(&group, slot));
        join(workers);
        assert_eq!(group.begun(), 2);
        group.assert_that_nobody_rests();
    });
}

/// The watchdog takes permits while the workers rest, are woken, and run. Four threads have too many
/// interleavings for more preemptions.
fn theft_beside_rest_and_wake() {
    explore_up_to(1, || {
        let group = Group::new(2);
        let workers = start_workers(&group, &[CALM; 2]);
        let here = Arc::clone(&group);
        let watchdog = thread::spawn(move || (0..2).for_each(|slot| relieve(&here, slot)));
        group.push(Task::Stuck);
        group.push(Task::Stuck);
        watchdog.join().expect("no panic");
        join(workers);
        assert_eq!(group.begun(), 2);
        group.assert_that_nobody_rests();
    });
}

#[test]
fn permit_of_the_stuck() {
    permit_is_taken_from_the_stuck();
}

#[test]
fn permit_of_a_stall() {
    permit_of_one_that_waits();
}

#[test]
fn permit_of_a_handler_that_hangs() {
    permit_of_one_that_hangs();
}

#[test]
fn theft_while_workers_rest_and_are_woken() {
    theft_beside_rest_and_wake();
}

mutants! {
    permit_that_one_shows_who_waits: StallShowsPermit, permit_of_one_that_waits(), "one polls, with one permit";
    permit_that_a_resting_one_shows: RestingShowsPermit, permit_is_taken_from_the_stuck(), "one waits and the other sleeps";
    permit_taken_and_unclaimed: PermitLeftUnclaimed, permit_of_one_that_hangs(), "deadlock";
    permit_taken_from_one_that_rests: RestingShowsPermit, theft_beside_rest_and_wake(), "a rest or permit is left";
}

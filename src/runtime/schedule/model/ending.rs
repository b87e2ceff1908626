//! The group stops while workers come to rest, rest or leave, and while tasks are pushed.

use super::*;
use crate::runtime::draining::{Begun, Intake};
use crate::sync::mutant::{explore, explore_up_to, mutants};

/// Workers are told to stop while they come to rest, rest, or run the one task.
fn stop<const N: usize>(demands: [Demand; N], tasks: &'static [Task]) {
    // Three workers have too many interleavings for more preemptions.
    let most = if N > 2 { 1 } else { usize::MAX };
    explore_up_to(most, move || {
        let group = Group::new(2);
        let threads = start_workers(&group, &demands);
        for task in tasks {
            group.push(*task);
        }
        group.stop();
        join(threads);
        assert_eq!((group.begun(), group.swept.load(Ordering::Relaxed)), (tasks.len(), 0));
        group.assert_that_nobody_rests();
    });
}

/// The group stops while its threads begin. A reserve thread leaves at once. The task that was queued
/// before is run, not swept.
fn stop_at_the_start() {
    explore(|| {
        let group = Group::new(2);
        let kinds = [ThreadKind::Base, ThreadKind::Reserve];
        let [base, reserve] = kinds.map(|kind| Worker::new(&group, kind, CALM));
        let mut threads = start(vec![base]);
        group.push(Task::Quick);
        let here = Arc::clone(&group);
        let stops = thread::spawn(move || here.stop());
        threads.extend(start(vec![reserve]));
        stops.join().expect("no panic");
        join(threads);
        let seen = (group.begun(), group.swept.load(Ordering::Relaxed));
        assert_eq!(seen, (1, 0), "a task is swept");
    });
}

/// A task is pushed while the workers leave. One of them runs it, or the last worker or the pusher
/// sweeps the queue.
fn push_at_the_end<const N: usize>(demands: [Demand; N]) {
    explore_up_to(if N > 1 { 2 } else { usize::MAX }, move || {
        let group = Group::new(2);
        let workers = start_workers(&group, &demands);
        let here = Arc::clone(&group);
        let pusher = thread::spawn(move || here.push(Task::Quick));
        group.stop();
        join(workers);
        pusher.join().expect("no panic");
        let seen = group.begun() + group.swept.load(Ordering::Relaxed);
        assert_eq!(seen, 1, "a task is left behind");
    });
}

/// `Group::try_push` beside a drain and the stop behind it. An accepted task is run, not swept.
fn spawn_at_the_end() {
    explore(|| {
        let group = Group::new(2);
        let workers = start_workers(&group, &[CALM]);
        let drain = Arc::new((Begun::default(), Intake::default()));
        let (here, drain_2) = (Arc::clone(&group), Arc::clone(&drain));
        let spawns = thread::spawn(move || {
            let queue = || here.run_queues.try_push(Class::Ordinary, Task::Quick);
            let accepted = drain_2.1.pass(&drain_2.0, queue).is_some();
            if accepted {
                here.wake_one();
            }
            usize::from(accepted)
        });
        drain.0.begin();
        drain.1.wait_until_empty();
        group.stop();
        join(workers);
        let accepted = spawns.join().expect("no panic");
        assert_eq!(group.begun(), accepted, "a task is left behind");
    });
}

#[test]
fn push_at_the_end_one_worker() {
    push_at_the_end([CALM]);
}

#[test]
fn push_at_the_end_two_workers() {
    push_at_the_end([CALM; 2]);
}

#[test]
fn spawn_beside_a_drain_and_the_end() {
    spawn_at_the_end();
}

#[test]
fn stop_beside_threads_that_begin() {
    stop_at_the_start();
}

#[test]
fn stop_calm() {
    stop([CALM; 2], &[Task::Quick]);
}

#[test]
fn stop_calm_three_workers() {
    stop([CALM; 3], &[]);
}

#[test]
fn stop_while_both_sleep() {
    stop([TAKEN; 2], &[Task::Quick]);
}

#[test]
fn stop_open() {
    stop([OPEN; 2], &[Task::Quick]);
}

mutants! {
    stop_without_posts: StopPostsNobody, stop([TAKEN; 2], &[]), "deadlock";
    stop_not_passed_on: StopNotPassedOn, stop([OPEN; 2], &[]), "deadlock";
    worker_counted_after_its_start: CountedAfterStart, stop_at_the_start(), "a task is swept";
    end_without_fence: EndWithoutFence, push_at_the_end([CALM]), "a task is left behind";
    spawn_uncounted: IntakeUncounted, spawn_at_the_end(), "a task is left behind";
}

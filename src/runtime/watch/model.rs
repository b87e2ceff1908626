//! Loom models of the [`Watch`]. The watchdog falls asleep while a worker begins to run or to hold
//! something, or while the runtime ends. If the watchdog is not woken, it sleeps for ever, which loom
//! calls a deadlock. Left out: naps and limits, which end by themselves.

use std::sync::Arc;

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;
use crate::runtime::park::Wake;
use crate::runtime::schedule::model::{CALM, Group, TAKEN, Worker};
use crate::runtime::schedule::{Schedule, Serve};
use crate::runtime::slots::Token;
use crate::runtime::work::Work;
use crate::runtime::worker_slot::ThreadKind;
use crate::runtime::worker_slot::WorkerSlot;
use crate::sync::mutant::{explore, mutants};
use crate::sys::epoll::Readiness;

/// Worker without a thread of its own, which the models drive.
fn worker() -> Worker {
    Worker::new(&Group::new(2), ThreadKind::Base, CALM)
}

/// Lets the worker take steps beside a watchdog that falls asleep while `quiet` returns true.
fn beside(
    worker: Worker,
    quiet: impl Fn(&Group) -> bool,
    steps: impl FnOnce(&Worker) + Send + 'static,
) {
    let group = Arc::clone(&worker.group);
    let worker = thread::spawn(move || steps(&worker));
    assert_eq!(group.watch().sleep(None, || quiet(&group)), Woke::Alerted);
    worker.join().expect("no panic");
}

fn nothing_is_held(group: &Group) -> bool {
    !group.thread_set().slots.iter().any(WorkerSlot::holds)
}

/// The watchdog sleeps while all workers rest, and the last worker ends its rest.
fn a_worker_gets_up() {
    explore(|| {
        let worker = worker();
        let rest = worker.group.park().rest(false, CALM);
        let all_rest = |group: &Group| group.park().resting() == 1;
        beside(worker, all_rest, move |worker| worker.rise(rest));
    });
}

/// The watchdog sleeps beside a handler that holds nothing. Another worker ends its rest, with the
/// permit.
fn a_worker_gets_up_with_the_permit() {
    explore(|| {
        let worker = worker();
        let rest = worker.group.park().rest(false, CALM);
        beside(worker, nothing_is_held, move |worker| worker.rise(rest));
    });
}

struct Nothing;

impl Work for Nothing {}

/// The watchdog sleeps beside a handler that holds nothing, and that handler makes work stealable.
fn work_is_set_aside() {
    explore(|| {
        let worker = worker();
        worker.begin(false);
        beside(worker, nothing_is_held, |worker| {
            worker.slot().stealable.put(Arc::new(Nothing));
            worker.group.show_to_watchdog();
        });
    });
}

/// A worker ends its rest with the permit, takes events, and gives the permit up for the first of
/// them. If the watchdog sees the permit given up, it has to see the events.
fn events_are_taken_before_the_permit_is_given_up() {
    explore(|| {
        let worker = worker();
        let rest = worker.group.park().rest(false, CALM);
        beside(worker, nothing_is_held, move |worker| {
            worker.rise(rest);
            worker.take_events(|| {
                let token = Token::decode(Token::FIRST);
                worker.slot().batch[0].put(token, Readiness::from_condensed(1));
                1
            });
            worker.before_run(false, CALM);
        });
    });
}

/// A task is pushed when the only worker has announced its rest. The worker sees the task and ends its
/// rest at once, or it sleeps and is woken. Then the task never returns, and the watchdog must see that
/// a worker runs it.
fn a_worker_finds_work_when_it_comes_to_rest() {
    explore(|| {
        let worker = worker();
        let queued = Arc::new(AtomicBool::new(false));
        let group = Arc::clone(&worker.group);
        let rest = group.park().rest(false, TAKEN);
        let queued_2 = Arc::clone(&queued);
        let sleeps = thread::spawn(move || {
            if !queued_2.load(Ordering::Acquire) {
                let _ = worker.group.park().sleep(None);
            }
            worker.rise(rest);
        });
        let (here, queued_3) = (Arc::clone(&group), Arc::clone(&queued));
        let pusher = thread::spawn(move || {
            queued_3.store(true, Ordering::Release);
            if here.park().wake() == Some(Wake::Sleeper) {
                here.park().post();
            }
        });
        let all_rest = || group.park().resting() == 1 && !queued.load(Ordering::Acquire);
        assert_eq!(group.watch().sleep(None, all_rest), Woke::Alerted);
        sleeps.join().expect("no panic");
        pusher.join().expect("no panic");
    });
}

fn the_runtime_ends() {
    explore(|| {
        let watch = Arc::new(Watch::new());
        let watch_2 = Arc::clone(&watch);
        let other = thread::spawn(move || watch_2.stop());
        assert_eq!(watch.sleep(None, || true), Woke::Stopped);
        other.join().expect("no panic");
    });
}

#[test]
fn a_worker_that_gets_up_wakes_the_watchdog() {
    a_worker_gets_up();
}

#[test]
fn a_worker_that_gets_up_with_the_permit_wakes_the_watchdog() {
    a_worker_gets_up_with_the_permit();
}

#[test]
fn events_wake_the_watchdog_also_without_the_permit() {
    events_are_taken_before_the_permit_is_given_up();
}

#[test]
fn stealable_work_wakes_the_watchdog() {
    work_is_set_aside();
}

#[test]
fn a_worker_that_finds_work_wakes_the_watchdog() {
    a_worker_finds_work_when_it_comes_to_rest();
}

#[test]
fn a_stop_wakes_the_watchdog() {
    the_runtime_ends();
}

mutants! {
    rise_without_alert: RiseWithoutAlert, a_worker_gets_up(), "deadlock";
    rise_with_work_without_alert: RiseWithoutAlert, a_worker_finds_work_when_it_comes_to_rest(), "deadlock";
    sleep_without_fence: WatchWithoutFence, a_worker_gets_up(), "deadlock";
    rise_without_fence: RiseWithoutFence, a_worker_gets_up_with_the_permit(), "deadlock";
    events_not_shown: EventsNotShown, events_are_taken_before_the_permit_is_given_up(), "deadlock";
    show_without_fence: ShowWithoutFence, work_is_set_aside(), "deadlock";
}

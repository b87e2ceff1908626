//! A reserve thread is called, stands by, and sleeps beside a task that it may not run.

use super::*;
use crate::sync::mutant::{explore, mutants};

/// A wait that a handler announced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Ends,
    /// The handler returns and keeps the guard, so the worker counts as stalled for ever.
    IsKept,
}

/// The only ordinary worker ends its wait and comes to rest, while the called reserve thread rests. An
/// ordinary task is pushed, perhaps with a wake-up of the reserve thread, which may not run the task.
fn ordinary_task_beside_the_reserve(wait: Wait) {
    explore(move || {
        let group = Group::that_tells(2);
        let ordinary = Worker::new(&group, ThreadKind::Base, CALM);
        let reserve = Worker::new(&group, ThreadKind::Reserve, CALM);
        assert!(!group.thread_set.begin_stall(ThreadKind::Base, ordinary.slot()));
        if wait == Wait::Ends {
            group.thread_set.end_stall(ThreadKind::Base);
        }
        let mut threads = start(vec![ordinary]);
        let serve = move || {
            // When the reserve thread is no longer needed, it stands by, which
            // `call_beside_stand_by` models.
            let mut reserve = reserve;
            reserve.serve();
        };
        threads.push(group.start_worker(|| thread::spawn(serve)));
        group.push(Task::Stuck);
        group.wait_until_begun(1);
        group.stop();
        join(threads);
    });
}

/// The last free worker begins to wait while the reserve thread, which was called before, is about to
/// stand by. Work in progress is pushed. The reserve thread must run it.
fn call_beside_stand_by() {
    explore(|| {
        let group = Group::that_tells(2);
        let slot = group.slot(ThreadKind::Base);
        let reserve = start(vec![Worker::new(&group, ThreadKind::Reserve, CALM)]);
        let here = Arc::clone(&group);
        let waits = thread::spawn(move || {
            here.begin_stall(ThreadKind::Base, &here.thread_set.slots[slot], || CALM);
            assert!(!here.thread_set.call_reserve(), "one stands by or is active");
        });
        group.push_as(Class::InProgress, Task::Stuck);
        group.wait_until_begun(1);
        waits.join().expect("no panic");
        join(reserve);
    });
}

#[test]
fn task_that_the_reserve_may_not_run() {
    ordinary_task_beside_the_reserve(Wait::Ends);
}

#[test]
fn task_that_the_reserve_may_not_run_beside_a_kept_wait() {
    ordinary_task_beside_the_reserve(Wait::IsKept);
}

#[test]
fn call_while_the_reserve_comes_to_stand_by() {
    call_beside_stand_by();
}

mutants! {
    reserve_that_leaves_without_waking: LeaveWakesNobody, ordinary_task_beside_the_reserve(Wait::IsKept), "deadlock";
    reserve_that_ignores_who_rests: ReserveIgnoresRest, ordinary_task_beside_the_reserve(Wait::IsKept), "deadlock";
    stand_by_without_look: StandByWithoutLook, call_beside_stand_by(), "deadlock";
    call_that_is_not_counted: CallUncounted, call_beside_stand_by(), "deadlock";
}

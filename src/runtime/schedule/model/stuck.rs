//! The watchdog counts a worker as stuck, while that worker completes its run, rests or begins to wait.

use super::*;
use crate::sync::mutant::{explore, mutants};

/// A worker without a permit runs while the watchdog counts it as stuck. Then `step` ends the run. The
/// count must end with it.
fn count_ends_with_the_run(step: fn(&Worker)) {
    explore(move || {
        let worker = Worker::new(&Group::new(2), ThreadKind::Base, CALM);
        worker.begin(false);
        let group = Arc::clone(&worker.group);
        let works = thread::spawn(move || step(&worker));
        group.thread_set.note_stuck(&group.thread_set.slots[0], ThreadKind::Base);
        works.join().expect("no panic");
        let stuck = group.thread_set.counts.stuck.load(Ordering::Relaxed);
        assert_eq!(stuck, 0, "it still counts as stuck");
    });
}

fn rest(worker: &Worker) {
    worker.end_run();
    assert!(!worker.group.thread_set.rest(worker.slot()));
}

fn stall(worker: &Worker) {
    assert!(!worker.group.thread_set.begin_stall(ThreadKind::Base, worker.slot()));
}

#[test]
fn stuck_worker_completes_its_run_and_rests() {
    count_ends_with_the_run(rest);
}

#[test]
fn stuck_worker_begins_to_wait() {
    count_ends_with_the_run(stall);
}

mutants! {
    rest_counted_as_stuck: StuckUnchecked, count_ends_with_the_run(rest), "it still counts as stuck";
    wait_counted_as_stuck: StuckUnchecked, count_ends_with_the_run(stall), "it still counts as stuck";
}

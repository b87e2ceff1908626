//! Tasks are pushed, and events come, while both workers come to rest, or rest.

use super::*;
use crate::sync::mutant::{explore, mutants};

fn pushes(demands: [Demand; 2], capacity: usize, tasks: &'static [Task]) {
    explore(move || {
        let group = Group::new(capacity);
        let workers = start_workers(&group, &demands);
        for task in tasks {
            group.push(*task);
        }
        join(workers);
        assert_eq!(group.begun(), tasks.len());
    });
}

/// Two tasks are pushed to different queues. The lock of the queue from which a worker takes one task
/// does not order its look at the other queue.
fn pushes_to_two_queues(demands: [Demand; 2]) {
    explore(move || {
        let group = Group::new(2);
        let workers = start_workers(&group, &demands);
        group.push(Task::Stuck);
        let _ = group.run_queues.push_spent(Class::Ordinary, Task::Stuck);
        assert!(!group.note_queued(), "the workers have not left");
        join(workers);
        assert_eq!(group.begun(), 2);
    });
}

/// A source is queued again without a wake-up, and another task is pushed. Both get stuck.
fn a_source_is_queued_again(demands: [Demand; 2], last: Last) {
    explore(move || {
        let group = Group::new(2);
        let workers = start_workers(&group, &demands);
        group.push(Task::Again);
        last.happens(&group, Task::Stuck);
        join(workers);
        assert_eq!(group.begun(), 3);
    });
}

const TWO: &[Task] = &[Task::Stuck, Task::Stuck];
const THREE: &[Task] = &[Task::Quick, Task::Stuck, Task::Stuck];

/// A connection has an event. Then another connection has one, or a task is pushed. No handler returns.
/// The worker that takes the first event gives the permit back, at once or when it waits. The other
/// worker must take the last event or task.
fn polling_goes_on(demands: [Demand; 2], first: Task, last: Last) {
    explore(move || {
        let group = Group::new(2);
        let workers = start_workers(&group, &demands);
        group.epoll.add(Edge::Conn(first));
        last.happens(&group, Task::Stuck);
        join(workers);
        assert_eq!(group.begun(), 2);
    });
}

#[test]
fn two_pushes_calm() {
    pushes([CALM; 2], 2, TWO);
}

#[test]
fn two_pushes_to_two_queues() {
    pushes_to_two_queues([CALM; 2]);
}

#[test]
fn a_source_is_queued_again_and_a_task_is_pushed() {
    a_source_is_queued_again([CALM; 2], Last::Task);
}

#[test]
fn a_source_is_queued_again_and_an_event_comes() {
    a_source_is_queued_again([OPEN; 2], Last::Event);
}

#[test]
fn two_pushes_open() {
    pushes([OPEN; 2], 2, TWO);
}

#[test]
fn two_pushes_busy() {
    pushes([BUSY; 2], 2, TWO);
}

#[test]
fn two_pushes_of_which_one_overflows() {
    pushes([CALM; 2], 1, TWO);
}

#[test]
fn three_pushes_and_a_look_in_between() {
    pushes([CALM; 2], 3, THREE);
}

#[test]
fn two_pushes_while_the_mode_changes() {
    pushes([CALM, OPEN], 2, TWO);
}

#[test]
fn two_pushes_of_which_one_waits() {
    pushes([CALM; 2], 2, &[Task::Stalls, Task::Stuck]);
}

#[test]
fn polling_goes_on_while_the_mode_changes() {
    polling_goes_on([OPEN, CALM], Task::Stuck, Last::Event);
}

#[test]
fn an_event_and_a_push() {
    polling_goes_on([CALM; 2], Task::Stuck, Last::Task);
}

#[test]
fn polling_goes_on_calm() {
    polling_goes_on([CALM; 2], Task::Stuck, Last::Event);
}

#[test]
fn polling_goes_on_while_batches_are_shared() {
    polling_goes_on([BUSY; 2], Task::Stuck, Last::Event);
}

#[test]
fn polling_goes_on_open() {
    polling_goes_on([OPEN; 2], Task::Stuck, Last::Event);
}

#[test]
fn polling_goes_on_while_one_waits() {
    polling_goes_on([CALM; 2], Task::Stalls, Last::Event);
}

#[test]
fn an_event_that_waits_and_a_push() {
    polling_goes_on([CALM; 2], Task::Stalls, Last::Task);
}

mutants! {
    wake_without_fence: WakeWithoutFence, pushes([CALM; 2], 2, TWO), "deadlock";
    rest_without_fence: RestWithoutFence, pushes([CALM; 2], 2, TWO), "deadlock";
    rise_without_fence_between_queues: RiseWithoutFence, pushes_to_two_queues([CALM; 2]), "deadlock";
    length_written_without_the_lock: LengthWrittenUnlocked, pushes([CALM; 2], 2, TWO), "deadlock";
    rise_that_keeps_the_wake_up: RiseKeepsWakeUp, pushes([CALM; 2], 2, TWO), "deadlock";
    rest_without_look: RestWithoutLook, pushes([CALM; 2], 2, TWO), "deadlock";
    start_without_waking: NoWakeBeforeStart, pushes([CALM; 2], 2, TWO), "deadlock";
    edge_that_a_look_swallows: EdgeKeepsWakeUp, pushes([BUSY; 2], 2, TWO), "deadlock";
    permit_that_nobody_claims: PermitLeftUnclaimed, polling_goes_on([CALM; 2], Task::Stuck, Last::Event), "deadlock";
    stall_that_wakes_nobody: StallWakesNobody, polling_goes_on([CALM; 2], Task::Stalls, Last::Event), "deadlock";
}

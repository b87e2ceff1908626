//! An added worker leaves while another one works on.

use super::*;
use crate::sync::mutant::{explore, mutants};

/// Starts two workers. The first one stays, the second one leaves.
fn one_leaves(group: &Arc<Group>, when: Leaves) -> Vec<JoinHandle<()>> {
    let stays = Worker::new(group, ThreadKind::Base, CALM);
    let mut leaving = Worker::new(group, ThreadKind::Worker, CALM);
    leaving.leaves = when;
    start(vec![stays, leaving])
}

/// A worker leaves because it found another one free, while that one begins to wait. The last event or
/// task must find a worker.
fn leaving_beside_a_stall(last: Last) {
    explore(move || {
        let group = Group::that_tells(2);
        let threads = one_leaves(&group, Leaves::AtOnce);
        group.push(Task::Stalls);
        last.happens(&group, Task::Stalls);
        group.wait_until_begun(2);
        group.stop();
        join(threads);
    });
}

/// A worker that has a permit leaves. Another worker goes on in its place.
fn leaving_with_the_permit(last: Last) {
    explore(move || {
        let group = Group::that_tells(2);
        let threads = one_leaves(&group, Leaves::WithPermit);
        group.epoll.add(Edge::Conn(Task::Quick));
        last.happens(&group, Task::Stalls);
        group.wait_until_begun(2);
        group.stop();
        join(threads);
    });
}

#[test]
fn one_leaves_while_the_other_begins_to_wait_and_an_event_comes() {
    leaving_beside_a_stall(Last::Event);
}

#[test]
fn one_leaves_while_the_other_begins_to_wait_and_a_task_comes() {
    leaving_beside_a_stall(Last::Task);
}

#[test]
fn one_with_the_permit_leaves_and_an_event_comes() {
    leaving_with_the_permit(Last::Event);
}

#[test]
fn one_with_the_permit_leaves_and_a_task_comes() {
    leaving_with_the_permit(Last::Task);
}

mutants! {
    leave_beside_a_stall: LeaveUnseen, leaving_beside_a_stall(Last::Event), "deadlock";
    stall_without_fence: StallWithoutFence, leaving_beside_a_stall(Last::Event), "deadlock";
    leave_without_look: LeaveWithoutLook, leaving_beside_a_stall(Last::Task), "deadlock";
    leave_with_the_permit: LeaveKeepsPermit, leaving_with_the_permit(Last::Event), "deadlock";
    leave_without_waking: LeaveWakesNobody, leaving_with_the_permit(Last::Event), "deadlock";
}

use std::time::Instant;

use super::*;
use crate::client::{
    Client, ECHO, LOCK, LONGER_THAN_PATIENCE_US, PATIENCE, SLEEP, UNLOCK, frame, with_number,
};

/// The timer does not look during a test.
const NEVER: Duration = Duration::from_secs(3600);
const OFTEN: Duration = Duration::from_millis(1);

fn one_group(stall_limit: Duration) -> (Arc<Group>, SocketAddr) {
    let group = Group::new().unwrap();
    let groups = [Arc::clone(&group)];
    let address = start_with("127.0.0.1:0".parse().unwrap(), &groups, stall_limit).unwrap();
    wait_until(|| group.state().listening);
    (group, address)
}

fn wait_until(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < end);
        thread::yield_now();
    }
}

#[test]
fn the_listener_runs_a_request_itself_when_the_queue_is_empty() {
    let (group, address) = one_group(NEVER);
    let mut client = Client::connect(address);
    for _ in 0..100 {
        client.call(&frame(ECHO, b"alone"));
    }
    let state = group.state();
    assert_eq!(state.threads, 1);
    assert!(state.queue.is_empty());
}

#[test]
fn the_timer_lets_queued_requests_run_while_all_workers_sleep() {
    // More than may be active at once: each of them needs the timer, and so does what follows.
    const SLEEPERS: usize = 6;
    let (group, address) = one_group(OFTEN);
    let mut sleepers: Vec<_> = (0..SLEEPERS).map(|_| Client::connect(address)).collect();
    for sleeper in &mut sleepers {
        sleeper.ask(&with_number(SLEEP, LONGER_THAN_PATIENCE_US));
    }
    wait_until(|| group.state().active >= SLEEPERS);
    Client::connect(address).call(&frame(ECHO, b"through"));
    sleepers.iter().for_each(Client::assert_unanswered);
}

#[test]
fn a_group_whose_only_worker_sleeps_waits_for_looks_of_the_timer() {
    let (group, address) = one_group(NEVER);
    let mut sleeper = Client::connect(address);
    sleeper.ask(&with_number(SLEEP, LONGER_THAN_PATIENCE_US));
    wait_until(|| group.state().active == 1);
    let mut held_up = Client::connect(address);
    held_up.ask(&frame(ECHO, b"later"));
    // Events have come since the last look, and what came was begun.
    Group::check_for_stall(&group);
    assert_eq!(group.state().threads, 1);
    // No thread has polled since, so one is made, which listens and queues.
    Group::check_for_stall(&group);
    wait_until(|| group.state().queue.len() == 1);
    held_up.assert_unanswered();
    // No thread has taken it since.
    Group::check_for_stall(&group);
    held_up.expect(&frame(ECHO, b"later"));
}

#[test]
fn a_wait_for_a_lock_is_announced() {
    let (_, address) = one_group(NEVER);
    let (lock, unlock) = (with_number(LOCK, 150), with_number(UNLOCK, 150));
    let mut holder = Client::connect(address);
    holder.call(&lock);
    let mut waiters: Vec<_> = (0..8).map(|_| Client::connect(address)).collect();
    for waiter in &mut waiters {
        waiter.ask(&lock);
    }
    // Only another thread than those that wait can read this.
    holder.call(&unlock);
    thread::scope(|scope| {
        for waiter in &mut waiters {
            scope.spawn(|| {
                waiter.expect(&lock);
                waiter.call(&unlock);
            });
        }
    });
}

#[test]
fn a_frame_whose_rest_is_late_holds_up_nobody() {
    let (group, address) = one_group(NEVER);
    let late = frame(ECHO, b"late");
    let mut slow = Client::connect(address);
    slow.ask(&late[..10]);
    let mut quick = Client::connect(address);
    for _ in 0..10 {
        quick.call(&frame(ECHO, b"quick"));
    }
    slow.ask(&late[10..]);
    slow.expect(&late);
    assert!(group.state().threads >= 2);
}

#[test]
fn a_closed_connection_leaves_nothing_behind() {
    let (group, address) = one_group(NEVER);
    for _ in 0..8 {
        Client::connect(address).call(&frame(ECHO, b"once"));
    }
    wait_until(|| group.state().is_at_rest());
}

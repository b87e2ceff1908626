use std::io::Read;

use super::turnstile::{Place, State, Task};
use super::*;
use crate::test_client::{Client, ECHO, LONGER_THAN_PATIENCE_US, SLEEP, frame, with_number};

const BOTH: [Wake; 2] = [Wake::All, Wake::One];

fn started(threads: usize, wake: Wake) -> SocketAddr {
    start("127.0.0.1:0".parse().unwrap(), threads, wake).unwrap()
}

/// A state with so many asleep while the caller polls, and their places.
fn asleep(count: usize) -> (State<u32>, Vec<Arc<Place<u32>>>) {
    let places: Vec<_> = (0..count).map(|_| Arc::new(Place::new())).collect();
    (State::polled_by_one(places.clone()), places)
}

/// Deals so many completions; returns what each place is given.
fn dealt(state: &mut State<u32>, places: &[Arc<Place<u32>>], count: u32) -> Vec<Vec<Task<u32>>> {
    let (own, given) = state.deal(&mut (0..count).collect()).unwrap();
    assert_eq!(own, 0);
    let mut tasks: Vec<Vec<_>> = places.iter().map(|_| Vec::new()).collect();
    for (place, task) in given {
        let at = places.iter().position(|other| Arc::ptr_eq(other, &place)).unwrap();
        tasks[at].push(task);
    }
    tasks
}

#[test]
fn a_completion_is_given_to_one_sleeper_and_polling_to_one() {
    let (mut state, places) = asleep(5);
    let tasks = dealt(&mut state, &places, 3);
    let expected = [vec![], vec![], vec![Task::Poll], vec![Task::Run(2)], vec![Task::Run(1)]];
    assert_eq!(tasks, expected);
}

#[test]
fn with_more_completions_than_sleepers_nobody_sleeps_and_nobody_polls() {
    let (mut state, places) = asleep(2);
    let tasks = dealt(&mut state, &places, 5);
    assert_eq!(tasks, [vec![Task::Run(2)], vec![Task::Run(1)]]);
    assert_eq!(state.left(), (2, 0, false));
}

#[test]
fn a_poller_that_has_found_nothing_goes_on() {
    let (mut state, _) = asleep(2);
    assert!(state.deal(&mut Vec::new()).is_none());
    assert_eq!(state.left(), (0, 2, true));
}

#[test]
fn handlers_that_sleep_hold_up_nobody_while_a_thread_is_left() {
    for wake in BOTH {
        let address = started(4, wake);
        let mut sleepers: Vec<_> = (0..3).map(|_| Client::connect(address)).collect();
        for sleeper in &mut sleepers {
            sleeper.ask(&with_number(SLEEP, LONGER_THAN_PATIENCE_US));
        }
        let mut client = Client::connect(address);
        for _ in 0..100 {
            client.call(&frame(ECHO, b"through"));
        }
        for sleeper in sleepers {
            sleeper.assert_unanswered();
        }
    }
}

#[test]
fn nothing_is_lost_among_many_connections() {
    for (wake, threads) in BOTH.into_iter().flat_map(|wake| [(wake, 1), (wake, 2), (wake, 8)]) {
        let address = started(threads, wake);
        thread::scope(|scope| {
            for client in 0..64u32 {
                scope.spawn(move || {
                    let mut connection = Client::connect(address);
                    for round in 0..20u32 {
                        let number = client << 16 | round << 8;
                        let frames = (0..4).map(|place| with_number(ECHO, number | place));
                        connection.call(&frames.collect::<Vec<_>>().concat());
                    }
                });
            }
        });
    }
}

#[test]
fn a_peer_that_does_not_read_loses_nothing() {
    for wake in BOTH {
        let address = started(2, wake);
        let long = frame(ECHO, &vec![9; 1 << 20]);
        let mut deaf = Client::connect(address);
        let mut writer = Client(deaf.0.try_clone().unwrap());
        let sent = long.clone();
        let writing = thread::spawn(move || (0..32).for_each(|_| writer.ask(&sent)));
        let mut quick = Client::connect(address);
        for _ in 0..100 {
            quick.call(&frame(ECHO, b"quick"));
        }
        (0..32).for_each(|_| deaf.expect(&long));
        writing.join().unwrap();
    }
}

#[test]
fn a_peer_that_has_written_all_and_closed_its_side_gets_all_answers() {
    for wake in BOTH {
        let address = started(2, wake);
        for length in [1, 8 << 10, 100_000] {
            let mut client = Client::connect(address);
            let sent = frame(ECHO, &vec![5; length]);
            client.ask(&sent);
            client.0.shutdown(std::net::Shutdown::Write).unwrap();
            client.expect(&sent);
            assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
        }
    }
}

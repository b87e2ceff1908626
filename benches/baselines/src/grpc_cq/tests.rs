use std::io::Read;

use super::*;
use crate::client::{Client, ECHO, LONGER_THAN_PATIENCE_US, SLEEP, frame, with_number};

fn started(threads: usize) -> SocketAddr {
    start("127.0.0.1:0".parse().unwrap(), threads).unwrap()
}

#[test]
fn handlers_that_sleep_hold_up_nobody_while_a_thread_is_left() {
    let address = started(4);
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

#[test]
fn a_peer_that_has_written_all_and_closed_its_side_gets_all_answers() {
    let address = started(2);
    for length in [1, 8 << 10, 100_000] {
        let mut client = Client::connect(address);
        let sent = frame(ECHO, &vec![5; length]);
        client.ask(&sent);
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        client.expect(&sent);
        assert_eq!(client.0.read(&mut [0]).unwrap(), 0);
    }
}

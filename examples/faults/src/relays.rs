//! Relays over real sockets.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use socket2::Socket;

use crate::args;
use crate::exchange::echo;
use lab::address::Address;
use lab::faults::passage::End;
use lab::faults::relay::{Relay, Report};

const LONG: Duration = Duration::from_secs(30);

fn relay(listen: &Address, to: Address, options: &str) -> (Relay, Receiver<Report>) {
    let (give, reports) = mpsc::channel();
    let tell = move |report: &Report| give.send(*report).expect("the test listens");
    let script = args::script(options, 7).expect("options");
    (Relay::start_telling(script, listen, to, tell).expect("listening"), reports)
}

fn connect(to: &Address) -> Socket {
    let socket = to.connect(LONG).expect("connected");
    socket.set_read_timeout(Some(LONG)).expect("an option");
    socket
}

/// Sends all, finishes, and reads to the end.
fn ask(mut socket: &Socket, bytes: &[u8]) -> Vec<u8> {
    socket.write_all(bytes).expect("sent");
    socket.shutdown(Shutdown::Write).expect("finished");
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("an answer");
    answer
}

fn tcp() -> Address {
    "127.0.0.1:0".parse().expect("an address")
}

/// A path that no other test has.
fn unix(name: &str) -> Address {
    let name = format!("faults-{}-{name}", std::process::id());
    Address::Unix(std::env::temp_dir().join(name))
}

#[test]
fn both_kinds_of_socket_are_passed_on_and_an_end_is_an_end() {
    let bytes: Vec<u8> = (0..10_000).map(|at| at as u8).collect();
    for (listen, server) in
        [(tcp(), tcp()), (unix("a"), tcp()), (tcp(), unix("b")), (unix("c"), unix("d"))]
    {
        let server = echo(&server).expect("it listens");
        let (relay, reports) = relay(&listen, server.clone(), "--chop 100");
        assert_eq!(ask(&connect(relay.address()), &bytes), bytes);
        let report = reports.recv_timeout(LONG).expect("it ends");
        assert_eq!(report.end, End::Finished);
        assert_eq!((report.up.sent, report.down.sent), (10_000, 10_000));
        drop(relay);
        if let Address::Unix(path) = server {
            std::fs::remove_file(path).expect("there was one");
        }
    }
}

#[test]
fn a_cut_closes_both_sides_at_its_byte() {
    for listen in [tcp(), unix("e")] {
        let (relay, reports) = relay(&listen, echo(&tcp()).expect("it listens"), "--cut up@300");
        let mut client = &connect(relay.address());
        client.write_all(&[1; 1000]).expect("sent");
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).expect("an end");
        assert!(answer.len() <= 300, "{}", answer.len());
        let report = reports.recv_timeout(LONG).expect("it ends");
        assert!(matches!(report.end, End::Cut(_, 300, _)), "{report:?}");
    }
}

#[test]
fn its_end_cuts_what_is_silent_and_what_waits() {
    for options in ["--stop 100", "--delay 900s", ""] {
        let (relay, reports) = relay(&tcp(), echo(&tcp()).expect("it listens"), options);
        let mut client = &connect(relay.address());
        client.write_all(&[1; 1000]).expect("sent");
        while relay.live() == 0 {
            thread::yield_now();
        }
        let totals = relay.end();
        assert_eq!((totals.connections, totals.cut), (1, 1), "{options}");
        assert_eq!(reports.try_recv().expect("it has ended").end, End::CutByOwner);
        // The bytes that were passed on before the cut.
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest);
    }
}

#[test]
fn who_cannot_be_reached_is_told_of() {
    let (listener, nobody) = tcp().listen().expect("a port");
    drop(listener);
    let (relay, reports) = relay(&tcp(), nobody, "");
    let mut client = &connect(relay.address());
    assert_eq!(client.read(&mut [0; 1]).unwrap_or(0), 0);
    assert_eq!(reports.recv_timeout(LONG).expect("it ends").end, End::Unreachable);
    assert_eq!(relay.totals().lost, 1);
}

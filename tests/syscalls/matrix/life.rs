//! Start, listen and drain.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{Close, Connection, Input, ListenError, ListenOptions, Listener};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};

use super::serving::{Serving, place, victim};
use super::{Outcome, Row, When, run};
use crate::shims::{Armed, Call, Effect, Fault, Side, builder, on_behalf};
use crate::world::answer;
use lab::protocol::Bytes;
use lab::workers::{Gate, threads_named};
use lab::{Kind, LONG, Peer, TempDir, assert_clean, config, eventually, eventually_or};

/// The system's text for an errno.
pub(super) fn words(errno: i32) -> String {
    std::io::Error::from_raw_os_error(errno).to_string()
}

#[track_caller]
pub(super) fn says(error: &dyn std::error::Error, begins: &str, errno: i32) {
    let text = error.to_string();
    assert!(text.starts_with(begins) && text.ends_with(&words(errno)), "{text}");
}

/// Two groups of two workers.
fn small() -> Config {
    config().epoll_groups(2).epoll_threads_per_group(2).auto_cpu_affinity(true)
}

#[test]
fn a_start_that_fails_leaves_nothing_and_says_what_failed() {
    run(&[When::Start], start);
}

fn start(row: &Row) {
    row.each(|errno, outcome| match outcome {
        Outcome::Fails(begins) => {
            // First the first call fails, then the second one, after a call that succeeded.
            for after in [0, 1] {
                let fault = fault(row.call, errno).after(after).arm();
                let started = on_behalf(Side::Server, || builder(Side::Server, small()).start());
                let error = started.map(drop).expect_err("no start without it");
                says(&error, begins, errno);
                assert_eq!(fault.hits(), 1);
                eventually(LONG, || threads_named("srv").is_empty());
            }
        }
        Outcome::Degrades(_) | Outcome::Unseen => {
            let times = if outcome == Outcome::Unseen { 3 } else { usize::MAX };
            let fault = fault(row.call, errno).times(times).arm();
            let started = on_behalf(Side::Server, || builder(Side::Server, small()).start());
            let runtime = started.expect("it goes on without");
            if matches!(row.call, Call::SchedSetattr | Call::Getrusage) {
                burn(&runtime, &fault);
            }
            // Workers set their affinity after the start has returned.
            eventually_or(LONG, || fault.hits() > 0, || format!("{:?} is not called", row.call));
            let listener = runtime.listen("127.0.0.1:0", Bytes::new(answer)).expect("a listener");
            Peer::connect(listener.local_addr()).echo(b"all the same");
            if row.call == Call::SchedSetaffinity {
                eventually(LONG, || runtime.stats().get(Counter::AffinityFailed) > 0);
            }
            ends(runtime);
        }
        other => unreachable!("a start: {other:?}"),
    });
}

/// Sends requests that take 1 ms each, until the faulty call is made.
fn burn(runtime: &Runtime, fault: &Armed) {
    let slowly = |conn: &Connection, input: &mut Input<'_>| {
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
        answer(conn, input)
    };
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(slowly)).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    eventually(LONG, || {
        peer.echo(b"take your time");
        fault.hits() > 0
    });
}

const fn fault(call: Call, errno: i32) -> Fault {
    Fault::new(Side::Server, call, Effect::Fails(errno))
}

#[track_caller]
pub(super) fn ends(runtime: Runtime) {
    assert_eq!(runtime.stats().get(Counter::Panics), 0);
    assert_clean(&runtime.drain(LONG));
}

pub(super) fn listen(row: &Row) {
    let server = Serving::start(Kind::Tcp, config().tcp_send_buf(1 << 16));
    let dir = TempDir::new();
    let listen = || -> Result<Listener, ListenError> {
        let (runtime, protocol) = (&server.runtime, Bytes::new(answer));
        let host = TcpListener::bind("127.0.0.1:0").expect("bound");
        on_behalf(Side::Server, || match row.when {
            When::ListenUnix => runtime.listen(dir.socket().as_path(), protocol),
            When::Adopt => runtime.listen_on([host], ListenOptions::new(), protocol),
            _ if row.call == Call::Getaddrinfo => runtime.listen("localhost:0", protocol),
            _ => runtime.listen("127.0.0.1:0", protocol),
        })
    };
    row.each(|errno, outcome| {
        let fault = fault(row.call, errno).arm();
        match outcome {
            Outcome::Fails(begins) => {
                let error = listen().expect_err("no listener without it");
                says(&error, begins, errno);
                assert_eq!(fault.hits(), 1);
                eventually(LONG, || !dir.socket().exists());
            }
            Outcome::Degrades(_) => {
                let listener = listen().expect("a listener");
                Peer::connect(listener.local_addr()).echo(b"all the same");
                let address = listener.local_addr().clone();
                drop(listener);
                eventually(LONG, || Peer::try_connect(&address, None).is_err());
                eventually(LONG, || fault.hits() == 1);
                fs::remove_file(dir.socket()).expect("it stays");
            }
            other => unreachable!("a listen: {other:?}"),
        }
        server.bystanders.go_on();
        // And now it succeeds.
        let listener = listen().expect("a listener");
        Peer::connect(listener.local_addr()).echo(b"here too");
        drop(listener);
        eventually(LONG, || !dir.socket().exists());
    });
    server.end();
}

/// Each request waits at the gate, and then is answered.
pub(super) fn held(
    gate: &Gate,
) -> impl Fn(&Connection, &mut Input<'_>) -> Result<(), Close> + use<> {
    let gate = gate.clone();
    move |conn, input| {
        let (conn, bytes) = (conn.clone(), input.take_all().to_vec());
        let (gate, hold) = (gate.clone(), conn.hold());
        thread::spawn(move || {
            gate.pass();
            on_behalf(Side::Server, || conn.send(bytes));
            drop(hold);
        });
        Ok(())
    }
}

pub(super) fn drain(row: &Row) {
    row.each(|errno, outcome| match (row.call, outcome) {
        (Call::Accept4, Outcome::Degrades(_)) => drain_without_descriptors(errno),
        (Call::Accept4, _) => drain_with_one_waiting(errno),
        // A worker that rests elsewhere does not make the call, so the drain is repeated.
        _ => assert!((0..100).any(|_| drain_with_one_held(row, errno, outcome)), "{row:?}"),
    });
}

/// Makes the call fail while a drain waits for two requests. Returns true if the call was made.
fn drain_with_one_held(row: &Row, errno: i32, outcome: Outcome) -> bool {
    let gate = Gate::default();
    let runtime = builder(Side::Server, config()).start().expect("a runtime");
    let kind = if row.call == Call::Recvmsg { Kind::Unix } else { Kind::Tcp };
    let dir = TempDir::new();
    let listener = runtime.listen(place(kind, &dir), Bytes::new(held(&gate))).expect("a listener");
    let (mut victim, number) = victim(listener.local_addr());
    let mut other = Peer::connect(listener.local_addr());
    [&mut victim, &mut other].into_iter().for_each(|peer| peer.send(b"the last question"));
    gate.wait_for(2);
    let handle = runtime.handle();
    let ended = thread::spawn(move || on_behalf(Side::Server, || runtime.drain(LONG)));
    eventually(LONG, || handle.stats().closing_connections == 2);
    let ends = outcome == Outcome::Ends;
    let mut fault = fault(row.call, errno).times(if ends { 1 } else { 3 });
    if ends {
        fault = fault.peer(number);
    }
    let fault = fault.arm();
    gate.open();
    assert_eq!(other.receive(17), b"the last question");
    if ends && row.call == Call::Send {
        assert!(victim.receive_all().0.is_empty(), "unanswered");
    } else {
        assert_eq!(victim.receive(17), b"the last question");
        // The server still reads this connection before it closes it.
        let sent = victim.write_all(b"and another thing");
        assert!(ends || sent.is_ok(), "{sent:?}");
        if matches!(row.call, Call::Recv | Call::Recvmsg) {
            // The fault finds the peer by its descriptor, which must still be open.
            eventually(LONG, || fault.hits() > 0);
        }
    }
    other.finish();
    drop((victim, other));
    let report = ended.join().expect("no panic");
    assert!(report.stuck.is_empty() && report.cut == 0, "{row:?} {errno}: {report}");
    fault.hits() > 0
}

/// A connection waits in the backlog when the drain begins, because descriptors were missing.
fn drain_with_one_waiting(errno: i32) {
    let gate = Gate::default();
    let runtime = builder(Side::Server, config()).start().expect("a runtime");
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(held(&gate))).expect("a listener");
    let mut other = Peer::connect(listener.local_addr());
    other.send(b"the last question");
    gate.wait_for(1);
    let none = fault(Call::Accept4, libc::EMFILE).always().arm();
    let mut waiting = Peer::connect(listener.local_addr());
    waiting.send(b"one more");
    eventually(LONG, || none.hits() > 0);
    let handle = runtime.handle();
    let ended = thread::spawn(move || runtime.drain(LONG));
    eventually(LONG, || handle.stats().closing_connections == 1);
    let fault = fault(Call::Accept4, errno).times(3).arm();
    drop(none);
    gate.open();
    assert_eq!(waiting.receive_to_finish(), b"one more");
    assert_eq!(other.receive_to_finish(), b"the last question");
    assert_eq!(fault.hits(), 3, "{errno}");
    drop((waiting, other));
    let report = ended.join().expect("no panic");
    assert!(report.stuck.is_empty() && report.cut == 0, "{errno}: {report}");
}

/// A connection waits in the backlog, and no descriptor becomes free.
fn drain_without_descriptors(errno: i32) {
    let server = builder(Side::Server, config()).start().expect("a runtime");
    let listener = server.listen("127.0.0.1:0", Bytes::new(answer)).expect("a listener");
    let fault = fault(Call::Accept4, errno).always().arm();
    let mut waiting = Peer::connect(listener.local_addr());
    eventually(LONG, || fault.hits() > 0);
    let report = server.drain(Duration::from_millis(50));
    assert_eq!((report.finished, report.cut), (0, 0), "none was accepted: {report}");
    // A thread that is late on a slow machine may be reported as stuck.
    eventually(LONG, || threads_named("srv").is_empty());
    assert!(waiting.receive_all().0.is_empty(), "told by a close");
}

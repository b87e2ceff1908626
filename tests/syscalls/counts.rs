//! Number of system calls that a unit of work needs.

use epoll_group::net::Address;
use epoll_group::stats::Counter;

use crate::shims::{Armed, Call, Effect, Fault, Side, builder};
use crate::world::World;
use lab::protocol::{Bytes, echo};
use lab::{BOTH, Kind, LONG, Peer, TempDir, assert_clean, config, eventually};

/// Number of connections of the test. Each asks once.
const CONNECTIONS: usize = 50;

/// Number of calls that each connection needs.
const EACH: [(Call, usize); 9] = [
    (Call::EpollAdd, 1),
    (Call::EpollMod, 0),
    // A request and the end of the stream.
    (Call::Recv, 2),
    (Call::Send, 1),
    // The peer learns of the end even if a forked process has inherited the socket.
    (Call::Shutdown, 1),
    (Call::EpollDel, 1),
    (Call::Close, 1),
    // An accepted socket inherits the options of its listener.
    (Call::Setsockopt, 0),
    (Call::Getpeername, 0),
];

/// Counts the calls of the server from now on.
fn count(call: Call) -> Armed {
    // All bytes are transferred, so the effect changes nothing.
    Fault::new(Side::Server, call, Effect::AtMost(usize::MAX)).always().arm()
}

#[test]
fn a_connection_that_asks_once_needs_eight_calls_beside_waits() {
    let world = World::enter();
    let runtime = builder(Side::Server, config()).start().expect("a runtime");
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
    let counted = EACH.map(|(call, _)| count(call));
    let accepts = count(Call::Accept4);
    let timers = count(Call::TimerfdSettime);
    let resets = count(Call::Getsockopt);
    for _ in 0..CONNECTIONS {
        Peer::connect(listener.local_addr()).echo(b"the only question");
    }
    let hits = || counted.each_ref().map(Armed::hits);
    let closed = || runtime.stats().get(Counter::ConnectionsClosed) == CONNECTIONS as u64;
    let expected = EACH.map(|(_, calls)| calls * CONNECTIONS);
    let descriptors = EACH.iter().position(|(call, _)| *call == Call::Close).expect("it is listed");
    eventually(LONG, || closed() && hits()[descriptors] == expected[descriptors]);
    assert_eq!(hits(), expected, "{EACH:?}");
    // An accept for each connection, and one that finds the backlog empty.
    assert!(accepts.hits() <= 2 * CONNECTIONS, "{} accepts", accepts.hits());
    // The deadlines of connections share the timer of the group.
    assert!(timers.hits() < CONNECTIONS, "the timer was set {} times", timers.hits());
    // A connection whose end waits for `released` is asked for a reset.
    assert!(resets.hits() < CONNECTIONS, "{} connections were asked", resets.hits());
    drop((counted, accepts, timers, resets));
    assert_clean(&runtime.drain(LONG));
    drop(listener);
    world.is_as_before();
}

/// Length of an answer for which no socket has room.
const LONG_ANSWER: usize = 32 << 20;

#[test]
fn only_a_full_unix_socket_is_watched_for_room() {
    for kind in BOTH {
        let world = World::enter();
        let runtime = builder(Side::Server, config()).start().expect("a runtime");
        let protocol = Bytes::new(|conn, input| {
            input.take_all();
            conn.send(vec![0; LONG_ANSWER]);
            Ok(())
        });
        let dir = TempDir::new();
        let listener = match kind {
            Kind::Tcp => runtime.listen("127.0.0.1:0", protocol),
            Kind::Unix => runtime.listen(Address::Unix(dir.socket()), protocol),
        };
        let listener = listener.expect("a listener");
        let changes = count(Call::EpollMod);
        let mut peer = Peer::connect(listener.local_addr());
        peer.send(b"the only question");
        eventually(LONG, || runtime.stats().get(Counter::BacklogBytesQueued) > 0);
        peer.receive(LONG_ANSWER);
        drop(peer);
        eventually(LONG, || runtime.stats().get(Counter::ConnectionsClosed) == 1);
        assert_eq!(changes.hits() > 0, kind == Kind::Unix, "{kind:?}: {changes:?}");
        drop(changes);
        assert_clean(&runtime.drain(LONG));
        drop(listener);
        drop(dir);
        world.is_as_before();
    }
}

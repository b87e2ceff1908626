//! Limits of the process: no more memory for threads, one CPU. Without descriptors see
//! `net::descriptors`, without threads see `runtime::scaling::refused`.

use std::sync::mpsc;
use std::time::Duration;

use epoll_group::stall;
use epoll_group::stats::Counter;

use crate::shims::{Call, Effect, Fault, Side, builder, on_behalf, process};
use crate::transfers::Pair;
use crate::world::{Bystanders, World, answer};
use lab::child::in_child;
use lab::protocol::Bytes;
use lab::{Kind, LONG, Peer, Server, assert_clean, config, eventually};

#[test]
fn without_memory_for_threads_the_others_go_on_and_later_there_are_more() {
    let _world = World::enter();
    in_child(|| {
        // Memory use must not change between the measurement and the limit: no new thread may
        // reserve an arena, and the watchdog may add no thread.
        process::use_one_arena();
        let config = config().thread_scale_thresh(0);
        let config = config.thread_deadlock_check_interval(Duration::from_secs(10));
        let server = Server::start(Kind::Tcp, config, Bytes::new(answer));
        let bystanders = Bystanders::start(server.address());
        // The allowed memory is less than the stack of one thread.
        let before = process::limit_memory_to_what_is_used(1 << 20);
        // One refusal for each wait, one after the other: one try may be for several waits that begin
        // at once.
        let waiting = [1, 2, 3].map(|refused| {
            let waiting = waits(&server);
            server.wait_for(Counter::ThreadStartFailed, refused);
            waiting
        });
        bystanders.go_on();
        assert_eq!(server.count(Counter::ThreadsStartedStall), 0);
        process::limit_memory(before);
        drop(waiting);
        let waiting = waits(&server);
        eventually(LONG, || server.count(Counter::ThreadsStartedStall) > 0);
        drop(waiting);
        bystanders.end();
        assert_eq!(server.count(Counter::Panics), 0);
        assert_clean(&server.drain(LONG));
    });
}

/// Starts a handler that waits until the returned sender is dropped.
fn waits(server: &Server) -> mpsc::Sender<()> {
    let (tell, told) = mpsc::channel();
    let code = move || {
        let _ended = stall::run(|| told.recv_timeout(LONG));
    };
    server.runtime.handle().spawn(code).expect("room");
    tell
}

#[test]
fn a_listener_needs_no_file() {
    let world = World::enter();
    let runtime = builder(Side::Server, config()).start().expect("a runtime");
    // As in a changed root directory that is empty.
    let missing = Fault::new(Side::Server, Call::Open, Effect::Fails(libc::ENOENT)).always().arm();
    let listen = || runtime.listen("127.0.0.1:0", Bytes::new(answer));
    let listener = on_behalf(Side::Server, listen).expect("a listener");
    Peer::connect(listener.local_addr()).echo(b"hello");
    assert_eq!(missing.hits(), 0);
    assert_clean(&runtime.drain(LONG));
    // The listener keeps the descriptors of its group.
    drop(listener);
    world.is_as_before();
}

#[test]
fn on_one_cpu_sessions_are_served_as_on_many() {
    let _world = World::enter();
    in_child(|| {
        process::run_on_one_cpu();
        let pair = Pair::start();
        pair.converse(50);
        let stats = pair.server.stats();
        assert_eq!(stats.get(Counter::AffinityFailed), 0);
        pair.end();
    });
}

//! Tens of thousands of connections open and close, and leave nothing behind.

use std::thread;

use lab::allocator::leaves_nothing;
use lab::child::{descriptors, in_child};
use lab::peer::frame;
use lab::protocol::Frames;
use lab::{Kind, LONG, Server, config, eventually};

/// Number of cycles. `EPOLL_GROUP_TEST_SCALE` multiplies it.
fn cycles() -> usize {
    let scale = std::env::var("EPOLL_GROUP_TEST_SCALE").ok();
    10_000 * scale.map_or(1, |text| text.parse().expect("EPOLL_GROUP_TEST_SCALE is a number"))
}

/// Connects, asks and closes. Every other connection ends by a reset.
fn churn(server: &Server, cycles: usize) {
    thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for cycle in 0..cycles / 2 {
                    let mut peer = server.peer();
                    peer.echo(&frame(thread, &cycle.to_le_bytes()));
                    if cycle % 2 == 0 {
                        peer.reset();
                    }
                }
            });
        }
    });
    server.wait_until_empty();
}

fn nothing_grows(kind: Kind) {
    in_child(|| {
        let server = Server::start(kind, config(), Frames::default());
        churn(&server, cycles() / 5);
        eventually(LONG, || server.stats().timers_pending == 0);
        let (fds, slots) = (descriptors(), server.stats().slots_allocated);
        leaves_nothing(cycles(), || {
            churn(&server, cycles());
            eventually(LONG, || descriptors() <= fds);
            eventually(LONG, || server.stats().timers_pending == 0);
        });
        let stats = server.stats();
        assert!(stats.slots_allocated <= slots + 256, "from {slots} slots:\n{stats}");
        eventually(LONG, || {
            let stats = server.stats();
            stats.slots_allocated - stats.slots_free <= 1
        });
        assert_eq!(stats.buffered_bytes, 0);
    });
}

#[test]
fn memory_descriptors_and_slots_stay_flat_over_tcp() {
    nothing_grows(Kind::Tcp);
}

#[test]
fn memory_descriptors_and_slots_stay_flat_over_unix_sockets() {
    nothing_grows(Kind::Unix);
}

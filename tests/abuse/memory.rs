//! Memory that attackers took is given back when they have left.

use std::time::Duration;

use epoll_group::stats::Counter;
use lab::abuse::bout::{Bout, alone};
use lab::allocator::held_bytes;
use lab::child::in_child;
use lab::engine::{Fixture, config};

/// Abuses that take much memory for a moment, each with a counter that shows it, and the count for
/// each peer.
const GREEDY: [(&str, Counter, u64); 4] = [
    ("slow-readers", Counter::ClosedWriteTimeout, 1),
    ("lying-lengths", Counter::SessionsOpened, 1),
    ("huge-repeats", Counter::ProtocolErrors, 1),
    ("rapid-reset", Counter::ClosedGlitches, 1),
];

#[test]
fn memory_is_given_back() {
    let _alone = alone();
    in_child(|| {
        let config = config()
            .net_write_timeout(Duration::from_millis(200))
            .tcp_send_buf(32 << 10)
            .max_glitches(1000);
        let config = Bout::new("slow-readers", config).config;
        let server = Fixture::start(config.clone());
        let round = || {
            for (name, counter, each) in GREEDY {
                Bout::new(name, config.clone())
                    .bytes_each(16 << 20)
                    .run_against(&server, |seen| seen.count(counter) >= each * seen.peers);
            }
            server.control.forget();
        };
        // After two rounds most workers have handled the largest sizes once.
        for _ in 0..2 {
            round();
        }
        let before = held_bytes();
        for _ in 0..2 {
            round();
        }
        let after = held_bytes();
        // About a hundred MiB went through the server. A worker may keep a buffer more.
        assert!(after < before + (512 << 10), "from {before} to {after} bytes");
    });
}

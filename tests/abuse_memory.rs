//! When attackers have gone, so has the memory that they took.
#![cfg(feature = "server")]

mod support;

use std::time::Duration;

use epoll_group::stats::Counter;
use support::abuse::bout::Bout;
use support::child::{in_child, resident_bytes};
use support::engine::{Fixture, config};

/// Each takes what it can for a moment.
const GREEDY: [(&str, Counter, u64); 6] = [
    ("slow-readers", Counter::ClosedWriteTimeout, 1),
    ("ping-flood", Counter::ClosedWriteTimeout, 1),
    ("lying-lengths", Counter::SessionsOpened, 1),
    ("huge-repeats", Counter::ProtocolErrors, 1),
    ("session-id-flood", Counter::ClosedGlitches, 1),
    ("rapid-reset", Counter::ClosedGlitches, 1),
];

#[test]
fn memory_is_given_back() {
    in_child("memory_is_given_back", || {
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
        };
        round();
        let before = resident_bytes();
        for _ in 0..4 {
            round();
        }
        let after = resident_bytes();
        assert!(after < before + (32 << 20), "from {before} to {after} bytes");
    });
}

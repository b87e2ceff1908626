//! A connection that keeps its thread busy, and others that want an answer meanwhile.

use std::error::Error;
use std::time::Duration;

use lab::load::{Heavy, Pace};

use super::{SERVERS, Suite, line_up, section};
use crate::experiment::Plan;
use crate::report::Section;
use crate::table::{Column, P50, P99_EACH, P99_RATIO, P999, REQUESTS, THREADS, number};
use crate::workload::{Frames, Workload};

pub const SUITE: Suite = Suite {
    name: "hot",
    question: "How long do light connections wait while one connection has much to do?",
    run,
};

/// Servers with as many threads as a group of ours has, so that the number of threads is no reason for a
/// difference.
const AS_MANY_THREADS: [&str; 2] = ["limit:4", "tokio:4"];

const LIGHT_CONNECTIONS: usize = 64;
/// All light connections together ask 10 000 times a second.
const THINK: Duration = Duration::from_micros(6400);

/// Few long requests, and many short ones. Either keeps one CPU busy.
const LOADS: [(&str, Heavy); 2] = [
    (
        "One request in flight that burns 5 ms",
        Heavy { connections: 1, burn: Duration::from_millis(5), pipeline: 1 },
    ),
    (
        "512 requests in flight that burn 50 µs each",
        Heavy { connections: 1, burn: Duration::from_micros(50), pipeline: 512 },
    ),
];

pub const HEAVY_REQUESTS: Column<'static> = ("heavy requests/s", &|measured, lane| {
    number(measured, lane, |window| window.heavy_requests as f64 / window.seconds)
});

const TEXT: &str = "\
64 connections ask now and then, 10 000 times a second together, and measure how long they wait. Beside them \
one connection keeps a CPU busy. In a server with a loop for each thread, connections that share the thread \
of that one wait until it has done what it has read, while other threads are idle. Latencies and requests/s \
are those of the 64; a ratio above 1 says that epoll-group answers sooner. All but epoll-group and easy-async \
perform all frames that they have received before they send; tokio burns in its task and does not announce it \
(no `block_in_place`). `limit:4` and `tokio:4` have 4 threads, as a group of epoll-group has.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let servers: Vec<_> = SERVERS.into_iter().chain(AS_MANY_THREADS).collect();
    let mut found = Vec::new();
    for (name, heavy) in LOADS {
        let frames = Frames {
            pace: Pace::After(THINK),
            heavy: Some(heavy),
            ..Frames::plain(LIGHT_CONNECTIONS)
        };
        found.push(line_up(name, &servers, &Workload::frames(frames), plan)?);
    }
    let columns = [P50, P99_EACH, P99_RATIO, P999, REQUESTS, HEAVY_REQUESTS, THREADS];
    Ok(section("A hot connection", TEXT, &found, &columns))
}

//! A connection that keeps its thread busy, and others that want an answer meanwhile.

use std::error::Error;
use std::time::Duration;

use serde_json::json;

use super::Suite;
use super::line_up::{self, Column, P50, P99, P99_RATIO, P999, REQUESTS, SERVERS, THREADS};
use crate::experiment::{Measured, Plan, Progress, Shape, Window};
use crate::load::Heavy;
use crate::report::{Block, Section};
use crate::workload::Workload;

pub(crate) const SUITE: Suite = Suite {
    name: "hot",
    question: "Who has to wait while one connection has much to do?",
    seconds: |plan| {
        let servers = (SERVERS.len() + AS_MANY_THREADS.len()) as f64 / SERVERS.len() as f64;
        2.0 * servers * line_up::seconds(plan, START)
    },
    run,
};

/// With as many threads as ours has for a group: more than the CPUs of a small machine, which the
/// kernel shares out among them.
const AS_MANY_THREADS: [&str; 2] = ["limit:4", "tokio:4"];

const LIGHT_CONNECTIONS: usize = 64;
/// All light connections together ask 10 000 times a second.
const THINK: Duration = Duration::from_micros(6400);

/// Few long requests, and many short ones: either keeps one CPU busy.
const LONG: Heavy = Heavy { connections: 1, burn: Duration::from_millis(5), pipeline: 1 };
const MANY: Heavy = Heavy { connections: 1, burn: Duration::from_micros(50), pipeline: 512 };

/// Seconds from the start of a server to its first window.
const START: f64 = 0.2;

const HOT_REQUESTS: Column<'static> = ("hot requests/s", &|measured, lane| {
    line_up::number(measured, lane, |window: &Window| window.heavy_requests as f64 / window.seconds)
});

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let long = measure("long requests", LONG, plan, progress)?;
    let many = measure("many requests", MANY, plan, progress)?;
    let columns = [P50, P99, P99_RATIO, P999, REQUESTS, HOT_REQUESTS, THREADS];
    let blocks = vec![
        Block::Text(format!(
            "{LIGHT_CONNECTIONS} connections ask now and then, 10 000 times a second together, and \
             measure how long they wait. Beside them one connection keeps a CPU busy. In a server \
             with a loop for each thread, whoever shares the thread of that connection waits until \
             it has done what it has read, while other threads have nothing to do. Latencies and \
             requests/s are those of the {LIGHT_CONNECTIONS}; a ratio above 1 says that epoll-group \
             answers sooner. All but epoll-group and easy-async do all that they have received before \
             they send; tokio burns in its task and does not announce it (no `block_in_place`). \
             `limit:4` and `tokio:4` have 4 threads, as a group of epoll-group has, whatever the \
             CPUs: beside them, what is left is not the number of threads."
        )),
        Block::Text("### One request in flight that burns 5 ms".to_owned()),
        Block::Table(line_up::table(&long, &columns)),
        Block::Text(format!("### {} requests in flight that burn 50 µs each", MANY.pipeline)),
        Block::Table(line_up::table(&many, &columns)),
    ];
    Ok(Section {
        name: SUITE.name,
        title: "A hot connection".to_owned(),
        blocks,
        raw: json!({ "experiments": [long, many] }),
    })
}

fn measure(
    name: &str,
    heavy: Heavy,
    plan: &Plan,
    progress: &mut Progress,
) -> Result<Measured, Box<dyn Error>> {
    let shape = Shape { think: THINK, heavy: Some(heavy), ..Shape::plain(LIGHT_CONNECTIONS) };
    let servers: Vec<_> = SERVERS.iter().copied().chain(AS_MANY_THREADS).collect();
    line_up::run_some(&servers, name.to_owned(), Workload::Frames(shape), plan, progress)
}

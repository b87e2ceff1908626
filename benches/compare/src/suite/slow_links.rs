//! Large requests that come in trickles, whose answers are taken in trickles, and short ones.

use std::error::Error;

use serde_json::json;

use super::Suite;
use super::line_up::{self, CPU, Column, P50, P99, P99_RATIO, P999, PEAK_MIB, REQUESTS, THREADS};
use crate::experiment::{Plan, Progress};
use crate::report::{Block, Section};
use crate::workload::Workload;

mod load;

pub(crate) use load::{Load, Shape};

pub(crate) const SUITE: Suite = Suite {
    name: "slow_links",
    question: "Who has to wait while large requests trickle in?",
    seconds: |plan| line_up::seconds(plan, START),
    run,
};

const SHAPE: Shape = Shape { light: 32, slow: 64 };
/// Seconds from the start of a server to its first window.
const START: f64 = 0.3;

const SLOW_REQUESTS: Column<'static> = ("large frames/s", &|measured, lane| {
    line_up::number(measured, lane, |window| window.heavy_requests as f64 / window.seconds)
});

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let name = SHAPE.to_string();
    let measured = line_up::run(name, Workload::SlowLinks(SHAPE), plan, progress)?;
    let columns = [P50, P99, P99_RATIO, P999, REQUESTS, SLOW_REQUESTS, CPU, PEAK_MIB, THREADS];
    let blocks = vec![
        Block::Text(format!(
            "{} connections send frames of 64 KiB to 1 MiB, {} KiB every {} ms, and take their answers \
             as slowly. Beside them {} connections ask now and then with 64 bytes, 10 000 times a \
             second together: latencies and requests/s are theirs. CPU time per request is all that \
             the server takes, over all answers: most of it goes to the large frames. A server \
             that reads a request to its end before it looks at another one has its threads wait for \
             the slow ones; one that buffers pays with memory, which is bounded by the frames under \
             way.",
            SHAPE.slow,
            load::CHUNK_BYTES >> 10,
            load::PAUSE.as_millis(),
            SHAPE.light,
        )),
        Block::Table(line_up::table(&measured, &columns)),
    ];
    Ok(Section {
        name: SUITE.name,
        title: "Large requests on slow links".to_owned(),
        blocks,
        raw: json!({ "experiments": [measured] }),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::test_servers::{any, epoll_group};
    use crate::{limit, thread_per_connection};

    #[test]
    fn frames_that_trickle_come_back_whole() {
        let (_runtime, ours) = epoll_group(2);
        let threads = thread_per_connection::start(any()).unwrap();
        for address in [ours, threads, limit::start(any(), 1).unwrap()] {
            let mut load = Load::connect(address, &Shape { light: 2, slow: 3 }).unwrap();
            let mut large = 0;
            // The smallest is sixteen chunks long, there and back.
            while large < 2 {
                let report = load.run_for(Duration::from_millis(50)).unwrap();
                assert!(report.requests > 0);
                large += report.heavy_requests;
            }
            let answers = load.answers_total();
            // All connections have something under way but those that have just ended.
            assert!(load.finish().unwrap() >= answers);
        }
    }
}

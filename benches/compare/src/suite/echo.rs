//! Frames that come back as they are: what the architecture costs, and nothing else.

use std::error::Error;

use super::Suite;
use super::grid::{Contender, Grid};
use crate::experiment::{Plan, Progress, Shape};
use crate::report::{Block, Section};
use crate::workload::Workload;

pub(crate) const SUITE: Suite = Suite {
    name: "echo",
    question: "What does the architecture cost, when the work is nothing?",
    seconds: |plan| all(plan).seconds(plan),
    run,
};

fn run(plan: &Plan, progress: &mut Progress) -> Result<Section, Box<dyn Error>> {
    let found = all(plan).run(plan, progress)?;
    let mut blocks =
        vec![Block::Text("Frames of 64 bytes, one in flight on each connection.".to_owned())];
    blocks.extend(found.blocks(256));
    Ok(Section { name: SUITE.name, title: "Echo".to_owned(), blocks, raw: found.raw() })
}

fn all(plan: &Plan) -> Grid {
    let names = ["epoll-group", "limit", "thread-per-connection"];
    let loads = if plan.quick { vec![32, 256] } else { (1..=10).map(|power| 1 << power).collect() };
    Grid {
        contenders: names.map(Contender::echo).into(),
        ours: 0,
        loads,
        unit: "connections",
        workload: |connections| Workload::Frames(Shape::plain(connections)),
    }
}

//! Proxies between clients and a server.

use std::error::Error;
use std::time::Duration;

use clap::ValueEnum;
use lab::load::Pace;
use serde_json::json;

use super::{Suite, blocks, many};
use crate::experiment::{Experiment, Lane, Plan};
use crate::proxies::{Proxy, has_haproxy};
use crate::report::Section;
use crate::server::Server;
use crate::table::{
    CPU_EACH, CPU_RATIO, P99_EACH, P99_RATIO, REQUESTS, REQUESTS_RATIO, SWITCHES, SYSCALLS,
};
use crate::workload::{Frames, Workload};

pub const SUITE: Suite =
    Suite { name: "splice", question: "What does a proxy cost between client and server?", run };

const CONNECTIONS: [usize; 2] = [32, 512];
const STREAM_BYTES: usize = 16 << 10;
/// Frames of a stream on their way.
const IN_FLIGHT: usize = 4;
/// Pairs that keep quiet, and pairs beside them that ask.
const IDLE: usize = 1500;
const ACTIVE: usize = 32;

const TEXT: &str = "\
Clients ask through a proxy, and a bare loop behind it echoes. CPU time, switches and system calls are those of \
the proxy's process. A pair is a connection of a client and the one to the server behind. Streams are frames of \
16 KiB, 4 of them on their way; requests are frames of 64 bytes, one at a time.";

fn run(plan: &Plan) -> Result<Section, Box<dyn Error>> {
    let (behind, to, _) = Server::Echo("limit".parse()?).start()?;
    let installed = has_haproxy();
    let proxies: Vec<_> = Proxy::value_variants()
        .iter()
        .copied()
        .filter(|proxy| installed || !proxy.is_haproxy())
        .collect();
    let lanes = |workload: &Workload| {
        let lane = |&proxy: &Proxy| {
            let name = proxy.to_possible_value().expect("no proxy is hidden").get_name().to_owned();
            Lane { name, server: Server::Proxy(proxy, to), workload: workload.clone() }
        };
        proxies.iter().map(lane).collect::<Vec<_>>()
    };
    let mut found = Vec::new();
    for connections in CONNECTIONS {
        let plain = Frames::plain(connections);
        let stream = Frames {
            frame_bytes: STREAM_BYTES,
            pipeline: IN_FLIGHT,
            pace: Pace::AT_ONCE,
            burn: Duration::ZERO,
            ..plain
        };
        for frames in [plain, stream] {
            let workload = Workload::frames(frames);
            found.push(Experiment::new(workload.to_string(), lanes(&workload)).run(plan)?);
        }
    }
    let quiet = many::workload(ACTIVE, IDLE);
    let plan = Plan { fresh_every: plan.cycles, counts_syscalls: false, ..*plan };
    let idle =
        Experiment::new(format!("{IDLE} pairs that keep quiet"), lanes(&quiet)).run(&plan)?;
    behind.finish()?;

    let columns =
        [REQUESTS, REQUESTS_RATIO, CPU_EACH, CPU_RATIO, P99_EACH, P99_RATIO, SWITCHES, SYSCALLS];
    let mut all = vec![TEXT.to_owned()];
    if !installed {
        all.push("HAProxy is not installed, so it does not take part.".to_owned());
    }
    all.extend(blocks(&found, &columns));
    let bytes = many::bytes_each(IDLE + ACTIVE);
    all.extend(blocks(std::slice::from_ref(&idle), &[("bytes/pair", &bytes)]));
    found.push(idle);
    Ok(Section::new("Proxies", all, json!({ "experiments": found })))
}

//! `load`: loads a server and prints the result.

use std::error::Error;
use std::io::Write;

use lab::args::misuse;
use serde::Serialize;
use txn_kv::load::{Lines, Load, Options, Progress, Summary, Until};
use txn_kv::serve::{self, Server};

use crate::args::Load as Args;

/// Result of a load, with what was asked.
#[derive(Serialize)]
struct Report<'a> {
    connect: Option<&'a str>,
    load: String,
    clients: usize,
    connections: usize,
    total: u64,
    key_size: usize,
    val_size: usize,
    key_space_size: u64,
    seed: u64,
    #[serde(flatten)]
    summary: &'a Summary,
}

/// # Errors
///
/// The server cannot be reached, an answer was wrong, or a request failed.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (shape, workload) = (args.shape().map_err(misuse)?, args.workload());
    let mut own = None;
    let address = match &args.connect {
        Some(address) => address.clone(),
        None => {
            let options = serve::Options::new(args.user.as_str(), args.password.as_str());
            own.insert(Server::start(&options)?).address().to_string()
        }
    };
    let options = Options {
        address,
        user: args.user.clone(),
        password: args.password.clone(),
        clients: args.clients,
        connections: args.connections,
    };
    let load = Load::new(&options, shape)?;
    if workload.reads() && !args.filled {
        load.fill(Progress::new("fill", Lines::EachTenth))?;
    }
    let progress = Progress::new(workload.to_string(), Lines::EachTenth);
    let summary = load.run(workload, Until::Requests(args.total), progress)?;
    if args.json {
        let report = Report {
            connect: args.connect.as_deref(),
            load: workload.to_string(),
            clients: args.clients,
            connections: args.connections,
            total: args.total,
            key_size: shape.keys.bytes(),
            val_size: shape.value_bytes,
            key_space_size: shape.keys.count(),
            seed: shape.seed,
            summary: &summary,
        };
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        summary.print(out)?;
    }
    out.flush()?;
    summary.verdict()
}

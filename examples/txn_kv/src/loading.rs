//! `load`: loads a server and prints how it went.

use std::error::Error;
use std::io::Write;

use serde_json::json;
use txn_kv::load::{Lines, Load, Options, Progress, Summary, Until};
use txn_kv::serve::{self, Server};

use crate::args::Load as Args;
use crate::sys::raise_descriptor_limit;

/// # Errors
///
/// The server cannot be reached, an answer was wrong, or a request failed.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
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
    let load = Load::new(&options, args.shape)?;
    if args.workload.reads() && !args.filled {
        load.fill(Progress::new("fill", Lines::EachTenth))?;
    }
    let progress = Progress::new(args.workload.to_string(), Lines::EachTenth);
    let summary = load.run(args.workload, Until::Requests(args.total), progress)?;
    if args.json {
        writeln!(out, "{}", object(args, &summary))?;
    } else {
        summary.print(out)?;
    }
    out.flush()?;
    summary.verdict()
}

/// What was asked and how it went.
fn object(args: &Args, summary: &Summary) -> serde_json::Value {
    let asked = json!({
        "connect": args.connect,
        "load": args.workload.to_string(),
        "clients": args.clients,
        "connections": args.connections,
        "total": args.total,
        "key_size": args.shape.keys.bytes(),
        "val_size": args.shape.value_bytes,
        "key_space_size": args.shape.keys.count(),
        "seed": args.shape.seed,
    });
    let (mut object, went) = (asked, summary.to_json());
    if let (Some(object), serde_json::Value::Object(went)) = (object.as_object_mut(), went) {
        object.extend(went);
    }
    object
}

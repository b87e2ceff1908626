//! Servers and a load of the command line, as a report of one section.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::PathBuf;

use baselines::Spec;
use lab::environment::Environment;
use lab::load::raise_descriptor_limit;
use serde_json::json;

use super::blocks;
use crate::experiment::{Experiment, Lane, Plan};
use crate::server::Server;
use crate::table::USUAL;
use crate::workload::Workload;

/// Measures each workload and prints. With a folder, writes the page and the raw numbers into it.
pub fn run(
    servers: &[Spec],
    workloads: impl Iterator<Item = Workload>,
    plan: Plan,
    folder: Option<PathBuf>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let environment = Environment::of(crate::COMMAND);
    let mut found = Vec::new();
    for workload in workloads {
        let lanes = servers.iter().map(|spec| Lane {
            name: spec.to_string(),
            server: Server::Echo(spec.clone()),
            workload: workload.clone(),
        });
        found.push(Experiment::new(workload.to_string(), lanes).run(&plan)?);
    }
    let page = format!("{environment}\n{}\n", blocks(&found, &USUAL).join("\n\n"));
    writeln!(out, "{page}")?;
    if let Some(folder) = folder {
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("README.md"), &page)?;
        let raw = json!({
            "environment": environment, "plan": plan, "suite": "servers",
            "raw": { "experiments": found },
        });
        fs::write(folder.join("servers.json"), serde_json::to_string(&raw)? + "\n")?;
    }
    Ok(())
}

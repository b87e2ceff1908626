//! Latency of well-behaved clients, the bystanders, while others abuse the server. Predicts service.
//!
//! ```text
//!   attackers ───▶ server ◀─── bystanders      abused    B
//!                  twin   ◀─── bystanders      control   C: the same machine, a server without attackers
//!                  server ◀─── bystanders      quiet     A: before the attack and after it
//! ```
//!
//! Attackers, server, twin and bystanders are a process each. The bystanders ask one of the two
//! servers at a time, in windows of 400 ms: A A …, B C C B and so on, A A …. A ratio B / C compares
//! neighbours. A ratio B / A compares windows of the first half of the attack with those before it,
//! and of the second half with those after it. B / A is the whole cost of an abuse on this machine.
//! B / C is the part that comes from sharing the *server* with the attackers, without the part that
//! comes from sharing the CPUs.
//!
//! Attackers run at idle priority unless `--attackers equal` says otherwise, because real ones have CPUs of
//! their own. Every answer is compared and every request must be answered, or the bench fails.
//!
//! `cargo bench --bench abuse` runs all abuses at full size, `-- --quick` for a minute, and
//! `-- --help` lists the options.

mod args;
mod attack;
mod course;
mod node;
mod report;
mod stand_by;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use lab::abuse::ALL;
use lab::environment::Environment;
use lab::terminal::Output;

use args::{Cli, Options, Role};
use course::Course;

fn main() -> ExitCode {
    lab::args::run(|cli: Cli, out| match &cli.role {
        None if cli.options.list => list(out),
        None => measure(&cli.options, out),
        Some(Role::Serve) => node::serve(),
        Some(Role::Attack(attack)) => attack::attack(attack),
        Some(Role::StandBy(stand_by)) => stand_by::stand_by(stand_by),
    })
}

fn list(out: &mut Output) -> Result<(), Box<dyn Error>> {
    for abuse in ALL {
        writeln!(out, "{:24} {:5} peers: {}", abuse.name, abuse.peers, abuse.about)?;
    }
    Ok(())
}

fn measure(options: &Options, out: &mut Output) -> Result<(), Box<dyn Error>> {
    lab::load::raise_descriptor_limit()?;
    let environment = Environment::of("cargo bench --bench abuse");
    writeln!(out, "{environment}")?;
    let abuses = options.abuses();
    let mut results = Vec::new();
    for (place, abuse) in abuses.iter().enumerate() {
        write!(out, "[{}/{}] {}: ", place + 1, abuses.len(), abuse.name)?;
        out.flush()?;
        let result = Course::new(options, abuse).run()?;
        writeln!(out, "{}", report::line(&result))?;
        results.push(result);
        if let Some(dir) = &options.out {
            report::write(dir, &environment, options, &results)?;
        }
    }
    writeln!(out, "\n{}", report::table(&results))?;
    let wrong: Vec<_> = results.iter().flat_map(report::faults).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

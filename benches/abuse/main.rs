//! What do bystanders suffer while somebody abuses the server? Predicts service.
//!
//! ```text
//!   attackers ───▶ server ◀─── bystanders      abused    B
//!                  twin   ◀─── bystanders      control   C: nobody attacks it, the machine is the same
//!                  server ◀─── bystanders      quiet     A: before the attack and after it
//! ```
//!
//! Each box is a process. The bystanders ask one of the two servers at a time, in windows of 400 ms:
//! A A …, B C C B and so on, A A … So a ratio B / C compares neighbours; a ratio B / A compares windows of
//! the first half of the attack with those before it, and of the second half with those after it. B / A is
//! all that an abuse costs on this machine; B / C is the part that comes of sharing the *server* with the
//! attackers and not of sharing the CPUs with them and with what their work costs the server.
//!
//! Attackers run at idle priority unless `--attackers equal` says otherwise: real ones have CPUs of
//! their own. Every answer is compared, and every request must be answered: otherwise this fails.
//!
//! `cargo bench --bench abuse`: all of them, in full size. `-- --quick`: a minute. `-- --help`: more.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is the result")]

mod attack;
mod course;
mod helper;
mod meter;
mod node;
mod options;
mod report;
mod spread;
mod stand_by;

use std::error::Error;
use std::process::ExitCode;

use course::Course;
use options::{Command, Options};

fn main() -> ExitCode {
    let done = match Command::from_env() {
        Ok(Command::Measure(options)) => measure(&options),
        Ok(Command::Serve) => node::serve(),
        Ok(Command::Attack(attack)) => attack::attack(&attack),
        Ok(Command::StandBy(stand_by)) => stand_by::stand_by(&stand_by),
        Ok(Command::Help) => {
            println!("{}", options::HELP);
            Ok(())
        }
        Err(error) => Err(error.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("abuse: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), Box<dyn Error>> {
    lab::load::sys::raise_descriptor_limit()?;
    let environment = lab::environment::Environment::of("cargo bench --bench abuse");
    println!("{environment}");
    let abuses = options.abuses()?;
    let mut results = Vec::new();
    for (place, abuse) in abuses.iter().enumerate() {
        print!("[{}/{}] {}: ", place + 1, abuses.len(), abuse.name);
        let result = Course::new(options, abuse).run()?;
        println!("{}", report::line(&result));
        results.push(result);
        if let Some(dir) = &options.out {
            report::write(dir, &environment, options, &results)?;
        }
    }
    println!("\n{}", report::table(&results));
    let wrong: Vec<_> = results.iter().flat_map(report::faults).collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ").into()) }
}

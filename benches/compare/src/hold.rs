//! The other end of idle connections, as a process of its own.
//!
//! Opens them, exchanges one frame on each, says `holding N`, and keeps quiet until its input
//! ends; then it asks once more on each, so that what was measured is known to have been alive.

use std::error::Error;
use std::io::{self, Write};
use std::time::Duration;

use super::load::{Load, Options, Target, raise_descriptor_limit};

pub(crate) fn run(
    target: Target,
    connections: usize,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let mut load = Load::connect(&Options { connections, ..Options::new(target) })?;
    writeln!(out, "holding {connections}")?;
    out.flush()?;
    io::copy(&mut io::stdin(), &mut io::sink())?;

    // On a busy machine so short a time can be over before any connection has asked.
    let mut answered = 0;
    for millis in [1, 100, 1000, 10_000] {
        let before = load.answers_total();
        let report = load.run_for(Duration::from_millis(millis), |_| ())?;
        if let Some(failure) = report.first_error {
            return Err(failure.to_string().into());
        }
        answered = load.answers_total() - before;
        if answered >= connections as u64 {
            break;
        }
    }
    if answered < connections as u64 {
        return Err(format!("{answered} answers on {connections} connections").into());
    }
    writeln!(out, "all answered, {}", load.answers_total())?;
    Ok(())
}

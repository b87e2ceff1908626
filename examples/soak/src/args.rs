//! The command line.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lab::args::within;

use crate::child::Role;

/// Soak an echo server, a data node and a sharding proxy.
///
/// Attackers, faulty networks, stops, kills, churn and changes of the configuration are mixed at random,
/// while well-behaved load checks every answer. Without --minutes it is a short round of everything,
/// about 20 seconds.
///
/// Prints a line for each phase: time, requests, hazards; for each server the p99 of the
/// well-behaved load, memory, descriptors and threads in the quiet time that follows. Ends with 0
/// if every answer was right, none was lost on a road that loses none, and nothing is left of any
/// phase; with 1 and the seed otherwise. Memory is judged from the second round on, after some
/// seven minutes.
#[derive(Debug, Parser)]
#[command(name = "soak", args_conflicts_with_subcommands = true)]
pub(crate) struct Command {
    #[command(flatten)]
    pub(crate) options: Options,
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    /// One of the servers of a run, in a process of its own.
    #[command(hide = true, subcommand)]
    Child(Role),
}

/// A run.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Length of the run (0.5..=10000).
    #[arg(long, value_name = "N", value_parser = minutes)]
    pub(crate) minutes: Option<Duration>,
    /// Seed of the mix [default: a random one, which is printed].
    #[arg(long, value_name = "S", default_value_t = fastrand::u64(..1_000_000), hide_default_value = true)]
    pub(crate) seed: u64,
    /// File for the report, as Markdown.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

fn minutes(text: &str) -> Result<Duration, String> {
    within(0.5..=10_000.0)(text).map(|minutes: f64| Duration::from_secs_f64(minutes * 60.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minutes_have_limits_and_a_child_is_a_command_of_its_own() {
        let parse = |line: &str| Command::try_parse_from(line.split(' '));
        let run = parse("soak --minutes 0.5 --seed 7").unwrap().options;
        assert_eq!((run.minutes, run.seed), (Some(Duration::from_secs(30)), 7));
        let error = parse("soak --minutes 0.4").unwrap_err().to_string();
        assert!(
            error.contains("--minutes") && error.contains("0.4 is outside 0.5..=10000"),
            "{error}"
        );
        let role = Role::Proxy { nodes: vec!["a:1,b:2".to_owned(), "c:3".to_owned()] };
        let line = format!("soak child {}", role.words().join(" "));
        let Some(Task::Child(read)) = parse(&line).unwrap().task else { panic!("{line}") };
        assert_eq!(read, role);
    }
}

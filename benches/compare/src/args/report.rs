//! The options of a report, which is what is asked for without a command.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use lexopt::Parser;

use super::{Length, UsageError, number, text};
use crate::experiment::Plan;
use crate::suite::{SUITES, Suite};

/// What is to be measured, and where it goes.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) plan: Plan,
    /// In the order of the report.
    pub(crate) suites: Vec<&'static Suite>,
    /// A folder; `None`: the one that is made for it.
    pub(crate) out: Option<PathBuf>,
}

/// As far as it was said.
#[derive(Debug, Default)]
pub(super) struct Said {
    rounds: Option<usize>,
    only: Option<Vec<String>>,
    out: Option<PathBuf>,
}

const COUNT: RangeInclusive<usize> = 1..=1000;

/// Of a report for the record, and of a first look.
const ROUNDS: usize = 11;
const QUICK_ROUNDS: usize = 2;
const WINDOW: Duration = Duration::from_millis(300);
const QUICK_WINDOW: Duration = Duration::from_millis(100);
const FRESH_EVERY: usize = 3;

impl Said {
    /// Reads one option with its value; `false` when there is none of this name.
    pub(super) fn option(&mut self, option: &str, parser: &mut Parser) -> Result<bool, UsageError> {
        match option {
            "--rounds" => self.rounds = Some(number(option, parser.value()?, COUNT)?),
            "--out" => self.out = Some(parser.value()?.into()),
            "--only" => {
                let names = text(option, parser.value()?)?;
                self.only = Some(names.split(',').map(str::to_owned).collect());
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rounds.is_none() && self.only.is_none() && self.out.is_none()
    }

    pub(super) fn report(self, length: &Length) -> Result<Report, UsageError> {
        let (rounds, window) = match length.quick {
            true => (QUICK_ROUNDS, QUICK_WINDOW),
            false => (ROUNDS, WINDOW),
        };
        let plan = Plan {
            cycles: self.rounds.unwrap_or(rounds),
            window: length.window.unwrap_or(window),
            fresh_every: FRESH_EVERY,
            counts_syscalls: true,
            quick: length.quick,
        };
        let only = self.only.unwrap_or_default();
        let named = |name: &String| SUITES.iter().any(|suite| suite.name == name);
        if let Some(name) = only.iter().find(|&name| !named(name)) {
            let names: Vec<_> = SUITES.iter().map(|suite| suite.name).collect();
            return Err(UsageError(format!("--only {name} is none of {}", names.join(", "))));
        }
        let wanted = |suite: &&Suite| only.is_empty() || only.iter().any(|name| name == suite.name);
        Ok(Report { plan, suites: SUITES.iter().filter(wanted).collect(), out: self.out })
    }
}

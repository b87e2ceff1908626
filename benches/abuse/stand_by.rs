//! The bystanders, in a process of their own.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use lab::abuse::bystanders::{Bystanders, Habits, Report};
use lab::helper::{obey, say};
use serde::{Deserialize, Serialize};

use crate::args::StandBy;
use crate::node;

/// Results of one window, or of many together. Times are microseconds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Window {
    pub(crate) asked: u64,
    pub(crate) answered: u64,
    pub(crate) failed: u64,
    pub(crate) first_failure: Option<String>,
    pub(crate) rate: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl From<&Report> for Window {
    fn from(report: &Report) -> Self {
        let micros = |part| report.quantile(part).as_nanos() as f64 / 1e3;
        Self {
            asked: report.asked,
            answered: report.requests,
            failed: report.failed,
            first_failure: report.first_error.clone(),
            rate: report.rate(),
            p50: micros(0.5),
            p99: micros(0.99),
            p999: micros(0.999),
            max: micros(1.0),
        }
    }
}

/// Connects to each server. The order `window PLACE KIND MS` loads one of them, `total KIND` answers with all
/// windows of that kind together.
pub(crate) fn stand_by(options: &StandBy) -> Result<(), Box<dyn Error>> {
    let connect = |address| {
        let habits = Habits { think: options.think, statement: "echo ", ..Habits::default() };
        Bystanders::connect(&node::target(address), habits)
    };
    let mut crowds: Vec<Bystanders> =
        options.addresses.iter().copied().map(connect).collect::<Result<_, _>>()?;
    let mut totals: HashMap<String, Report> = HashMap::new();
    say("standing by")?;
    obey(|order| {
        let words: Vec<&str> = order.split(' ').collect();
        let window = match words[..] {
            ["window", place, kind, millis] => {
                let crowd = crowds.get_mut(place.parse::<usize>()?).ok_or("no such server")?;
                let report = crowd.run_for(Duration::from_millis(millis.parse()?))?;
                let window = Window::from(&report);
                match totals.get_mut(kind) {
                    Some(total) => total.add(&report),
                    None => drop(totals.insert(kind.to_owned(), report)),
                }
                window
            }
            ["total", kind] => Window::from(totals.get(kind).ok_or("no such windows")?),
            _ => return Err(format!("no such order: {order}").into()),
        };
        Ok(serde_json::to_string(&window)?)
    })
}

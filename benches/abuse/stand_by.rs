//! The bystanders, in a process of their own.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::helper::{obey, say};
use crate::node::{PASSWORD, USER};
use crate::options::StandBy;
use lab::abuse::Target;
use lab::abuse::bystanders::{Bystanders, Habits, Report};

/// What one window has shown, or many of them together. Times in microseconds.
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
            answered: report.answered,
            failed: report.failed,
            first_failure: report.first_failure.clone(),
            rate: report.rate(),
            p50: micros(0.5),
            p99: micros(0.99),
            p999: micros(0.999),
            max: micros(1.0),
        }
    }
}

/// Stands by each of the servers. `window PLACE KIND MS` asks one of them for so long, `total KIND`
/// tells of all windows of that kind.
pub(crate) fn stand_by(options: &StandBy) -> Result<(), Box<dyn Error>> {
    let connect = |address| {
        let target = Target {
            address,
            logins: true,
            user: USER.into(),
            password: PASSWORD.into(),
            small: String::new(),
            large: String::new(),
        };
        let habits = Habits { think: options.think, statement: "echo ", ..Habits::default() };
        Bystanders::connect(&target, habits)
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

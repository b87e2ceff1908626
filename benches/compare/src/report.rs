//! What a run leaves behind: a page with its tables, its charts, and the raw numbers.

use serde_json::Value;

use super::table::Table;

mod chart;
mod page;
mod run;

pub(crate) use run::run;

/// What one suite has found.
#[derive(Debug)]
pub(crate) struct Section {
    /// The stem of its files: charts are `NAME-CHART.svg`, raw numbers `NAME.json`.
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) blocks: Vec<Block>,
    pub(crate) raw: Value,
}

/// What follows one another on the page.
#[derive(Debug)]
pub(crate) enum Block {
    /// Markdown: what was asked, how it was measured, what came out.
    Text(String),
    Table(Table),
    Chart(Chart),
}

impl Block {
    /// How far the machine was not quiet: CPUs that neither a server nor the rig took.
    pub(crate) fn other_work(cpus: f64) -> Self {
        Self::Text(format!("Other work took up to {cpus:.2} CPUs meanwhile."))
    }
}

/// Lines over a common axis.
#[derive(Debug)]
pub(crate) struct Chart {
    pub(crate) name: &'static str,
    pub(crate) title: String,
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    pub(crate) series: Vec<Series>,
}

#[derive(Debug)]
pub(crate) struct Axis {
    pub(crate) label: &'static str,
    pub(crate) scale: Scale,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    Logarithmic,
    /// Percentiles: from 90 to 99 as far as from 99 to 99.9.
    Nines,
}

/// One line. The names of servers have a colour each, the same in all charts.
#[derive(Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

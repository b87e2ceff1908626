//! The suites of a report: each asks one question of several servers.

use std::error::Error;

use super::experiment::{Plan, Progress};
use super::report::Section;

pub(crate) mod echo;
pub(crate) mod expect;
pub(crate) mod grid;
pub(crate) mod hot;
mod line_up;
pub(crate) mod locks;
pub(crate) mod many;
pub(crate) mod model;
pub(crate) mod points;
pub(crate) mod scaling;
pub(crate) mod select1;
pub(crate) mod share;
pub(crate) mod slow_links;

/// One question, and how it is answered.
#[derive(Debug)]
pub(crate) struct Suite {
    /// As the command line names it.
    pub(crate) name: &'static str,
    pub(crate) question: &'static str,
    /// Roughly how many seconds it takes, to tell how many are left.
    pub(crate) seconds: fn(&Plan) -> f64,
    pub(crate) run: Run,
}

/// Measures, as long as the plan says.
pub(crate) type Run = fn(&Plan, &mut Progress) -> Result<Section, Box<dyn Error>>;

/// In the order of the report.
pub(crate) const SUITES: &[Suite] = &[
    echo::SUITE,
    select1::SUITE,
    points::SUITE,
    share::SUITE,
    hot::SUITE,
    slow_links::SUITE,
    locks::SUITE,
    many::SUITE,
    scaling::SUITE,
    model::SUITE,
];

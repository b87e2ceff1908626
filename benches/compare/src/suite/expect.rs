//! What was expected of a grid, and whether it is so.

use super::grid::{CPU, Found};
use crate::spread::{ENOUGH_ROUNDS, Ratio};
use crate::table::Table;

/// A number of CPU time per request that one has to reach, under all loads that it names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    pub(crate) contender: &'static str,
    pub(crate) bound: Bound,
    /// Smaller loads and larger ones do not count.
    pub(crate) from: usize,
    pub(crate) to: usize,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// The contender needs so many times ours at least.
    AtLeast(f64),
    /// We need so many times the contender's at most.
    AtMost(f64),
}

/// Against one bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// All of the interval.
    Yes,
    /// The median reaches the bound, but the interval does not exclude a miss.
    Median,
    /// The median misses the bound, but the interval does not exclude it.
    WithinNoise,
    No,
    /// So few rounds say nothing.
    TooFew,
}

impl Expectation {
    pub(crate) const fn from(contender: &'static str, bound: Bound, from: usize) -> Self {
        Self { contender, bound, from, to: usize::MAX }
    }
}

impl Bound {
    fn answer(self, found: &Ratio) -> Answer {
        // From the end of the interval that is farthest on the wrong side to the other one.
        let met = match self {
            Self::AtLeast(bound) => [found.low, found.median, found.high].map(|at| at >= bound),
            Self::AtMost(bound) => [found.high, found.median, found.low].map(|at| at <= bound),
        };
        match met {
            _ if found.rounds < ENOUGH_ROUNDS => Answer::TooFew,
            [true, ..] => Answer::Yes,
            [_, true, _] => Answer::Median,
            [.., true] => Answer::WithinNoise,
            _ => Answer::No,
        }
    }
}

/// A row for each of them, with the load that comes off worst.
pub(crate) fn table(found: &Found, expectations: &[Expectation]) -> Table {
    let unit = found.grid.unit;
    let worst_at = format!("worst at, {unit}");
    let mut table =
        Table::new(&["CPU time per request", "expected", "found there", &worst_at, "confirmed"]);
    for expectation in expectations {
        let ours = &found.grid.contenders[found.grid.ours].name;
        let theirs = expectation.contender;
        let (what, expected) = match expectation.bound {
            Bound::AtLeast(bound) => (format!("{theirs} to {ours}"), format!("≥ {bound:.2}")),
            Bound::AtMost(bound) => (format!("{ours} to {theirs}"), format!("≤ {bound:.2}")),
        };
        let range = match (expectation.from, expectation.to) {
            (0, usize::MAX) => String::new(),
            (from, usize::MAX) => format!(", {from} {unit} and more"),
            (from, to) if from == to => format!(", {from} {unit}"),
            (from, to) => format!(", {from} to {to} {unit}"),
        };
        let (found, at, confirmed) = match worst(found, expectation) {
            Some((load, ratio)) => {
                let confirmed = match expectation.bound.answer(&ratio) {
                    Answer::Yes => "yes",
                    Answer::Median => "by the median",
                    Answer::WithinNoise => "not told apart",
                    Answer::No => "**no**",
                    Answer::TooFew => "too few rounds",
                };
                (ratio.to_string(), load.to_string(), confirmed)
            }
            None => ("–".to_owned(), "–".to_owned(), "not measured"),
        };
        table.row(vec![what, expected + &range, found, at, confirmed.to_owned()]);
    }
    table
}

fn worst(found: &Found, expectation: &Expectation) -> Option<(usize, Ratio)> {
    let (theirs, ours) = (found.place(expectation.contender)?, found.grid.ours);
    let loads = found.grid.loads.iter().copied();
    let loads = loads.filter(|load| (expectation.from..=expectation.to).contains(load));
    match expectation.bound {
        Bound::AtLeast(_) => loads
            .filter_map(|load| Some((load, found.ratio((theirs, ours), load, CPU)?)))
            .min_by(|(_, one), (_, other)| one.median.total_cmp(&other.median)),
        Bound::AtMost(_) => loads
            .filter_map(|load| Some((load, found.ratio((ours, theirs), load, CPU)?)))
            .max_by(|(_, one), (_, other)| one.median.total_cmp(&other.median)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::Spread;

    #[test]
    fn a_bound_inside_of_the_interval_is_not_told_apart() {
        let ratio = |values: [f64; 5]| Spread::of(values.into()).unwrap().ratio();
        let found = ratio([1.4, 1.45, 1.48, 1.5, 1.6]);
        assert_eq!(Bound::AtLeast(1.4).answer(&found), Answer::Yes);
        assert_eq!(Bound::AtLeast(1.48).answer(&found), Answer::Median);
        assert_eq!(Bound::AtLeast(1.5).answer(&found), Answer::WithinNoise);
        assert_eq!(Bound::AtLeast(1.7).answer(&found), Answer::No);
        assert_eq!(Bound::AtMost(1.6).answer(&found), Answer::Yes);
        assert_eq!(Bound::AtMost(1.5).answer(&found), Answer::Median);
        assert_eq!(Bound::AtMost(1.45).answer(&found), Answer::WithinNoise);
        assert_eq!(Bound::AtMost(1.1).answer(&found), Answer::No);
        let few = Spread::of(vec![1.0; 4]).unwrap().ratio();
        assert_eq!(Bound::AtMost(1.1).answer(&few), Answer::TooFew);
    }
}

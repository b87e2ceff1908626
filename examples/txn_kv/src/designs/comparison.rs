//! [`Comparison`]: windows of two stores by turns.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};
use txn_kv::Design;
use txn_kv::load::Progress;

use super::each;
use super::ratio::{Ratio, median};

/// What a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Case {
    /// Of each key; 0 for a store that begins without anything.
    pub(crate) revisions: u64,
    pub(crate) keys: u64,
}

/// Where the load comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Threads that call the store.
    Store,
    /// Sessions over loopback.
    Network,
}

/// Puts of one store, one after the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Window {
    pub(crate) puts: u64,
    pub(crate) time: Duration,
    /// Of the whole process: the store and its load.
    pub(crate) cpu: Duration,
}

/// A design beside the default.
#[derive(Clone, Debug)]
pub(super) struct Comparison {
    pub(super) case: Case,
    pub(super) level: Level,
    pub(super) design: Design,
    /// Neighbours: of the default, and of the design.
    pub(super) pairs: Vec<[Window; 2]>,
}

/// Measures so many pairs, in the order A B, B A, A B, ...
pub(crate) fn in_turn(
    pairs: usize,
    mut progress: Progress,
    mut base: impl FnMut() -> Result<Window, Box<dyn Error>>,
    mut other: impl FnMut() -> Result<Window, Box<dyn Error>>,
) -> Result<Vec<[Window; 2]>, Box<dyn Error>> {
    let mut measured = Vec::with_capacity(pairs);
    for pair in 0..pairs {
        measured.push(if pair % 2 == 0 {
            let base = base()?;
            [base, other()?]
        } else {
            let other = other()?;
            [base()?, other]
        });
        progress.update((pair + 1) as f64 / pairs as f64, format_args!("{} pairs", pair + 1));
    }
    progress.finish(format_args!("{pairs} pairs"));
    Ok(measured)
}

impl Window {
    pub(crate) fn per_second(&self) -> f64 {
        self.puts as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Nanoseconds of CPU time for each put.
    pub(super) fn cpu_each(&self) -> f64 {
        each(self.cpu, self.puts)
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "puts": self.puts,
            "seconds": self.time.as_secs_f64(),
            "cpu_seconds": self.cpu.as_secs_f64(),
        })
    }
}

impl Comparison {
    /// The medians of both, and the ratio of neighbours.
    pub(crate) fn of(&self, number: impl Fn(&Window) -> f64) -> ([f64; 2], Ratio) {
        let of = |place: usize| median(self.pairs.iter().map(|pair| number(&pair[place])));
        let ratios = self.pairs.iter().map(|[base, other]| number(other) / number(base));
        ([of(0), of(1)], Ratio::of(ratios))
    }

    pub(crate) fn to_json(&self) -> Value {
        let pairs = self.pairs.iter().map(|pair| pair.map(Window::to_json));
        let (_, rate) = self.of(Window::per_second);
        let (_, cpu) = self.of(Window::cpu_each);
        json!({
            "revisions": self.case.revisions,
            "keys": self.case.keys,
            "level": self.level.to_string(),
            "design": self.design.name(),
            "puts_per_second_ratio": rate.to_json(),
            "cpu_per_put_ratio": cpu.to_json(),
            "windows": pairs.collect::<Vec<_>>(),
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Store => "store",
            Self::Network => "network",
        })
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.revisions {
            0 => f.pad("grows"),
            revisions => f.pad(&revisions.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use txn_kv::load::Lines;

    use super::*;

    fn window(puts: u64) -> Window {
        Window { puts, time: Duration::from_secs(2), cpu: Duration::from_secs(1) }
    }

    #[test]
    fn windows_take_turns() {
        let order = RefCell::new(String::new());
        let take = |name, puts| {
            order.borrow_mut().push(name);
            Ok(window(puts))
        };
        let progress = Progress::new("", Lines::None);
        let pairs = in_turn(4, progress, || take('A', 1), || take('B', 2)).unwrap();
        assert_eq!(*order.borrow(), "ABBAABBA");
        assert!(pairs.iter().all(|&[base, other]| (base.puts, other.puts) == (1, 2)));
    }

    #[test]
    fn a_ratio_is_taken_of_neighbours() {
        // A machine that becomes slower and slower changes no ratio.
        let pairs = [1000, 100, 10].map(|puts| [window(2 * puts), window(puts)]).to_vec();
        let case = Case { revisions: 1, keys: 1 };
        let comparison =
            Comparison { case, level: Level::Store, design: Design::Compensate, pairs };
        let ([base, other], ratio) = comparison.of(Window::per_second);
        assert_eq!((base, other), (100.0, 50.0));
        assert_eq!(ratio.to_string(), "0.50 [0.50–0.50]");
        let (_, ratio) = comparison.of(Window::cpu_each);
        assert_eq!(ratio.to_string(), "2.00 [2.00–2.00]");
    }
}

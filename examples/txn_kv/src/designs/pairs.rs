//! [`Pairs`]: windows of two stores by turns, and how they compare.

use std::error::Error;

use lab::ratio::{Ratio, Spread, median};
use serde::Serialize;
use txn_kv::load::Progress;

/// Measurement of consecutive puts to one store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Window {
    pub(crate) puts: u64,
    pub(crate) seconds: f64,
    /// CPU time of the whole process: the store and its load.
    pub(crate) cpu_seconds: f64,
}

/// Neighbouring windows of a base and of another store.
#[derive(Clone, Debug, Serialize)]
#[serde(transparent)]
pub(crate) struct Pairs(Vec<[Window; 2]>);

impl Window {
    pub(crate) fn per_second(&self) -> f64 {
        self.puts as f64 / self.seconds.max(1e-9)
    }

    /// Nanoseconds of CPU time for each put.
    pub(super) fn cpu_each(&self) -> f64 {
        self.cpu_seconds * 1e9 / self.puts.max(1) as f64
    }
}

impl Pairs {
    /// Measures so many pairs, in the order A B, B A, A B, ...
    pub(crate) fn in_turn(
        pairs: usize,
        mut progress: Progress,
        mut base: impl FnMut() -> Result<Window, Box<dyn Error>>,
        mut other: impl FnMut() -> Result<Window, Box<dyn Error>>,
    ) -> Result<Self, Box<dyn Error>> {
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
        Ok(Self(measured))
    }

    /// Returns two medians of the value that `number` computes: over the windows of the base, and over
    /// those of the other store.
    pub(crate) fn medians(&self, number: impl Fn(&Window) -> f64) -> [f64; 2] {
        [0, 1].map(|place: usize| median(self.0.iter().map(|pair| number(&pair[place]))))
    }

    /// Ratio of a number in neighbouring windows.
    pub(crate) fn ratio(&self, number: impl Fn(&Window) -> f64) -> Ratio {
        let ratios = self.0.iter().map(|[base, other]| number(other) / number(base));
        Spread::of(ratios.collect()).expect("there is one pair at least").ratio()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::cell::RefCell;

    use txn_kv::load::Lines;

    use super::*;

    fn window(puts: u64) -> Window {
        Window { puts, seconds: 2.0, cpu_seconds: 1.0 }
    }

    /// Pairs of a base with twice as many puts.
    pub(in super::super) fn half(puts: impl IntoIterator<Item = u64>) -> Pairs {
        Pairs(puts.into_iter().map(|puts| [window(2 * puts), window(puts)]).collect())
    }

    #[test]
    fn windows_take_turns() {
        let order = RefCell::new(String::new());
        let take = |name, puts| {
            order.borrow_mut().push(name);
            Ok(window(puts))
        };
        let progress = Progress::new("", Lines::None);
        let pairs = Pairs::in_turn(4, progress, || take('A', 1), || take('B', 2)).unwrap();
        assert_eq!(*order.borrow(), "ABBAABBA");
        assert!(pairs.0.iter().all(|&[base, other]| (base.puts, other.puts) == (1, 2)));
    }

    #[test]
    fn a_ratio_is_taken_of_neighbours() {
        // A machine that becomes slower and slower changes no ratio.
        let pairs = half([1000, 100, 10]);
        assert_eq!(pairs.medians(Window::per_second), [100.0, 50.0]);
        assert_eq!(pairs.ratio(Window::per_second).to_string(), "0.50 [0.50–0.50]");
        assert_eq!(pairs.ratio(Window::cpu_each).to_string(), "2.00 [2.00–2.00]");
    }
}

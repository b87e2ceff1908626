//! [`Ratio`]: how one thing compares with another.

use std::fmt;

use serde_json::{Value, json};

/// The median of the ratios of pairs, and where the true one lies with 95 % confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    median: f64,
    low: f64,
    high: f64,
}

/// What differs by less is not told apart.
const TIE: f64 = 0.1;
/// The interval leaves out at most this much on both sides together.
const OUTSIDE: f64 = 0.05;

impl Ratio {
    pub(crate) fn of(ratios: impl Iterator<Item = f64>) -> Self {
        let ratios = sorted(ratios);
        let outside = outside_of_median(ratios.len());
        let at = |place: usize| ratios.get(place).copied().unwrap_or(f64::NAN);
        let high = ratios.len().saturating_sub(1 + outside);
        Self { median: middle(&ratios), low: at(outside), high: at(high) }
    }

    /// Less than a tenth of difference, or an interval that has 1 in it.
    pub(super) fn is_tie(&self) -> bool {
        (self.median - 1.0).abs() < TIE || (self.low <= 1.0 && self.high >= 1.0)
    }

    pub(crate) fn to_json(self) -> Value {
        json!({
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "tie": self.is_tie(),
        })
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    middle(&sorted(values))
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

fn middle(sorted: &[f64]) -> f64 {
    match sorted.len() {
        0 => f64::NAN,
        count if count % 2 == 1 => sorted[count / 2],
        count => (sorted[count / 2 - 1] + sorted[count / 2]) / 2.0,
    }
}

/// How many values can be left out at each end, for the rest to hold the median with that confidence:
/// each lies above it or below it like a coin that falls.
fn outside_of_median(count: usize) -> usize {
    let (mut left_out, mut term) = (0, 0.5_f64.powi(count.min(1000) as i32));
    let mut chance = term;
    loop {
        term *= (count - left_out) as f64 / (left_out + 1) as f64;
        chance += term;
        if 2.0 * chance > OUTSIDE || left_out == count {
            return left_out;
        }
        left_out += 1;
    }
}

impl fmt::Display for Ratio {
    /// `1.04 [0.97–1.09] tie`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tie = if self.is_tie() { " tie" } else { "" };
        f.pad(&format!("{:.2} [{:.2}–{:.2}]{tie}", self.median, self.low, self.high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
        assert!(median(std::iter::empty()).is_nan());
    }

    #[test]
    fn the_interval_is_that_of_order_statistics() {
        let interval = |count: u32| {
            let ratio = Ratio::of((1..=count).map(f64::from));
            (ratio.low, ratio.high)
        };
        assert_eq!(interval(1), (1.0, 1.0));
        assert_eq!(interval(5), (1.0, 5.0));
        assert_eq!(interval(11), (2.0, 10.0));
        assert_eq!(interval(31), (10.0, 22.0));
    }

    #[test]
    fn a_tenth_is_a_tie() {
        let ratio = |values: [f64; 5]| Ratio::of(values.into_iter());
        assert!(ratio([1.09; 5]).is_tie() && ratio([0.91; 5]).is_tie());
        assert!(!ratio([1.11; 5]).is_tie() && !ratio([0.89; 5]).is_tie());
        let wide = ratio([0.9, 1.2, 1.3, 1.4, 1.5]);
        assert_eq!(wide.to_string(), "1.30 [0.90–1.50] tie");
        assert_eq!(ratio([0.5; 5]).to_string(), "0.50 [0.50–0.50]");
    }
}

//! The median of many ratios, and where it lies with 95 % confidence.

use std::fmt;

use serde::Serialize;

/// A median with its interval, by order statistics: it asks of the values nothing but that they are
/// independent. Of fewer than six values the interval is from the least to the largest.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Spread {
    /// `None` when there is no finite value.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let count = values.len();
        let (below, above) = (values.get(count.checked_sub(1)? / 2)?, values.get(count / 2)?);
        let out = left_out(count);
        Some(Self {
            count,
            median: f64::midpoint(*below, *above),
            low: values[out],
            high: values[count - 1 - out],
        })
    }
}

/// How many values can be left out at each end: each lies above the median or below it like a
/// coin that falls.
fn left_out(count: usize) -> usize {
    let mut out = 0;
    let mut term = 0.5_f64.powi(count as i32);
    let mut chance = term;
    loop {
        term *= (count - out) as f64 / (out + 1) as f64;
        chance += term;
        if 2.0 * chance > 0.05 || 2 * (out + 1) >= count {
            return out;
        }
        out += 1;
    }
}

impl fmt::Display for Spread {
    /// `1.04 [0.97–1.09]`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2}–{:.2}]", self.median, self.low, self.high)
    }
}

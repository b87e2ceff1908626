//! Medians of windows and of their ratios.

use std::fmt;

use serde::Serialize;

/// How ours stands to the other: the median of the ratios of neighbours, and the quartiles.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Ratio {
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
    pub(crate) verdict: Verdict,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Less,
    /// The median is within a tenth of 1.
    Tie,
    More,
}

const TIE: f64 = 0.10;

impl Ratio {
    /// `None` of no pairs. A pair is ours and the other; those with a 0 do not count.
    pub(crate) fn of(pairs: impl Iterator<Item = (f64, f64)>) -> Option<Self> {
        let ratios = pairs.map(|(ours, other)| ours / other);
        let ratios: Vec<_> = ratios.filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect();
        let median = quantile(&ratios, 0.5)?;
        let verdict = match median {
            _ if (median - 1.0).abs() <= TIE => Verdict::Tie,
            _ if median < 1.0 => Verdict::Less,
            _ => Verdict::More,
        };
        let (lower, upper) = (quantile(&ratios, 0.25)?, quantile(&ratios, 0.75)?);
        Some(Self { lower, median, upper, verdict })
    }
}

/// The median; 0 of nothing.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    quantile(&values.collect::<Vec<_>>(), 0.5).unwrap_or_default()
}

/// Between two values where it falls between them; `None` of nothing.
pub(crate) fn quantile(values: &[f64], quantile: f64) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = quantile * values.len().checked_sub(1)? as f64;
    let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
    Some(below + (above - below) * place.fract())
}

impl fmt::Display for Ratio {
    /// `1.04 [0.97–1.09] tie`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2}–{:.2}]", self.median, self.lower, self.upper)?;
        if self.verdict == Verdict::Tie { f.write_str(" tie") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
        assert_eq!(median(std::iter::empty()), 0.0);
    }

    #[test]
    fn ratios_are_those_of_neighbours() {
        // The medians alone would say 2.
        let pairs = [(1.0, 2.0), (2.0, 1.0), (30.0, 10.0), (40.0, 10.0)];
        let ratio = Ratio::of(pairs.into_iter()).unwrap();
        assert_eq!((ratio.median, ratio.verdict), (2.5, Verdict::More));
        assert_eq!(ratio.to_string(), "2.50 [1.62–3.25]");
    }

    #[test]
    fn within_a_tenth_it_is_a_tie() {
        let verdict = |ours| Ratio::of([(ours, 100.0)].into_iter()).unwrap().verdict;
        assert_eq!(verdict(89.0), Verdict::Less);
        assert_eq!(verdict(91.0), Verdict::Tie);
        assert_eq!(verdict(109.0), Verdict::Tie);
        assert_eq!(verdict(111.0), Verdict::More);
    }

    #[test]
    fn windows_without_answers_make_no_ratio() {
        assert_eq!(Ratio::of([(0.0, 1.0), (1.0, 0.0)].into_iter()), None);
        assert_eq!(Ratio::of(std::iter::empty()), None);
    }
}

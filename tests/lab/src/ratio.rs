//! Medians of many measurements, and ratios of neighbouring windows with a verdict.

use std::fmt;

use serde::Serialize;

/// Many measurements of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    pub count: usize,
    pub min: f64,
    pub lower: f64,
    pub median: f64,
    pub upper: f64,
    pub max: f64,
    /// See [`interval`](Self::interval).
    low: f64,
    high: f64,
}

/// Comparison of two things: the median of the ratios of rounds, and its interval of at least 95 %
/// confidence (93.75 % for 5 rounds).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Ratio {
    pub rounds: usize,
    pub median: f64,
    pub low: f64,
    pub high: f64,
    pub verdict: Verdict,
}

/// Verdict of a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Less,
    /// 1.00 is in the interval, or the median is within 10 % of it and there are fewer than 41
    /// pairs: the two cannot be told apart.
    Tie,
    More,
}

/// Least number of rounds for an interval that is of use.
pub const ENOUGH_ROUNDS: usize = 5;
/// Largest probability that the median is outside the interval, both sides together.
const OUTSIDE: f64 = 0.05;
/// Medians nearer to 1 than this are a tie, because machines and builds differ by as much.
const TIE: f64 = 0.1;
/// From this many pairs on, the interval alone decides.
const MANY_PAIRS: usize = 41;
/// Above this count the normal distribution stands in for the binomial one.
const MANY: usize = 500;

impl Spread {
    /// `None` when nothing was measured.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        let quantile = |quantile: f64| {
            let place = quantile * (values.len() - 1) as f64;
            let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
            below + (above - below) * place.fract()
        };
        Some(Self {
            count: values.len(),
            min,
            lower: quantile(0.25),
            median: quantile(0.5),
            upper: quantile(0.75),
            max,
            low: values[outside_of_median(values.len())],
            high: values[values.len() - 1 - outside_of_median(values.len())],
        })
    }

    /// Confidence interval of the median: 95 % or more, by order statistics, if the values are
    /// independent. Of eleven values it is the second to the tenth, of five the least to the largest
    /// (93.75 %).
    pub fn interval(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The verdict, if the values are ratios.
    pub fn ratio(&self) -> Ratio {
        let (low, high) = self.interval();
        let near = (self.median - 1.0).abs() < TIE && self.count < MANY_PAIRS;
        // As it is printed: an interval that shows 1.00 is a tie.
        let verdict = match (hundredths(low), hundredths(high)) {
            _ if near => Verdict::Tie,
            (_, high) if high < 100.0 => Verdict::Less,
            (low, _) if low > 100.0 => Verdict::More,
            _ => Verdict::Tie,
        };
        Ratio { rounds: self.count, median: self.median, low, high, verdict }
    }
}

/// The median of some values; `NaN` if there are none.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    Spread::of(values.into_iter().collect()).map_or(f64::NAN, |spread| spread.median)
}

/// Number of values that can be left out at each end, so that the rest holds the median except with
/// a probability of at most [`OUTSIDE`]. Each value lies above or below the median with the odds of
/// a coin.
fn outside_of_median(count: usize) -> usize {
    if count > MANY {
        let count = count as f64;
        return ((count - 1.96 * count.sqrt()) / 2.0 - 1.0) as usize;
    }
    let mut left_out = 0;
    // Chance that this many of the values lie on one side, and that this many or fewer do.
    let mut term = 0.5_f64.powi(count as i32);
    let mut chance = term;
    loop {
        term *= (count - left_out) as f64 / (left_out + 1) as f64;
        chance += term;
        if 2.0 * chance > OUTSIDE {
            return left_out;
        }
        left_out += 1;
    }
}

fn hundredths(value: f64) -> f64 {
    (value * 100.0).round()
}

impl fmt::Display for Ratio {
    /// `1.04 [0.97–1.09] tie`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} [{:.2}–{:.2}]", self.median, self.low, self.high)?;
        if self.verdict == Verdict::Tie { write!(f, " tie") } else { Ok(()) }
    }
}

impl fmt::Display for Spread {
    /// `0.97 [0.95–1.01]`: the median and the quartiles, or a number that stands alone.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}", self.median)?;
        match self.count {
            1 => Ok(()),
            _ => write!(f, " [{:.2}–{:.2}]", self.lower, self.upper),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_their_neighbours() {
        let spread = Spread::of(vec![4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((spread.min, spread.max), (1.0, 4.0));
        assert_eq!((spread.lower, spread.median, spread.upper), (1.75, 2.5, 3.25));
        assert_eq!(Spread::of(vec![7.0]).unwrap().median, 7.0);
        assert_eq!(Spread::of(vec![f64::NAN]), None);
    }

    #[test]
    fn the_interval_is_that_of_order_statistics() {
        let interval = |count: usize| {
            let values = (1..=count).map(|value| value as f64).collect();
            Spread::of(values).unwrap().interval()
        };
        assert_eq!(interval(1), (1.0, 1.0));
        assert_eq!(interval(5), (1.0, 5.0));
        assert_eq!(interval(8), (1.0, 8.0));
        assert_eq!(interval(9), (2.0, 8.0));
        assert_eq!(interval(11), (2.0, 10.0));
        assert_eq!(interval(31), (10.0, 22.0));
        // Both ways to count agree where they meet.
        assert_eq!(outside_of_median(MANY), 227);
        assert_eq!(outside_of_median(MANY + 1), 227);
        assert_eq!(outside_of_median(10_000), 4901);
    }

    #[test]
    fn an_interval_with_one_in_it_is_a_tie() {
        let ratio = |values: &[f64]| Spread::of(values.to_vec()).unwrap().ratio();
        let tie = ratio(&[0.97, 1.02, 1.04, 1.05, 1.09]);
        assert_eq!((tie.verdict, tie.to_string()), (Verdict::Tie, "1.04 [0.97–1.09] tie".into()));
        let more = ratio(&[1.01, 1.2, 1.3, 1.4, 1.5]);
        assert_eq!((more.verdict, more.to_string()), (Verdict::More, "1.30 [1.01–1.50]".into()));
        let less = ratio(&[0.5, 0.6, 0.7, 0.8, 0.99]);
        assert_eq!((less.verdict, less.to_string()), (Verdict::Less, "0.70 [0.50–0.99]".into()));
        assert_eq!(ratio(&[1.004; 5]).verdict, Verdict::Tie);
        assert_eq!((median([3.0, 1.0, 2.0]), median([4.0, 1.0, 3.0, 2.0])), (2.0, 2.5));
    }

    #[test]
    fn a_tenth_is_a_tie_unless_there_are_many_pairs() {
        let verdict = |value, count| Spread::of(vec![value; count]).unwrap().ratio().verdict;
        assert_eq!((verdict(1.09, 40), verdict(0.91, 40)), (Verdict::Tie, Verdict::Tie));
        assert_eq!((verdict(1.11, 11), verdict(0.89, 11)), (Verdict::More, Verdict::Less));
        assert_eq!((verdict(1.09, 41), verdict(0.91, 41)), (Verdict::More, Verdict::Less));
    }
}

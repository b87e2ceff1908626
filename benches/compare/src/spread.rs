//! Many measurements of one thing, as quartiles.

use std::fmt;

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) count: usize,
    pub(crate) min: f64,
    pub(crate) lower: f64,
    pub(crate) median: f64,
    pub(crate) upper: f64,
    pub(crate) max: f64,
}

impl Spread {
    /// `None` when nothing was measured.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
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
        })
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
}

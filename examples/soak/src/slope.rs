//! [`Slope`]: growth by a straight line through samples, with its error.
#![forbid(unsafe_code)]

/// Growth per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope {
    pub(crate) mean: f64,
    /// Half width of the interval of 95 % confidence.
    pub(crate) margin: f64,
}

impl Slope {
    /// Fits samples of (seconds, value). Returns `None` for fewer than three, or if all have one time.
    pub(crate) fn of(samples: &[(f64, f64)]) -> Option<Self> {
        let count = samples.len() as f64;
        if samples.len() < 3 {
            return None;
        }
        let mean = |part: fn(&(f64, f64)) -> f64| samples.iter().map(part).sum::<f64>() / count;
        let (x, y) = (mean(|sample| sample.0), mean(|sample| sample.1));
        let spread: f64 = samples.iter().map(|sample| (sample.0 - x).powi(2)).sum();
        if spread <= 0.0 {
            return None;
        }
        let both: f64 = samples.iter().map(|sample| (sample.0 - x) * (sample.1 - y)).sum();
        let slope = both / spread;
        let rest = |sample: &(f64, f64)| sample.1 - y - slope * (sample.0 - x);
        let residue: f64 = samples.iter().map(|sample| rest(sample).powi(2)).sum();
        let error = (residue / (count - 2.0) / spread).sqrt();
        Some(Self { mean: slope, margin: error * student(samples.len() - 2) })
    }

    /// Lower end of the interval.
    pub(crate) const fn least(self) -> f64 {
        self.mean - self.margin
    }
}

/// The quantile of Student's distribution for 95 %, two-sided.
fn student(freedom: usize) -> f64 {
    const FEW: [f64; 10] = [12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23];
    match freedom {
        1..=10 => FEW[freedom - 1],
        // Within 1 % of the true value.
        _ => 1.96 + 2.4 / (freedom as f64 - 1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_and_noise_widens_the_margin() {
        let line: Vec<_> = (0..20).map(|x| (f64::from(x), 5.0 + 2.0 * f64::from(x))).collect();
        let slope = Slope::of(&line).expect("a slope");
        assert!((slope.mean - 2.0).abs() < 1e-9 && slope.margin < 1e-6, "{slope:?}");
        let noisy: Vec<_> =
            (0..20).map(|x| (f64::from(x), if x % 2 == 0 { 10.0 } else { 0.0 })).collect();
        let slope = Slope::of(&noisy).expect("a slope");
        assert!(slope.least() < 0.0 && slope.mean + slope.margin > 0.0, "{slope:?}");
    }

    #[test]
    fn too_few_samples_have_none() {
        assert_eq!(Slope::of(&[(0.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(Slope::of(&[(1.0, 1.0); 5]), None);
    }
}

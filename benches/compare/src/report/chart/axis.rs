//! What an axis shows, and where its ticks are.

use super::super::Scale;

/// A part of an axis. Places are those of a linear axis, whatever the scale.
#[derive(Debug, PartialEq)]
pub(super) struct Span {
    scale: Scale,
    pub(super) from: f64,
    pub(super) to: f64,
    /// Places and what stands there.
    pub(super) ticks: Vec<(f64, String)>,
}

/// So many ticks have room for their numbers.
const TICKS: usize = 12;
/// Beyond the outermost values, as a share of what lies between them.
const PADDING: f64 = 0.03;
const NINES: [f64; 7] = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 99.9999];

/// A logarithm of it exists.
pub(super) fn shows(scale: Scale, value: f64) -> bool {
    value.is_finite()
        && match scale {
            Scale::Linear => true,
            Scale::Logarithmic => value > 0.0,
            Scale::Nines => (0.0..100.0).contains(&value),
        }
}

fn place(scale: Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Logarithmic => value.log10(),
        Scale::Nines => -(1.0 - value / 100.0).log10(),
    }
}

impl Span {
    /// Of what was chosen: ticks are at the values themselves, where there is room.
    pub(super) fn of_x(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values.dedup();
        let (&min, &max) = (values.first()?, values.last()?);
        let (from, to) = padded(place(scale, min), place(scale, max));
        let ticks = match scale {
            Scale::Nines => {
                NINES.iter().copied().filter(|nine| (min..=max).contains(nine)).collect()
            }
            _ if values.len() <= TICKS => values,
            Scale::Logarithmic => round_numbers(min, max, &[1.0]),
            Scale::Linear => steps(min, max),
        };
        Some(Self::new(scale, from, to, ticks))
    }

    /// Of what was found: ticks are at round numbers, and a linear axis begins at zero.
    pub(super) fn of_y(scale: Scale, values: impl Iterator<Item = f64>) -> Option<Self> {
        let values: Vec<f64> = values.collect();
        let min = values.iter().copied().min_by(f64::total_cmp)?;
        let max = values.iter().copied().max_by(f64::total_cmp)?;
        if scale == Scale::Linear {
            let min = min.min(0.0);
            let max = if max > min { max } else { min + 1.0 };
            let to = max + PADDING * (max - min);
            return Some(Self::new(scale, min, to, steps(min, to)));
        }
        let (from, to) = padded(place(scale, min), place(scale, max));
        let (low, high) = (10_f64.powf(from), 10_f64.powf(to));
        let mut ticks = round_numbers(low, high, &[1.0]);
        if ticks.len() < 4 {
            ticks = round_numbers(low, high, &[1.0, 2.0, 5.0]);
        }
        Some(Self::new(scale, from, to, ticks))
    }

    pub(super) fn place(&self, value: f64) -> f64 {
        place(self.scale, value)
    }

    fn new(scale: Scale, from: f64, to: f64, ticks: Vec<f64>) -> Self {
        let unit = if scale == Scale::Nines { "p" } else { "" };
        let tick = |value| (place(scale, value), format!("{unit}{}", number(value)));
        Self { scale, from, to, ticks: ticks.into_iter().map(tick).collect() }
    }
}

fn padded(from: f64, to: f64) -> (f64, f64) {
    let padding = if to > from { PADDING * (to - from) } else { 0.1 };
    (from - padding, to + padding)
}

/// From four to ten numbers at equal distances.
fn steps(from: f64, to: f64) -> Vec<f64> {
    let rough = (to - from) / 8.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = step.into_iter().find(|&step| step >= rough).unwrap_or(rough);
    let first = (from / step).ceil() as i64;
    (first..).map(|count| count as f64 * step).take_while(|&value| value <= to).collect()
}

/// Powers of ten times these factors.
fn round_numbers(from: f64, to: f64, factors: &[f64]) -> Vec<f64> {
    let powers = from.log10().floor() as i32..=to.log10().ceil() as i32;
    let numbers =
        powers.flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)));
    numbers.filter(|number| (from..=to).contains(number)).collect()
}

/// `12 000`, `0.05`.
pub(super) fn number(value: f64) -> String {
    // What a product of decimals has behind its last true digit.
    let value = format!("{value:.9}").parse().unwrap_or(value);
    let text = value.to_string();
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    if whole.len() < 4 {
        return text;
    }
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            grouped.push('\u{a0}');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(span: &Span) -> Vec<&str> {
        span.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn chosen_values_are_ticks() {
        let span = Span::of_x(Scale::Logarithmic, [2.0, 32.0, 1024.0, 32.0].into_iter()).unwrap();
        assert_eq!(labels(&span), ["2", "32", "1\u{a0}024"]);
        let many = Span::of_x(Scale::Logarithmic, (1..=100).map(f64::from)).unwrap();
        assert_eq!(labels(&many), ["1", "10", "100"]);
        assert_eq!(Span::of_x(Scale::Linear, std::iter::empty()), None);
    }

    #[test]
    fn found_values_lie_between_round_numbers() {
        let linear = Span::of_y(Scale::Linear, [30_000.0, 110_000.0].into_iter()).unwrap();
        assert_eq!(linear.from, 0.0);
        assert_eq!(labels(&linear)[1..3], ["20\u{a0}000", "40\u{a0}000"]);
        let decades = Span::of_y(Scale::Logarithmic, [3.0, 40_000.0].into_iter()).unwrap();
        assert_eq!(labels(&decades), ["10", "100", "1\u{a0}000", "10\u{a0}000"]);
        let narrow = Span::of_y(Scale::Logarithmic, [3.0, 40.0].into_iter()).unwrap();
        assert_eq!(labels(&narrow), ["5", "10", "20"]);
        let one = Span::of_y(Scale::Logarithmic, [7.0].into_iter()).unwrap();
        assert!(one.from < one.to);
    }

    #[test]
    fn nines_are_as_far_from_each_other() {
        let span = Span::of_x(Scale::Nines, [50.0, 90.0, 99.0, 99.9].into_iter()).unwrap();
        assert_eq!(labels(&span), ["p50", "p90", "p99", "p99.9"]);
        let places: Vec<_> = span.ticks.iter().map(|(place, _)| (place * 10.0).round()).collect();
        assert_eq!(places, [3.0, 10.0, 20.0, 30.0]);
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(number(999.0), "999");
        assert_eq!(number(1_234_567.0), "1\u{a0}234\u{a0}567");
        assert_eq!(number(0.1 + 0.2), "0.3");
    }
}

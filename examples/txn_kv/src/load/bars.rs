//! How many requests took how long, as bars.

use std::io::{self, Write};

use hdrhistogram::Histogram;

use crate::units::Nanos;

const BARS: u64 = 10;
const BAR_CHARS: usize = 40;

/// Draws a line for each tenth of the way from the fastest to the slowest: up to which time, how many,
/// and a bar. Every bar that is not zero shows as a sliver at least.
pub(super) fn draw(out: &mut impl Write, latencies: &Histogram<u64>) -> io::Result<()> {
    let bars = bars(latencies);
    let most = bars.iter().map(|&(_, count)| count).max().unwrap_or(0).max(1);
    let digits = most.to_string().len();
    for (bound, count) in bars {
        let time = Nanos(bound as f64).to_string();
        let bar = bar(count as f64 / most as f64);
        let line = format!("  {time:>8} [{count:>digits$}] |{bar}");
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Upper bounds, equally far from each other, and how many are up to them but above the one before.
fn bars(latencies: &Histogram<u64>) -> Vec<(u64, u64)> {
    let (fastest, slowest) = (latencies.min(), latencies.max());
    let mut bars: Vec<(u64, u64)> =
        (0..=BARS).map(|step| (fastest + (slowest - fastest) * step / BARS, 0)).collect();
    bars.dedup_by_key(|(bound, _)| *bound);
    for value in latencies.iter_recorded() {
        let value_to = value.value_iterated_to();
        // The histogram tells values apart by three digits.
        let place =
            bars.partition_point(|&(bound, _)| latencies.highest_equivalent(bound) < value_to);
        let place = place.min(bars.len() - 1);
        bars[place].1 += value.count_since_last_iteration();
    }
    bars
}

/// In eighths of a character.
fn bar(share: f64) -> String {
    if share <= 0.0 {
        return String::new();
    }
    let eighths = ((share * 8.0 * BAR_CHARS as f64).round() as usize).max(1);
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1)));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut latencies = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
        values.into_iter().for_each(|value| latencies.record(value).unwrap());
        latencies
    }

    #[test]
    fn every_request_is_in_one_bar() {
        let latencies = histogram((1..=1000).map(|number| number * 1_000_000));
        let bars = bars(&latencies);
        assert_eq!(bars.len(), 11);
        assert_eq!(bars.iter().map(|(_, count)| count).sum::<u64>(), 1000);
        assert!(bars[1..].iter().all(|(_, count)| (95..=105).contains(count)), "{bars:?}");
    }

    #[test]
    fn requests_that_all_take_the_same_are_one_bar() {
        assert_eq!(bars(&histogram([7, 7, 7])), [(7, 3)]);
        assert_eq!(bars(&histogram([])).len(), 1);
    }

    #[test]
    fn the_fastest_is_in_the_first_bar() {
        let bars = bars(&histogram([41_013, 41_017, 65_535_011]));
        assert_eq!((bars[0].1, bars[10].1), (2, 1), "{bars:?}");
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        let mut out = Vec::new();
        draw(&mut out, &histogram([1000, 2000, 2000])).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 11, "{text}");
        assert_eq!(lines[0], format!("   1.00 µs [1] |{}", "█".repeat(20)));
        assert_eq!(lines[1], "   1.10 µs [0] |");
        assert!(lines[10].ends_with(&format!("[2] |{}", "█".repeat(40))), "{text}");
        assert_eq!(bar(0.0001), "▏");
    }
}

//! Latencies of a load: a table and a histogram drawn in text.

use std::io::{self, Write};
use std::time::Duration;

use hdrhistogram::Histogram;

use super::table;
use super::units::Nanos;

/// One line of the table.
#[derive(Debug)]
pub struct Row<'a> {
    pub connections: String,
    pub requests_per_second: f64,
    pub hist: &'a Histogram<u64>,
    /// CPU time of the server for each request, where it is known.
    pub server_cpu: Option<Duration>,
}

/// Latencies cut into buckets whose bounds grow by the same factor.
struct Buckets {
    steps_per_octave: i32,
    first: i32,
    last: i32,
}

/// With more octaves than this a bucket is a whole octave, otherwise half of one.
const OCTAVES_IN_HALVES: i32 = 10;
const LABEL_CHARS: usize = 10;
const LINE_CHARS: usize = 96;
const SHARE_CHARS: usize = 8;

/// Prints one line for each row, under a heading.
pub fn table(out: &mut impl Write, rows: &[Row<'_>]) -> io::Result<()> {
    let with_cpu = rows.iter().any(|row| row.server_cpu.is_some());
    let mut heading = vec!["connections", "requests/s", "p50", "p99", "p99.9", "max"];
    heading.extend(with_cpu.then_some("server CPU/request"));
    let mut table = table::numbers(&heading);
    for row in rows {
        let mut cells = vec![row.connections.clone(), format!("{:.0}", row.requests_per_second)];
        cells.extend(
            [0.5, 0.99, 0.999, 1.0]
                .map(|quantile| Nanos(row.hist.value_at_quantile(quantile) as f64).to_string()),
        );
        cells.extend(row.server_cpu.map(|cpu| Nanos::of(cpu).to_string()));
        table.add_row(cells);
    }
    writeln!(out, "{}", table.trim_fmt())
}

/// Draws histograms side by side: a row for each latency, a bar for its share of the requests.
///
/// Every share above zero shows at least as a sliver, so that the tail can be seen.
pub fn histogram(out: &mut impl Write, columns: &[(String, &Histogram<u64>)]) -> io::Result<()> {
    let Some(buckets) = Buckets::spanning(columns) else {
        return writeln!(out, "no latencies: nothing was answered");
    };
    let counts: Vec<Vec<u64>> = columns.iter().map(|(_, hist)| buckets.counts(hist)).collect();
    let column_chars = (LINE_CHARS - LABEL_CHARS) / columns.len();
    let bar_chars = column_chars.saturating_sub(SHARE_CHARS + 2).clamp(1, 50);

    let mut line = format!("{:>LABEL_CHARS$}", "latency");
    for (name, _) in columns {
        line.push_str(&format!("  {name:<width$}", width = bar_chars + SHARE_CHARS));
    }
    writeln!(out, "{}", line.trim_end())?;
    for (place, bucket) in (buckets.first..=buckets.last).enumerate() {
        let label = format!("< {}", Nanos(buckets.upper_bound(bucket)));
        let mut line = format!("{label:>LABEL_CHARS$}");
        for ((_, hist), counts) in columns.iter().zip(&counts) {
            let most = counts.iter().max().copied().unwrap_or(0).max(1);
            let bar = bar(counts[place] as f64 / most as f64, bar_chars);
            let share = share(counts[place], hist.len());
            line.push_str(&format!("  {bar:<bar_chars$}{share:>SHARE_CHARS$}"));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// A bar of up to `chars` characters, in eighths of a character.
fn bar(fraction: f64, chars: usize) -> String {
    if fraction <= 0.0 {
        return String::new();
    }
    let eighths = ((fraction * 8.0 * chars as f64).round() as usize).max(1);
    let mut bar = "█".repeat(eighths / 8);
    bar.extend(['▏', '▎', '▍', '▌', '▋', '▊', '▉'].get((eighths % 8).wrapping_sub(1)));
    bar
}

fn share(count: u64, of: u64) -> String {
    let percent = count as f64 * 100.0 / of.max(1) as f64;
    match count {
        0 => String::new(),
        _ if percent < 0.01 => "<0.01%".to_owned(),
        _ => format!("{percent:.2}%"),
    }
}

impl Buckets {
    /// Buckets from the fastest to the slowest of all; `None` if nothing was recorded.
    fn spanning(columns: &[(String, &Histogram<u64>)]) -> Option<Self> {
        let hists = columns.iter().map(|(_, hist)| *hist);
        let range = |hist: &Histogram<u64>| (hist.min().max(1), hist.max().max(1));
        let ranges = hists.filter(|hist| !hist.is_empty()).map(range);
        let (min, max) = ranges.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1)))?;
        let octaves = (max as f64 / min as f64).log2().ceil() as i32;
        let steps_per_octave = if octaves > OCTAVES_IN_HALVES { 1 } else { 2 };
        let mut buckets = Self { steps_per_octave, first: 0, last: 0 };
        buckets.first = buckets.of(min);
        buckets.last = buckets.of(max);
        Some(buckets)
    }

    /// Bucket 0 starts at one microsecond.
    fn of(&self, nanos: u64) -> i32 {
        let octave = (nanos.max(1) as f64 / 1000.0).log2();
        (octave * f64::from(self.steps_per_octave)).floor() as i32
    }

    fn upper_bound(&self, bucket: i32) -> f64 {
        1000.0 * (f64::from(bucket + 1) / f64::from(self.steps_per_octave)).exp2()
    }

    fn counts(&self, hist: &Histogram<u64>) -> Vec<u64> {
        let mut counts = vec![0; (self.last - self.first + 1) as usize];
        for value in hist.iter_recorded() {
            let bucket = self.of(value.value_iterated_to()).clamp(self.first, self.last);
            counts[(bucket - self.first) as usize] += value.count_since_last_iteration();
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(values: impl IntoIterator<Item = u64>) -> Histogram<u64> {
        let mut hist = Histogram::new_with_bounds(1, 1 << 40, 3).unwrap();
        values.into_iter().for_each(|value| hist.record(value).unwrap());
        hist
    }

    fn counts(hist: &Histogram<u64>) -> Vec<u64> {
        let buckets = Buckets::spanning(&[(String::new(), hist)]).unwrap();
        buckets.counts(hist)
    }

    #[test]
    fn every_request_is_in_one_bar() {
        let counts = counts(&recorded((1..=1000).map(|number| number * 1_000_000)));
        assert_eq!(counts.iter().sum::<u64>(), 1000);
        // Each bar spans half of an octave, so that the next ones have more of such latencies.
        let (fast, slow) = (counts[..10].iter().sum::<u64>(), counts[10..].iter().sum::<u64>());
        assert!((20..=22).contains(&counts.len()) && fast * 10 < slow, "{counts:?}");
    }

    #[test]
    fn requests_that_all_take_the_same_are_one_bar() {
        assert_eq!(counts(&recorded([7, 7, 7])), [3]);
        assert!(Buckets::spanning(&[(String::new(), &recorded([]))]).is_none());
    }

    #[test]
    fn the_fastest_is_in_the_first_bar() {
        let counts = counts(&recorded([41_013, 41_017, 65_535_011]));
        assert_eq!((counts[0], counts.last()), (2, Some(&1)), "{counts:?}");
    }

    #[test]
    fn bars_are_as_long_as_their_share() {
        let mut out = Vec::new();
        histogram(&mut out, &[("share".to_owned(), &recorded([1000, 4000, 4000]))]).unwrap();
        let text = String::from_utf8(out).unwrap();
        let bars: Vec<_> = text.lines().skip(1).map(|line| line.matches('█').count()).collect();
        assert_eq!((bars[0], bars.last()), (25, Some(&50)), "{text}");
        assert_eq!(bar(0.0001, 50), "▏");
    }
}

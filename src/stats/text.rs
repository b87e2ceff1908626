//! Text of counts and times: for people, and in lines for programs.

use std::fmt::{self, Display, Formatter, Write};
use std::time::Duration;

use super::counter::{Counter, NAME_WIDTH};
use super::histogram::{Histogram, Stage};
use super::snapshot::{Gauge, Snapshot, Value};

/// Prefix of every name in a metrics system.
pub(super) const PREFIX: &str = "epoll_group_";

/// Quantiles in every text form, and their names.
pub(super) const QUANTILES: [(&str, f64); 5] =
    [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999), ("max", 1.0)];

/// Columns of the longest bar. If the largest count is 1, a bar of one sample has this length.
const BAR_WIDTH: f64 = 40.0;

impl Display for Histogram {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let count = self.count();
        write!(f, "{count} samples")?;
        let Some(mean) = self.mean() else { return Ok(()) };
        write!(f, ", mean {}", Short(mean))?;
        for (name, part) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)] {
            write!(f, ", {name} {}", Short(self.quantile(part).unwrap_or_default()))?;
        }
        write!(f, ", max {} (bars: log scale)", Short(self.max().unwrap_or_default()))?;

        let most = self.buckets().map(|(_, here)| here).max().unwrap_or(0);
        let mut slower = count;
        for (end, here) in self.buckets() {
            slower = slower.saturating_sub(here);
            let from = if end == Duration::from_nanos(2) { Duration::ZERO } else { end / 2 };
            let (from, to) = (Short(from).to_string(), Short(end).to_string());
            let share = Share { part: here, of: count }.to_string();
            let rest = Share { part: slower, of: count }.to_string();
            write!(f, "\n{from:>9} .. {to:>7} {here:>12} {share:>9}, {rest:>9} slower")?;
            if here != 0 {
                write!(f, "  {}", "#".repeat(bar(here, most)))?;
            }
        }
        Ok(())
    }
}

/// Columns of the bar for `count` samples, at least one. The length is logarithmic: each factor
/// adds equally many columns.
fn bar(count: u64, most: u64) -> usize {
    let part = if most == 1 { 1.0 } else { (count as f64).ln() / (most as f64).ln() };
    1 + (part * (BAR_WIDTH - 1.0)).round() as usize
}

/// A duration in three digits: `1.05 ms`.
pub(crate) struct Short(pub(crate) Duration);

impl Display for Short {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let nanoseconds = self.0.as_nanos();
        if nanoseconds < 1000 {
            return write!(f, "{nanoseconds} ns");
        }
        let mut value = nanoseconds as f64 / 1e3;
        let mut units = ["us", "ms"].into_iter();
        let unit = loop {
            match units.next() {
                Some(unit) if value < 999.5 => break unit,
                Some(_) => value /= 1e3,
                None => break "s",
            }
        };
        three_digits(f, value)?;
        write!(f, " {unit}")
    }
}

/// A share in per cent, in three digits. It never shows 0 for a positive count, nor 100 for less
/// than all.
struct Share {
    part: u64,
    of: u64,
}

impl Display for Share {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let value = self.part as f64 * 100.0 / self.of as f64;
        match value {
            _ if self.part == 0 => f.write_str("0 %"),
            _ if self.part == self.of => f.write_str("100 %"),
            99.95.. => f.write_str(">99.9 %"),
            1.0.. => three_digits(f, value).and_then(|()| f.write_str(" %")),
            0.01.. => write!(f, "{value:.3} %"),
            0.000_1.. => write!(f, "{value:.5} %"),
            _ => f.write_str("<0.0001 %"),
        }
    }
}

fn three_digits(f: &mut Formatter<'_>, value: f64) -> fmt::Result {
    match value {
        ..9.995 => write!(f, "{value:.2}"),
        ..99.95 => write!(f, "{value:.1}"),
        _ => write!(f, "{value:.0}"),
    }
}

impl Display for Snapshot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for Gauge { name, value, help } in self.gauges() {
            let value = match value {
                Value::Number(number) => number.to_string(),
                Value::Time(time) => Short(time).to_string(),
            };
            write!(f, "{separator}{name:NAME_WIDTH$} {value:>12}  {help}")?;
            separator = "\n";
        }
        for &counter in Counter::ALL.iter().filter(|&&counter| self.get(counter) != 0) {
            let (name, value, help) = (counter.name(), self.get(counter), counter.help());
            write!(f, "\n{name:NAME_WIDTH$} {value:>12}  {help}")?;
        }
        for &stage in Stage::ALL {
            if let Some(histogram) = self.histogram(stage) {
                write!(f, "\n\n{}: {}\n{histogram}", stage.name(), stage.help())?;
            }
        }
        Ok(())
    }
}

impl Snapshot {
    /// Returns all values in lines of a name, a space and a value, for programs.
    ///
    /// First come the gauges, then all counters, zero or not, each under its name. If histograms
    /// have ever been on, they follow. Each stage has `work_queue_samples`, the number of samples,
    /// and the quantiles `work_queue_p50_seconds`, `_p90_`, `_p99_`, `_p999_` and
    /// `work_queue_max_seconds`. The quantiles are zero if there are no samples.
    ///
    /// *Units*: counts are whole numbers. Times are seconds with nine decimals, and names of times
    /// end in `_seconds`; amounts of memory say `bytes`.
    ///
    /// Names stay. Later versions may have more of them.
    ///
    /// ```
    /// use epoll_group::stats::Snapshot;
    ///
    /// let lines = Snapshot::default().to_lines();
    /// let of = |wanted| lines.lines().find_map(|line| line.strip_prefix(wanted));
    /// assert_eq!(of("connections "), Some("0"));
    /// assert_eq!(of("oldest_task_age_seconds "), Some("0.000000000"));
    /// ```
    #[must_use]
    pub fn to_lines(&self) -> String {
        let mut lines = String::new();
        self.write_lines(&mut lines).expect("a String takes everything");
        lines
    }

    fn write_lines(&self, lines: &mut String) -> fmt::Result {
        for Gauge { name, value, .. } in self.gauges() {
            match value {
                Value::Number(number) => writeln!(lines, "{name} {number}")?,
                Value::Time(time) => writeln!(lines, "{name}_seconds {}", Seconds(time))?,
            }
        }
        for &counter in Counter::ALL {
            writeln!(lines, "{} {}", counter.name(), self.get(counter))?;
        }
        for &stage in Stage::ALL {
            let Some(histogram) = self.histogram(stage) else { continue };
            let name = stage.name();
            writeln!(lines, "{name}_samples {}", histogram.count())?;
            for (quantile, part) in QUANTILES {
                let time = Seconds(histogram.quantile(part).unwrap_or_default());
                writeln!(lines, "{name}_{quantile}_seconds {time}")?;
            }
        }
        Ok(())
    }
}

/// A duration in seconds, with nine decimals.
pub(super) struct Seconds(pub(super) Duration);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.0.as_secs(), self.0.subsec_nanos())
    }
}

#[cfg(test)]
mod tests;

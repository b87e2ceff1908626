//! Text of a snapshot in the format of Prometheus.

use std::fmt::{self, Write};
use std::time::Duration;

use super::counter::Counter;
use super::histogram::{Histogram, Stage};
use super::snapshot::{Gauge, Snapshot, Value};
use super::text::{PREFIX, Seconds};

/// Exponents of the first and of the last bucket: 256 ns and 34 s. The buckets must not depend on the
/// samples, or series would appear and vanish.
const BUCKETS: std::ops::RangeInclusive<u32> = 8..=35;

impl Snapshot {
    /// Returns all values in the text format of Prometheus, version 0.0.4.
    ///
    /// Names begin with `epoll_group_`. Counters end in `_total`, after their unit if they count
    /// bytes: `epoll_group_sent_bytes_total`. Gauges have the names of [`to_lines`](Self::to_lines).
    /// If histograms have ever been on, each stage is a histogram, such as
    /// `epoll_group_work_queue_seconds`, with a bucket for each power of two from 256 ns to 34 s.
    ///
    /// ```
    /// use epoll_group::stats::Snapshot;
    ///
    /// let text = Snapshot::default().to_prometheus();
    /// assert!(text.contains("\n# TYPE epoll_group_tasks_run_total counter\n"));
    /// assert!(text.contains("\nepoll_group_tasks_run_total 0\n"));
    /// ```
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        self.write_prometheus(&mut text).expect("a String takes everything");
        text
    }

    fn write_prometheus(&self, text: &mut String) -> fmt::Result {
        for Gauge { name, value, help } in self.gauges() {
            match value {
                Value::Number(number) => {
                    head(text, name, help, "gauge")?;
                    writeln!(text, "{PREFIX}{name} {number}")?;
                }
                Value::Time(time) => {
                    let name = format!("{name}_seconds");
                    head(text, &name, help, "gauge")?;
                    writeln!(text, "{PREFIX}{name} {}", Seconds(time))?;
                }
            }
        }
        for &counter in Counter::ALL {
            let name = total_name(counter);
            head(text, &name, counter.help(), "counter")?;
            writeln!(text, "{PREFIX}{name} {}", self.get(counter))?;
        }
        for &stage in Stage::ALL {
            if let Some(histogram) = self.histogram(stage) {
                let name = format!("{}_seconds", stage.name());
                head(text, &name, stage.help(), "histogram")?;
                write_histogram(text, &name, histogram)?;
            }
        }
        Ok(())
    }
}

fn head(text: &mut String, name: &str, help: &str, kind: &str) -> fmt::Result {
    writeln!(text, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}")
}

/// Name of a counter, with its unit at the end.
fn total_name(counter: Counter) -> String {
    if counter.is_of_bytes() {
        let other_words: Vec<_> =
            counter.name().split('_').filter(|&word| word != "bytes").collect();
        format!("{}_bytes_total", other_words.join("_"))
    } else {
        format!("{}_total", counter.name())
    }
}

fn write_histogram(text: &mut String, name: &str, histogram: &Histogram) -> fmt::Result {
    let mut counts = histogram.buckets().peekable();
    let mut below = 0;
    for exponent in BUCKETS {
        let end = Duration::from_nanos(1 << exponent);
        while let Some((_, count)) = counts.next_if(|&(bucket, _)| bucket <= end) {
            below += count;
        }
        // A sample at the end of a bucket belongs to the next one. Bounds of Prometheus are inclusive.
        let le = Seconds(end - Duration::from_nanos(1));
        writeln!(text, "{PREFIX}{name}_bucket{{le=\"{le}\"}} {below}")?;
    }
    let (count, sum) = (histogram.count(), Seconds(histogram.sum()));
    writeln!(text, "{PREFIX}{name}_bucket{{le=\"+Inf\"}} {count}")?;
    writeln!(text, "{PREFIX}{name}_sum {sum}\n{PREFIX}{name}_count {count}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Counters, Histograms};

    #[test]
    fn the_text_of_a_known_snapshot_is_the_golden_one() {
        let (counters, histograms) = (Counters::new(), Histograms::new());
        counters.add(Counter::BytesSent, 1234);
        counters.add(Counter::TasksRun, 5);
        histograms.switch(true);
        for nanoseconds in [0, 255, 256, 1_000, 2_000_000, 1 << 35, 1 << 41] {
            histograms.record(Stage::Run, Duration::from_nanos(nanoseconds));
        }
        let mut snapshot = Snapshot {
            listeners: 7,
            oldest_task_age: Duration::from_micros(1500),
            ..Snapshot::default()
        };
        snapshot.absorb(&counters);
        histograms.add_to(&mut snapshot);
        let text = snapshot.to_prometheus();
        let shown = ["listeners", "oldest_task_age_seconds", "sent_bytes_total", "run_seconds"];
        let is_shown = |line: &&str| {
            let (_, name) = line.split_once(PREFIX).expect("each line has a name");
            shown.iter().any(|shown| name.starts_with(shown))
        };
        let lines: Vec<_> = text.lines().filter(is_shown).collect();
        assert_eq!(lines.join("\n") + "\n", include_str!("prometheus/golden.txt"));
    }
}

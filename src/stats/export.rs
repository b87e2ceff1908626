//! Export of snapshots through the facade `metrics`.

use metrics::{Key, KeyName, Metadata, Recorder, Unit};

use super::counter::Counter;
use super::histogram::Stage;
use super::snapshot::{Gauge, Snapshot, Value};
use super::text::{PREFIX, QUANTILES};

const METADATA: Metadata<'static> =
    Metadata::new(module_path!(), metrics::Level::INFO, Some(module_path!()));

/// Hands snapshots to the recorder that the host installed for the facade `metrics`.
///
/// *Shape*: one handle per name. Names are registered and described once, when the exporter is
/// made. The names of histograms are registered when a snapshot first has some. It takes no
/// snapshots and starts no thread: call [`export`](Self::export) as often as the metrics system
/// reads. Make one per runtime, each with a prefix of its own.
///
/// Names are the prefix and a name of [`Snapshot::to_lines`]. A counter there is a counter here,
/// set to its absolute value. Everything else is a gauge. The number of samples of a histogram is a
/// gauge, because a reset lowers it. Its quantiles are gauges, because the facade accepts samples,
/// not buckets. [`Snapshot::to_prometheus`] has the buckets.
///
/// *Units*: `Seconds` for times, `Bytes` for memory, `Count` for the rest.
///
/// ```
/// use std::sync::mpsc;
/// use std::thread;
/// use std::time::Duration;
///
/// use epoll_group::Runtime;
/// use epoll_group::stats::Exporter;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // First the recorder of your choice, for instance `PrometheusBuilder::new().install()?`.
/// let runtime = Runtime::builder().start()?;
/// let handle = runtime.handle();
/// let (end, ended) = mpsc::channel::<()>();
/// let exports = thread::spawn(move || {
///     let mut exporter = Exporter::default();
///     while ended.recv_timeout(Duration::from_secs(10)) == Err(mpsc::RecvTimeoutError::Timeout) {
///         exporter.export(&handle.stats());
///     }
/// });
/// // Serve.
/// drop(end);
/// # exports.join().expect("no panic");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Exporter {
    prefix: String,
    totals: Vec<metrics::Counter>,
    levels: Vec<metrics::Gauge>,
    /// Number of samples of each stage, then its quantiles. Empty until there are histograms.
    stages: Vec<metrics::Gauge>,
}

impl Exporter {
    /// Registers every name under this prefix with the recorder that is installed. If there is
    /// none, exported values are lost, even if one is installed later.
    #[must_use]
    pub fn with_prefix(prefix: impl Into<String>) -> Self {
        let prefix = prefix.into();
        let (totals, levels) = metrics::with_recorder(|recorder| {
            let totals = Counter::ALL.iter().map(|&counter| total(recorder, &prefix, counter));
            let levels = Snapshot::default().gauges().map(|Gauge { name, value, help }| {
                let (ending, unit) = match value {
                    Value::Time(_) => ("_seconds", Unit::Seconds),
                    Value::Number(_) if name.ends_with("_bytes") => ("", Unit::Bytes),
                    Value::Number(_) => ("", Unit::Count),
                };
                level(recorder, format!("{prefix}{name}{ending}"), unit, help.to_owned())
            });
            (totals.collect(), levels.collect())
        });
        Self { prefix, totals, levels, stages: Vec::new() }
    }

    /// Sets all metrics to the values of the snapshot.
    pub fn export(&mut self, snapshot: &Snapshot) {
        for (total, &counter) in self.totals.iter().zip(Counter::ALL) {
            total.absolute(snapshot.get(counter));
        }
        for (level, gauge) in self.levels.iter().zip(snapshot.gauges()) {
            level.set(match gauge.value {
                Value::Number(number) => number as f64,
                Value::Time(time) => time.as_secs_f64(),
            });
        }
        self.export_histograms(snapshot);
    }

    fn export_histograms(&mut self, snapshot: &Snapshot) {
        let mut values = Vec::new();
        for histogram in Stage::ALL.iter().filter_map(|&stage| snapshot.histogram(stage)) {
            let seconds =
                |(_, part)| histogram.quantile(part).map_or(0.0, |time| time.as_secs_f64());
            values.push(histogram.count() as f64);
            values.extend(QUANTILES.map(seconds));
        }
        if !values.is_empty() && self.stages.is_empty() {
            self.stages = metrics::with_recorder(|recorder| stages(recorder, &self.prefix));
        }
        for (level, value) in self.stages.iter().zip(values) {
            level.set(value);
        }
    }
}

impl Default for Exporter {
    /// Registers every name under the prefix `epoll_group_`, as
    /// [`with_prefix`](Self::with_prefix) does.
    fn default() -> Self {
        Self::with_prefix(PREFIX)
    }
}

fn stages(recorder: &dyn Recorder, prefix: &str) -> Vec<metrics::Gauge> {
    let mut levels = Vec::new();
    for stage in Stage::ALL {
        let (name, help) = (stage.name(), stage.help());
        let samples = format!("{prefix}{name}_samples");
        levels.push(level(recorder, samples, Unit::Count, format!("samples: {help}")));
        for (quantile, _) in QUANTILES {
            let name = format!("{prefix}{name}_{quantile}_seconds");
            levels.push(level(recorder, name, Unit::Seconds, format!("{quantile}: {help}")));
        }
    }
    levels
}

fn total(recorder: &dyn Recorder, prefix: &str, counter: Counter) -> metrics::Counter {
    let unit = if counter.is_of_bytes() { Unit::Bytes } else { Unit::Count };
    let name = format!("{prefix}{}", counter.name());
    recorder.describe_counter(KeyName::from(name.clone()), Some(unit), counter.help().into());
    recorder.register_counter(&Key::from_name(name), &METADATA)
}

fn level(recorder: &dyn Recorder, name: String, unit: Unit, help: String) -> metrics::Gauge {
    recorder.describe_gauge(KeyName::from(name.clone()), Some(unit), help.into());
    recorder.register_gauge(&Key::from_name(name), &METADATA)
}

#[cfg(test)]
mod tests;

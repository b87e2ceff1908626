//! One look at a server.

use std::collections::HashMap;

use epoll_group::stats::{Counter, Stage};

use super::super::admin::{AdminError, Client};

/// What `stats`, `buckets` and `config` answered.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sample {
    values: HashMap<String, f64>,
    buckets: Vec<Bucket>,
    pub(super) histograms_on: bool,
}

/// Samples of a stage that took less than 2^`power` ns, and not less than half of that.
#[derive(Clone, Debug, PartialEq)]
struct Bucket {
    stage: String,
    power: usize,
    count: u64,
}

impl Sample {
    pub(super) fn fetch(client: &mut Client) -> Result<Self, AdminError> {
        let [stats, buckets, config] = ["stats", "buckets", "config"];
        Self::parse(&client.ask(stats)?, &client.ask(buckets)?, &client.ask(config)?)
    }

    pub(super) fn parse(stats: &str, buckets: &str, config: &str) -> Result<Self, AdminError> {
        let value = |line: &str| {
            let (name, value) = line.split_once(' ')?;
            let value: f64 = value.parse().ok()?;
            (value.is_finite() && value >= 0.0).then(|| (name.to_owned(), value))
        };
        let bucket = |line: &str| {
            let mut words = line.split(' ');
            let stage = words.next()?.to_owned();
            let end: u64 = words.next()?.parse().ok()?;
            let count = words.next()?.parse().ok()?;
            Some(Bucket { stage, power: end.checked_ilog2()? as usize, count })
        };
        let sample = Self {
            values: all(stats, value)?,
            buckets: all(buckets, bucket)?,
            histograms_on: config.lines().any(|line| line.starts_with("enable_perf_hist true ")),
        };
        for needed in ["echo_uptime_seconds", "echo_requests", "connections", "groups"] {
            if !sample.values.contains_key(needed) {
                return Err(AdminError::Nonsense(format!("its stats have no {needed}")));
            }
        }
        Ok(sample)
    }

    /// A value by its name; what the server does not know yet is 0.
    pub(crate) fn value(&self, name: &str) -> f64 {
        self.values.get(name).copied().unwrap_or(0.0)
    }

    pub(crate) fn count(&self, counter: Counter) -> f64 {
        self.value(counter.name())
    }

    /// Quantile (`p50`, `p90`, `p99`, `p999`, `max`) of a stage, in seconds.
    pub(super) fn quantile(&self, stage: Stage, quantile: &str) -> f64 {
        self.value(&format!("{}_{quantile}_seconds", stage.name()))
    }

    pub(super) fn samples(&self, stage: Stage) -> f64 {
        self.value(&format!("{}_samples", stage.name()))
    }

    /// Samples of a stage by powers of two, each as the power and the count.
    pub(super) fn buckets(&self, stage: Stage) -> impl Iterator<Item = (usize, u64)> {
        let of_stage = self.buckets.iter().filter(move |bucket| bucket.stage == stage.name());
        of_stage.map(|bucket| (bucket.power, bucket.count))
    }
}

fn all<T, C: FromIterator<T>>(
    lines: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<C, AdminError> {
    let parse = |line| parse(line).ok_or_else(|| AdminError::Nonsense(format!("{line:?}")));
    lines.lines().map(parse).collect()
}

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics::{Histogram, SharedString};

use super::*;
use crate::stats::{Counters, Histograms};

/// Recorder that keeps the given values under their names.
#[derive(Default)]
struct Kept {
    descriptions: Mutex<Vec<(String, Unit, String)>>,
    totals: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
    /// Bits of `f64`.
    levels: Mutex<BTreeMap<String, Arc<AtomicU64>>>,
}

impl Kept {
    fn describe(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        let unit = unit.expect("each name has a unit");
        let description = (name.as_str().to_owned(), unit, description.into_owned());
        self.descriptions.lock().expect("no panic").push(description);
    }

    fn total(&self, name: &str) -> u64 {
        self.totals.lock().expect("no panic")[name].load(Ordering::Relaxed)
    }

    fn level(&self, name: &str) -> f64 {
        f64::from_bits(self.levels.lock().expect("no panic")[name].load(Ordering::Relaxed))
    }

    fn unit(&self, name: &str) -> Unit {
        let descriptions = self.descriptions.lock().expect("no panic");
        descriptions.iter().find(|(found, ..)| found == name).expect("described").1
    }
}

fn register(map: &Mutex<BTreeMap<String, Arc<AtomicU64>>>, key: &Key) -> Arc<AtomicU64> {
    let mut map = map.lock().expect("no panic");
    Arc::clone(map.entry(key.name().to_owned()).or_default())
}

impl Recorder for Kept {
    fn describe_counter(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(name, unit, description);
    }

    fn describe_gauge(&self, name: KeyName, unit: Option<Unit>, description: SharedString) {
        self.describe(name, unit, description);
    }

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {
        unreachable!("the facade takes no buckets");
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        metrics::Counter::from_arc(register(&self.totals, key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        metrics::Gauge::from_arc(register(&self.levels, key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        unreachable!("the facade takes no buckets");
    }
}

#[test]
fn what_is_exported_is_what_the_lines_say_under_the_same_names() {
    let (counters, histograms) = (Counters::new(), Histograms::new());
    counters.add(Counter::BytesSent, 1234);
    histograms.switch(true);
    histograms.record(Stage::Run, Duration::from_millis(2));
    let mut snapshot = Snapshot {
        connections: 7,
        oldest_task_age: Duration::from_micros(1500),
        ..Snapshot::default()
    };
    snapshot.absorb(&counters);
    histograms.add_to(&mut snapshot);

    let kept = Kept::default();
    metrics::with_local_recorder(&kept, || Exporter::default().export(&snapshot));
    let lines = snapshot.to_lines();
    for line in lines.lines() {
        let (name, value) = line.split_once(' ').expect("two words");
        let name = format!("epoll_group_{name}");
        let is_total = kept.totals.lock().expect("no panic").contains_key(&name);
        let found = if is_total { kept.total(&name) as f64 } else { kept.level(&name) };
        let wanted: f64 = value.parse().expect("a number");
        assert!((found - wanted).abs() < 1e-9, "{line}: {found}");
    }
    assert_eq!(kept.total("epoll_group_bytes_sent"), 1234);
    assert_eq!(kept.level("epoll_group_connections"), 7.0);
    assert_eq!(kept.level("epoll_group_run_samples"), 1.0);

    let described = kept.descriptions.lock().expect("no panic").len();
    assert_eq!(described, lines.lines().count());
    assert_eq!(kept.unit("epoll_group_bytes_sent"), Unit::Bytes);
    assert_eq!(kept.unit("epoll_group_buffered_bytes"), Unit::Bytes);
    assert_eq!(kept.unit("epoll_group_oldest_task_age_seconds"), Unit::Seconds);
    assert_eq!(kept.unit("epoll_group_run_p99_seconds"), Unit::Seconds);
    assert_eq!(kept.unit("epoll_group_closed_first_bytes_timeout"), Unit::Count);
}

#[test]
fn names_are_described_once_and_those_of_histograms_when_there_are_some() {
    let kept = Kept::default();
    metrics::with_local_recorder(&kept, || {
        let described = || kept.descriptions.lock().expect("no panic").len();
        let mut exporter = Exporter::with_prefix("proxy_");
        let numbers = described();
        let mut snapshot = Snapshot { connections: 1, ..Snapshot::default() };
        exporter.export(&snapshot);
        assert_eq!(described(), numbers);
        assert_eq!(kept.level("proxy_connections"), 1.0);
        assert!(!kept.levels.lock().expect("no panic").contains_key("proxy_run_samples"));

        let histograms = Histograms::new();
        histograms.switch(true);
        histograms.add_to(&mut snapshot);
        exporter.export(&snapshot);
        let all = described();
        assert_eq!(all, numbers + Stage::ALL.len() * (1 + QUANTILES.len()));
        assert_eq!(kept.level("proxy_run_max_seconds"), 0.0);

        snapshot.connections = 0;
        exporter.export(&snapshot);
        assert_eq!(described(), all);
        assert_eq!(kept.level("proxy_connections"), 0.0);
    });
}

#[test]
fn without_a_recorder_nothing_happens() {
    Exporter::default().export(&Snapshot::default());
}

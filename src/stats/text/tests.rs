use std::collections::HashSet;

use super::*;
use crate::stats::{Counters, Histograms};

fn short(nanoseconds: u64) -> String {
    Short(Duration::from_nanos(nanoseconds)).to_string()
}

fn share(part: u64, of: u64) -> String {
    Share { part, of }.to_string()
}

#[test]
fn a_duration_is_written_in_three_digits() {
    assert_eq!(short(0), "0 ns");
    assert_eq!(short(999), "999 ns");
    assert_eq!(short(1000), "1.00 us");
    assert_eq!(short(9_994), "9.99 us");
    assert_eq!(short(9_996), "10.0 us");
    assert_eq!(short(99_960), "100 us");
    assert_eq!(short(999_499), "999 us");
    assert_eq!(short(999_500), "1.00 ms");
    assert_eq!(short(1_048_576), "1.05 ms");
    assert_eq!(short(999_600_000), "1.00 s");
    assert_eq!(short(3_600_000_000_000), "3600 s");
}

#[test]
fn a_share_never_hides_one_sample() {
    assert_eq!(share(0, 5), "0 %");
    assert_eq!(share(5, 5), "100 %");
    assert_eq!(share(1, 3), "33.3 %");
    assert_eq!(share(1, 20), "5.00 %");
    assert_eq!(share(1, 1000), "0.100 %");
    assert_eq!(share(1, 100_000), "0.00100 %");
    assert_eq!(share(1, u64::MAX), "<0.0001 %");
    assert_eq!(share(u64::MAX - 1, u64::MAX), ">99.9 %");
}

#[test]
fn a_bar_grows_with_the_count_and_shows_one_sample() {
    assert_eq!(bar(1, 1_000_000), 1);
    assert_eq!(bar(1_000_000, 1_000_000), 40);
    assert_eq!(bar(1, 1), 40);
    assert_eq!(bar(1, u64::MAX), 1);
    let lengths: Vec<_> = [1, 10, 100, 1000, 10_000].map(|count| bar(count, 10_000)).into();
    assert_eq!(lengths, [1, 11, 21, 30, 40]);
}

#[test]
fn the_text_of_known_samples_is_the_one_in_the_documentation() {
    let fast = (0..9_999).map(|_| Duration::from_micros(3));
    let all: Histogram = fast.chain([Duration::from_millis(5)]).collect();
    assert_eq!(format!("{all}\n"), include_str!("../histogram/example.txt"));
}

#[test]
fn the_text_shows_the_tail_at_a_glance() {
    let samples = [(0, 3), (900, 1_000_000), (3_000, 80_000), (70_000, 1_300), (900_000_000, 1)];
    let all: Histogram = samples
        .iter()
        .flat_map(|&(nanoseconds, times)| {
            (0..times).map(move |_| Duration::from_nanos(nanoseconds))
        })
        .collect();
    assert_eq!(format!("{all}\n"), include_str!("golden.txt"));
}

#[test]
fn the_text_of_nothing_is_short() {
    assert_eq!(Histogram::default().to_string(), "0 samples");
}

#[test]
fn the_text_has_each_gauge_and_only_the_counters_that_counted() {
    let counters = Counters::new();
    counters.add(Counter::BytesSent, 1234);
    let mut snapshot = Snapshot {
        workers: 4,
        oldest_task_age: Duration::from_micros(1500),
        ..Snapshot::default()
    };
    snapshot.absorb(&counters);
    let text = snapshot.to_string();
    assert_eq!(text.lines().count(), snapshot.gauges().count() + 1);
    for gauge in snapshot.gauges() {
        let line = text.lines().find(|line| line.split(' ').next() == Some(gauge.name));
        assert!(line.is_some_and(|line| line.ends_with(gauge.help)), "{}", gauge.name);
    }
    assert!(
        text.contains("workers                                     4  base and dynamic threads")
    );
    assert!(text.contains("oldest_task_age                       1.50 ms  age of the task"));
    assert!(
        text.ends_with("bytes_sent                               1234  bytes taken by sockets")
    );
}

#[test]
fn the_text_ends_with_the_histograms_if_there_are_any() {
    let histograms = Histograms::new();
    histograms.switch(true);
    histograms.record(Stage::Run, Duration::from_nanos(40));
    let mut snapshot = Snapshot::default();
    histograms.add_to(&mut snapshot);
    let text = snapshot.to_string();
    let (_, run) = text.split_once("\n\nrun: time in the handler\n").expect("there");
    let (run, rest) = run.split_once("\n\n").expect("not the last");
    assert_eq!(Some(run), snapshot.histogram(Stage::Run).map(ToString::to_string).as_deref());
    assert!(rest.starts_with("timer: how late a timer fired\n0 samples\n\n"), "{rest}");
    assert!(rest.ends_with("fin: time in the protocol's end of a connection\n0 samples"), "{rest}");
}

#[test]
fn lines_have_every_name_once_and_nothing_but_numbers() {
    let (counters, histograms) = (Counters::new(), Histograms::new());
    counters.add(Counter::BytesSent, 1234);
    histograms.switch(true);
    histograms.record(Stage::Run, Duration::from_nanos(40));
    let mut snapshot =
        Snapshot { oldest_task_age: Duration::from_micros(1500), ..Snapshot::default() };
    snapshot.absorb(&counters);
    histograms.add_to(&mut snapshot);

    let text = snapshot.to_lines();
    let mut names = HashSet::new();
    for line in text.lines() {
        let (name, value) = line.split_once(' ').expect("two words");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
        assert!(names.insert(name), "{name} is there twice");
    }
    let numbers = snapshot.gauges().count() + Counter::ALL.len();
    assert_eq!(names.len(), numbers + Stage::ALL.len() * (1 + QUANTILES.len()));
    for line in [
        "bytes_sent 1234",
        "tasks_run 0",
        "oldest_task_age_seconds 0.001500000",
        "run_samples 1",
        "run_p999_seconds 0.000000040",
        "timer_max_seconds 0.000000000",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
    let off = Snapshot::default().to_lines();
    assert_eq!(off.lines().count(), numbers);
}

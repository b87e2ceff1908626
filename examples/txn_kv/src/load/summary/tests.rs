//! What is printed.

use std::time::Instant;

use super::super::tally::{Answered, Failure};
use super::*;

fn tally(writes: u64, reads: u64) -> Tally {
    let (mut tally, sent) = (Tally::default(), Instant::now());
    (1..=writes).for_each(|revision| tally.answered(Answered::Write(revision), sent));
    (0..reads).for_each(|_| tally.answered(Answered::Read, sent));
    tally
}

fn printed(summary: &Summary) -> String {
    let mut out = Vec::new();
    summary.print(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_summary_has_its_parts() {
    let summary = Summary::new(tally(1000, 0), Duration::from_secs(2));
    assert!(summary.verdict().is_ok());
    assert_eq!((summary.answers(), summary.writes(), summary.failures()), (1000, 1000, 0));
    let text = printed(&summary);
    for part in
        ["\nSummary:", "Total:        2.00 s", "Slowest:", "Fastest:", "Average:", "Stddev:"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(text.contains("Requests/sec: 500.0\n"), "{text}");
    for percent in ["10", "25", "50", "75", "90", "95", "99", "99.9"] {
        assert!(text.contains(&format!("{percent:>4} % in ")), "{percent} is not in {text}");
    }
}

#[test]
fn reads_and_writes_are_told_apart() {
    let summary = Summary::new(tally(30, 70), Duration::from_secs(1));
    let text = printed(&summary);
    assert!(text.contains("Summary of writes:\n  Requests:     30\n"), "{text}");
    assert!(text.contains("Summary of reads:\n  Requests:     70\n"), "{text}");
    let object = summary.to_json();
    assert_eq!(
        (&object["writes"]["requests"], &object["reads"]["requests"]),
        (&30.into(), &70.into())
    );
    assert_eq!(object["requests_per_second"], 100.0);
    assert!(object["latency_ns"]["p99"].as_u64() >= object["latency_ns"]["p50"].as_u64());
}

#[test]
fn the_first_failure_is_shown() {
    let mut tally = tally(1, 0);
    for text in ["first", "second"] {
        tally.failed(Failure::Wrong(text.to_owned()));
    }
    let summary = Summary::new(tally, Duration::from_secs(1));
    let error = summary.verdict().unwrap_err().to_string();
    assert_eq!(error, "2 wrong answers and 0 errors, the first: first");
    assert!(printed(&summary).ends_with("2 wrong answers, 0 errors; the first:\n  first\n"));
    assert_eq!(summary.to_json()["first_failure"], "first");
}

#[test]
fn no_answer_at_all_is_an_error() {
    let summary = Summary::new(Tally::default(), Duration::ZERO);
    assert_eq!(summary.verdict().unwrap_err().to_string(), "nothing was answered");
    assert!(summary.to_json()["latency_ns"].is_null());
}

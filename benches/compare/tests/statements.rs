//! The suites of statements for a moment, by the program itself, every answer checked.

use std::path::Path;

mod support;

use support::report;

/// The example that some of them measure: built with the tests of the whole workspace. To build it
/// here would take longer than all else.
fn example_is_there() -> bool {
    let example = Path::new(env!("CARGO_BIN_EXE_compare")).with_file_name("select1");
    if !example.exists() {
        eprintln!("skipped: {} is not there", example.display());
    }
    example.exists()
}

#[test]
fn sessions_are_answered_by_all_architectures() {
    if !example_is_there() {
        return;
    }
    let (raw, page) = report("select1");
    for part in ["sqlite", "constant", "one_connection"] {
        let experiments = raw[part]["experiments"].as_array().unwrap();
        assert!(!experiments.is_empty(), "{part}");
        for experiment in experiments {
            let windows = experiment["rounds"][0]["windows"].as_array().unwrap();
            assert_eq!(windows.len(), experiment["lanes"].as_array().unwrap().len());
            for window in windows {
                assert!(window[1]["requests"].as_u64().unwrap() > 0, "{part}: {window}");
            }
        }
    }
    assert!(page.contains("epoll-group, a connection each | old"), "{page}");
}

#[test]
fn points_are_answered_whatever_names_them() {
    if !example_is_there() {
        return;
    }
    let (raw, page) = report("points");
    let windows = raw["experiment"]["rounds"][0]["windows"].as_array().unwrap();
    assert_eq!(windows.len(), raw["lanes"].as_array().unwrap().len());
    assert!(page.contains("| plan, answered with a chunk"), "{page}");
}

#[test]
fn samples_are_shared_out_where_perf_is_allowed_to_take_them() {
    let (raw, page) = report("share");
    let profiles = raw["profiles"].as_array().unwrap();
    if profiles.is_empty() {
        assert!(page.contains("`perf` is missing or not allowed to"), "{page}");
    }
    for profile in profiles {
        let counts = profile["counts"].as_array().unwrap();
        let sum: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(counts.len(), raw["parts"].as_array().unwrap().len());
        assert_eq!(Some(sum), profile["samples"].as_u64());
    }
}

//! The suites of statements for a moment, by the program itself, every answer checked.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

/// A folder of its own, gone with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let name = format!("compare-test-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a suite; returns its raw numbers, and the page.
fn report(suite: &str) -> (Value, String) {
    let folder = Folder::new(suite);
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["--quick", "--only", suite, "--rounds", "1", "--window-ms", "10", "--out"])
        .arg(&folder.0)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(folder.0.join("README.md")).unwrap();
    let raw = fs::read_to_string(folder.0.join(suite).with_extension("json")).unwrap();
    let raw: Value = serde_json::from_str(&raw).unwrap();
    (raw["raw"].clone(), page)
}

#[test]
fn sessions_are_answered_by_all_architectures() {
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

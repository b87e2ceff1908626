//! The report for a moment, by the program itself: all servers of the echo, in windows so short
//! that they say nothing, but with every answer checked.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn compare(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_compare")).args(args).output().unwrap()
}

fn read(folder: &Path, file: &str) -> String {
    fs::read_to_string(folder.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// What stands in the parentheses of links and pictures.
fn links(page: &str) -> Vec<&str> {
    let after = page.split("](").skip(1);
    after.filter_map(|rest| Some(rest.split_once(')')?.0)).collect()
}

#[test]
fn a_report_is_a_page_with_its_charts_and_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().to_str().unwrap();
    fs::create_dir_all(path).unwrap();
    fs::write(folder.path().join("echo-of-old.svg"), "an older chart").unwrap();
    let output = compare(&[
        "--quick",
        "--only",
        "echo",
        "--rounds",
        "2",
        "--window-ms",
        "10",
        "--out",
        path,
    ]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains("echo, 32 connections: 2 rounds"), "{stderr}");

    let page = read(folder.path(), "README.md");
    assert!(String::from_utf8_lossy(&output.stdout).contains("## Echo"));
    for part in
        ["Not for the record", "- [Echo](#echo): ", "## Echo", "| connections | epoll-group |"]
    {
        assert!(page.contains(part), "{part} in {page}");
    }
    let (charts, others): (Vec<_>, Vec<_>) =
        links(&page).into_iter().partition(|link| link.ends_with(".svg"));
    assert_eq!(others, ["#echo", "echo.json"]);
    assert!(charts.contains(&"echo-throughput.svg"), "{charts:?}");
    for chart in charts {
        let text = read(folder.path(), chart);
        assert!(text.starts_with("<svg ") && text.ends_with("</svg>\n"), "{chart}: {text}");
        assert!(text.contains(">\nepoll-group\n</text>"), "{chart}: {text}");
    }
    assert!(!folder.path().join("echo-of-old.svg").exists());

    let raw: Value = serde_json::from_str(&read(folder.path(), "echo.json")).unwrap();
    assert_eq!(raw["suite"], "echo");
    assert_eq!(raw["plan"]["cycles"], 2);
    let experiments = raw["raw"]["servers"]["experiments"].as_array().unwrap();
    assert_eq!(experiments.len(), 2);
    for experiment in experiments {
        for lane in experiment["lanes"].as_array().unwrap() {
            assert!(lane["resident_bytes"][0].as_u64().unwrap() > 100_000, "{lane}");
        }
        for round in experiment["rounds"].as_array().unwrap() {
            for window in round["windows"].as_array().unwrap() {
                assert!(window[1]["requests"].as_u64().unwrap() >= 32, "{window}");
            }
        }
    }
}

#[test]
fn options_that_make_no_sense_together_are_named() {
    for (args, named) in [
        (&["--only", "nothing"][..], "nothing"),
        (&["--pipeline", "2"], "--pipeline"),
        (&["--pairs", "2"], "--pairs"),
        (&["--scenario", "cpu", "--rounds", "5"], "--rounds"),
        (&["--rounds", "0"], "--rounds 0"),
    ] {
        let output = compare(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {stderr}");
        assert!(stderr.contains(named), "{args:?}: {stderr}");
    }
}

#[test]
fn help_lists_the_suites() {
    let output = compare(&["--help"]);
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("\n  echo "), "{text}");
}

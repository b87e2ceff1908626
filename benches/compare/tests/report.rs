//! Suites by the program itself, in windows so short that they say nothing, but with every answer checked.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

struct Report {
    folder: TempDir,
    stdout: String,
    stderr: String,
}

impl Report {
    /// One round of windows, long enough for each server to get a CPU on a busy machine.
    fn of(what: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_compare"))
            .args(["--quick", "--rounds", "1", "--window-ms", "100"])
            .args(what)
            .arg("--out")
            .arg(folder.path())
            .output()
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let (stdout, stderr) = (text(stdout), text(stderr));
        assert!(status.success(), "{stderr}");
        Self { folder, stdout, stderr }
    }

    fn page(&self) -> String {
        fs::read_to_string(self.folder.path().join("README.md")).unwrap()
    }

    /// Numbers of a suite.
    fn raw(&self, suite: &str) -> Value {
        let text = fs::read_to_string(self.folder.path().join(suite).with_extension("json"));
        let raw: Value = serde_json::from_str(&text.unwrap()).unwrap();
        assert_eq!(raw["suite"], suite);
        assert_eq!(raw["plan"]["cycles"], 1);
        raw["raw"].clone()
    }
}

/// The servers of an experiment, and what each answered in its first window.
fn requests(experiment: &Value) -> Vec<(&str, u64)> {
    let lanes = experiment["lanes"].as_array().unwrap();
    let windows = experiment["rounds"][0]["windows"].as_array().unwrap();
    assert_eq!(windows.len(), lanes.len());
    let requests = |window: &Value| window[1]["requests"].as_u64().unwrap();
    let of_lane = |window: &Value| lanes[window[0].as_u64().unwrap() as usize]["server"].as_str();
    windows.iter().map(|window| (of_lane(window).unwrap(), requests(window))).collect()
}

/// The report and the numbers of a suite. Every server has answered in each experiment.
fn answered(suite: &str) -> (Report, Value) {
    let report = Report::of(&["--only", suite]);
    let raw = report.raw(suite);
    let experiments = raw["experiments"].as_array().unwrap();
    assert!(!experiments.is_empty());
    for experiment in experiments {
        for (server, requests) in requests(experiment) {
            assert!(requests > 0, "{}: {server}", experiment["name"]);
        }
    }
    (report, raw)
}

#[test]
fn a_report_is_a_page_with_tables_and_its_numbers() {
    let (report, raw) = answered("echo");
    let page = report.page();
    assert!(report.stdout.contains("## Echo"));
    assert!(report.stderr.contains("echo, suite 1 of 1"), "{}", report.stderr);
    for part in [
        "Not for the record",
        "- [Echo](#echo): ",
        "## Echo",
        "| epoll-group ",
        "raw numbers: [echo.json](echo.json).",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
    for lane in raw["experiments"][0]["lanes"].as_array().unwrap() {
        assert!(lane["memory"][0]["resident"].as_u64().unwrap() > 100_000, "{lane}");
    }
}

#[test]
fn any_servers_are_compared_under_any_load() {
    let load = ["--connections", "3,4", "--sessions", "2", "--pipeline", "2", "--size", "100"];
    let report = Report::of(
        &[&["--servers", "limit:1,uv:1", "--think-us", "10", "--heavy", "1:50"], &load[..]]
            .concat(),
    );
    let raw = report.raw("servers");
    assert_eq!(raw["experiments"].as_array().unwrap().len(), 2);
    for window in raw["experiments"][0]["rounds"][0]["windows"].as_array().unwrap() {
        assert!(window[1]["heavy_requests"].as_u64().unwrap() > 0, "{window}");
    }
    assert!(report.page().contains("think 10 µs"));
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn sessions_are_answered_by_all_architectures() {
    let (report, _) = answered("select1");
    assert!(report.page().contains("| epoll-group, a connection each |"));
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn points_are_answered_whatever_names_them() {
    let (report, _) = answered("points");
    assert!(report.page().contains("plan, answered with a chunk"));
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn published_cells_stand_beside_those_of_today() {
    let (report, _) = answered("published");
    assert!(report.page().contains("| 256         | libeasy sync 64       | 2556187  | 0.96 "));
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn scans_and_transactions_are_answered_by_all_architectures() {
    let (report, raw) = answered("large");
    assert_eq!(raw["experiments"].as_array().unwrap().len(), 5);
    assert!(report.page().contains("| proxy, transactions, 4 sessions "));
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn statements_are_answered_through_the_proxy_too() {
    let (_, raw) = answered("sharded");
    assert_eq!(raw["experiments"].as_array().unwrap().len(), 3);
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn everybody_answers_beside_a_hot_connection() {
    answered("hot");
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn requests_at_their_own_times_are_answered() {
    let (report, _) = answered("paced");
    assert!(report.page().contains("### 64 x 1, bursts of 8 each 1000 µs, burn 20 µs"));
}

#[test]
fn connections_that_come_and_go_are_answered() {
    let (report, _) = answered("churn");
    assert!(report.page().contains("| connections/s |"));
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn everybody_answers_beside_slow_links() {
    answered("slow_links");
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn quiet_connections_are_there_in_the_end() {
    let (report, _) = answered("many");
    assert!(report.page().contains("| bytes/connection |"));
}

#[test]
#[ignore = "a whole suite takes seconds of CPU time: for `.ci/run full`"]
fn work_is_shared_out_over_more_threads() {
    answered("scaling");
}

#[test]
fn samples_are_shared_out_where_perf_is_allowed_to_take_them() {
    let report = Report::of(&["--only", "share"]);
    let raw = report.raw("share");
    let profiles = raw["profiles"].as_array().unwrap();
    if profiles.is_empty() {
        assert!(report.page().contains("`perf` is missing or not allowed to"));
    }
    for profile in profiles {
        let counts = profile["counts"].as_array().unwrap();
        let sum: u64 = counts.iter().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(counts.len(), raw["parts"].as_array().unwrap().len());
        assert_eq!(Some(sum), profile["samples"].as_u64());
    }
}

/// The other servers may be too slow to answer in so short a time.
#[test]
fn a_server_whose_threads_all_wait_hangs_and_the_report_says_so() {
    let report = Report::of(&["--only", "locks"]);
    let (raw, page) = (report.raw("locks"), report.page());
    assert!(raw["releases"].as_array().unwrap().iter().all(|one| one["server"].is_string()));
    for (server, requests) in requests(&raw["experiments"][0]) {
        assert!(server != "limit" || requests == 0, "{page}");
    }
    let row = page.lines().find(|line| line.starts_with("| limit ")).unwrap();
    assert!(row.contains("hangs"), "{page}");
}

#[test]
fn pools_keep_their_bounds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("pool.json");
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args(["pool", "--quick", "--rounds", "2", "--window-ms", "100", "--json"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let raw: Value = serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap();
    assert_eq!(raw["cells"].as_array().unwrap().len(), 1);
    for lane in raw["cells"][0]["designs"].as_array().unwrap() {
        assert_eq!(lane["windows"].as_array().unwrap().len(), 2, "{lane}");
    }
}

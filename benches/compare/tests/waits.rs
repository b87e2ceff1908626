//! The suites in which requests wait, or connections are slow, hot or many: by the program itself, in
//! windows so short that they say nothing, but with every answer checked.

use serde_json::Value;

mod support;

use support::report;

/// The servers of an experiment, and what they answered in the first window of each.
fn requests(experiment: &Value) -> Vec<(&str, u64)> {
    let lanes = experiment["lanes"].as_array().unwrap();
    let windows = experiment["rounds"][0]["windows"].as_array().unwrap();
    let requests = |window: &Value| window[1]["requests"].as_u64().unwrap();
    let of_lane = |window: &Value| lanes[window[0].as_u64().unwrap() as usize]["server"].as_str();
    windows.iter().map(|window| (of_lane(window).unwrap(), requests(window))).collect()
}

#[test]
fn everybody_answers_beside_a_hot_connection() {
    let (raw, _) = report("hot");
    for experiment in raw["experiments"].as_array().unwrap() {
        for (server, requests) in requests(experiment) {
            assert!(requests > 0, "{server}: {requests}");
        }
    }
}

#[test]
fn everybody_answers_beside_slow_links() {
    let (raw, _) = report("slow_links");
    for (server, requests) in requests(&raw["experiments"][0]) {
        assert!(requests > 0, "{server}: {requests}");
    }
}

#[test]
fn quiet_connections_are_there_in_the_end() {
    let (raw, page) = report("many");
    assert!(page.contains("| bytes/connection |"), "{page}");
    for (server, requests) in requests(&raw["experiments"][0]) {
        assert!(requests > 0, "{server}: {requests}");
    }
}

/// Whether the others answer in so short a time is not asked.
#[test]
fn a_server_whose_threads_all_wait_hangs_and_the_report_says_so() {
    let (raw, page) = report("locks");
    assert!(page.contains("| limit "), "{page}");
    assert!(raw["releases"].as_array().unwrap().iter().all(|one| one["server"].is_string()));
    for (server, requests) in requests(&raw["experiments"][0]) {
        if server == "limit" {
            assert_eq!(requests, 0, "{page}");
        }
    }
    let row = page.lines().find(|line| line.starts_with("| limit ")).unwrap();
    assert!(row.contains("hangs"), "{page}");
}

//! What a scenario prints.

use super::{BASE, Check, Target};
use crate::experiment::{Measured, Window};
use crate::idle::Idle;
use crate::table::{Table, or_dash, time};

pub(super) fn measured_table(experiments: &[Measured]) -> Table {
    let mut table = Table::new(&[
        "server",
        "load",
        "requests/s",
        "ratio",
        "CPU/request",
        "ratio",
        "p50",
        "p99",
        "ratio",
        "p99.9",
        "ratio",
        "switches/request",
        "syscalls/request",
    ]);
    for measured in experiments {
        for (place, lane) in measured.lanes.iter().enumerate() {
            let median = |metric: fn(&Window) -> f64| {
                let spread = measured.values(place, metric);
                spread.map_or(f64::NAN, |spread| spread.median)
            };
            let ratio = |metric: fn(&Window) -> f64| {
                let spread = (place != BASE).then(|| measured.ratio(place, BASE, metric));
                or_dash(spread.flatten().map(|spread| spread.to_string()))
            };
            table.row(vec![
                lane.server.clone(),
                lane.load.clone(),
                format!("{:.0}", median(|window| window.requests_per_second)),
                ratio(|window| window.requests_per_second),
                time(median(|window| window.server_cpu_per_request)),
                ratio(|window| window.server_cpu_per_request),
                time(median(|window| window.p50 as f64)),
                time(median(|window| window.p99 as f64)),
                ratio(|window| window.p99 as f64),
                time(median(|window| window.p999 as f64)),
                ratio(|window| window.p999 as f64),
                format!(
                    "{:.3} + {:.3}",
                    median(|window| window.voluntary_switches_per_request),
                    median(|window| window.involuntary_switches_per_request)
                ),
                or_dash(lane.syscalls().map(|calls| format!("{:.2}", calls.median))),
            ]);
        }
    }
    table
}

pub(super) fn idle_table(idle: &[Idle]) -> Table {
    let mut table = Table::new(&[
        "server",
        "connections",
        "resident before, KiB",
        "after",
        "closed again",
        "bytes/connection",
    ]);
    for idle in idle {
        let kib = |bytes: u64| (bytes / 1024).to_string();
        table.row(vec![
            idle.server.clone(),
            idle.connections.to_string(),
            kib(idle.resident_before),
            kib(idle.resident_after),
            kib(idle.resident_closed),
            format!("{:.0}", idle.bytes_per_connection()),
        ]);
    }
    table
}

pub(super) fn check_table(checks: &[Check]) -> Table {
    let mut table = Table::new(&["number", "found", "floor (twin)", "target", "met"]);
    for check in checks {
        table.row(vec![
            check.what.clone(),
            or_dash(check.found.map(|found| found.to_string())),
            or_dash(check.floor.map(|floor| floor.to_string())),
            match check.target {
                Target::AtMost(limit) => format!("≤ {limit}"),
                Target::AtLeast(limit) => format!("≥ {limit}"),
                Target::Seen => or_dash(None),
            },
            match check.is_met() {
                Some(true) => "yes".to_owned(),
                Some(false) => "NO".to_owned(),
                None if check.found.is_some() => or_dash(None),
                None => "not measured".to_owned(),
            },
        ]);
    }
    table
}

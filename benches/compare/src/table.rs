//! Tables of servers: a row for each, a column for each number.

use lab::ratio::Spread;
use lab::table::markdown;
use lab::units::Nanos;

use crate::measured::{Measured, Window};

/// A column: its heading, and the text of a lane.
pub type Column<'a> = (&'a str, &'a dyn Fn(&Measured, usize) -> Option<String>);

/// A number of a window.
pub type Metric = fn(&Window) -> f64;

pub const THROUGHPUT: Metric = |window| window.requests_per_second;
/// Nanoseconds of the server's CPU time per request.
pub const CPU: Metric = |window| window.server_cpu_per_request;
/// Nanoseconds.
pub const MEDIAN: Metric = |window| window.p50 as f64;
/// Nanoseconds.
pub const P99: Metric = |window| window.p99 as f64;

const MIB: f64 = (1 << 20) as f64;
const OURS: usize = 0;
/// Cell of a server that did not answer any more.
pub const HANGS: &str = "hangs";

pub const REQUESTS: Column<'static> =
    ("requests/s", &|measured, lane| number(measured, lane, THROUGHPUT));
pub const REQUESTS_RATIO: Column<'static> =
    ("ratio to the first", &|measured, lane| ratio(measured, lane, THROUGHPUT));
pub const CPU_EACH: Column<'static> =
    ("CPU/request", &|measured, lane| duration(measured, lane, CPU));
pub const CPU_RATIO: Column<'static> =
    ("CPU, ratio to the first", &|measured, lane| ratio(measured, lane, CPU));
pub const P50: Column<'static> = ("p50", &|measured, lane| duration(measured, lane, MEDIAN));
pub const P50_RATIO: Column<'static> =
    ("p50, ratio to the first", &|measured, lane| ratio(measured, lane, MEDIAN));
pub const P99_EACH: Column<'static> = ("p99", &|measured, lane| duration(measured, lane, P99));
pub const P99_RATIO: Column<'static> =
    ("p99, ratio to the first", &|measured, lane| ratio(measured, lane, P99));
pub const P999: Column<'static> =
    ("p99.9", &|measured, lane| duration(measured, lane, |window| window.p999 as f64));
/// Switches of threads that had nothing to do, and of threads that another one replaced.
pub const SWITCHES: Column<'static> = ("switches/request", &|measured, lane| {
    let voluntary = answered(measured, lane, |window| window.voluntary_switches_per_request)?;
    let involuntary = answered(measured, lane, |window| window.involuntary_switches_per_request)?;
    Some(format!("{:.3} + {:.3}", voluntary.median, involuntary.median))
});
pub const WAKEUPS: Column<'static> = ("wake-ups/request", &|measured, lane| {
    let counted = Spread::of(measured.lanes[lane].wakeups_per_request.clone())?;
    Some(format!("{:.3}", counted.median))
});
pub const SYSCALLS: Column<'static> = ("system calls/request", &|measured, lane| {
    let counted = Spread::of(measured.lanes[lane].syscalls_per_request.clone())?;
    Some(format!("{:.2}", counted.median))
});
pub const THREADS: Column<'static> = ("threads", &|measured, lane| {
    Some(format!("{:.0}", measured.values(lane, |window| window.threads as f64)?.median))
});
pub const RESIDENT: Column<'static> = ("MiB", &|measured, lane| {
    Some(format!("{:.1}", measured.lanes[lane].memory(|memory| memory.resident)? / MIB))
});
pub const PEAK: Column<'static> = ("most memory, MiB", &|measured, lane| {
    Some(format!("{:.1}", measured.lanes[lane].memory(|memory| memory.peak)? / MIB))
});

/// Columns of most suites.
pub const USUAL: [Column<'static>; 10] = [
    REQUESTS, CPU_EACH, CPU_RATIO, P50, P99_EACH, P99_RATIO, SWITCHES, WAKEUPS, SYSCALLS, RESIDENT,
];

/// A row for each server.
pub fn servers(measured: &Measured, columns: &[Column<'_>]) -> String {
    let mut heading = vec!["server"];
    heading.extend(columns.iter().map(|(heading, _)| *heading));
    let mut table = markdown(&heading);
    for (lane, found) in measured.lanes.iter().enumerate() {
        let mut row = vec![found.server.clone()];
        row.extend(columns.iter().map(|(_, cell)| or_dash(cell(measured, lane))));
        table.add_row(row);
    }
    table.to_string()
}

/// Median of a metric; `hangs` if a window has no answers.
pub fn number(measured: &Measured, lane: usize, metric: Metric) -> Option<String> {
    let found = answered(measured, lane, metric);
    Some(found.map_or_else(|| HANGS.to_owned(), |spread| format!("{:.0}", spread.median)))
}

/// Median of a metric in nanoseconds.
pub fn duration(measured: &Measured, lane: usize, metric: Metric) -> Option<String> {
    Some(time(answered(measured, lane, metric)?.median))
}

/// Ratio to the first lane.
pub fn ratio(measured: &Measured, lane: usize, metric: Metric) -> Option<String> {
    answered(measured, OURS, metric)?;
    answered(measured, lane, metric)?;
    match lane {
        OURS => Some("1".to_owned()),
        _ => Some(measured.ratio(lane, OURS, metric)?.ratio().to_string()),
    }
}

/// Nanoseconds with three digits and a unit.
pub fn time(nanos: f64) -> String {
    Nanos(nanos).to_string()
}

/// A dash for an unknown number.
pub fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".to_owned())
}

/// `None` if there is a window without answers.
fn answered(measured: &Measured, lane: usize, metric: Metric) -> Option<Spread> {
    let least = measured.values(lane, |window| window.requests as f64)?.min;
    if least > 0.0 { measured.values(lane, metric) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::measured;

    #[test]
    fn a_table_has_a_row_for_each_server_and_says_what_is_a_tie() {
        let found = measured(&[[100.0; 5], [97.0, 99.0, 101.0, 102.0, 103.0], [150.0; 5]]);
        let table = servers(&found, &[REQUESTS, CPU_EACH, CPU_RATIO, P99_EACH, SYSCALLS, WAKEUPS]);
        let rows: Vec<_> = table.lines().skip(2).map(|line| line.replace(' ', "")).collect();
        assert_eq!(rows[0], "|a|10000|100ns|1|2.00µs|2.50|–|");
        assert_eq!(rows[1], "|b|10000|101ns|1.01[0.97–1.03]tie|2.00µs|2.50|–|");
        assert_eq!(rows[2], "|c|10000|150ns|1.50[1.50–1.50]|2.00µs|2.50|–|");
    }

    #[test]
    fn a_server_without_answers_hangs() {
        let mut found = measured(&[[100.0; 5], [100.0; 5]]);
        found.rounds[0].windows[1].1.requests = 0;
        let table = servers(&found, &[REQUESTS, P99_EACH, P99_RATIO, THREADS]);
        assert!(
            table.lines().last().unwrap().replace(' ', "").ends_with("|hangs|–|–|1|"),
            "{table}"
        );
    }
}

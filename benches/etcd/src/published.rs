//! The published measurement of `txn-put`, beside the same loads here.

use lab::drive::Until;
use lab::table;

use crate::load::{Load, Op};
use crate::report::{Outcome, mean_ms, rate};

/// One published load. All have keys of 8 bytes and values of 256.
struct Row {
    clients: usize,
    keys: u64,
    /// Requests of all clients together.
    total: u64,
    /// Requests per second, and milliseconds of one on average: of Xline, and of etcd.
    published: [(u32, f64); 2],
}

const fn row(clients: usize, total: u64, keys: u64, published: [(u32, f64); 2]) -> Row {
    Row { clients, keys, total, published }
}

const ROWS: [Row; 10] = [
    row(1, 2_000, 1, [(324, 3.1), (936, 1.1)]),
    row(10, 10_000, 1, [(2_768, 3.6), (3_342, 3.0)]),
    row(50, 20_000, 1, [(5_430, 9.2), (12_219, 4.1)]),
    row(100, 20_000, 1, [(5_499, 18.1), (25_642, 3.9)]),
    row(200, 30_000, 1, [(5_486, 36.3), (16_738, 11.9)]),
    row(1, 2_000, 100_000, [(332, 3.0), (813, 1.2)]),
    row(10, 10_000, 100_000, [(2_700, 3.7), (4_035, 2.5)]),
    row(50, 20_000, 100_000, [(5_471, 9.1), (13_525, 3.7)]),
    row(100, 20_000, 100_000, [(5_563, 17.9), (24_239, 4.1)]),
    row(200, 30_000, 100_000, [(5_530, 36.1), (30_864, 6.5)]),
];

const TEXT: &str = "\
Published are Xline and etcd on other machines, so times do not compare, but ratios to etcd do. Here a row is
measured in windows of as many requests, and numbers are medians of the windows.";

/// Loads of the table.
pub(crate) fn loads() -> Vec<Load> {
    ROWS.iter().map(|&Row { clients, keys, .. }| Load { op: Op::Put, clients, keys }).collect()
}

/// End of a window of this load, if the table has it.
pub(crate) fn until(load: Load) -> Option<Until> {
    find(load).map(|row| Until::Requests(row.total))
}

/// Returns the published table, with the numbers of here.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let mut table = table::markdown(&[
        "clients",
        "total",
        "keys",
        "Xline/s, published",
        "ms",
        "etcd/s, published",
        "ms",
        "Xline : etcd, published",
        "txn_kv/s, here",
        "ms",
        "etcd/s, here",
        "ms",
        "txn_kv : etcd, here",
    ]);
    for outcome in outcomes {
        let Some(Row { clients, keys, total, published }) = find(outcome.load) else { continue };
        let [(xline, xline_ms), (etcd, etcd_ms)] = published;
        let (ours, other) = outcome.windows();
        table.add_row([
            clients.to_string(),
            total.to_string(),
            keys.to_string(),
            xline.to_string(),
            format!("{xline_ms:.1}"),
            etcd.to_string(),
            format!("{etcd_ms:.1}"),
            format!("{:.2}", f64::from(*xline) / f64::from(*etcd)),
            rate(&ours),
            mean_ms(&ours),
            rate(&other),
            mean_ms(&other),
            outcome.ratio(|window| window.per_second),
        ]);
    }
    format!("## As published\n\n{TEXT}\n\n{table}")
}

fn find(load: Load) -> Option<&'static Row> {
    let same = |row: &&Row| (row.clients, row.keys) == (load.clients, load.keys);
    ROWS.iter().find(same).filter(|_| load.op == Op::Put)
}

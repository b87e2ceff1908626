//! Results as Markdown and as JSON.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::Command;

use lab::environment::Environment;
use lab::ratio::{Spread, median};
use lab::table::{self, Table};
use serde::Serialize;

use crate::args::Options;
use crate::load::Load;
use crate::measure::{Pair, Window};
use crate::published;

/// All results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    environment: Environment,
    disk: String,
    etcd: String,
    published: bool,
    pub(crate) outcomes: Vec<Outcome>,
}

/// A load, and the pairs of windows under it.
#[derive(Debug, Serialize)]
pub(crate) struct Outcome {
    pub(crate) load: Load,
    pub(crate) pairs: Vec<Pair>,
}

const COMPARABLE: &str = include_str!("comparable.md");
const NONE: &str = "–";

impl Report {
    /// Begins a report for the etcd of the options, with the data in their folder.
    pub(crate) fn new(options: &Options) -> Self {
        let Options { etcd, folder, published, .. } = options;
        let started_by = "cargo run --release --manifest-path benches/etcd/Cargo.toml";
        let disk =
            said(Command::new("findmnt").args(["-no", "FSTYPE,OPTIONS,SOURCE", "-T"]).arg(folder));
        let etcd = said(Command::new(etcd).arg("--version"));
        Self {
            environment: Environment::of(started_by),
            disk: disk.split_whitespace().collect::<Vec<_>>().join(" "),
            etcd: etcd.replace('\n', ", "),
            published: *published,
            outcomes: Vec::new(),
        }
    }

    /// Returns the page.
    pub(crate) fn page(&self) -> String {
        let Self { environment, disk, etcd, .. } = self;
        let tables = self.tables();
        format!(
            "# txn_kv beside a single-node etcd\n\n{environment}- disk: {disk}\n- etcd: {etcd}\n- client \
             of etcd: etcd-client 0.21 on tokio\n\n{tables}\n\n{COMPARABLE}"
        )
    }

    /// Returns the tables alone.
    pub(crate) fn tables(&self) -> String {
        let filled = |columns: &[&str], row: fn(&Outcome) -> Vec<String>| -> Table {
            let heading: Vec<_> =
                ["load", "clients", "keys"].iter().chain(columns).copied().collect();
            let mut table = table::markdown(&heading);
            table.add_rows(self.outcomes.iter().map(row));
            table
        };
        let speed = filled(
            &["txn_kv/s", "etcd/s", "txn_kv : etcd", "txn_kv p50 / p99 ms", "etcd p50 / p99 ms"],
            Outcome::speed,
        );
        let cost = filled(
            &[
                "txn_kv µs",
                "etcd µs",
                "txn_kv : etcd",
                "load µs, txn_kv",
                "load µs, etcd",
                "per flush, txn_kv",
                "per flush, etcd",
            ],
            Outcome::cost,
        );
        let published =
            if self.published { published::table(&self.outcomes) + "\n\n" } else { String::new() };
        format!("{published}## Speed\n\n{speed}\n\n## Cost\n\n{cost}\n\n{}", self.checks())
    }

    /// # Errors
    ///
    /// An answer was wrong or an error.
    pub(crate) fn verdict(&self) -> Result<(), Box<dyn Error>> {
        let pairs = self.outcomes.iter().flat_map(|outcome| &outcome.pairs);
        let mut windows = pairs.flat_map(|pair| pair.txn_kv.iter().chain([&pair.etcd]));
        match windows.find(|window| window.wrong + window.errors > 0) {
            Some(Window { wrong, errors, .. }) => {
                Err(format!("a window has {wrong} wrong answers and {errors} errors").into())
            }
            None => Ok(()),
        }
    }

    /// Returns a sentence for each server that tells if its answers were right.
    fn checks(&self) -> String {
        let pairs = || self.outcomes.iter().flat_map(|outcome| &outcome.pairs);
        let ours: Vec<_> = pairs().filter_map(|pair| pair.txn_kv.as_ref()).collect();
        let sentences = [("txn_kv", ours), ("etcd", pairs().map(|pair| &pair.etcd).collect())];
        let sentence = |(name, windows): (&str, Vec<&Window>)| {
            let sum = |field: fn(&Window) -> u64| windows.iter().map(|window| field(window)).sum();
            let [answers, read_back, wrong, errors]: [u64; 4] = [
                sum(|window| window.requests),
                sum(|window| window.read_back),
                sum(|window| window.wrong),
                sum(|window| window.errors),
            ];
            let first = windows.iter().find_map(|window| window.first_error.as_deref());
            let first = first.map(|error| format!(" ({error})")).unwrap_or_default();
            format!(
                "{name}: {answers} answers, all checked, and {read_back} keys read back after their \
                 puts: {wrong} wrong, {errors} errors{first}."
            )
        };
        sentences.map(sentence).join("  \n")
    }

    /// Writes `README.md` and `windows.json`.
    pub(crate) fn write(&self, folder: &Path) -> std::io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("README.md"), self.page())?;
        fs::write(folder.join("windows.json"), serde_json::to_string(self)? + "\n")
    }
}

impl Outcome {
    fn speed(&self) -> Vec<String> {
        let latency = |windows: &[&Window]| {
            let millis = |field: fn(&Window) -> f64| of(windows, field) / 1000.0;
            match windows {
                [] => NONE.to_owned(),
                _ => format!(
                    "{:.2} / {:.2}",
                    millis(|window| window.p50_us),
                    millis(|window| window.p99_us)
                ),
            }
        };
        let (ours, etcd) = self.windows();
        let ratio = self.ratio(|window| window.per_second);
        self.row([rate(&ours), rate(&etcd), ratio, latency(&ours), latency(&etcd)])
    }

    fn cost(&self) -> Vec<String> {
        let (ours, etcd) = self.windows();
        let flushed = |windows: &[&Window]| {
            if windows.is_empty() || !self.load.op.writes() {
                return NONE.to_owned();
            }
            let each = |window: &Window| window.requests as f64 / window.flushes.max(1) as f64;
            format!("{:.1}", of(windows, each))
        };
        self.row([
            whole(&ours, |window| window.server_cpu_us),
            whole(&etcd, |window| window.server_cpu_us),
            self.ratio(|window| window.server_cpu_us),
            whole(&ours, |window| window.client_cpu_us),
            whole(&etcd, |window| window.client_cpu_us),
            flushed(&ours),
            flushed(&etcd),
        ])
    }

    fn row<const N: usize>(&self, cells: [String; N]) -> Vec<String> {
        let Load { op, clients, keys } = self.load;
        let head = [op.name().to_owned(), clients.to_string(), keys.to_string()];
        head.into_iter().chain(cells).collect()
    }

    pub(crate) fn windows(&self) -> (Vec<&Window>, Vec<&Window>) {
        let ours = self.pairs.iter().filter_map(|pair| pair.txn_kv.as_ref()).collect();
        (ours, self.pairs.iter().map(|pair| &pair.etcd).collect())
    }

    pub(crate) fn ratio(&self, field: fn(&Window) -> f64) -> String {
        let pairs = self.pairs.iter();
        let ratios =
            pairs.filter_map(|pair| Some(field(pair.txn_kv.as_ref()?) / field(&pair.etcd)));
        let ratios = ratios.filter(|ratio| *ratio > 0.0);
        let spread = Spread::of(ratios.collect());
        spread.map_or_else(|| NONE.to_owned(), |spread| spread.ratio().to_string())
    }
}

/// Returns the output of a program, or `unknown`.
fn said(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.unwrap_or_else(|| "unknown".to_owned())
}

fn of(windows: &[&Window], field: impl Fn(&Window) -> f64) -> f64 {
    median(windows.iter().map(|window| field(window)))
}

/// Requests per second.
pub(crate) fn rate(windows: &[&Window]) -> String {
    whole(windows, |window| window.per_second)
}

/// Milliseconds of a request on average.
pub(crate) fn mean_ms(windows: &[&Window]) -> String {
    match windows {
        [] => NONE.to_owned(),
        _ => format!("{:.1}", of(windows, |window| window.mean_us / 1000.0)),
    }
}

fn whole(windows: &[&Window], field: fn(&Window) -> f64) -> String {
    if windows.is_empty() { NONE.to_owned() } else { format!("{:.0}", of(windows, field)) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::load::Op;

    fn window(per_second: f64) -> Window {
        Window { requests: 100, per_second, flushes: 50, p99_us: 1500.0, ..Window::default() }
    }

    fn report(txn_kv: Option<Window>) -> Report {
        let load = Load { op: Op::Put, clients: 10, keys: 1 };
        let pairs = vec![Pair { txn_kv, etcd: window(1000.0) }];
        let options = Options::parse_from(["etcd-compare", "--etcd", "etcd", "--published"]);
        let mut report = Report::new(&options);
        report.outcomes.push(Outcome { load, pairs });
        report
    }

    /// Cells of each line of the tables.
    fn cells(tables: &str) -> impl Iterator<Item = Vec<&str>> {
        tables.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
    }

    #[test]
    fn a_row_has_both_sides_and_their_ratio() {
        let tables = report(Some(window(3000.0))).tables();
        let row =
            ["put", "10", "1", "3000", "1000", "3.00 [3.00–3.00]", "0.00 / 1.50", "0.00 / 1.50"];
        assert!(cells(&tables).any(|cells| cells == row), "{tables}");
        assert!(cells(&tables).any(|cells| cells.ends_with(&["2.0", "2.0"])), "{tables}");
        let published = ["10", "10000", "1", "2768", "3.6", "3342", "3.0", "0.83"];
        let here = ["3000", "0.0", "1000", "0.0", "3.00 [3.00–3.00]"];
        let row = [&published[..], &here].concat();
        assert!(cells(&tables).any(|cells| cells == row), "{tables}");
    }

    #[test]
    fn etcd_alone_leaves_its_places_empty() {
        let tables = report(None).tables();
        let row = ["put", "10", "1", "–", "1000", "–", "–", "0.00 / 1.50"];
        assert!(cells(&tables).any(|cells| cells == row), "{tables}");
    }

    #[test]
    fn windows_without_answers_make_no_ratio() {
        let tables = report(Some(window(0.0))).tables();
        let row = ["put", "10", "1", "0", "1000", "–", "0.00 / 1.50", "0.00 / 1.50"];
        assert!(cells(&tables).any(|cells| cells == row), "{tables}");
    }

    #[test]
    fn errors_are_told_with_the_first_of_them() {
        let first_error = Some("broken".to_owned());
        let report = report(Some(Window { errors: 2, first_error, ..window(1.0) }));
        let tables = report.tables();
        assert!(tables.contains("0 wrong, 2 errors (broken)."), "{tables}");
        let error = report.verdict().unwrap_err().to_string();
        assert_eq!(error, "a window has 0 wrong answers and 2 errors");
    }
}

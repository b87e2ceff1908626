//! What is printed, and what is kept.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use super::BASE;
use super::comparison::{Comparison, Window};
use super::environment::Environment;
use crate::args::Designs as Args;
use crate::units::{Count, Nanos};

const COLUMNS: [(&str, usize); 9] = [
    ("revisions", 9),
    ("keys", 7),
    ("level", 7),
    ("design", 15),
    ("puts/s", 8),
    ("of publish", 10),
    ("ratio", 20),
    ("CPU/put", 8),
    ("ratio", 20),
];

/// Says what is compared, and begins the table.
pub(super) fn heading(args: &Args, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}\n", method(args))?;
    writeln!(out, "{}", line(COLUMNS.map(|(name, _)| name.to_owned())))?;
    out.flush()
}

pub(super) fn row(comparison: &Comparison, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}", line(cells(comparison)))?;
    out.flush()
}

/// Writes a page for people and the windows for programs.
///
/// # Errors
///
/// There is no place for them.
pub(super) fn write(args: &Args, all: &[Comparison], folder: &Path) -> Result<(), Box<dyn Error>> {
    let environment = Environment::of(super::STARTED_BY);
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("README.md"), page(args, all, &environment)?)?;
    let object = json!({
        "environment": serde_json::to_value(&environment)?,
        "clients": args.clients,
        "value_bytes": args.value_bytes,
        "growing": args.growing,
        "engine": engine(args),
        "comparisons": all.iter().map(Comparison::to_json).collect::<Vec<_>>(),
    });
    std::fs::write(folder.join("designs.json"), format!("{object:#}\n"))?;
    Ok(())
}

fn page(
    args: &Args,
    all: &[Comparison],
    environment: &Environment,
) -> Result<String, std::fmt::Error> {
    let mut page = format!("# In which order data and index are written\n\n{environment}\n");
    writeln!(page, "{}\n", method(args))?;
    let names = COLUMNS.map(|(name, _)| name);
    writeln!(page, "| {} |\n|{}", names.join(" | "), "---|".repeat(names.len()))?;
    for comparison in all {
        writeln!(page, "| {} |", cells(comparison).map(|cell| cell.trim().to_owned()).join(" | "))?;
    }
    writeln!(page, "\nThe windows are in [designs.json](designs.json).")?;
    Ok(page)
}

fn method(args: &Args) -> String {
    let Args { clients, value_bytes, growing, pairs, window, .. } = args;
    let (engine, growing) = (engine(args), Count(*growing as f64));
    let window = Nanos::of(*window);
    format!(
        "Puts of {value_bytes} bytes by {clients} threads (level store) or sessions (level network), \
         {engine}, each design beside {BASE}: {pairs} pairs of windows of {window} in the order \
         A B, B A, ...\nA ratio is the median of those of neighbours, with the interval that holds \
         the true one with 95 % confidence;\na tie differs by less than a tenth, or has 1 in the \
         interval. CPU time is that of store and load together.\nBetween windows, history beyond \
         the revisions that each key began with is forgotten. Where they grow, each\nwindow is \
         {growing} puts to one key of a new store."
    )
}

fn engine(args: &Args) -> &'static str {
    if args.disk { "on disk" } else { "in memory" }
}

fn cells(comparison: &Comparison) -> [String; 9] {
    let ([base_rate, rate], rate_ratio) = comparison.of(Window::per_second);
    let ([_, cpu], cpu_ratio) = comparison.of(Window::cpu_each);
    [
        comparison.case.to_string(),
        comparison.case.keys.to_string(),
        comparison.level.to_string(),
        comparison.design.to_string(),
        Count(rate.round()).to_string(),
        Count(base_rate.round()).to_string(),
        rate_ratio.to_string(),
        Nanos(cpu).to_string(),
        cpu_ratio.to_string(),
    ]
}

fn line(cells: [String; 9]) -> String {
    let cells = cells.iter().zip(COLUMNS).map(|(cell, (_, width))| format!("{cell:>width$}"));
    cells.collect::<Vec<_>>().join("  ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use txn_kv::Design;

    use super::super::comparison::{Case, Level};
    use super::*;

    fn comparison() -> Comparison {
        let window =
            |puts| Window { puts, time: Duration::from_secs(1), cpu: Duration::from_millis(500) };
        Comparison {
            case: Case { revisions: 100, keys: 10_000 },
            level: Level::Store,
            design: Design::MarkAvailable,
            pairs: vec![[window(100_000), window(50_000)]; 11],
        }
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let cells = cells(&comparison());
        let expected = [
            "100",
            "10000",
            "store",
            "mark-available",
            "50,000",
            "100,000",
            "0.50 [0.50–0.50]",
            "10.0 µs",
            "2.00 [2.00–2.00]",
        ];
        assert_eq!(cells, expected);
    }

    #[test]
    fn results_are_kept_for_people_and_for_programs() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("new");
        write(&Args::default(), &[comparison()], &path).unwrap();
        let page = std::fs::read_to_string(path.join("README.md")).unwrap();
        assert!(page.contains("| 100 | 10000 | store | mark-available | 50,000 |"), "{page}");
        let object = std::fs::read(path.join("designs.json")).unwrap();
        let object: serde_json::Value = serde_json::from_slice(&object).unwrap();
        let comparison = &object["comparisons"][0];
        assert_eq!(comparison["windows"].as_array().map(Vec::len), Some(11));
        assert_eq!(comparison["puts_per_second_ratio"]["median"], 0.5);
        assert_eq!(comparison["puts_per_second_ratio"]["tie"], false);
    }
}

//! Table of the comparisons, and the files that are kept.

use std::error::Error;
use std::io::Write;
use std::path::Path;

use lab::environment::Environment;
use lab::table::{self, Table};
use lab::units::{Count, Nanos};
use serde_json::json;

use super::pairs::Window;
use super::{BASE, Comparison};
use crate::args::Designs as Args;

const COLUMNS: [&str; 9] =
    ["revisions", "keys", "level", "design", "puts/s", "of publish", "ratio", "CPU/put", "ratio"];

/// Prints the method and the table.
pub(super) fn print(
    args: &Args,
    all: &[Comparison],
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let table = filled(table::plain(&COLUMNS), all);
    writeln!(out, "{}\n\n{}", method(args), table.trim_fmt())?;
    Ok(out.flush()?)
}

/// Writes a page for people and the windows for programs.
///
/// # Errors
///
/// The folder or a file in it cannot be made.
pub(super) fn write(args: &Args, all: &[Comparison], folder: &Path) -> Result<(), Box<dyn Error>> {
    let environment = Environment::of(super::STARTED_BY);
    let (method, table) = (method(args), filled(table::markdown(&COLUMNS), all));
    let page = format!(
        "# In which order data and index are written\n\n{environment}\n{method}\n\n{table}\n\n\
         The windows are in [designs.json](designs.json).\n"
    );
    let object = json!({
        "environment": environment,
        "clients": args.clients,
        "value_bytes": args.puts.val_size,
        "growing": args.growing,
        "engine": engine(args),
        "comparisons": all,
    });
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("README.md"), page)?;
    std::fs::write(folder.join("designs.json"), format!("{object:#}\n"))?;
    Ok(())
}

fn method(args: &Args) -> String {
    let (clients, value_bytes, pairs) = (args.clients, args.puts.val_size, args.puts.pairs);
    let (engine, growing) = (engine(args), Count(args.growing as f64));
    let window = Nanos::of(args.seconds);
    format!(
        "Puts of {value_bytes} bytes by {clients} threads (level store) or sessions (level network), \
         {engine}, each design beside {BASE}: {pairs} pairs of windows of {window} in the order \
         A B, B A, ...\nA ratio is the median of those of neighbours, with an interval of 95 % \
         confidence. A tie has 1 in the\ninterval, or differs by less than a tenth if there are \
         fewer than 41 pairs. CPU time is that of store and load\ntogether. Between windows, history \
         beyond the revisions that each key began with is forgotten. Where they\ngrow, each window \
         is {growing} puts to one key of a new store."
    )
}

fn engine(args: &Args) -> &'static str {
    if args.disk { "on disk" } else { "in memory" }
}

fn filled(mut table: Table, all: &[Comparison]) -> Table {
    table.add_rows(all.iter().map(row));
    table
}

fn row(comparison: &Comparison) -> [String; 9] {
    let Comparison { case, level, design, pairs } = comparison;
    let [base_rate, rate] = pairs.medians(Window::per_second);
    let [_, cpu] = pairs.medians(Window::cpu_each);
    let revisions =
        if case.revisions == 0 { "grows".to_owned() } else { case.revisions.to_string() };
    [
        revisions,
        case.keys.to_string(),
        level.to_string(),
        design.to_string(),
        Count(rate.round()).to_string(),
        Count(base_rate.round()).to_string(),
        pairs.ratio(Window::per_second).to_string(),
        Nanos(cpu).to_string(),
        pairs.ratio(Window::cpu_each).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use txn_kv::Design;

    use super::super::pairs::tests::half;
    use super::super::{Case, Level};
    use super::*;

    fn comparison() -> Comparison {
        Comparison {
            case: Case { revisions: 100, keys: 10_000 },
            level: Level::Store,
            design: Design::MarkAvailable,
            pairs: half([50_000; 11]),
        }
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let expected = [
            "100",
            "10000",
            "store",
            "mark-available",
            "25,000",
            "50,000",
            "0.50 [0.50–0.50]",
            "20.0 µs",
            "2.00 [2.00–2.00]",
        ];
        assert_eq!(row(&comparison()), expected);
    }

    #[test]
    fn results_are_kept_for_people_and_for_programs() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("new");
        write(&super::super::tests::args(), &[comparison()], &path).unwrap();
        let page = std::fs::read_to_string(path.join("README.md")).unwrap();
        assert!(page.contains("| 100       | 10000 | store | mark-available | 25,000 |"), "{page}");
        let object = std::fs::read(path.join("designs.json")).unwrap();
        let object: serde_json::Value = serde_json::from_slice(&object).unwrap();
        let comparison = &object["comparisons"][0];
        assert_eq!(comparison["windows"].as_array().map(Vec::len), Some(11));
        assert_eq!(comparison["puts_per_second_ratio"]["median"], 0.5);
        assert_eq!(comparison["puts_per_second_ratio"]["verdict"], "less");
    }
}

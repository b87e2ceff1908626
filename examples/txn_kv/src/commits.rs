//! `commits`: the cost of a commit beside the bare database, and the gain of a shared flush.
//!
//! On one disk, in windows by turns: the database alone, which commits one value after the other; a
//! thread that calls the store, and one client of its server; and many clients of another server.

mod bare;

use std::cell::RefCell;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;

use lab::environment::Environment;
use lab::table::{self, Table};
use lab::units::{Count, Nanos};
use serde_json::json;
use txn_kv::Design;
use txn_kv::load::{Lines, Progress, Until};

use crate::args::Commits as Args;
use crate::designs::{Case, Level, Pairs, STARTED_BY, Setup, Subject, Window};
use bare::Bare;

/// A subject beside a base.
struct Beside {
    /// Names of the base and of the subject.
    names: [String; 2],
    /// Least ratio that is wanted.
    goal: Option<f64>,
    pairs: Pairs,
}

/// Measures one window.
type Turn<'a> = &'a dyn Fn() -> Result<Window, Box<dyn Error>>;

/// # Errors
///
/// A store is damaged or does not answer, or the results cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let case = Case { revisions: 0, keys: args.puts.key_space_size };
    let start = |clients| {
        let setup = Setup { clients, value_bytes: args.puts.val_size, disk: true };
        Subject::start(setup, case, Design::Publish)
    };
    let many = args.clients;
    let (one, several) = (start(1)?, start(many)?);
    let mut bare = Bare::create(args.puts.val_size)?;
    let until = Until::Time(args.seconds);
    let put = |subject: &Subject| subject.window(Level::Network, until);
    // Warm-up, which is not measured.
    let _ = (bare.window(args.seconds)?, put(&one)?, put(&several)?);

    let in_turn = |name: &str, base: Turn<'_>, other: Turn<'_>| {
        Pairs::in_turn(args.puts.pairs, Progress::new(name, Lines::AtTheEnd), base, other)
    };
    let bare = RefCell::new(bare);
    let alone = || bare.borrow_mut().window(args.seconds);
    let direct = || one.window(Level::Store, until);
    let results = [
        Beside {
            names: ["the bare database".to_owned(), "itself, which is noise".to_owned()],
            goal: None,
            pairs: in_turn("noise", &alone, &alone)?,
        },
        Beside {
            names: ["the bare database".to_owned(), "1 thread, no server".to_owned()],
            goal: None,
            pairs: in_turn("1 thread", &alone, &direct)?,
        },
        Beside {
            names: ["the bare database".to_owned(), "1 client".to_owned()],
            goal: Some(0.8),
            pairs: in_turn("1 client", &alone, &|| put(&one))?,
        },
        Beside {
            names: ["1 client".to_owned(), format!("{many} clients")],
            goal: Some(5.0),
            pairs: in_turn("many clients", &|| put(&one), &|| put(&several))?,
        },
    ];
    one.records()?;
    several.records()?;

    let method = method(args);
    writeln!(out, "{method}\n\n{}", filled(table::plain(&COLUMNS), &results).trim_fmt())?;
    match &args.puts.out {
        Some(folder) => write(args, &results, &method, folder),
        None => Ok(()),
    }
}

const COLUMNS: [&str; 6] = ["subject", "commits/s", "beside", "commits/s", "ratio", "goal"];

fn method(args: &Args) -> String {
    let (value_bytes, pairs, window) = (args.puts.val_size, args.puts.pairs, args.seconds);
    let window = Nanos::of(window);
    format!(
        "Commits of {value_bytes} bytes each on disk: {pairs} pairs of windows of {window} in the order \
         A B, B A, ...\nA ratio is the median of those of neighbours, with an interval of 95 % \
         confidence. The bare database commits\none value after the other, without a server."
    )
}

fn filled(mut table: Table, results: &[Beside]) -> Table {
    for Beside { names: [base, name], goal, pairs } in results {
        let rates = pairs.medians(Window::per_second);
        let [base_rate, rate] = rates.map(|rate| Count(rate.round()).to_string());
        let goal = goal.map_or_else(String::new, |goal| format!(">= {goal}"));
        let ratio = pairs.ratio(Window::per_second).to_string();
        table.add_row([name, &rate, base, &base_rate, &ratio, &goal]);
    }
    table
}

fn write(
    args: &Args,
    results: &[Beside],
    method: &str,
    folder: &Path,
) -> Result<(), Box<dyn Error>> {
    let environment = Environment::of(STARTED_BY);
    let table = filled(table::markdown(&COLUMNS), results);
    let page = format!(
        "# What a commit costs, and what sharing a flush saves\n\n{environment}\n{method}\n\n\
         {table}\n\nThe windows are in [commits.json](commits.json).\n"
    );
    let results = results.iter().map(|Beside { names, goal, pairs }| {
        let ratio = pairs.ratio(Window::per_second);
        json!({ "names": names, "goal": goal, "ratio": ratio, "windows": pairs })
    });
    let object = json!({
        "environment": environment,
        "value_bytes": args.puts.val_size,
        "results": results.collect::<Vec<_>>(),
    });
    fs::create_dir_all(folder)?;
    fs::write(folder.join("README.md"), page)?;
    fs::write(folder.join("commits.json"), format!("{object:#}\n"))?;
    Ok(())
}

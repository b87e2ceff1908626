//! `commits`: what a commit costs one client beside the bare database, and what a shared flush saves.
//!
//! On one disk, in windows by turns: the database alone, which commits one value after the other; a
//! thread that calls the store, and one client of its server; and many clients of another server.

mod bare;

use std::cell::RefCell;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::path::Path;

use serde_json::json;
use txn_kv::Design;
use txn_kv::load::{Lines, Progress, Until};

use crate::args::Designs as Args;
use crate::designs::{
    Case, Environment, Level, Ratio, STARTED_BY, Subject, Window, in_turn, median,
};
use crate::sys::raise_descriptor_limit;
use crate::units::{Count, Nanos};
use bare::Bare;

/// One beside the other.
struct Beside {
    names: [String; 2],
    /// What the ratio should be at least, where there is something to reach.
    goal: Option<f64>,
    pairs: Vec<[Window; 2]>,
}

/// Measures one window.
type Turn<'a> = &'a dyn Fn() -> Result<Window, Box<dyn Error>>;

/// # Errors
///
/// Something is wrong with a store, or there is no place for the results.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let clients = |clients| Args { clients, disk: true, ..args.clone() };
    let many = args.clients;
    let case = Case { revisions: 0, keys: args.keys };
    let start = |args: &Args| Subject::start(args, case, Design::Publish);
    let (one, several) = (start(&clients(1))?, start(&clients(many))?);
    let mut bare = Bare::create(args.value_bytes)?;
    let until = Until::Time(args.window);
    let put = |subject: &Subject| subject.window(Level::Network, until);
    // What is only done once is not measured.
    let _ = (bare.window(args.window)?, put(&one)?, put(&several)?);

    let in_turn = |name: &str, base: Turn<'_>, other: Turn<'_>| {
        in_turn(args.pairs, Progress::new(name, Lines::AtTheEnd), base, other)
    };
    let bare = RefCell::new(bare);
    let alone = || bare.borrow_mut().window(args.window);
    let direct = || one.window(Level::Store, until);
    let results = [
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

    let page = page(args, &results)?;
    out.write_all(page.as_bytes())?;
    match &args.out {
        Some(folder) => write(args, &results, &page, folder),
        None => Ok(()),
    }
}

fn page(args: &Args, results: &[Beside]) -> Result<String, std::fmt::Error> {
    let Args { value_bytes, pairs, window, .. } = args;
    let window = Nanos::of(*window);
    let mut page = format!(
        "Commits of {value_bytes} bytes each on disk, one beside the other: {pairs} pairs of windows of {window} in \
         the order\nA B, B A, ... A ratio is the median of those of neighbours, with the interval that \
         holds the true one with 95 %\nconfidence. The bare database commits one value after the other, \
         without a server.\n\n| subject | commits/s | beside | commits/s | ratio | goal |\n|---|---|---|---|---|---|\n"
    );
    for Beside { names, goal, pairs } in results {
        let of = |place: usize| {
            let rate = median(pairs.iter().map(|pair| pair[place].per_second()));
            Count(rate.round()).to_string()
        };
        let ratio = ratio(pairs);
        let [base, name] = names;
        let goal = goal.map_or_else(String::new, |goal| format!(">= {goal}"));
        writeln!(page, "| {name} | {} | {base} | {} | {ratio} | {goal} |", of(1), of(0))?;
    }
    Ok(page)
}

fn ratio(pairs: &[[Window; 2]]) -> Ratio {
    Ratio::of(pairs.iter().map(|[base, other]| other.per_second() / base.per_second()))
}

fn write(args: &Args, results: &[Beside], page: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let environment = Environment::of(STARTED_BY);
    fs::create_dir_all(folder)?;
    let head = format!("# What a commit costs, and what sharing a flush saves\n\n{environment}\n");
    let tail = "\nThe windows are in [commits.json](commits.json).\n";
    fs::write(folder.join("README.md"), format!("{head}{page}{tail}"))?;
    let results = results.iter().map(|Beside { names, goal, pairs }| {
        json!({
            "names": names,
            "goal": goal,
            "ratio": ratio(pairs).to_json(),
            "windows": pairs.iter().map(|pair| pair.map(Window::to_json)).collect::<Vec<_>>(),
        })
    });
    let object = json!({
        "environment": serde_json::to_value(&environment)?,
        "value_bytes": args.value_bytes,
        "results": results.collect::<Vec<_>>(),
    });
    fs::write(folder.join("commits.json"), format!("{object:#}\n"))?;
    Ok(())
}

//! The whole report, suite after suite.

use std::env;
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::page::Page;
use crate::COMMAND;
use crate::args::Report;
use crate::environment::Environment;
use crate::experiment::Progress;
use crate::load::raise_descriptor_limit;
use crate::slug;

const QUICK: &str = "target/compare/quick";
const RECORD: &str = "benches/record";

/// Measures, prints, and writes it down.
///
/// # Errors
/// A suite that fails is one, once all others are done.
pub(crate) fn run(args: &Report, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let environment = Environment::of(COMMAND);
    let folder = args.out.clone().unwrap_or_else(|| {
        let root = root();
        match args.plan.quick {
            true => root.join(QUICK),
            false => root.join(RECORD).join(slug::of(&environment)),
        }
    });
    let mut page = Page::create(folder, environment, args.plan)?;
    writeln!(out, "{}", page.head())?;
    let guesses = args.suites.iter().map(|suite| (suite.name, (suite.seconds)(&args.plan)));
    let mut progress = Progress::report(guesses.collect());
    let mut failed = Vec::new();
    for suite in &args.suites {
        let began = Instant::now();
        let text = match (suite.run)(&args.plan, &mut progress) {
            Ok(section) => page.add(suite, &section, began.elapsed())?,
            Err(error) => {
                failed.push(format!("{}: {error}", suite.name));
                page.add_failure(suite, error.as_ref())?
            }
        };
        progress.suite_done(began.elapsed());
        writeln!(out, "{text}")?;
        out.flush()?;
    }
    writeln!(out, "The report is {}.", page.folder().join("README.md").display())?;
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

/// Of the repository: here, or where cargo knows this package when it runs it.
fn root() -> PathBuf {
    let here = PathBuf::new();
    match env::var_os("CARGO_MANIFEST_DIR") {
        Some(package) if !Path::new(RECORD).is_dir() => {
            Path::new(&package).ancestors().nth(2).map_or(here, Path::to_owned)
        }
        _ => here,
    }
}

//! A report: a folder with a page of tables, and the raw numbers of each suite.
//!
//! The page is written again after each section, so that a run that is broken off leaves its results.

use std::env;
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use lab::environment::Environment;
use lab::load::raise_descriptor_limit;
use lab::ratio::{ENOUGH_ROUNDS, Spread, Verdict};
use lab::terminal::ProgressLine;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::COMMAND;
use crate::experiment::Plan;
use crate::measured::Measured;
use crate::suite::Suite;
use crate::table::{CPU, Metric, P99, THROUGHPUT};

/// Results of one suite.
#[derive(Debug)]
pub struct Section {
    pub title: &'static str,
    /// Paragraphs and tables, in Markdown.
    pub blocks: Vec<String>,
    pub raw: Value,
    /// Names of files and their content, which `blocks` refers to.
    pub files: Vec<(String, Vec<u8>)>,
}

const QUICK: &str = "target/compare/quick";
const RECORD: &str = "benches/record";

impl Section {
    /// A section without files of its own.
    pub const fn new(title: &'static str, blocks: Vec<String>, raw: Value) -> Self {
        Self { title, blocks, raw, files: Vec::new() }
    }

    /// Paragraph on the machine: CPUs that neither a server nor the load took, the most of all
    /// experiments.
    pub fn other_work(cpus: impl Iterator<Item = f64>) -> String {
        let cpus = cpus.fold(0.0, f64::max);
        format!("Other work took up to {cpus:.2} CPUs meanwhile.")
    }
}

/// Measures the suites, prints the page, and writes it down.
///
/// # Errors
/// A suite fails. The others run all the same.
pub fn run(
    suites: &[&Suite],
    plan: &Plan,
    folder: Option<PathBuf>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let environment = Environment::of(COMMAND);
    let folder = folder.unwrap_or_else(|| match plan.quick {
        true => root().join(QUICK),
        false => root().join(RECORD).join(environment.slug()),
    });
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let head = head(&environment, plan);
    writeln!(out, "{head}")?;
    let (mut contents, mut body) = (String::new(), String::new());
    let mut failed = Vec::new();
    let mut progress = ProgressLine::new();
    for (place, suite) in suites.iter().enumerate() {
        let began = Instant::now();
        let name = suite.name;
        let (title, text) = match (suite.run)(plan) {
            Ok(section) => {
                let noise = noise(&section.raw)
                    .unwrap_or_else(|error| Some(format!("The noise is not known: {error}.")));
                let raw = json!({
                    "environment": environment, "plan": plan, "suite": name, "raw": section.raw,
                });
                write(&folder, &format!("{name}.json"), serde_json::to_string(&raw)? + "\n")?;
                for (name, content) in &section.files {
                    write(&folder, name, content)?;
                }
                let blocks = section.blocks.into_iter().chain(noise);
                let blocks: String = blocks.map(|block| block.trim().to_owned() + "\n\n").collect();
                let seconds = began.elapsed().as_secs();
                let raw = format!("Took {seconds} s; raw numbers: [{name}.json]({name}.json).\n");
                (section.title, blocks + &raw)
            }
            Err(error) => {
                failed.push(format!("{name}: {error}"));
                (name, format!("Failed: {error}\n"))
            }
        };
        let text = format!("## {title}\n\n*{}*\n\n{text}", suite.question);
        writeln!(out, "{text}")?;
        out.flush()?;
        let (done, all) = (place + 1, suites.len());
        progress.step_done(format_args!("{name}, suite {done} of {all}: {:?}", began.elapsed()));
        contents += &format!("- [{title}](#{}): {}\n", anchor(title), suite.question);
        body += &format!("\n{text}");
        write(&folder, "README.md", format!("{head}\n{contents}{body}"))?;
    }
    writeln!(out, "The report is {}.", folder.join("README.md").display())?;
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ").into()) }
}

fn head(environment: &Environment, plan: &Plan) -> String {
    let (rounds, millis) = (plan.cycles, plan.window.as_millis());
    let (fresh_every, starts) = (plan.fresh_every, plan.cycles.div_ceil(plan.fresh_every));
    let warning = match rounds {
        ENOUGH_ROUNDS.. => "",
        _ => "**A first look: so few rounds say little. Not for the record.**\n\n",
    };
    format!(
        "# epoll-group beside others\n\n{warning}{environment}\n\
         All servers of a comparison are alive together, each a process of its own, and are loaded in \
         turn in windows of {millis} ms, {rounds} rounds; every answer is checked. Numbers are medians \
         of the windows. A ratio is taken round by round: `1.04 [0.97–1.09]` is its median and the \
         interval that holds the true median with at least 95 % confidence (5 rounds: their range, \
         93.75 %), by order statistics, if rounds are independent. A **tie** is a ratio whose interval \
         contains 1.00, or whose median is within 10 % of it with fewer than 41 rounds.\n\n\
         Two things to keep in mind. Servers and connections are started anew every {fresh_every} \
         rounds: rounds of one start share the assignment of connections to threads. Where that \
         matters, with few connections above all, {starts} starts say less than {rounds} independent \
         rounds would. And loads are closed: a session asks again only when it has its answer, so a \
         server that stalls is asked less often, and its high quantiles look better than those of an \
         open load would.\n"
    )
}

/// Paragraph on the ratios of servers to themselves. `None`: no server took part twice.
fn noise(raw: &Value) -> Result<Option<String>, serde_json::Error> {
    let experiments = raw.get("experiments").unwrap_or(&Value::Null);
    let experiments = Option::<Vec<Measured>>::deserialize(experiments)?.unwrap_or_default();
    let line = |(name, metric): (&str, Metric)| {
        let ratios = experiments.iter().filter_map(|measured| measured.noise(metric));
        let ratios: Vec<_> = ratios.collect();
        let medians = Spread::of(ratios.iter().map(|ratio| ratio.median).collect())?;
        let wrong = ratios.iter().filter(|ratio| ratio.ratio().verdict != Verdict::Tie).count();
        let (min, max, all) = (medians.min, medians.max, ratios.len());
        Some(format!("- {name}: {min:.2} to {max:.2}; outside of a tie: {wrong} of {all}\n"))
    };
    let metrics = [("requests/s", THROUGHPUT), ("CPU/request", CPU), ("p99", P99)];
    let lines: String = metrics.into_iter().filter_map(line).collect();
    let text =
        "The first servers of these experiments took part twice. Ratios of the two are noise:";
    Ok((!lines.is_empty()).then(|| format!("{text}\n\n{lines}")))
}

fn write(folder: &Path, file: &str, content: impl AsRef<[u8]>) -> Result<(), Box<dyn Error>> {
    let path = folder.join(file);
    fs::write(&path, content).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// Link to a heading: lower case, blanks as hyphens, no other signs.
fn anchor(title: &str) -> String {
    let kept = title.to_lowercase();
    let kept = kept.chars().filter(|&c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Root of the repository: here, or above this package if cargo runs it.
fn root() -> PathBuf {
    match env::var_os("CARGO_MANIFEST_DIR") {
        Some(package) if !Path::new(RECORD).is_dir() => {
            Path::new(&package).ancestors().nth(2).map_or_else(PathBuf::new, Path::to_owned)
        }
        _ => PathBuf::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::AGAIN;
    use crate::measured::tests::measured;

    #[test]
    fn headings_are_linked_as_their_readers_do() {
        assert_eq!(anchor("Select 1: old, new"), "select-1-old-new");
    }

    #[test]
    fn servers_that_took_part_twice_show_the_noise() {
        let mut found = measured(&[[1.0; 5], [2.0; 5], [1.0, 0.9, 1.1, 1.2, 0.8]]);
        let of = |found: &Measured| noise(&json!({ "experiments": [found] })).unwrap();
        assert_eq!(of(&found), None);
        assert_eq!(noise(&json!({ "profiles": [] })).unwrap(), None);
        found.lanes[2].server = format!("a{AGAIN}");
        let text = of(&found).unwrap();
        assert!(
            text.contains("\n- CPU/request: 1.00 to 1.00; outside of a tie: 0 of 1\n"),
            "{text}"
        );
    }
}

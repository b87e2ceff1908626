//! `published`: puts with a mark and without, beside the published numbers of Xline.

use std::error::Error;
use std::fs;
use std::io::Write;

use hdrhistogram::Histogram;
use lab::environment::Environment;
use lab::ratio::median;
use lab::report;
use lab::table::{self, Table};
use serde_json::{Value, json};
use txn_kv::Design;
use txn_kv::load::{Lines, Progress, Summary, Until};

use crate::args::Published as Args;
use crate::designs::{Case, STARTED_BY, Setup, Subject};

/// A design here, and the published numbers of its form.
struct Form {
    name: &'static str,
    design: Design,
    /// Numbers of [`METRICS`], in memory and on disk.
    published: Option<[[f64; 6]; 2]>,
}

/// Loads of one form on one engine.
struct Measured {
    engine: usize,
    form: &'static Form,
    loads: Vec<Summary>,
}

/// Name of a number, and the function that computes it from a load.
type Metric = (&'static str, fn(&Summary) -> f64);

const METRICS: [Metric; 6] = [
    ("total s", |load| load.time().as_secs_f64()),
    ("slowest ms", |load| load.latencies().max() as f64 / 1e6),
    ("fastest ms", |load| load.latencies().min() as f64 / 1e6),
    ("average ms", |load| load.latencies().mean() / 1e6),
    ("per second", Summary::per_second),
    ("p99 ms", |load| load.quantile(0.99) as f64 / 1e6),
];
const PER_SECOND: usize = 4;
const ENGINES: [&str; 2] = ["memory", "disk"];

const MARK: Option<[[f64; 6]; 2]> =
    Some([[73.67, 71.5, 2.1, 7.4, 1_357.0, 13.4], [295.01, 83.1, 6.7, 29.5, 339.0, 49.7]]);
const NO_MARK: Option<[[f64; 6]; 2]> =
    Some([[56.50, 77.8, 2.3, 5.6, 1_770.0, 8.7], [59.31, 98.2, 2.3, 5.9, 1_686.0, 9.2]]);

/// The last two are the proposed designs. A put of (a) does the same as one of the published form
/// without a mark.
const FORMS: [Form; 5] = [
    Form { name: "mark, whole index", design: Design::MarkByTraversal, published: MARK },
    Form { name: "mark, by key", design: Design::MarkAvailable, published: MARK },
    Form { name: "ours: mark persisted", design: Design::MarkPersisted, published: None },
    Form { name: "(a) no mark", design: Design::Compensate, published: NO_MARK },
    Form { name: "(b) data first", design: Design::Publish, published: None },
];
const NO_MARK_PLACE: usize = 3;

const CLIENTS: usize = 10;
const KEYS: u64 = 100_000;
const VALUE_BYTES: usize = 256;

const METHOD: &str = "\
Each load puts to an empty store of its own. The forms take turns. Numbers are medians of the loads.
Published is Xline on another machine, with RocksDB as the disk: ratios compare, times do not. *Of no mark* is
puts per second divided by those of form (a) on the same engine. *Whole index* and *by key* name the place in which
the revision is looked for under the index lock. The published form is a traversal. *Ours: mark persisted* was not
published: it writes the mark by a second flush before the answer. (a): a read that misses the value answers the
older one. (b): a revision enters the index after its value is durable. Every answer is checked, and each store
has exactly these puts at the end.";

/// # Errors
///
/// An answer was wrong, a store has not what was put, or the results cannot be written.
pub(crate) fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let all = measure(args)?;
    let method = format!(
        "{} puts of {CLIENTS} sessions to {KEYS} keys of 8 bytes, values of {VALUE_BYTES} bytes. Rounds: {}.\n\
         {METHOD}",
        args.total, args.rounds
    );
    let (heading, histograms) = (heading(), histograms(&all)?);
    let heading: Vec<_> = heading.iter().map(String::as_str).collect();
    let table = filled(table::numbers(&heading), &all);
    writeln!(out, "{method}\n\n{}\n\n{histograms}", table.trim_fmt())?;
    let Some(folder) = &args.out else { return Ok(()) };
    let environment = Environment::of(STARTED_BY);
    let table = filled(table::markdown(&heading), &all);
    let page = format!(
        "# Puts with a mark and without\n\n{environment}\n{method}\n\n{table}\n\n```text\n{histograms}```\n\n\
         The loads are in [published.json](published.json).\n"
    );
    let object = json!({
        "environment": environment,
        "total": args.total,
        "forms": all.iter().map(Measured::to_json).collect::<Vec<_>>(),
    });
    fs::create_dir_all(folder)?;
    fs::write(folder.join("README.md"), page)?;
    fs::write(folder.join("published.json"), format!("{object:#}\n"))?;
    Ok(())
}

fn measure(args: &Args) -> Result<Vec<Measured>, Box<dyn Error>> {
    let places = (0..ENGINES.len()).flat_map(|engine| FORMS.iter().map(move |form| (engine, form)));
    let mut all: Vec<_> =
        places.map(|(engine, form)| Measured { engine, form, loads: Vec::new() }).collect();
    let mut progress = Progress::new("loads", Lines::EachTenth);
    let (mut done, count) = (0, args.rounds * all.len());
    for _ in 0..args.rounds {
        for Measured { engine, form, loads } in &mut all {
            let setup = Setup { clients: CLIENTS, value_bytes: VALUE_BYTES, disk: *engine == 1 };
            let case = Case { revisions: 0, keys: KEYS };
            let subject = Subject::start(setup, case, form.design)?;
            let load = subject.put(Until::Requests(args.total))?;
            let (records, total) = (subject.records()?, args.total);
            if (load.writes(), records) != (total, total) {
                let name = form.name;
                return Err(format!("{name}: {records} records after {total} puts").into());
            }
            done += 1;
            let rate = load.per_second();
            let of = format_args!("{}, {}: {rate:.0}/s", ENGINES[*engine], form.name);
            progress.update(done as f64 / count as f64, of);
            loads.push(load);
        }
    }
    progress.finish(format_args!("{count} loads"));
    Ok(all)
}

fn heading() -> Vec<String> {
    let metrics = METRICS.iter().map(|(name, _)| *name).chain(["of no mark"]);
    let both = metrics.flat_map(|name| [format!("{name}, published"), "here".to_owned()]);
    ["engine".to_owned(), "form".to_owned()].into_iter().chain(both).collect()
}

fn filled(mut table: Table, all: &[Measured]) -> Table {
    for (place, measured) in all.iter().enumerate() {
        let Measured { engine, form, .. } = measured;
        let base = &all[place - place % FORMS.len() + NO_MARK_PLACE];
        let mut row = vec![ENGINES[*engine].to_owned(), form.name.to_owned()];
        for metric in 0..METRICS.len() {
            row.push(measured.published(metric).map_or_else(none, |cell| cell.to_string()));
            row.push(shown(measured.here(metric)));
        }
        let published = measured.published(PER_SECOND).zip(base.published(PER_SECOND));
        let here = measured.here(PER_SECOND) / base.here(PER_SECOND);
        row.push(published.map_or_else(none, |(own, base)| shown(own / base)));
        row.push(shown(here));
        table.add_row(row);
    }
    table
}

fn none() -> String {
    "–".to_owned()
}

fn shown(cell: f64) -> String {
    if cell < 100.0 { format!("{cell:.2}") } else { format!("{cell:.0}") }
}

/// Draws the latencies of all loads, the forms of an engine side by side.
fn histograms(all: &[Measured]) -> Result<String, Box<dyn Error>> {
    let mut text = Vec::new();
    for forms in all.chunks(FORMS.len()) {
        let merged: Vec<_> = forms.iter().map(Measured::latencies).collect();
        let names = forms.iter().map(|measured| measured.form.name.to_owned());
        writeln!(text, "{}", ENGINES[forms[0].engine])?;
        report::histogram(&mut text, &names.zip(&merged).collect::<Vec<_>>())?;
    }
    Ok(String::from_utf8(text)?)
}

impl Measured {
    fn published(&self, metric: usize) -> Option<f64> {
        self.form.published.map(|engines| engines[self.engine][metric])
    }

    fn here(&self, metric: usize) -> f64 {
        median(self.loads.iter().map(METRICS[metric].1))
    }

    fn latencies(&self) -> Histogram<u64> {
        let all = self.loads.iter().map(Summary::latencies);
        let all = all.reduce(|mut all, load| {
            all += &load;
            all
        });
        all.expect("there is one load at least")
    }

    fn to_json(&self) -> Value {
        let latencies = self.latencies();
        let buckets = latencies.iter_log(1_000, 2.0).map(|bucket| {
            json!({ "up_to_ns": bucket.value_iterated_to(), "puts": bucket.count_since_last_iteration() })
        });
        json!({
            "engine": ENGINES[self.engine],
            "form": self.form.name,
            "design": self.form.design.name(),
            "published": self.form.published.map(|engines| engines[self.engine]),
            "loads": self.loads,
            "histogram": buckets.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Task, tests::parse};

    #[test]
    fn every_form_has_its_published_numbers_and_those_of_here() {
        let folder = tempfile::TempDir::new().unwrap();
        let line = format!("published --total 50 --rounds 2 --out {}", folder.path().display());
        let Ok(Some(Task::Published(args))) = parse(&line).map(|command| command.task) else {
            panic!("{line}")
        };
        run(&args, &mut Vec::new()).expect("each store has its puts");
        let page = fs::read_to_string(folder.path().join("README.md")).unwrap();
        let cells = |line: &str| line.split('|').map(|cell| cell.trim().to_owned()).collect();
        let rows: Vec<Vec<String>> = page.lines().map(cells).collect();
        let published = |engine, form: &str| {
            let row = rows.iter().find(|row| row.len() > 2 && row[1] == engine && row[2] == form);
            row.expect(form).iter().skip(3).step_by(2).take(7).cloned().collect::<Vec<_>>()
        };
        let marked = ["295.01", "83.1", "6.7", "29.5", "339", "49.7", "0.20"];
        assert_eq!(published("disk", "mark, whole index"), marked);
        let unmarked = ["56.5", "77.8", "2.3", "5.6", "1770", "8.7", "1.00"];
        assert_eq!(published("memory", "(a) no mark"), unmarked);
        assert_eq!(published("memory", "ours: mark persisted"), ["–"; 7]);
        let object = fs::read(folder.path().join("published.json")).unwrap();
        let object: Value = serde_json::from_slice(&object).unwrap();
        let forms = object["forms"].as_array().unwrap();
        assert_eq!(forms.len(), ENGINES.len() * FORMS.len());
        for form in forms {
            let buckets = form["histogram"].as_array().unwrap().iter();
            let puts: u64 = buckets.filter_map(|bucket| bucket["puts"].as_u64()).sum();
            assert_eq!(puts, 100, "{form}");
        }
    }
}

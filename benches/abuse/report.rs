//! The line, the table and the file of results.

use std::error::Error;
use std::fs;
use std::path::Path;

use lab::environment::Environment;
use lab::ratio::Ratio;
use lab::table::markdown;
use serde_json::json;

use crate::args::Options;
use crate::course::{Outcome, tells_of_an_end};
use crate::stand_by::Window;

/// Ratio of latencies that bystanders are promised at most.
const PROMISE: f64 = 1.5;

/// One abuse in one line.
pub(crate) fn line(outcome: &Outcome) -> String {
    format!(
        "p99 {:.0} µs quiet, {:.0} abused, {:.0} control; against quiet {}, against control {}; {}",
        outcome.quiet.p99,
        outcome.abused.p99,
        outcome.control.p99,
        ratio(outcome.against_quiet.p99),
        ratio(outcome.against_control.p99),
        ends(outcome)
    )
}

/// A row for each abuse.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let mut table = markdown(&[
        "abuse",
        "peers",
        "p50 µs, A / B / C",
        "p99 µs",
        "p99.9 µs",
        "p99 B / A",
        "p99 B / C",
        "requests/s B / A",
        "server CPU, A → B",
        "attackers' CPU",
        "server MB",
        "sockets MB",
        "threads",
        "kB a peer: server, sockets",
        "ended by the server (s until the first)",
    ]);
    for outcome in outcomes {
        let three = |value: fn(&Window) -> f64| {
            let [a, b, c] = [&outcome.quiet, &outcome.abused, &outcome.control].map(value);
            format!("{a:.0} / {b:.0} / {c:.0}")
        };
        let (server, attackers) = (&outcome.server, &outcome.attackers);
        let megabytes = |before: u64, peak: u64| format!("{} → {}", before >> 10, peak >> 10);
        table.add_row([
            outcome.name.to_owned(),
            attackers.most.to_string(),
            three(|window| window.p50),
            three(|window| window.p99),
            three(|window| window.p999),
            marked(outcome.against_quiet.p99),
            marked(outcome.against_control.p99),
            ratio(outcome.against_quiet.rate),
            format!("{:.2} → {:.2}", server.cpu_quiet, server.cpu_abused),
            format!("{:.2}", attackers.cpu),
            megabytes(server.before.resident_kb, server.peak.resident_kb),
            megabytes(server.before.sockets_kb, server.peak.sockets_kb),
            format!("{} → {}", server.before.threads, server.peak.threads),
            format!("{:.1}, {:.1}", attackers.resident_kb_each, attackers.sockets_kb_each),
            ends(outcome),
        ]);
    }
    table.to_string()
}

/// Reasons to fail.
pub(crate) fn faults(outcome: &Outcome) -> Vec<String> {
    let mut faults = Vec::new();
    for (kind, window) in
        [("quiet", &outcome.quiet), ("abused", &outcome.abused), ("control", &outcome.control)]
    {
        // A short window may have no request at all, if the machine is busy.
        if window.asked != window.answered + window.failed {
            faults.push(format!("{}: requests of bystanders are lost, {kind}", outcome.name));
        }
        if window.failed > 0 {
            let (failed, why) = (window.failed, window.first_failure.as_deref().unwrap_or("?"));
            faults.push(format!("{}: {failed} requests failed, {kind}: {why}", outcome.name));
        }
    }
    if outcome.attackers.tally["even"] != true {
        faults.push(format!("{}: {}", outcome.name, outcome.attackers.tally));
    }
    faults
}

/// Writes the page and the numbers.
pub(crate) fn write(
    dir: &Path,
    environment: &Environment,
    options: &Options,
    outcomes: &[Outcome],
) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(dir)?;
    let settings = json!({
        "window_ms": options.window().as_millis() as u64,
        "think_ms": options.think_ms.as_millis() as u64,
        "attackers": format!("{:?}", options.attackers).to_lowercase(),
        "seed": options.seed,
    });
    let all = json!({
        "environment": environment, "settings": settings, "abuses": outcomes,
    });
    fs::write(dir.join("abuse.json"), serde_json::to_string(&all)? + "\n")?;
    let page = format!("# Bystanders of abuses\n\n{environment}\n{}\n", table(outcomes));
    fs::write(dir.join("abuse.md"), page)?;
    Ok(())
}

/// Counters of ended connections, and the time of the first end.
fn ends(outcome: &Outcome) -> String {
    let attackers = &outcome.attackers;
    let ends = attackers.counted.iter().filter(|(name, _)| tells_of_an_end(name));
    let ends: Vec<String> = ends
        .map(|(name, count)| match attackers.first_after.get(name) {
            Some(seconds) => format!("{name} {count} ({seconds:.1} s)"),
            None => format!("{name} {count}"),
        })
        .collect();
    if ends.is_empty() { "nobody".to_owned() } else { ends.join(", ") }
}

fn ratio(ratio: Option<Ratio>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| ratio.to_string())
}

/// Bold above the promise.
fn marked(found: Option<Ratio>) -> String {
    match found {
        Some(found) if found.median > PROMISE => format!("**{found}**"),
        other => ratio(other),
    }
}

//! What is printed, and what is kept.

use std::error::Error;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::course::{Outcome, tells_of_an_end};
use crate::options::Options;
use crate::spread::Spread;
use crate::stand_by::Window;
use lab::environment::Environment;

/// What bystanders may wait longer than without the abuse.
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

/// All of them.
pub(crate) fn table(outcomes: &[Outcome]) -> String {
    let mut text =
        "| abuse | peers | p50 µs, A / B / C | p99 µs | p99.9 µs | p99 B / A | p99 B / C | \
        requests/s B / A | server CPU, A → B | attackers' CPU | server MB | sockets MB | threads | \
        kB a peer: server, sockets | ended by the server (s until the first) |\n\
        |:--|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|:--|\n"
            .to_owned();
    for outcome in outcomes {
        let three = |value: fn(&Window) -> f64| {
            let [a, b, c] = [&outcome.quiet, &outcome.abused, &outcome.control].map(value);
            format!("{a:.0} / {b:.0} / {c:.0}")
        };
        let (server, attackers) = (&outcome.server, &outcome.attackers);
        let megabytes = |before: u64, peak: u64| format!("{} → {}", before >> 10, peak >> 10);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {:.2} → {:.2} | {:.2} | {} | {} | {} → {} | \
             {:.1}, {:.1} | {} |",
            outcome.name,
            attackers.most,
            three(|window| window.p50),
            three(|window| window.p99),
            three(|window| window.p999),
            marked(outcome.against_quiet.p99),
            marked(outcome.against_control.p99),
            ratio(outcome.against_quiet.rate),
            server.cpu_quiet,
            server.cpu_abused,
            attackers.cpu,
            megabytes(server.before.resident_kb, server.peak.resident_kb),
            megabytes(server.before.sockets_kb, server.peak.sockets_kb),
            server.before.threads,
            server.peak.threads,
            attackers.resident_kb_each,
            attackers.sockets_kb_each,
            ends(outcome)
        );
    }
    text
}

/// What must not be.
pub(crate) fn faults(outcome: &Outcome) -> Vec<String> {
    let mut faults = Vec::new();
    for (kind, window) in
        [("quiet", &outcome.quiet), ("abused", &outcome.abused), ("control", &outcome.control)]
    {
        // None at all in a short window: the machine was busy with something else.
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

/// The page and the numbers.
pub(crate) fn write(
    dir: &Path,
    environment: &Environment,
    options: &Options,
    outcomes: &[Outcome],
) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(dir)?;
    let settings = serde_json::json!({
        "window_ms": options.window.as_millis() as u64,
        "think_ms": options.think.as_millis() as u64,
        "attackers": format!("{:?}", options.attackers).to_lowercase(),
        "seed": options.seed,
    });
    let all = serde_json::json!({
        "environment": environment, "settings": settings, "abuses": outcomes,
    });
    fs::write(dir.join("abuse.json"), serde_json::to_string(&all)? + "\n")?;
    let page = format!("# Bystanders of abuses\n\n{environment}\n{}", table(outcomes));
    fs::write(dir.join("abuse.md"), page)?;
    Ok(())
}

/// Which counters say so, how often, and when for the first time.
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

fn ratio(spread: Option<Spread>) -> String {
    spread.map_or_else(|| "–".to_owned(), |spread| spread.to_string())
}

/// Bold where it is above what is promised.
fn marked(spread: Option<Spread>) -> String {
    match spread {
        Some(spread) if spread.median > PROMISE => format!("**{spread}**"),
        other => ratio(other),
    }
}

//! The engine's share of the CPU time, as published for point selects, and flame graphs.

use std::collections::BTreeMap;
use std::error::Error;

use inferno::flamegraph;
use lab::sessions::Question;
use lab::table::markdown;
use serde::Serialize;

use super::part::Part;
use super::{Taken, cell, take};
use crate::experiment::Plan;
use crate::perf::Sample;
use crate::server::{Server, SqlServer};
use crate::suite::select1::CONNECTIONS;

/// Part of the suite's section.
pub struct Found {
    pub blocks: Vec<String>,
    pub files: Vec<(String, Vec<u8>)>,
    pub profiles: Vec<Profile>,
}

/// Samples of one server under point selects.
#[derive(Debug, Serialize)]
pub struct Profile {
    server: &'static str,
    sessions: usize,
    samples: usize,
    of_engine: usize,
    /// Nanoseconds.
    cpu_per_request: f64,
}

/// Columns, with the published share in percent, and whether each session has a connection.
const SERVERS: [(&str, SqlServer, Option<f64>, bool); 3] = [
    ("new", SqlServer::NewSqlite, Some(71.79), false),
    ("JDBC", SqlServer::JdbcSqlite, Some(64.94), true),
    ("old", SqlServer::OldSqlite, None, false),
];
const ROWS: u32 = 100_000;
/// Sessions whose samples are drawn.
const DRAWN: usize = 1024;

const TEXT: &str = "\
Point selects of 100 000 rows by their id, as SQL, of the same SQLite. The innermost \
function decides, but for those of the kernel, the C library and the allocator, which count for their caller. \
Encoding the answer is not the engine's. Callers are found where there are frame pointers: build with \
`RUSTFLAGS=\"-C force-frame-pointers=yes\" \
CFLAGS=-fno-omit-frame-pointer`. The published engine is another one, so its shares do not compare, their order \
does.";

/// # Errors
/// A server or its load fails.
pub fn measure(plan: &Plan) -> Result<Found, Box<dyn Error>> {
    let mut found = Found { blocks: Vec::new(), files: Vec::new(), profiles: Vec::new() };
    let mut heading = vec!["sessions".to_owned()];
    heading.extend(SERVERS.iter().map(|(name, _, published, _)| match published {
        Some(share) => format!("{name} (published {share} %)"),
        None => (*name).to_owned(),
    }));
    heading.push("engine's time, to the first".to_owned());
    let mut table = markdown(&heading.iter().map(String::as_str).collect::<Vec<_>>());
    for sessions in if plan.quick { vec![DRAWN] } else { vec![64, 256, DRAWN, 4096] } {
        let mut row = vec![sessions.to_string()];
        let mut times = Vec::new();
        for (name, server, _, has_connections) in SERVERS {
            let connections = if has_connections { sessions } else { CONNECTIONS };
            let workload = crate::suite::sessions(connections, sessions, Question::Text, ROWS);
            let Some(taken) = take(&Server::Sql(server, ROWS), &workload, plan)? else {
                found.blocks.push("The engine's share was not measured.".to_owned());
                return Ok(found);
            };
            let Taken { samples, cpu_per_request } = taken;
            let of_engine = samples.iter().filter(|sample| Part::is_of_engine(sample)).count();
            row.push(cell(of_engine, samples.len(), cpu_per_request));
            times.push(of_engine as f64 / samples.len().max(1) as f64 * cpu_per_request);
            if sessions == DRAWN {
                let title = format!("{name}: point select, {sessions} sessions");
                let file = format!("share-{}.svg", name.to_lowercase());
                found.files.push((file, draw(&title, &samples)?));
            }
            let samples = samples.len();
            let server = name;
            found.profiles.push(Profile { server, sessions, samples, of_engine, cpu_per_request });
        }
        let ratios: Vec<_> = times.iter().map(|one| format!("{:.2}", one / times[0])).collect();
        row.push(ratios.join(", "));
        table.add_row(row);
    }
    let pictures: Vec<_> =
        found.files.iter().map(|(file, _)| format!("[{file}]({file})")).collect();
    found.blocks = vec![
        format!("### The engine's share\n\n{TEXT}"),
        table.to_string(),
        format!("Flame graphs with {DRAWN} sessions: {}.", pictures.join(", ")),
    ];
    Ok(found)
}

/// Draws samples as a flame graph, which is an SVG.
fn draw(title: &str, samples: &[Sample]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut stacks = BTreeMap::<String, usize>::new();
    for sample in samples {
        let names = sample.frames.iter().rev().map(|frame| frame.symbol.replace(';', ":"));
        *stacks.entry(names.collect::<Vec<_>>().join(";")).or_default() += 1;
    }
    let lines: Vec<_> = stacks.iter().map(|(stack, count)| format!("{stack} {count}")).collect();
    let mut options = flamegraph::Options::default();
    options.title = title.to_owned();
    // Narrower boxes cannot be read, and are most of the file.
    options.min_width = 0.2;
    let mut svg = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)?;
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::Frame;

    #[test]
    fn a_flame_graph_has_the_names_of_its_stacks() {
        let frame = |symbol: &str| Frame { symbol: symbol.to_owned(), object: String::new() };
        let samples = [["inner", "outer"], ["other; one", "outer"]]
            .map(|names| Sample { frames: names.map(frame).into() });
        let svg = String::from_utf8(draw("a title", &samples).unwrap()).unwrap();
        for name in ["a title", "inner", "other: one", "outer (2 samples"] {
            assert!(svg.contains(name), "{name}");
        }
    }
}

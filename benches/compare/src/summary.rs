//! Summary of a record of `benches/report.sh`: the tables of README and of the guide.

use std::path::Path;

use lab::ratio::{Spread, Verdict};
use lab::table::markdown;
use serde::Deserialize;

use crate::charts::read;
use crate::measured::Measured;
use crate::suite::locks::Release;
use crate::suite::many::bytes_each;
use crate::table::{CPU, HANGS, MEDIAN, Metric, P99, THROUGHPUT, or_dash, time};

/// Lanes of suites, and their names in the tables.
const SERVERS: [(&str, &str); 9] = [
    ("limit", "bare epoll loops"),
    ("easy-sync", "libeasy, sync"),
    ("easy-async", "libeasy, async"),
    ("uv", "libuv"),
    ("percona", "Percona"),
    ("grpc-cq", "gRPC's queue"),
    ("thread-per-connection", "thread per connection"),
    ("thread-per-session", "thread per session"),
    ("tokio", "tokio"),
];
/// Lanes of one suite each.
const MORE_NAMES: [(&str, &str); 9] = [
    ("loops", "bare epoll loops"),
    ("haproxy", "HAProxy"),
    ("tokio-rustls", "tokio-rustls"),
    ("jdbc", "thread per connection"),
    ("JDBC", "thread per connection"),
    ("old", "thread per session"),
    ("data node", "without it"),
    ("new", "the library alone"),
    ("epoll-group", "one group"),
];
const OURS: &str = "epoll-group";
const EACH: &str = "epoll-group, a connection each";

/// A number of one server, and of others under the same load.
struct Row {
    what: &'static str,
    /// Folder and file of the suite.
    suite: &'static str,
    experiment: &'static str,
    lane: &'static str,
    metric: Metric,
    others: &'static [&'static str],
}

const fn row(
    what: &'static str,
    [suite, experiment, lane]: [&'static str; 3],
    metric: Metric,
    others: &'static [&'static str],
) -> Row {
    Row { what, suite, experiment, lane, metric, others }
}

const ECHO: &str = "echo/echo";
const SELECT_ONE: &str = "select1/select1";
const HOT: &str = "hot/hot";
const PACED: &str = "paced/paced";
const BURNS: &str = "One request in flight that burns 5 ms";
const CROWD: &str = "1024 sessions, SQLite";
const BURST: &str = "256 x 1, bursts of 40 each 1000 µs";
const SHORT_BURST: &str = "64 x 1, bursts of 8 each 1000 µs, burn 20 µs";

/// Times, whose ratios are those of the others to this crate.
const TIMES: [Row; 5] = [
    row(
        "echo, CPU per request, 64 connections",
        [ECHO, "64 connections", OURS],
        CPU,
        &["limit", "tokio"],
    ),
    row(
        "echo, CPU per request, 1 024 connections",
        [ECHO, "1024 connections", OURS],
        CPU,
        &["limit", "tokio"],
    ),
    row(
        "`select 1`, CPU per request, 1 024 sessions on 1 024 connections",
        [SELECT_ONE, CROWD, EACH],
        CPU,
        &["jdbc"],
    ),
    row(
        "`select 1`, CPU per request, 1 024 sessions on 16 connections",
        [SELECT_ONE, CROWD, OURS],
        CPU,
        &["old"],
    ),
    row(
        "p99 of 64 light connections beside one that burns 5 ms per request",
        [HOT, BURNS, OURS],
        P99,
        &["thread-per-connection", "limit", "tokio"],
    ),
];

/// Ratios of this crate to the others, where it is worse or was.
const LOSSES: [Row; 25] = [
    row(
        "echo, 512 connections, CPU time",
        ["connections/servers", "512 x 1", OURS],
        CPU,
        &["limit", "uv", "tokio"],
    ),
    row(
        "echo, 1 024 connections, CPU time",
        ["connections/servers", "1024 x 1", OURS],
        CPU,
        &["limit", "uv", "tokio"],
    ),
    row(
        "1 024 connections ask at random times, CPU time",
        [PACED, "1024 x 1, at random, each after 51200 µs", OURS],
        CPU,
        &["limit", "tokio"],
    ),
    row(
        "6 000 connections ask once a second, CPU time",
        [PACED, "6000 x 1, at random, each after 1000000 µs", OURS],
        CPU,
        &["limit", "tokio"],
    ),
    row(
        "8 of 64 connections ask at once, median",
        [PACED, "64 x 1, bursts of 8 each 1000 µs", OURS],
        MEDIAN,
        &["limit", "tokio"],
    ),
    row(
        "40 of 256 connections ask at once, median",
        [PACED, BURST, OURS],
        MEDIAN,
        &["limit", "tokio"],
    ),
    row("40 of 256 connections ask at once, p99", [PACED, BURST, OURS], P99, &["limit", "tokio"]),
    row(
        "8 of 64 ask at once, handlers burn 20 µs, CPU time",
        [PACED, SHORT_BURST, OURS],
        CPU,
        &["limit", "tokio"],
    ),
    row(
        "2 sessions, a connection each, requests",
        [SELECT_ONE, "2 sessions, SQLite", EACH],
        THROUGHPUT,
        &["jdbc"],
    ),
    row(
        "8 sessions, a connection each, requests",
        [SELECT_ONE, "8 sessions, SQLite", EACH],
        THROUGHPUT,
        &["jdbc"],
    ),
    row(
        "2 sessions, a connection each, p99",
        [SELECT_ONE, "2 sessions, SQLite", EACH],
        P99,
        &["jdbc"],
    ),
    row(
        "128 sessions, a connection each, p99",
        [SELECT_ONE, "128 sessions, SQLite", EACH],
        P99,
        &["jdbc"],
    ),
    row(
        "transactions of 64 sessions",
        ["large/large", "transactions, 64 sessions", "new"],
        THROUGHPUT,
        &["old", "jdbc"],
    ),
    row(
        "the same, CPU time",
        ["large/large", "transactions, 64 sessions", "new"],
        CPU,
        &["old", "jdbc"],
    ),
    row(
        "one lock for all, transactions",
        ["locks/locks", "Transactions of 64 connections over 1 locks", OURS],
        THROUGHPUT,
        &["thread-per-connection"],
    ),
    row(
        "one lock for all, CPU time",
        ["locks/locks", "Transactions of 64 connections over 1 locks", OURS],
        CPU,
        &["thread-per-connection"],
    ),
    row(
        "16 locks, transactions",
        ["locks/locks", "Transactions of 64 connections over 16 locks", OURS],
        THROUGHPUT,
        &["thread-per-connection", "percona"],
    ),
    row(
        "16 locks, CPU time",
        ["locks/locks", "Transactions of 64 connections over 16 locks", OURS],
        CPU,
        &["thread-per-connection", "percona"],
    ),
    row(
        "four groups, CPU time",
        ["scaling/scaling", "Groups and threads, 1024 connections", "epoll-group:groups=4"],
        CPU,
        &["epoll-group"],
    ),
    row(
        "proxy of 64 bytes, 512 connections, CPU time",
        ["splice/splice", "512 x 1", OURS],
        CPU,
        &["loops", "haproxy", "tokio"],
    ),
    row(
        "full TLS handshake, CPU time",
        ["tls/tls", "full handshakes, 8 clients", OURS],
        CPU,
        &["tokio-rustls"],
    ),
    row(
        "resumed TLS handshake, CPU time",
        ["tls/tls", "resumed handshakes, 8 clients", OURS],
        CPU,
        &["tokio-rustls"],
    ),
    row(
        "`select 1` through the sharding proxy, CPU time",
        ["sharded/sharded", "select 1, 1024 sessions", "through the proxy"],
        CPU,
        &["data node"],
    ),
    row(
        "a cached statement through it, CPU time",
        ["sharded/sharded", "one row, a cached statement, 1024 sessions", "through the proxy"],
        CPU,
        &["data node"],
    ),
    row(
        "SQL text through it, CPU time",
        ["sharded/sharded", "one row, SQL text, 1024 sessions", "through the proxy"],
        CPU,
        &["data node"],
    ),
];

const TIMES_TEXT: &str = "\
Medians, and those of others divided by them: above 1, epoll-group needs less. In brackets is the interval that holds \
the ratio with 95 % confidence, in italics a tie. The last two rows have the numbers themselves.";
const ECHO_TEXT: &str = "CPU time of frames of 64 bytes, divided by that of epoll-group.";
const DATABASES_TEXT: &str = "\
`select 1` on SQLite. *Shared*: epoll-group, all sessions over 16 connections. *Each*: epoll-group, a connection for \
each session. *Old*: 16 connections, a thread for each session. *JDBC*: a connection and a thread for each session.";
const WAITING_TEXT: &str = "\
The p99 of 64 light connections beside a busy one, of the others divided by that of epoll-group, and the time until 64 \
handlers have a lock that request 65 gives back.";
const LOSSES_TEXT: &str = "Numbers of epoll-group, divided by those of others.";

/// Rows of the table of echo, in connections.
const ECHO_ROWS: [usize; 3] = [4, 64, 1024];
/// Rows and lanes of the table of `select 1`.
const SESSIONS: [usize; 3] = [2, 64, 1024];
const DATABASES: [(&str, &str); 4] =
    [(OURS, "shared"), (EACH, "each"), ("old", "old"), ("jdbc", "JDBC")];

/// A file of a suite.
#[derive(Deserialize)]
struct File {
    raw: Raw,
}

#[derive(Deserialize)]
struct Raw {
    experiments: Vec<Measured>,
    #[serde(default)]
    releases: Vec<Release>,
}

/// A record, whose files are read as they are needed.
struct Record<'a>(&'a Path);

/// The summary as Markdown.
///
/// A table is left out, with the reason, if a number of it is missing: a part may have failed, and other
/// machines have other servers.
pub fn write(folder: &Path) -> String {
    let record = Record(folder);
    let tables = [
        ("Numbers", TIMES_TEXT, record.times()),
        ("A request without work", ECHO_TEXT, record.echo()),
        ("A request to a database", DATABASES_TEXT, record.databases()),
        ("Waiting for others", WAITING_TEXT, record.waiting()),
        ("Where it loses", LOSSES_TEXT, record.losses()),
    ];
    let text = tables.map(|(title, text, table)| {
        let table = table.unwrap_or_else(|error| format!("Left out: {error}.\n"));
        format!("## {title}\n\n{text}\n\n{table}\n")
    });
    text.join("\n")
}

impl Record<'_> {
    fn raw(&self, suite: &str) -> Result<Raw, String> {
        read::<File>(self.0, &format!("{suite}.json")).map(|file| file.raw)
    }

    fn releases(&self) -> Result<Vec<Release>, String> {
        self.raw("locks/locks").map(|raw| raw.releases)
    }

    fn experiment(&self, suite: &str, name: &str) -> Result<Measured, String> {
        let found = self.raw(suite)?.experiments.into_iter().find(|found| found.name == name);
        found.ok_or_else(|| format!("{suite} has no experiment {name:?}"))
    }

    fn times(&self) -> Result<String, String> {
        let mut table = markdown(&["measured", "epoll-group", "compared with"]);
        for row in &TIMES {
            let found = self.experiment(row.suite, row.experiment)?;
            let ours = value(&found, lane_of(&found, row.lane)?, row.metric);
            let others = row.ratios(&found, |ours, other| (other, ours))?;
            table.add_row([row.what, &ours, &others]);
        }
        let release = "64 handlers wait for a lock that request 65 gives back";
        let releases = self.releases()?;
        table.add_row(plain_numbers(release, &["thread-per-connection", "limit"], |lane| {
            release_of(&releases, lane)
        })?);
        let many = self.experiment("many/many", "19000 connections, 256 of them ask")?;
        let bytes = bytes_each(19_000);
        let memory = "bytes per connection, 19 000 open, 256 of them ask";
        table.add_row(plain_numbers(memory, &["limit", "tokio"], |lane| {
            Ok(or_dash(bytes(&many, lane_of(&many, lane)?)))
        })?);
        Ok(table.to_string())
    }

    fn losses(&self) -> Result<String, String> {
        let mut table = markdown(&["measured", "this crate divided by"]);
        for row in &LOSSES {
            let found = self.experiment(row.suite, row.experiment)?;
            let others = row.ratios(&found, |ours, other| (ours, other))?;
            table.add_row([row.what, &others]);
        }
        Ok(table.to_string())
    }

    /// CPU time of others divided by that of this crate.
    fn echo(&self) -> Result<String, String> {
        let servers = SERVERS.iter().filter(|(lane, _)| *lane != "uv");
        let headings = ["connections"].into_iter().chain(servers.clone().map(|(_, name)| *name));
        let mut table = markdown(&headings.collect::<Vec<_>>());
        for connections in ECHO_ROWS {
            let found = self.experiment(ECHO, &format!("{connections} connections"))?;
            let ours = lane_of(&found, OURS)?;
            let mut row = vec![connections.to_string()];
            for (lane, _) in servers.clone() {
                row.push(ratio(&found, lane_of(&found, lane)?, ours, CPU));
            }
            table.add_row(row);
        }
        Ok(table.to_string())
    }

    fn databases(&self) -> Result<String, String> {
        let headings = |what: &'static str| DATABASES.map(|(_, name)| format!("{what}: {name}"));
        let headings =
            [vec!["sessions".to_owned()], headings("CPU").into(), headings("p99").into()].concat();
        let mut table = markdown(&headings.iter().map(String::as_str).collect::<Vec<_>>());
        for sessions in SESSIONS {
            let found = self.experiment(SELECT_ONE, &format!("{sessions} sessions, SQLite"))?;
            let mut row = vec![sessions.to_string()];
            for metric in [CPU, P99] {
                for (lane, _) in DATABASES {
                    row.push(value(&found, lane_of(&found, lane)?, metric));
                }
            }
            table.add_row(row);
        }
        Ok(table.to_string())
    }

    /// The p99 beside a busy connection, and the time until all had a lock.
    fn waiting(&self) -> Result<String, String> {
        let mut table =
            markdown(&["server", "beside 1 request of 5 ms", "beside 512 of 50 µs", "64 wait"]);
        let beside = self.raw(HOT)?.experiments;
        let releases = self.releases()?;
        for (lane, name) in [(OURS, OURS)].into_iter().chain(SERVERS) {
            let mut row = vec![name.to_owned()];
            for found in &beside {
                let (ours, other) = (lane_of(found, OURS)?, lane_of(found, lane)?);
                row.push(if lane == OURS {
                    value(found, ours, P99)
                } else {
                    ratio(found, other, ours, P99)
                });
            }
            row.push(release_of(&releases, lane)?);
            table.add_row(row);
        }
        Ok(table.to_string())
    }
}

impl Row {
    /// The ratio of the row to each other server. `ordered` gets the lane of this crate and that of the
    /// other server, and returns the dividend and the divisor.
    fn ratios(
        &self,
        found: &Measured,
        ordered: fn(usize, usize) -> (usize, usize),
    ) -> Result<String, String> {
        let ours = lane_of(found, self.lane)?;
        beside(self.others, |other| {
            let (lane, base) = ordered(ours, lane_of(found, other)?);
            Ok(ratio(found, lane, base, self.metric))
        })
    }
}

/// A row with the numbers of this crate and of others, without ratios.
fn plain_numbers(
    what: &str,
    others: &[&str],
    number: impl Fn(&str) -> Result<String, String>,
) -> Result<[String; 3], String> {
    Ok([what.to_owned(), number(OURS)?, beside(others, &number)?])
}

/// Names of servers, each with a number.
fn beside(
    others: &[&str],
    number: impl Fn(&str) -> Result<String, String>,
) -> Result<String, String> {
    let others = others.iter().map(|lane| Ok(format!("{}: {}", name_of(lane), number(lane)?)));
    Ok(others.collect::<Result<Vec<_>, String>>()?.join("; "))
}

/// Time until all had the lock, or that the server hangs.
fn release_of(releases: &[Release], lane: &str) -> Result<String, String> {
    let release = releases.iter().find(|release| release.server == lane);
    let release = release.ok_or_else(|| format!("locks has no {lane}"))?;
    Ok(release.nanos.map_or_else(|| HANGS.to_owned(), |nanos| time(nanos as f64)))
}

/// The first lane of this name, whatever its number of CPUs.
fn lane_of(found: &Measured, name: &str) -> Result<usize, String> {
    let is_it = |lane: &str| lane.split(":cpus=").next() == Some(name);
    let lane = found.lanes.iter().position(|lane| is_it(&lane.server));
    lane.ok_or_else(|| format!("{} has no server {name}", found.name))
}

fn name_of(lane: &str) -> &str {
    let mut names = SERVERS.iter().chain(&MORE_NAMES);
    names.find(|(known, _)| *known == lane).map_or(lane, |(_, name)| name)
}

fn value(found: &Measured, lane: usize, metric: Metric) -> String {
    or_dash(found.values(lane, metric).map(|spread| time(spread.median)))
}

/// `1.19 [1.02–1.38]`, in italics if it is a tie.
fn ratio(found: &Measured, lane: usize, base: usize, metric: Metric) -> String {
    let text = |spread: Spread| {
        let (low, high) = spread.interval();
        let text = format!("{} [{}–{}]", digits(spread.median), digits(low), digits(high));
        if spread.ratio().verdict == Verdict::Tie { format!("*{text}*") } else { text }
    };
    or_dash(found.ratio(lane, base, metric).map(text))
}

/// Two digits behind the point, none from 10 on.
fn digits(value: f64) -> String {
    if value < 9.995 { format!("{value:.2}") } else { format!("{value:.0}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measured::tests::measured;
    use crate::suite::SUITES;

    #[test]
    fn ratios_are_those_of_rounds_and_ties_are_in_italics() {
        let found = measured(&[[100.0; 5], [97.0, 99.0, 101.0, 102.0, 103.0], [2000.0; 5]]);
        let of = |lane| ratio(&found, lane_of(&found, lane).unwrap(), 0, CPU);
        assert_eq!((of("b"), of("c")), ("*1.01 [0.97–1.03]*".into(), "20 [20–20]".into()));
        assert_eq!(value(&found, 2, CPU), "2.00 µs");
        assert_eq!(lane_of(&found, "z"), Err("a test has no server z".to_owned()));
        assert_eq!((name_of("loops"), name_of("a")), ("bare epoll loops", "a"));
    }

    #[test]
    fn rows_name_suites() {
        for Row { what, suite, .. } in TIMES.iter().chain(&LOSSES) {
            let (folder, file) = suite.split_once('/').unwrap();
            let is_suite = SUITES.iter().any(|suite| suite.name == folder);
            assert!(is_suite && file == folder || file == "servers", "{what}: {suite}");
        }
    }
}

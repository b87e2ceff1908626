//! Without arguments: an echo server, a client, and a relay between them with one fault after another.

use std::error::Error;
use std::io::Write;
use std::sync::mpsc;
use std::time::Duration;

use lab::address::Address;
use lab::faults::passage::End;
use lab::faults::relay::{Relay, Report};
use lab::table;
use lab::terminal::ProgressLine;
use lab::units::{Count, Nanos};

use crate::args;
use crate::exchange::{Exchange, SIZE, Saw, echo, exchange};

const SEED: u64 = 7;
/// Longest time for a report after the end of its connection.
const PATIENCE: Duration = Duration::from_secs(10);

/// A fault, and what a client must see of it.
struct Case {
    options: &'static str,
    about: &'static str,
    holds: fn(&Exchange, &Report) -> bool,
}

const CASES: &[Case] = &[
    Case { options: "", about: "as it is", holds: |seen, _| seen.whole() },
    Case {
        options: "--delay 40ms~20ms",
        about: "there and back",
        holds: |seen, _| seen.whole() && seen.time >= Duration::from_millis(80),
    },
    Case { options: "--chop 5", about: "in tiny pieces", holds: |seen, _| seen.whole() },
    Case { options: "--coalesce 30ms,8192", about: "in lumps", holds: |seen, _| seen.whole() },
    Case {
        options: "--corrupt down@1e-3",
        about: "bits turned over",
        holds: |seen, report| {
            let flipped = report.down.flipped;
            seen.arrived == seen.sent && flipped > 0 && seen.places.len() as u64 == flipped
        },
    },
    Case {
        options: "--rate down@200000",
        about: "a slow line",
        holds: |seen, _| seen.whole() && seen.time >= Duration::from_millis(300),
    },
    Case {
        options: "--stop up@20000+300ms",
        about: "silent for a while",
        holds: |seen, _| seen.whole() && seen.time >= Duration::from_millis(300),
    },
    Case {
        options: "--stop down@20000",
        about: "silent for ever",
        holds: |seen, _| seen.intact() && seen.arrived == 20_000 && seen.saw == Saw::Silence,
    },
    Case {
        options: "--cut down@20000",
        about: "closed",
        holds: |seen, report| {
            let cut = matches!(report.end, End::Cut(_, 20_000, _));
            seen.intact() && seen.arrived == 20_000 && seen.saw == Saw::End && cut
        },
    },
    Case {
        options: "--reset down@20000",
        about: "reset",
        holds: |seen, report| {
            let cut = matches!(report.end, End::Cut(_, 20_000, _));
            seen.intact() && seen.arrived <= 20_000 && seen.saw == Saw::Reset && cut
        },
    },
    Case {
        options: "--delay 1ms~3ms --chop 900 --stop down@9000+50ms --rate 600000",
        about: "all at once",
        holds: |seen, _| seen.whole(),
    },
];

/// Shows and checks the faults; takes some seconds.
pub(crate) fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let server = echo(&"127.0.0.1:0".parse()?)?;
    let bytes = Count(SIZE as f64);
    writeln!(
        out,
        "a client, a relay and an echo server: {bytes} bytes there and back, seed {SEED}\n"
    )?;
    let heading =
        ["fault", "sent", "arrived", "corrupted", "cut at", "time", "client saw", "options"];
    let mut table = table::numbers(&heading);
    let mut line = ProgressLine::new();
    for case in CASES {
        line.update(case.about);
        let (seen, report) = pass(&server, case.options, SEED)?;
        if !(case.holds)(&seen, &report) {
            let what = case.about;
            return Err(format!("{what}: not what was to be seen: {seen:?}, {report:?}").into());
        }
        let cut = match report.end {
            End::Cut(_, byte, _) => Count(byte as f64).to_string(),
            _ => "-".to_owned(),
        };
        let [sent, arrived, corrupted] = [seen.sent, seen.arrived, seen.places.len() as u64]
            .map(|count| Count(count as f64).to_string());
        let (time, saw) = (Nanos::of(seen.time).to_string(), seen.saw.to_string());
        let (about, options) = (case.about.to_owned(), case.options.to_owned());
        table.add_row([about, sent, arrived, corrupted, cut, time, saw, options]);
    }
    line.clear();
    writeln!(out, "{}\n", table.trim_fmt())?;
    repeats(&server, out)
}

/// The same seed corrupts the same bytes again, another seed others.
fn repeats(server: &Address, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let places = |seed| {
        let (seen, _) = pass(server, "--corrupt down@1e-4", seed)?;
        Ok::<_, Box<dyn Error>>(seen.places)
    };
    let (first, again, other) = (places(SEED)?, places(SEED)?, places(SEED + 1)?);
    writeln!(out, "seed {SEED} corrupts {first:?}")?;
    writeln!(out, "seed {SEED} corrupts {again:?}")?;
    writeln!(out, "seed {} corrupts {other:?}", SEED + 1)?;
    if first != again || first == other {
        return Err("the corrupted bytes do not follow from the seed".into());
    }
    Ok(())
}

/// One connection through a relay with these faults.
fn pass(server: &Address, options: &str, seed: u64) -> Result<(Exchange, Report), Box<dyn Error>> {
    let script = args::script(options, seed)?;
    let (give, reports) = mpsc::channel();
    let tell = move |report: &Report| {
        let _ = give.send(*report);
    };
    let listen = "127.0.0.1:0".parse()?;
    let relay = Relay::start_telling(script, &listen, server.clone(), tell)?;
    let seen = exchange(relay.address())?;
    relay.cut_all();
    let report = reports.recv_timeout(PATIENCE)?;
    Ok((seen, report))
}

//! The command line.

use std::time::Duration;

use clap::Parser;
use lab::address::Address;
use lab::args::within;
use lab::faults::plan::CAPACITY;
use lab::faults::script::{Coalesce, Cut, Faults, How, Mark, Script, Stop};

/// A proxy that does to connections what networks do.
///
/// Without arguments it shows and checks a table of faults. With --listen and --to it is a relay
/// until SIGTERM or SIGINT, with a line for each connection that has ended.
///
/// ADDR is HOST:PORT or unix:PATH; port 0 takes any free one. Up is from the client to the server, down
/// is from the server to the client. Every fault is for both directions, or, with up@ or down@ before
/// its value, for one. TIME is a number and us, ms or s, up to 1000s. AT is a number of bytes passed on
/// in that direction, or a TIME after the connection was made.
///
/// At most 4096 connections at a time. For each direction of each, up to 256 KiB are held.
#[derive(Debug, Parser)]
#[command(name = "faults")]
pub(crate) struct Args {
    /// Where to listen
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: Option<Address>,
    /// Server to pass connections on to
    #[arg(long, value_name = "ADDR")]
    pub(crate) to: Option<Address>,
    /// The same seed gives the connection with the same number the same faults
    #[arg(long, value_name = "S", default_value = "0")]
    seed: u64,
    /// Part of the connections that get faults, 0 to 1
    #[arg(long, value_name = "PART", default_value = "1", value_parser = within(0.0..=1.0))]
    share: f64,
    /// Turn a bit over in this part of the bytes, 0 to 1
    #[arg(long, value_name = "RATE", value_parser = directed(within(0.0..=1.0)))]
    corrupt: Vec<Directed<f64>>,
    /// Pass each byte on later by the first time, and by up to the second time more
    #[arg(long, value_name = "TIME[~TIME]", value_parser = directed(delay))]
    delay: Vec<Directed<(Duration, Duration)>>,
    /// Gather bytes for this time, or until there are N, 1 to 131072
    #[arg(long, value_name = "TIME[,N]", value_parser = directed(coalesce))]
    coalesce: Vec<Directed<Coalesce>>,
    /// Send pieces of 1 to N bytes, N 1 to 1048576
    #[arg(long, value_name = "N", value_parser = directed(within(1_u64..=1 << 20)))]
    chop: Vec<Directed<u64>>,
    /// Bytes per second, 1 to 10000000000
    #[arg(long, value_name = "N", value_parser = directed(within(1..=10_000_000_000_u64)))]
    rate: Vec<Directed<u64>>,
    /// Pass nothing on from there, for ever or for this time
    #[arg(long, value_name = "AT[+TIME]", value_parser = directed(stop))]
    stop: Vec<Directed<Stop>>,
    /// Close the connection there, on both sides
    #[arg(long, value_name = "AT", value_parser = directed(mark))]
    cut: Vec<Directed<Mark>>,
    /// Reset the connection there, on both sides (TCP)
    #[arg(long, value_name = "AT", value_parser = directed(mark))]
    reset: Vec<Directed<Mark>>,
}

/// A value for one direction or for both.
#[derive(Clone, Debug)]
struct Directed<T> {
    up: bool,
    down: bool,
    value: T,
}

/// Limit of gathered bytes, below the capacity of a plan.
const MOST_GATHERED: u64 = CAPACITY as u64 / 2;
const LONGEST: Duration = Duration::from_secs(1000);

impl Args {
    /// The faults. Of several values of an option for a direction the last counts; a reset counts
    /// more than a cut.
    pub(crate) fn script(&self) -> Script {
        let mut script = Script { seed: self.seed, share: self.share, ..Script::clean() };
        each(&mut script, &self.corrupt, |faults, &part| faults.corrupt = part);
        each(&mut script, &self.delay, |faults, &(delay, jitter)| {
            (faults.delay, faults.jitter) = (delay, jitter);
        });
        each(&mut script, &self.coalesce, |faults, &coalesce| faults.coalesce = Some(coalesce));
        each(&mut script, &self.chop, |faults, &bytes| faults.chop = Some(bytes));
        each(&mut script, &self.rate, |faults, &rate| faults.rate = Some(rate));
        each(&mut script, &self.stop, |faults, &stop| faults.stop = Some(stop));
        for (marks, how) in [(&self.cut, How::Close), (&self.reset, How::Reset)] {
            each(&mut script, marks, |faults, &at| faults.cut = Some(Cut { at, how }));
        }
        script
    }
}

/// The faults that a command line with these options has.
pub(crate) fn script(options: &str, seed: u64) -> Result<Script, clap::Error> {
    let args = Args::try_parse_from(["faults"].into_iter().chain(options.split_whitespace()))?;
    Ok(Script { seed, ..args.script() })
}

fn each<T>(script: &mut Script, values: &[Directed<T>], set: impl Fn(&mut Faults, &T)) {
    for Directed { up, down, value } in values {
        if *up {
            set(&mut script.up, value);
        }
        if *down {
            set(&mut script.down, value);
        }
    }
}

/// Parser of `[up@|down@]VALUE`.
fn directed<T>(
    parse: impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
) -> impl Fn(&str) -> Result<Directed<T>, String> + Clone + Send + Sync + 'static {
    move |text| match text.split_once('@') {
        None => Ok(Directed { up: true, down: true, value: parse(text)? }),
        Some(("up", value)) => Ok(Directed { up: true, down: false, value: parse(value)? }),
        Some(("down", value)) => Ok(Directed { up: false, down: true, value: parse(value)? }),
        Some((other, _)) => Err(format!("{other} is neither up nor down")),
    }
}

fn delay(text: &str) -> Result<(Duration, Duration), String> {
    let (delay, jitter) = text.split_once('~').unwrap_or((text, "0ms"));
    Ok((time(delay)?, time(jitter)?))
}

fn coalesce(text: &str) -> Result<Coalesce, String> {
    let (wait, bytes) = text.split_once(',').unwrap_or((text, "131072"));
    Ok(Coalesce { bytes: within(1..=MOST_GATHERED)(bytes)?, time: time(wait)? })
}

fn stop(text: &str) -> Result<Stop, String> {
    let (at, pause) = match text.split_once('+') {
        None => (text, None),
        Some((at, pause)) => (at, Some(time(pause)?)),
    };
    Ok(Stop { at: mark(at)?, pause })
}

fn mark(text: &str) -> Result<Mark, String> {
    match text.parse() {
        Ok(byte) => Ok(Mark::Byte(byte)),
        Err(_) => time(text).map(Mark::Time),
    }
}

fn time(text: &str) -> Result<Duration, String> {
    let units = [("us", 1), ("ms", 1000), ("s", 1_000_000)];
    let parse = |(suffix, micros): (&str, u64)| {
        let number: u64 = text.strip_suffix(suffix)?.parse().ok()?;
        Some(Duration::from_micros(number.checked_mul(micros)?))
    };
    match units.into_iter().find_map(parse) {
        Some(time) if time <= LONGEST => Ok(time),
        Some(_) => Err(format!("{text} is longer than {LONGEST:?}")),
        None => Err(format!("{text} is not a time such as 250us, 5ms or 10s")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_for_both_directions_or_for_one() {
        let script = script(
            "--chop 1 --delay 5ms~2us --corrupt down@1e-4 --stop down@10s+500ms \
             --cut up@4096 --reset down@1s --rate 1000 --coalesce up@10ms,64 --share 0.5",
            7,
        )
        .expect("good options");
        assert_eq!((script.seed, script.share), (7, 0.5));
        assert_eq!((script.up.chop, script.down.chop), (Some(1), Some(1)));
        assert_eq!(script.up.delay, Duration::from_millis(5));
        assert_eq!(script.up.jitter, Duration::from_micros(2));
        assert_eq!((script.up.corrupt, script.down.corrupt), (0.0, 1e-4));
        let stop = script.down.stop.expect("a stop");
        assert_eq!(stop.at, Mark::Time(Duration::from_secs(10)));
        assert_eq!(stop.pause, Some(Duration::from_millis(500)));
        assert!(script.up.stop.is_none());
        let cut = script.up.cut.expect("a cut");
        assert_eq!((cut.at, cut.how), (Mark::Byte(4096), How::Close));
        assert_eq!(script.down.cut.expect("a reset").how, How::Reset);
        assert_eq!(script.up.coalesce.expect("gathered").bytes, 64);
        assert!(script.down.coalesce.is_none());
    }

    #[test]
    fn an_error_names_the_option_its_value_and_what_it_may_be() {
        for (line, what) in [
            ("--chop 0", "0 is outside 1..=1048576"),
            ("--chop up@x", "x is not a number in 1..=1048576"),
            ("--corrupt 2", "2 is outside 0.0..=1.0"),
            ("--delay 5", "5 is not a time such as 250us, 5ms or 10s"),
            ("--delay 2d", "2d is not a time such as 250us, 5ms or 10s"),
            ("--delay 2000s", "2000s is longer than 1000s"),
            ("--stop left@1", "left is neither up nor down"),
            ("--stop 1x", "1x is not a time such as 250us, 5ms or 10s"),
            ("--share 1.5", "1.5 is outside 0.0..=1.0"),
            ("--listen nowhere", "nowhere is neither HOST:PORT nor unix:PATH: "),
        ] {
            let (option, value) = line.split_once(' ').expect("an option and its value");
            let error = script(line, 0).expect_err(line).to_string();
            let expected = format!("error: invalid value '{value}' for '{option} <");
            assert!(error.starts_with(&expected) && error.contains(what), "{error}");
        }
        let error = script("--dely 5ms", 0).expect_err("there is no such option").to_string();
        assert!(error.contains("--dely"), "{error}");
    }

    #[test]
    fn no_arguments_are_the_demonstration() {
        let args = Args::try_parse_from(["faults"]).expect("none is needed");
        assert!(args.listen.is_none() && args.to.is_none());
    }
}

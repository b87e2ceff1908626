//! The command line.
#![forbid(unsafe_code)]

mod value;

use std::ffi::OsString;

use lexopt::{Arg, Parser};

use crate::usage::{UsageError, number, text};
use lab::address::Address;
use lab::faults::plan::CAPACITY;
use lab::faults::script::{Coalesce, Cut, Direction, Faults, How, Script, Stop};

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Command {
    /// A table of faults.
    Demo,
    /// A relay until it is told to end.
    Serve(Box<Serve>),
    Help,
}

/// A relay for somebody's server.
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) listen: Address,
    pub(crate) to: Address,
    pub(crate) script: Script,
}

pub(crate) const HELP: &str = include_str!("args/help.txt");

/// Most bytes that are gathered: fewer than a plan holds.
const MOST_GATHERED: u64 = CAPACITY as u64 / 2;

impl Command {
    /// Reads the arguments of this process.
    pub(crate) fn from_env() -> Result<Self, UsageError> {
        Self::parse(&mut Parser::from_env())
    }

    fn parse(parser: &mut Parser) -> Result<Self, UsageError> {
        let (mut listen, mut to, mut script) = (None, None, Script::clean());
        let mut any = false;
        while let Some(arg) = parser.next()? {
            any = true;
            let name = match arg {
                Arg::Short('h') | Arg::Long("help") => return Ok(Self::Help),
                Arg::Long(name) => name.to_owned(),
                other => return Err(other.unexpected().into()),
            };
            match name.as_str() {
                "listen" => listen = Some(address("--listen", parser.value()?)?),
                "to" => to = Some(address("--to", parser.value()?)?),
                "seed" => script.seed = number("--seed", parser.value()?, 0..=u64::MAX)?,
                "share" => script.share = number("--share", parser.value()?, 0.0..=1.0)?,
                "corrupt" | "delay" | "coalesce" | "chop" | "rate" | "stop" | "cut" | "reset" => {
                    fault(&mut script, &name, parser.value()?)?;
                }
                _ => return Err(Arg::Long(&name).unexpected().into()),
            }
        }
        let needed = |place: Option<Address>, option| {
            place.ok_or_else(|| UsageError(format!("a proxy needs {option}")))
        };
        if !any {
            return Ok(Self::Demo);
        }
        let (listen, to) = (needed(listen, "--listen")?, needed(to, "--to")?);
        Ok(Self::Serve(Box::new(Serve { listen, to, script })))
    }
}

/// Options of faults, as on the command line.
pub(crate) fn script(options: &str, seed: u64) -> Result<Script, UsageError> {
    let mut parser = Parser::from_args(options.split_whitespace());
    let mut script = Script { seed, ..Script::clean() };
    while let Some(arg) = parser.next()? {
        let Arg::Long(name) = arg else { return Err(arg.unexpected().into()) };
        let name = name.to_owned();
        fault(&mut script, &name, parser.value()?)?;
    }
    Ok(script)
}

fn address(option: &str, value: OsString) -> Result<Address, UsageError> {
    let value = text(option, value)?;
    value.parse().map_err(|error| {
        UsageError(format!("{option} {value} is neither HOST:PORT nor unix:PATH: {error}"))
    })
}

/// `[up@|down@]VALUE`: for one direction, or for both.
fn fault(script: &mut Script, name: &str, value: OsString) -> Result<(), UsageError> {
    let option = format!("--{name}");
    let whole = text(&option, value)?;
    let (direction, value) = match whole.split_once('@') {
        None => (None, whole.as_str()),
        Some(("up", value)) => (Some(Direction::Up), value),
        Some(("down", value)) => (Some(Direction::Down), value),
        Some((other, _)) => {
            return Err(UsageError(format!("{option} {whole}: {other} is neither up nor down")));
        }
    };
    let bad = |what: String| UsageError(format!("{option} {whole}: {what}"));
    if direction != Some(Direction::Down) {
        set(&mut script.up, name, value).map_err(bad)?;
    }
    if direction != Some(Direction::Up) {
        set(&mut script.down, name, value).map_err(bad)?;
    }
    Ok(())
}

fn set(faults: &mut Faults, name: &str, value: &str) -> Result<(), String> {
    match name {
        "corrupt" => faults.corrupt = value::in_range(value, 0.0..=1.0)?,
        "delay" => {
            let (delay, jitter) = value.split_once('~').unwrap_or((value, "0ms"));
            faults.delay = value::time(delay)?;
            faults.jitter = value::time(jitter)?;
        }
        "coalesce" => {
            let (time, bytes) = value.split_once(',').unwrap_or((value, "131072"));
            let bytes = value::in_range(bytes, 1..=MOST_GATHERED)?;
            faults.coalesce = Some(Coalesce { time: value::time(time)?, bytes });
        }
        "chop" => faults.chop = Some(value::in_range(value, 1..=1 << 20)?),
        "rate" => faults.rate = Some(value::in_range(value, 1..=10_000_000_000)?),
        "stop" => {
            let (at, pause) = match value.split_once('+') {
                None => (value, None),
                Some((at, pause)) => (at, Some(value::time(pause)?)),
            };
            faults.stop = Some(Stop { at: value::mark(at)?, pause });
        }
        _ => {
            let how = if name == "reset" { How::Reset } else { How::Close };
            faults.cut = Some(Cut { at: value::mark(value)?, how });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use lab::faults::script::Mark;

    fn parse(line: &str) -> Result<Command, String> {
        let mut parser = Parser::from_args(line.split_whitespace());
        Command::parse(&mut parser).map_err(|error| error.to_string())
    }

    fn script(line: &str) -> Script {
        match parse(&format!("--listen 127.0.0.1:0 --to 127.0.0.1:1 {line}")) {
            Ok(Command::Serve(serve)) => serve.script,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_fault_is_for_both_directions_or_for_one() {
        let script = script(
            "--seed 7 --chop 1 --delay 5ms~2us --corrupt down@1e-4 --stop down@10s+500ms \
             --cut up@4096 --reset down@1s --rate 1000 --coalesce up@10ms,64 --share 0.5",
        );
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
        for (line, expected) in [
            ("--chop 0", "--chop 0: 0 is outside 1..=1048576"),
            ("--chop up@x", "--chop up@x: x is not a number in 1..=1048576"),
            ("--corrupt 2", "--corrupt 2: 2 is outside 0.0..=1.0"),
            ("--delay 5", "--delay 5: 5 is not a time such as 250us, 5ms or 10s"),
            ("--delay 2d", "--delay 2d: 2d is not a time such as 250us, 5ms or 10s"),
            ("--delay 2000s", "--delay 2000s: 2000s is longer than 1000s"),
            ("--stop left@1", "--stop left@1: left is neither up nor down"),
            ("--stop 1x", "--stop 1x: 1x is neither bytes nor a time such as 250us, 5ms or 10s"),
            ("--share 1.5", "--share 1.5 is outside 0.0..=1.0"),
            ("--listen nowhere", "--listen nowhere is neither HOST:PORT nor unix:PATH: "),
            ("--listen 127.0.0.1:0", "a proxy needs --to"),
            ("--dely 5ms", "invalid option '--dely'"),
        ] {
            let error = parse(line).expect_err(line);
            assert!(error.starts_with(expected), "{error}");
            assert!(error.ends_with("(--help lists the options)"), "{error}");
        }
    }

    #[test]
    fn no_arguments_are_the_demonstration() {
        assert!(matches!(parse(""), Ok(Command::Demo)));
        assert!(matches!(parse("--help"), Ok(Command::Help)));
    }
}

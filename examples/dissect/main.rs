//! Shows the frames of a captured conversation: what each says, where it begins, what is wrong.
//!
//! ```text
//! cargo run --example dissect                               # a recorded conversation, checked
//! cargo run --example dissect -- tests/golden/c2s.jsonl     # recorded vectors
//! xxd capture | cargo run --example dissect -- -            # a hex dump of one direction
//! cargo run --example dissect -- --direction server capture # its bytes as they are
//! ```
//!
//! Values of rows are shown when the columns were described before. Behind an unknown kind or a body
//! that is none it goes on with the next frame; behind a header that is none it cannot. The proof of
//! a login is not shown.

#![allow(missing_docs, reason = "an example is read, not linked")]

mod check;
mod dissector;
mod fields;
mod guess;
mod input;
mod values;

use std::error::Error;
use std::ffi::OsString;
use std::io::{self, Read as _, Write as _};
use std::process::ExitCode;

use epoll_group::codec::dialect::Dialect;
use lexopt::{Arg, ValueExt as _};

use dissector::{Dissector, Side, Tally};

const HELP: &str = "\
Shows the frames of a captured conversation.

usage: dissect [--direction client|server] [--dialect legacy|galaxy] [--rows N] [FILE|-]

  FILE          a hex dump (xxd, hexdump -C, plain digits), the bytes themselves, or .jsonl vectors;
                - is the standard input; without FILE a recorded conversation is shown and checked
  --direction   who sent the bytes (default: guessed; vectors say it)
  --dialect     headers of 13 or of 14 bytes (default: guessed)
  --rows N      rows shown of each chunk (default 20)
";

#[derive(Default)]
struct Args {
    file: Option<OsString>,
    options: Options,
}

/// What the user knows and the bytes do not say.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    direction: Option<Side>,
    dialect: Option<Dialect>,
    rows: Option<usize>,
}

fn main() -> ExitCode {
    let args = match args() {
        Ok(Some(args)) => args,
        Ok(None) => return finish(io::stdout().write_all(HELP.as_bytes())),
        Err(error) => {
            let _ = writeln!(io::stderr(), "dissect: {error} (--help lists the options)");
            return ExitCode::from(2);
        }
    };
    let result = match &args.file {
        None => check::run(&mut io::stdout().lock()),
        Some(file) => read(file).and_then(|bytes| {
            let tally = show(&bytes, args.options, &mut io::stdout().lock())?;
            writeln!(io::stdout(), "{tally}")?;
            Ok(())
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast::<io::Error>() {
            Ok(error) => finish(Err(*error)),
            Err(error) => {
                let _ = writeln!(io::stderr(), "dissect: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

/// Dissects `bytes`, in whichever form they are, to `out`.
fn show(bytes: &[u8], options: Options, out: &mut impl io::Write) -> Result<Tally, Box<dyn Error>> {
    let parts = input::read(bytes)?;
    let (dialect, direction) = guess::guess(&parts, options);
    let mut dissector = Dissector::new(dialect, options.rows.unwrap_or(20), out);
    for part in &parts {
        dissector.part(part, part.from.unwrap_or(direction))?;
    }
    Ok(dissector.finish()?)
}

fn read(file: &OsString) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = Vec::new();
    if file == "-" {
        io::stdin().read_to_end(&mut bytes)?;
    } else {
        bytes = std::fs::read(file)?;
    }
    Ok(bytes)
}

fn args() -> Result<Option<Args>, lexopt::Error> {
    let mut args = Args::default();
    let mut parser = lexopt::Parser::from_env();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("direction") => {
                args.options.direction = Some(parser.value()?.parse_with(|name| match name {
                    "client" => Ok(Side::Client),
                    "server" => Ok(Side::Server),
                    _ => Err("client or server"),
                })?);
            }
            Arg::Long("dialect") => {
                args.options.dialect = Some(parser.value()?.parse_with(|name| match name {
                    "legacy" => Ok(Dialect::Legacy),
                    "galaxy" => Ok(guess::GALAXY),
                    _ => Err("legacy or galaxy"),
                })?);
            }
            Arg::Long("rows") => args.options.rows = Some(parser.value()?.parse()?),
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            Arg::Value(file) if args.file.is_none() => args.file = Some(file),
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(args))
}

/// Who reads no further, `head` for example, is not an error.
fn finish(result: io::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            let _ = writeln!(io::stderr(), "dissect: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

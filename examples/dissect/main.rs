//! Shows the frames of a captured conversation: what each says, where it begins, what is wrong.
//!
//! ```text
//! cargo run --example dissect                               # a recorded conversation, checked
//! cargo run --example dissect -- tests/golden/c2s.jsonl     # recorded vectors
//! xxd -p capture | cargo run --example dissect -- -         # hex digits of one direction
//! cargo run --example dissect -- --direction server capture # its bytes as they are
//! ```
//!
//! Values of rows are shown when the columns were described before. After an unknown kind or a bad
//! body the next frame is shown. After a bad header no further frame of that direction can be
//! found. The proof of a login is not shown.

mod check;
mod dissector;
mod fields;
mod guess;
mod input;
mod values;

use std::error::Error;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use epoll_group::codec::frame::Dialect;

use dissector::{Dissector, Side, Tally};

/// Shows the frames of a captured conversation.
#[derive(Debug, clap::Parser)]
#[command(name = "dissect")]
struct Args {
    /// Hex digits, the bytes themselves, or .jsonl vectors; `xxd -r` makes bytes of a dump. - is
    /// the standard input; without a file, a recorded conversation is shown and checked
    file: Option<PathBuf>,
    #[command(flatten)]
    options: Options,
}

/// Facts that the user knows and the bytes do not tell.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
struct Options {
    /// Sender of the bytes: client or server; without, guessed, unless vectors tell it
    #[arg(long, value_parser = direction)]
    direction: Option<Side>,
    /// Headers of 13 bytes (legacy) or of 14 (galaxy); without, guessed
    #[arg(long, value_parser = dialect)]
    dialect: Option<Dialect>,
    /// Rows shown of each chunk [default: 20]
    #[arg(long, value_name = "N")]
    rows: Option<usize>,
}

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| match &args.file {
        None => check::run(out),
        Some(file) => {
            let tally = show(&read(file)?, args.options, out)?;
            Ok(writeln!(out, "{tally}")?)
        }
    })
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

fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return std::fs::read(file);
    }
    let mut bytes = Vec::new();
    io::stdin().read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn direction(text: &str) -> Result<Side, String> {
    match text {
        "client" => Ok(Side::Client),
        "server" => Ok(Side::Server),
        _ => Err(format!("{text} is neither client nor server")),
    }
}

fn dialect(text: &str) -> Result<Dialect, String> {
    match text {
        "legacy" => Ok(Dialect::Legacy),
        "galaxy" => Ok(guess::GALAXY),
        _ => Err(format!("{text} is neither legacy nor galaxy")),
    }
}

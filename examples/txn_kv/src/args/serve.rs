//! The options of `serve`.

use std::path::PathBuf;

use lexopt::{Arg, Parser};
use txn_kv::Design;
use txn_kv::serve::{Kind, Options};

use super::Command;
use crate::usage::{UsageError, number, text};

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let (mut listen, mut user, mut password) = (None, None, None);
    let (mut engine, mut design, mut threads) = (Kind::Memory, Design::default(), None);
    while let Some(option) = parser.next()? {
        match option {
            Arg::Long("listen") => listen = Some(text("--listen", parser.value()?)?),
            Arg::Long("user") => user = Some(text("--user", parser.value()?)?),
            Arg::Long("password") => password = Some(text("--password", parser.value()?)?),
            Arg::Long("dir") => engine = Kind::Disk(PathBuf::from(parser.value()?)),
            Arg::Long("memory") => engine = Kind::Memory,
            Arg::Long("design") => {
                design = text("--design", parser.value()?)?.parse().map_err(UsageError)?;
            }
            Arg::Long("threads") => threads = Some(number("--threads", parser.value()?, 1..=1024)?),
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let needed = |value: Option<String>, option| {
        value.ok_or_else(|| UsageError(format!("serve needs {option}")))
    };
    let options = Options::new(needed(user, "--user")?, needed(password, "--password")?)
        .listen(needed(listen, "--listen")?)
        .engine(engine)
        .design(design);
    Ok(Command::Serve(match threads {
        Some(threads) => options.threads(threads),
        None => options,
    }))
}

//! The options of `admin`.

use lexopt::{Arg, Parser};

use super::super::load::Target;
use super::{Command, UsageError, address, missing, text};

#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) target: Target,
    /// One line, as the admin listener reads it.
    pub(crate) command: String,
}

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut target = None;
    let mut words = Vec::new();
    while let Some(arg) = parser.next()? {
        match arg {
            Arg::Long("connect") => target = Some(address("--connect", parser.value()?)?),
            Arg::Value(word) => words.push(text("COMMAND", word)?),
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let target = target.ok_or_else(|| missing("admin", "--connect"))?;
    let command = words.join(" ");
    if command.trim().is_empty() || command.contains('\n') {
        let usage = "is not a line such as: set max_threads 256 (help lists the commands)";
        return Err(UsageError(format!("COMMAND {command:?} {usage}")));
    }
    Ok(Command::Admin(Ask { target, command }))
}

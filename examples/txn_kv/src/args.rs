//! The command line.

mod designs;
mod load;
mod serve;

use lexopt::{Arg, Parser};

use crate::usage::UsageError;

pub(crate) use designs::Designs;
pub(crate) use load::Load;

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Command {
    /// A server and its load.
    Demo(Pace),
    /// A server until it is told to end.
    Serve(txn_kv::serve::Options),
    Load(Load),
    Designs(Designs),
    /// With as many clients, beside one.
    Commits(Designs),
    Help,
}

/// How long a demonstration takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Normal,
    Quick,
}

pub(crate) const HELP: &str = include_str!("args/help.txt");

impl Command {
    /// Reads the arguments of this process.
    pub(crate) fn from_env() -> Result<Self, UsageError> {
        Self::parse(&mut Parser::from_env())
    }

    fn parse(parser: &mut Parser) -> Result<Self, UsageError> {
        match parser.next()? {
            None => Ok(Self::Demo(Pace::Normal)),
            Some(Arg::Long("quick")) => Ok(Self::Demo(Pace::Quick)),
            Some(Arg::Short('h') | Arg::Long("help")) => Ok(Self::Help),
            Some(Arg::Value(command)) if command == "serve" => serve::parse(parser),
            Some(Arg::Value(command)) if command == "load" => load::parse(parser),
            Some(Arg::Value(command)) if command == "designs" => {
                designs::parse(parser, Designs::default())
                    .map(|args| args.map_or(Self::Help, Self::Designs))
            }
            Some(Arg::Value(command)) if command == "commits" => {
                designs::parse(parser, Designs::commits())
                    .map(|args| args.map_or(Self::Help, Self::Commits))
            }
            Some(Arg::Value(command)) => {
                Err(UsageError(format!("there is no command {}", command.display())))
            }
            Some(other) => Err(other.unexpected().into()),
        }
    }
}

#[cfg(test)]
mod tests;

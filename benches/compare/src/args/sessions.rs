//! The options of `sessions` and of `serve-sql`.

use std::ops::RangeInclusive;
use std::path::PathBuf;

use lexopt::{Arg, Parser};

use super::{Command, Length, ServeSql, UsageError, address, list, number, text};
use crate::server::{Architecture, EngineName, Sql};
use crate::sessions::{PASSWORD, USER};

/// Servers that run statements, under sessions.
#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) length: Length,
    pub(crate) parts: Vec<Part>,
    pub(crate) base: Sql,
    pub(crate) subject: Sql,
    /// All connections together.
    pub(crate) sessions: Vec<usize>,
    /// Sessions of the point selects.
    pub(crate) point_sessions: usize,
    pub(crate) connections: usize,
    pub(crate) rows: u32,
    pub(crate) load_threads: usize,
    pub(crate) json: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `select 1`, the subject against the base.
    Base,
    /// `select 1`, the subject against itself with fewer sessions.
    Scale,
    /// Kinds of point selects, against one process of the subject.
    Points,
}

const ROWS: RangeInclusive<u32> = 1..=10_000_000;
const SESSIONS: RangeInclusive<usize> = 1..=65_536;
const CONNECTIONS: RangeInclusive<usize> = 1..=4096;
const LOAD_THREADS: RangeInclusive<usize> = 1..=64;

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut args = Sessions {
        length: Length::default(),
        parts: vec![Part::Base, Part::Scale, Part::Points],
        base: Sql::Ours(Architecture::Old, EngineName::Sqlite),
        subject: Sql::Select1(None),
        sessions: vec![16, 64, 256, 1024, 2048, 4096],
        point_sessions: 1024,
        connections: 16,
        rows: 100_000,
        load_threads: 2,
        json: PathBuf::from("target/compare/sessions.json"),
    };
    while let Some(arg) = parser.next()? {
        let option = match arg {
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            Arg::Long("quick") => {
                args.length.quick = true;
                continue;
            }
            Arg::Long(option) => format!("--{option}"),
            other => return Err(other.unexpected().into()),
        };
        match option.as_str() {
            "--json" => args.json = parser.value()?.into(),
            "--parts" => args.parts = list(&option, parser.value()?)?,
            "--servers" => {
                let servers: Vec<Sql> = list(&option, parser.value()?)?;
                let count = servers.len();
                let pair = <[Sql; 2]>::try_from(servers);
                [args.base, args.subject] =
                    pair.map_err(|_| UsageError(format!("{option} names {count} servers, not 2")))?;
            }
            "--sessions" => {
                args.sessions = list(&option, parser.value()?)?;
                if let Some(count) = args.sessions.iter().find(|count| !SESSIONS.contains(count)) {
                    return Err(UsageError(format!("{option} {count} is outside {SESSIONS:?}")));
                }
            }
            "--point-sessions" => {
                args.point_sessions = number(&option, parser.value()?, SESSIONS)?;
            }
            "--connections" => args.connections = number(&option, parser.value()?, CONNECTIONS)?,
            "--rows" => args.rows = number(&option, parser.value()?, ROWS)?,
            "--load-threads" => {
                args.load_threads = number(&option, parser.value()?, LOAD_THREADS)?;
            }
            _ if args.length.option(&option, parser)? => {}
            _ => return Err(UsageError(format!("no option {option} of sessions"))),
        }
    }
    Ok(Command::Sessions(args))
}

pub(super) fn parse_serve_sql(parser: &mut Parser) -> Result<Command, UsageError> {
    let server = text("SERVER", parser.value()?)?;
    let Sql::Ours(architecture, engine) = server.parse().map_err(UsageError)? else {
        return Err(UsageError(format!("{server} is another program")));
    };
    let mut args = ServeSql {
        listen: ([127, 0, 0, 1], 0).into(),
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
        architecture,
        engine,
        database: None,
        rows: 100_000,
    };
    while let Some(arg) = parser.next()? {
        let Arg::Long(option) = arg else {
            return Err(arg.unexpected().into());
        };
        let option = format!("--{option}");
        let value = parser.value()?;
        match option.as_str() {
            "--listen" => args.listen = address(&option, value)?,
            "--user" => args.user = text(&option, value)?,
            "--password" => args.password = text(&option, value)?,
            "--database" => args.database = Some(value.into()),
            "--rows" => args.rows = number(&option, value, ROWS)?,
            _ => return Err(UsageError(format!("no option {option} of serve-sql"))),
        }
    }
    Ok(Command::ServeSql(args))
}

impl std::str::FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "base" => Ok(Self::Base),
            "scale" => Ok(Self::Scale),
            "points" => Ok(Self::Points),
            _ => Err(format!("part {text} is none of base, scale and points")),
        }
    }
}

//! The options of `load`.

use std::ops::RangeInclusive;
use std::time::Duration;

use lexopt::{Arg, Parser};

use super::Command;
use crate::load::Mode;
use crate::usage::{UsageError, number, text};
use lab::sessions::{PASSWORD, USER};

/// Sessions that ask, through the client library.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// A server in this process if it is none.
    pub(crate) connect: Option<String>,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) sessions: usize,
    pub(crate) connections: usize,
    pub(crate) mode: Mode,
    pub(crate) time: Duration,
    /// Ids to ask for; the table says if it is none.
    pub(crate) rows: Option<u32>,
    pub(crate) json: bool,
}

const CONNECTIONS: RangeInclusive<usize> = 1..=1024;
const SECONDS: RangeInclusive<f64> = 0.01..=86_400.0;
/// Those that may wait for a connection, by the client's default.
const SESSIONS: RangeInclusive<usize> = 1..=65_536;

impl Default for Load {
    fn default() -> Self {
        Self {
            connect: None,
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            sessions: 16,
            connections: 4,
            mode: Mode::SelectOne,
            time: Duration::from_secs(5),
            rows: None,
            json: false,
        }
    }
}

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let mut load = Load::default();
    let (mut user, mut password) = (None, None);
    while let Some(option) = parser.next()? {
        match option {
            Arg::Long("connect") => load.connect = Some(text("--connect", parser.value()?)?),
            Arg::Long("user") => user = Some(text("--user", parser.value()?)?),
            Arg::Long("password") => password = Some(text("--password", parser.value()?)?),
            Arg::Long("sessions") => {
                load.sessions = number("--sessions", parser.value()?, SESSIONS)?;
            }
            Arg::Long("connections") => {
                load.connections = number("--connections", parser.value()?, CONNECTIONS)?;
            }
            Arg::Long("mode") => {
                let mode = text("--mode", parser.value()?)?;
                load.mode = mode.parse().map_err(UsageError)?;
            }
            Arg::Long("seconds") => {
                let seconds = number("--seconds", parser.value()?, SECONDS)?;
                load.time = Duration::from_secs_f64(seconds);
            }
            Arg::Long("rows") => load.rows = Some(number("--rows", parser.value()?, 1..=u32::MAX)?),
            Arg::Long("json") => load.json = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    if load.connect.is_some() && (user.is_none() || password.is_none()) {
        return Err(UsageError("load --connect needs --user and --password".to_owned()));
    }
    load.user = user.unwrap_or(load.user);
    load.password = password.unwrap_or(load.password);
    Ok(Command::Load(load))
}

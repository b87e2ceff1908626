//! The options of `load`.

use std::ops::RangeInclusive;

use lexopt::{Arg, Parser};
use txn_kv::load::{Keys, Shape, Workload};

use super::Command;
use crate::usage::{UsageError, number, text};

/// Clients that ask.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    /// A server in this process if it is none.
    pub(crate) connect: Option<String>,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) clients: usize,
    pub(crate) connections: usize,
    pub(crate) total: u64,
    pub(crate) shape: Shape,
    pub(crate) workload: Workload,
    /// Whether every key is put before.
    pub(crate) filled: bool,
    pub(crate) json: bool,
}

pub(super) const CLIENTS: RangeInclusive<usize> = 1..=65_536;
pub(super) const KEYS: RangeInclusive<u64> = 1..=1_000_000_000;
/// The store's limits.
pub(super) const KEY_BYTES: RangeInclusive<usize> = 1..=1024;
pub(super) const VALUE_BYTES: RangeInclusive<usize> = 1..=1 << 20;
const OPERATIONS: RangeInclusive<u64> = 1..=128;
const FOUND: RangeInclusive<u64> = 1..=10_000;
/// Each put leaves 8 bytes with the load.
const TOTAL: RangeInclusive<u64> = 1..=1_000_000_000;
const NAMES: &str = "txn-put, get, range or mixed";

pub(super) fn parse(parser: &mut Parser) -> Result<Command, UsageError> {
    let (mut connect, mut user, mut password) = (None, None, None);
    let (mut clients, mut connections, mut total) = (1, 4, 10_000);
    let (mut key_bytes, mut value_bytes, mut keys, mut seed) = (8, 256, 1, 1);
    let (mut operations, mut limit, mut reads_per_100) = (1, 100, 50);
    let (mut name, mut filled, mut json) = (None, false, false);
    while let Some(option) = parser.next()? {
        match option {
            Arg::Value(value) if name.is_none() => name = Some(text("load", value)?),
            Arg::Long("connect") => connect = Some(text("--connect", parser.value()?)?),
            Arg::Long("user") => user = Some(text("--user", parser.value()?)?),
            Arg::Long("password") => password = Some(text("--password", parser.value()?)?),
            Arg::Long("clients") => clients = number("--clients", parser.value()?, CLIENTS)?,
            Arg::Long("connections") => {
                connections = number("--connections", parser.value()?, 1..=4096)?;
            }
            Arg::Long("total") => total = number("--total", parser.value()?, TOTAL)?,
            Arg::Long("key-size") => key_bytes = number("--key-size", parser.value()?, KEY_BYTES)?,
            Arg::Long("val-size") => {
                value_bytes = number("--val-size", parser.value()?, VALUE_BYTES)?;
            }
            Arg::Long("key-space-size") => {
                keys = number("--key-space-size", parser.value()?, KEYS)?;
            }
            Arg::Long("seed") => seed = number("--seed", parser.value()?, 0..=u64::MAX)?,
            Arg::Long("txn-ops") => operations = number("--txn-ops", parser.value()?, OPERATIONS)?,
            Arg::Long("limit") => limit = number("--limit", parser.value()?, FOUND)?,
            Arg::Long("reads-per-100") => {
                reads_per_100 = number("--reads-per-100", parser.value()?, 0..=100)?;
            }
            Arg::Long("filled") => filled = true,
            Arg::Long("json") => json = true,
            Arg::Short('h') | Arg::Long("help") => return Ok(Command::Help),
            other => return Err(other.unexpected().into()),
        }
    }
    let workload = match name.as_deref() {
        Some("txn-put") => Workload::Put { operations },
        Some("get") => Workload::Get,
        Some("range") => Workload::Range { limit },
        Some("mixed") => Workload::Mixed { reads_per_100 },
        Some(other) => return Err(UsageError(format!("there is no load {other}, but {NAMES}"))),
        None => return Err(UsageError(format!("load needs {NAMES}"))),
    };
    let [user, password] = account(connect.as_deref(), [user, password])?;
    let shape = Shape { keys: Keys::new(key_bytes, keys).map_err(UsageError)?, value_bytes, seed };
    let load = Load {
        connect,
        user,
        password,
        clients,
        connections,
        total,
        shape,
        workload,
        filled,
        json,
    };
    Ok(Command::Load(load))
}

/// Who logs in, and what shows it: of a server in this process nobody needs to say so.
fn account(connect: Option<&str>, given: [Option<String>; 2]) -> Result<[String; 2], UsageError> {
    match given {
        [Some(user), Some(password)] => Ok([user, password]),
        _ if connect.is_some() => {
            Err(UsageError("load --connect needs --user and --password".to_owned()))
        }
        [user, password] => Ok([
            user.unwrap_or_else(|| "root".to_owned()),
            password.unwrap_or_else(|| "secret".to_owned()),
        ]),
    }
}

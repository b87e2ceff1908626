//! The options of `designs` and `commits`.

use std::path::PathBuf;
use std::time::Duration;

use lexopt::{Arg, Parser};

use super::load::{CLIENTS, KEYS, VALUE_BYTES};
use crate::usage::{UsageError, number};

/// A comparison of the designs, or of commits; that one has no use for `records`, `growing` and `disk`.
#[derive(Clone, Debug)]
pub(crate) struct Designs {
    pub(crate) clients: usize,
    pub(crate) keys: u64,
    pub(crate) value_bytes: usize,
    /// What a store holds at most before the load.
    pub(crate) records: u64,
    /// Puts to the key that had none.
    pub(crate) growing: u64,
    pub(crate) pairs: usize,
    pub(crate) window: Duration,
    /// In a file, not in memory.
    pub(crate) disk: bool,
    pub(crate) out: Option<PathBuf>,
}

impl Default for Designs {
    fn default() -> Self {
        Self {
            clients: 10,
            keys: 100_000,
            value_bytes: 256,
            records: 1_000_000,
            growing: 20_000,
            pairs: 11,
            window: Duration::from_millis(300),
            disk: false,
            out: None,
        }
    }
}

impl Designs {
    /// What `commits` begins with.
    pub(super) fn commits() -> Self {
        let window = Duration::from_millis(500);
        Self { clients: 200, window, disk: true, ..Self::default() }
    }
}

/// Changes what is given; none if help is asked for.
pub(super) fn parse(parser: &mut Parser, mut args: Designs) -> Result<Option<Designs>, UsageError> {
    while let Some(option) = parser.next()? {
        match option {
            Arg::Long("clients") => args.clients = number("--clients", parser.value()?, CLIENTS)?,
            Arg::Long("key-space-size") => {
                args.keys = number("--key-space-size", parser.value()?, KEYS)?;
            }
            Arg::Long("val-size") => {
                args.value_bytes = number("--val-size", parser.value()?, VALUE_BYTES)?;
            }
            Arg::Long("records") => {
                args.records = number("--records", parser.value()?, 10_000..=1_000_000_000)?;
            }
            Arg::Long("growing") => {
                args.growing = number("--growing", parser.value()?, 1..=1_000_000_000)?;
            }
            Arg::Long("pairs") => args.pairs = number("--pairs", parser.value()?, 1..=10_000)?,
            Arg::Long("seconds") => {
                let seconds = number("--seconds", parser.value()?, 0.001..=3600.0)?;
                args.window = Duration::from_secs_f64(seconds);
            }
            Arg::Long("disk") => args.disk = true,
            Arg::Long("out") => args.out = Some(parser.value()?.into()),
            Arg::Short('h') | Arg::Long("help") => return Ok(None),
            other => return Err(other.unexpected().into()),
        }
    }
    Ok(Some(args))
}

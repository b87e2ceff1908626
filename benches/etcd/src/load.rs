//! The load: requests of the clients, and the checks of the answers. Independent of the server.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use clap::ValueEnum;
use fastrand::Rng;
use lab::drive::{Access, Failure};
use serde::Serialize;

pub(crate) const KEY_BYTES: usize = 8;
pub(crate) const VALUE_BYTES: usize = 256;
/// Keys of a range.
pub(crate) const RANGE_KEYS: u64 = 100;
/// Deadline for anything that must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Load of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Load {
    pub(crate) op: Op,
    /// Clients, each with one request in flight.
    pub(crate) clients: usize,
    /// Keys, from which each request takes one at random.
    pub(crate) keys: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    /// A transaction of one put.
    Put,
    /// A put that is no transaction, where the server makes a difference.
    PlainPut,
    /// The newest value of a key.
    Get,
    /// The same; of etcd, the value that its member has, without asking the others.
    GetSerializable,
    /// [`RANGE_KEYS`] keys in a row, as new as those of `Get`.
    Range,
}

/// One request. Keys are numbers here, see [`key_bytes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Put { key: u64, stamp: u64 },
    Read(Range<u64>),
}

/// Requests of one client in one window.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) load: Load,
    random: Rng,
    stamp: u64,
    last_revision: u64,
    writes: Vec<Write>,
}

/// A put that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    pub(crate) key: u64,
    pub(crate) stamp: u64,
    pub(crate) revision: u64,
}

impl Chain {
    /// Client `place` of window `window`. No two clients share a pair of these numbers.
    pub(crate) fn new(load: Load, window: u64, place: usize) -> Self {
        let stamp = (window << 40) | ((place as u64) << 24);
        let random = Rng::with_seed(stamp);
        Self { load, random, stamp, last_revision: 0, writes: Vec::new() }
    }

    /// Returns the next request.
    pub(crate) fn ask(&mut self) -> Ask {
        self.stamp += 1;
        let count = if self.load.op == Op::Range { RANGE_KEYS } else { 1 };
        let key = self.random.u64(..=self.load.keys - count);
        if self.load.op.writes() {
            Ask::Put { key, stamp: self.stamp }
        } else {
            Ask::Read(key..key + count)
        }
    }

    /// Checks the revision of a put. Those of one client grow.
    pub(crate) fn wrote(&mut self, ask: &Ask, revision: u64) -> Result<Access, Failure> {
        match *ask {
            Ask::Put { key, stamp } if revision > self.last_revision => {
                self.last_revision = revision;
                self.writes.push(Write { key, stamp, revision });
                Ok(Access::Write)
            }
            _ => {
                let last = self.last_revision;
                Err(Failure::wrong(format!("revision {revision} after {last}: {ask:?}")))
            }
        }
    }

    /// Checks the keys and values that a read has found.
    pub(crate) fn found<'a>(
        &self,
        ask: &Ask,
        pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<Access, Failure> {
        let Ask::Read(mut expected) = ask.clone() else { unreachable!("a put finds nothing") };
        let right = pairs.into_iter().all(|(key, value)| {
            let next = expected.next();
            next.is_some_and(|next| key == key_bytes(next) && is_value_of(next, value))
        });
        if right && expected.is_empty() {
            Ok(Access::Read)
        } else {
            Err(Failure::wrong(format!("not the keys and values of {ask:?}")))
        }
    }
}

/// Returns the last write of at most `count` keys: the values that are there when all clients have
/// stopped.
pub(crate) fn last_writes(chains: &[Chain], count: usize) -> Vec<Write> {
    let mut last: HashMap<u64, Write> = HashMap::new();
    for write in chains.iter().flat_map(|chain| &chain.writes) {
        let newest = last.entry(write.key).or_insert(*write);
        if newest.revision < write.revision {
            *newest = *write;
        }
    }
    last.into_values().take(count).collect()
}

/// Returns the key of a number. Keys sort as their numbers do.
pub(crate) fn key_bytes(key: u64) -> [u8; KEY_BYTES] {
    key.to_be_bytes()
}

/// Returns the value that a request writes to a key. Both can be told from it.
pub(crate) fn value(key: u64, stamp: u64) -> Vec<u8> {
    let mut bytes = vec![0; VALUE_BYTES];
    let (head, rest) = bytes.split_at_mut(size_of::<u64>());
    head.copy_from_slice(&stamp.to_be_bytes());
    Rng::with_seed(key ^ stamp.rotate_left(32)).fill(rest);
    bytes
}

fn is_value_of(key: u64, bytes: &[u8]) -> bool {
    let Some(stamp) = bytes.first_chunk() else { return false };
    bytes == value(key, u64::from_be_bytes(*stamp))
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} clients, {} keys", self.op.name(), self.clients, self.keys)
    }
}

impl Op {
    pub(crate) const ALL: [Self; 5] =
        [Self::Put, Self::PlainPut, Self::Get, Self::GetSerializable, Self::Range];

    pub(crate) const fn writes(self) -> bool {
        matches!(self, Self::Put | Self::PlainPut)
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Put => "put",
            Self::PlainPut => "plain put",
            Self::Get => "get",
            Self::GetSerializable => "get, serializable",
            Self::Range => "range of 100",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(op: Op, keys: u64) -> Chain {
        Chain::new(Load { op, clients: 1, keys }, 1, 0)
    }

    #[test]
    fn values_tell_their_key() {
        let bytes = value(7, 99);
        assert_eq!(bytes.len(), VALUE_BYTES);
        assert!(is_value_of(7, &bytes));
        assert!(!is_value_of(8, &bytes));
        assert!(!is_value_of(7, &bytes[..VALUE_BYTES - 1]));
        assert!(!is_value_of(7, b""));
    }

    #[test]
    fn a_read_is_right_only_with_all_of_its_keys() {
        let pairs: Vec<_> = (0..200).map(|key| (key_bytes(key), value(key, 5))).collect();
        let mut chain = chain(Op::Range, 200);
        let ask = chain.ask();
        let found = |range: Range<usize>| {
            chain.found(&ask, pairs[range].iter().map(|(key, value)| (&key[..], &value[..])))
        };
        let Ask::Read(keys) = &ask else { panic!("no range") };
        let (from, to) = (keys.start as usize, keys.end as usize);
        assert_eq!(found(from..to), Ok(Access::Read));
        assert!(found(from..to - 1).is_err() && found(from..from).is_err());
    }

    #[test]
    fn revisions_that_do_not_grow_are_wrong() {
        let mut chain = chain(Op::Put, 1);
        for (revision, is_right) in [(5, true), (5, false), (4, false), (6, true)] {
            let ask = chain.ask();
            assert_eq!(chain.wrote(&ask, revision).is_ok(), is_right, "{revision}");
        }
    }

    #[test]
    fn the_last_write_of_a_key_has_the_largest_revision() {
        let write = |key, stamp, revision| Write { key, stamp, revision };
        let writes = vec![write(1, 10, 7), write(1, 11, 9), write(1, 12, 8)];
        let chain = Chain { writes, ..chain(Op::Put, 1) };
        assert_eq!(last_writes(&[chain], 10), [write(1, 11, 9)]);
    }
}

//! The load: what clients ask, and whether the answers are right. Knows no server.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use serde::Serialize;

pub(crate) const KEY_BYTES: usize = 8;
pub(crate) const VALUE_BYTES: usize = 256;
/// Keys that a range asks for.
pub(crate) const RANGE_KEYS: u64 = 100;

/// What every client of a window does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Load {
    pub(crate) op: Op,
    /// Clients, each with one request in flight.
    pub(crate) clients: usize,
    /// Keys, from which each request draws one at random.
    pub(crate) keys: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Op {
    /// A transaction of one put.
    Put,
    /// A put that is no transaction, where the server makes a difference.
    PlainPut,
    /// The newest value of a key.
    Get,
    /// The same; of etcd, what its member has, without a word with the others.
    GetSerializable,
    /// As many keys in a row as [`RANGE_KEYS`], as new as those of `Get`.
    Range,
}

/// One request. Keys are numbers here, see [`key_bytes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Put { key: u64, stamp: u64 },
    Read(Range<u64>),
}

/// One client in one window: draws requests until the time is over, and checks what comes back.
#[derive(Debug)]
pub(crate) struct Chain {
    pub(crate) load: Load,
    until: Instant,
    begun: bool,
    dice: u64,
    stamp: u64,
    asked: Ask,
    sent: Instant,
    last_revision: u64,
    tally: Tally,
}

/// What came of requests.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Of right answers, in microseconds.
    pub(crate) latencies: Vec<f64>,
    pub(crate) errors: u64,
    /// Answers that are not what was asked for.
    pub(crate) wrong: u64,
    pub(crate) first_error: Option<String>,
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
    /// Client `place` of window `window`; no two share a pair of them.
    pub(crate) fn new(load: Load, window: u64, place: usize, until: Instant) -> Self {
        let stamp = (window << 40) | ((place as u64) << 24);
        Self {
            load,
            until,
            begun: false,
            dice: mixed(stamp) | 1,
            stamp,
            asked: Ask::Read(0..0),
            sent: until,
            last_revision: 0,
            tally: Tally::default(),
        }
    }

    /// The next request, if there is time left. There is always a first.
    pub(crate) fn ask(&mut self) -> Option<Ask> {
        let now = Instant::now();
        if self.begun && now >= self.until {
            return None;
        }
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.stamp += 1;
        let count = if self.load.op == Op::Range { RANGE_KEYS } else { 1 };
        let key = self.dice % (self.load.keys - count + 1);
        self.asked = if self.load.op.writes() {
            Ask::Put { key, stamp: self.stamp }
        } else {
            Ask::Read(key..key + count)
        };
        self.begun = true;
        self.sent = now;
        Some(self.asked.clone())
    }

    /// The put was done, at this revision. Those of one client grow.
    pub(crate) fn wrote(&mut self, revision: u64) {
        match self.asked {
            Ask::Put { key, stamp } if revision > self.last_revision => {
                self.last_revision = revision;
                self.tally.writes.push(Write { key, stamp, revision });
                self.answered();
            }
            _ => self.tally.wrong += 1,
        }
    }

    /// The read has found these keys and values.
    pub(crate) fn found<'a>(&mut self, pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) {
        let Ask::Read(mut expected) = self.asked.clone() else {
            unreachable!("a put finds nothing")
        };
        let right = pairs.into_iter().all(|(key, value)| {
            let next = expected.next();
            next.is_some_and(|next| key == key_bytes(next) && is_value_of(next, value))
        });
        if right && expected.is_empty() { self.answered() } else { self.tally.wrong += 1 }
    }

    /// There was an error: this client stops.
    pub(crate) fn failed(&mut self, error: &dyn fmt::Display) {
        self.tally.errors += 1;
        self.tally.first_error.get_or_insert_with(|| error.to_string());
        self.until = self.sent;
    }

    fn answered(&mut self) {
        self.tally.latencies.push(self.sent.elapsed().as_secs_f64() * 1e6);
    }

    pub(crate) fn into_tally(self) -> Tally {
        self.tally
    }
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.writes.extend(other.writes);
        self.errors += other.errors;
        self.wrong += other.wrong;
        self.first_error = self.first_error.take().or(other.first_error);
    }

    /// The last write of at most `count` keys: what is there when all clients have stopped.
    pub(crate) fn last_writes(&self, count: usize) -> Vec<Write> {
        let mut last: HashMap<u64, Write> = HashMap::new();
        for write in &self.writes {
            let newest = last.entry(write.key).or_insert(*write);
            if newest.revision < write.revision {
                *newest = *write;
            }
        }
        last.into_values().take(count).collect()
    }
}

/// The key of a number. Keys sort as their numbers do.
pub(crate) fn key_bytes(key: u64) -> [u8; KEY_BYTES] {
    key.to_be_bytes()
}

/// What is written to a key: tells which key it belongs to, and by which request it came.
pub(crate) fn value(key: u64, stamp: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(VALUE_BYTES);
    bytes.extend(stamp.to_be_bytes());
    let mut word = mixed(key ^ stamp.rotate_left(32));
    while bytes.len() < VALUE_BYTES {
        word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.extend(word.to_be_bytes());
    }
    bytes
}

fn is_value_of(key: u64, bytes: &[u8]) -> bool {
    let Some(stamp) = bytes.first_chunk() else { return false };
    bytes == value(key, u64::from_be_bytes(*stamp))
}

/// Spreads small differences over all bits.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} clients, {} keys", self.op.name(), self.clients, self.keys)
    }
}

impl Op {
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

/// How long to wait for what must come.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(op: Op, keys: u64) -> Chain {
        let load = Load { op, clients: 1, keys };
        Chain::new(load, 1, 0, Instant::now() + PATIENCE)
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
        let found = |range: Range<usize>, chain: &mut Chain| {
            chain.found(pairs[range].iter().map(|(key, value)| (&key[..], &value[..])));
            (chain.tally.latencies.len(), chain.tally.wrong)
        };
        let mut chain = chain(Op::Range, 200);
        let Some(Ask::Read(keys)) = chain.ask() else { panic!("no range") };
        let (from, to) = (keys.start as usize, keys.end as usize);
        assert_eq!(found(from..to, &mut chain), (1, 0));
        assert_eq!(found(from..to - 1, &mut chain), (1, 1));
        assert_eq!(found(from..from, &mut chain), (1, 2));
    }

    #[test]
    fn revisions_that_do_not_grow_are_wrong() {
        let mut chain = chain(Op::Put, 1);
        for (revision, wrong) in [(5, 0), (5, 1), (4, 2), (6, 2)] {
            assert!(chain.ask().is_some());
            chain.wrote(revision);
            assert_eq!(chain.tally.wrong, wrong);
        }
    }

    #[test]
    fn the_last_write_of_a_key_has_the_largest_revision() {
        let write = |key, stamp, revision| Write { key, stamp, revision };
        let writes = vec![write(1, 10, 7), write(1, 11, 9), write(1, 12, 8)];
        let tally = Tally { writes, ..Tally::default() };
        assert_eq!(tally.last_writes(10), [write(1, 11, 9)]);
    }

    #[test]
    fn a_client_stops_after_an_error() {
        let mut chain = chain(Op::Get, 1);
        assert!(chain.ask().is_some());
        chain.failed(&"no");
        assert!(chain.ask().is_none());
    }
}

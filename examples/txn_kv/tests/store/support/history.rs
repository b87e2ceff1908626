//! Transactions of several keys, the answers to them, and the check that a store has them.
//!
//! Each writer has a log key, whose value counts its transactions, and each transaction writes or deletes
//! a whole group of keys, which other writers write too:
//!
//! ```text
//!   if value(log of 3) = 7 then put log of 3 = 8, put group 1 key 0 = "3 8", ... key 4 = "3 8"
//! ```
//!
//! So each value names its writer, and half a transaction is noticed.

use lab::random::Random;
use txn_kv::client::Kv;
use txn_kv::store::Store;
use txn_kv::{
    Compare, Entry, Found, Key, KeyRange, Op, Relation, StoreError, Target, Txn, client::KvError,
};

use super::ask;

pub(crate) const GROUPS: u8 = 3;
/// Keys of a group.
const KEYS: u8 = 5;

/// Store or client that executes transactions.
pub(crate) trait DoesTxns {
    type Error: std::fmt::Debug;
    /// Returns the revision, and true if the comparisons held.
    fn txn(&mut self, txn: Txn) -> Result<(u64, bool), Self::Error>;
}

impl DoesTxns for Store {
    type Error = StoreError;

    fn txn(&mut self, txn: Txn) -> Result<(u64, bool), StoreError> {
        let outcome = ask::run(self, txn)?;
        Ok((outcome.revision, outcome.succeeded))
    }
}

impl DoesTxns for Kv {
    type Error = KvError;

    fn txn(&mut self, txn: Txn) -> Result<(u64, bool), KvError> {
        let done = Self::txn(self, &txn)?;
        Ok((done.revision, done.succeeded))
    }
}

/// Transactions of one writer, with the answers that it got.
#[derive(Clone, Debug)]
pub(crate) struct History {
    writer: u8,
    /// Transactions that are known to be there, from the first on.
    done: Vec<Write>,
    /// Transaction without an answer: it may be there or not.
    open: Option<Write>,
}

/// A transaction.
#[derive(Clone, Copy, Debug)]
struct Write {
    /// 0 while there is no answer.
    revision: u64,
    group: u8,
    deletes: bool,
}

impl History {
    pub(crate) fn new(writer: u8) -> Self {
        Self { writer, done: Vec::new(), open: None }
    }

    /// Number of transactions that are known to be there.
    pub(crate) fn len(&self) -> u64 {
        self.done.len() as u64
    }

    pub(crate) fn newest(&self) -> u64 {
        self.done.last().map_or(0, |write| write.revision)
    }

    /// Executes the writer's next transaction.
    pub(crate) fn write<T: DoesTxns>(
        &mut self,
        to: &mut T,
        random: &mut Random,
    ) -> Result<(), T::Error> {
        assert!(self.open.is_none(), "check has not told what became of the one before");
        let group = random.below(GROUPS.into()) as u8;
        let write = Write { revision: 0, group, deletes: random.percent(15) };
        let txn = self.txn(write);
        self.open = Some(write);
        let (revision, succeeded) = to.txn(txn)?;
        assert!(
            succeeded,
            "writer {}: {:?} is not what it wrote last",
            self.writer,
            self.done.last()
        );
        assert!(revision > self.newest(), "{revision} is told after {}", self.newest());
        self.done.push(Write { revision, ..write });
        self.open = None;
        Ok(())
    }

    /// Notes that the failed transaction is not there.
    pub(crate) fn failed(&mut self) {
        assert!(self.open.take().is_some(), "none failed");
    }

    fn txn(&self, write: Write) -> Txn {
        let own = self.len();
        let target = match own {
            0 => Target::Version(0),
            own => Target::Value(own.to_string().into_bytes().into()),
        };
        let compare = Compare { key: self.log(), relation: Relation::Equal, target };
        let put = |key: Key, value: String| Op::Put { key, value: value.into_bytes().into() };
        let mut then = vec![put(self.log(), (own + 1).to_string())];
        if write.deletes {
            then.push(Op::Delete(group(write.group)));
        } else {
            let value = self.value(own + 1);
            then.extend((0..KEYS).map(|n| put(key(write.group, n), value.clone())));
        }
        Txn { compares: vec![compare], then, ..Txn::default() }
    }

    fn log(&self) -> Key {
        format!("log {}", self.writer).into_bytes().into()
    }

    fn value(&self, own: u64) -> String {
        format!("{} {own} {}", self.writer, ".".repeat(300))
    }

    /// Finds out if the open transaction is there. Checks every other transaction at its own
    /// revision.
    fn check(&mut self, store: &Store) {
        let log = KeyRange::One(self.log());
        let newest = read(store, &log, None).expect("the newest can be read").entries;
        let count = newest.first().map_or(0, |entry| text(entry).parse().expect("it counts"));
        if let Some(open) = self.open.take()
            && count == self.len() + 1
        {
            self.done.push(Write { revision: newest[0].revision.main, ..open });
        }
        assert_eq!(count, self.len(), "writer {}: {:?}", self.writer, self.done.last());
        for (own, write) in (1..).zip(&self.done) {
            let Some(found) = read(store, &log, Some(write.revision)) else { continue };
            let at = found.entries.first().map(|entry| (entry.revision.main, text(entry)));
            assert_eq!(at, Some((write.revision, own.to_string())), "writer {}", self.writer);
            let found = read(store, &group(write.group), Some(write.revision)).expect("as above");
            let expected = if write.deletes { 0 } else { usize::from(KEYS) };
            assert_eq!(found.entries.len(), expected, "writer {}: {write:?}", self.writer);
            for entry in &found.entries {
                assert_eq!(entry.revision.main, write.revision, "{write:?}");
                assert_eq!(text(entry), self.value(own), "{write:?}");
            }
        }
    }
}

/// Number of transactions that are known to be there.
pub(crate) fn transactions(histories: &[History]) -> u64 {
    histories.iter().map(History::len).sum()
}

/// Asserts that all acknowledged transactions are there, whole, and nothing else; and that index
/// and engine agree.
pub(crate) fn check(store: &Store, histories: &mut [History]) {
    store.check().expect("index and engine agree");
    for history in &mut *histories {
        history.check(store);
    }
    let told = histories.iter().map(History::newest).max().unwrap_or(0);
    assert!(store.revision() >= told, "{} is the newest, {told} was told", store.revision());
    let mut revisions: Vec<_> = histories.iter().flat_map(|history| &history.done).collect();
    revisions.sort_by_key(|write| write.revision);
    let twice = revisions.windows(2).find(|pair| pair[0].revision == pair[1].revision);
    assert!(twice.is_none(), "{twice:?}");
    assert_eq!(store.revision(), told, "somebody else wrote");
    for revision in store.compacted().max(1)..=store.revision() {
        for n in 0..GROUPS {
            let found = read(store, &group(n), Some(revision)).expect("it is not compacted");
            assert_whole(&found.entries);
        }
    }
}

/// `None`: the revision was compacted.
fn read(store: &Store, range: &KeyRange, at: Option<u64>) -> Option<Found> {
    match store.read(range, at, 1000) {
        Ok(found) => Some(found),
        Err(StoreError::Compacted { .. }) => None,
        Err(error) => panic!("{range:?} at {at:?}: {error}"),
    }
}

/// Asserts that the entries are all keys of a group, of one transaction; or none.
pub(crate) fn assert_whole(entries: &[Entry]) {
    let Some(first) = entries.first() else { return };
    assert_eq!(entries.len(), usize::from(KEYS), "part of a transaction");
    for entry in entries {
        assert_eq!(entry.revision.main, first.revision.main, "parts of two transactions");
        assert_eq!(entry.record.value, first.record.value, "parts of two transactions");
    }
}

pub(crate) fn group(n: u8) -> KeyRange {
    KeyRange::Span(key(n, 0), Some(key(n + 1, 0)))
}

fn key(group: u8, n: u8) -> Key {
    format!("group {group} {n}").into_bytes().into()
}

fn text(entry: &Entry) -> String {
    String::from_utf8(entry.record.value.clone().expect("no deletion").into()).expect("a text")
}

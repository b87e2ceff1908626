//! The store against a naive twin, which keeps the whole state of every revision.

use std::collections::BTreeMap;

use proptest::prelude::*;
use txn_kv::engine::Memory;
use txn_kv::store::{Limits, Store};
use txn_kv::{
    Compare, Design, Key, KeyRange, Op, OpResult, Outcome, Relation, StoreError, Target, Txn,
};

use crate::support::ask;

/// State of the store: the look of each key.
type Twin = BTreeMap<u8, Look>;

/// Value, created, modified, version.
type Look = (Vec<u8>, u64, u64, u64);

/// Every state there was, by revision.
struct Naive {
    states: Vec<Twin>,
    compacted: u64,
}

#[derive(Clone, Debug)]
enum Step {
    Txn(Vec<Check>, Vec<Act>, Vec<Act>),
    /// Reads at a revision, which is given in hundredths of the newest.
    Read(Keys, u64, usize),
    Compact(u64),
}

#[derive(Clone, Debug)]
enum Act {
    Put(u8, Vec<u8>),
    Delete(Keys),
    Get(Keys, usize),
}

#[derive(Clone, Debug)]
enum Keys {
    One(u8),
    Span(u8, Option<u8>),
}

#[derive(Clone, Debug)]
struct Check(u8, Relation, Target);

fn key(byte: u8) -> Key {
    Key::from(&[byte][..])
}

impl Keys {
    fn range(&self) -> KeyRange {
        match self {
            Self::One(one) => KeyRange::One(key(*one)),
            Self::Span(from, to) => KeyRange::Span(key(*from), to.map(key)),
        }
    }

    fn contains(&self, key: u8) -> bool {
        match self {
            Self::One(one) => *one == key,
            Self::Span(from, to) => *from <= key && to.is_none_or(|to| key < to),
        }
    }
}

fn act(act: &Act) -> Op {
    match act {
        Act::Put(at, value) => Op::Put { key: key(*at), value: value.clone().into() },
        Act::Delete(keys) => Op::Delete(keys.range()),
        Act::Get(keys, limit) => Op::Get { range: keys.range(), limit: *limit },
    }
}

fn txn(checks: &[Check], then: &[Act], otherwise: &[Act]) -> Txn {
    let compares = checks.iter().map(|Check(at, relation, target)| Compare {
        key: key(*at),
        relation: *relation,
        target: target.clone(),
    });
    Txn {
        compares: compares.collect(),
        then: then.iter().map(act).collect(),
        otherwise: otherwise.iter().map(act).collect(),
    }
}

impl Naive {
    fn newest(&self) -> u64 {
        self.states.len() as u64 - 1
    }

    fn holds(&self, Check(key, relation, target): &Check) -> bool {
        let found = self.states.last().and_then(|state| state.get(key));
        let number = |part: fn(&Look) -> u64| found.map_or(0, part);
        match target {
            Target::Value(value) => found.is_some_and(|(own, ..)| relation.holds(&**own, value)),
            Target::Created(other) => relation.holds(&number(|own| own.1), other),
            Target::Modified(other) => relation.holds(&number(|own| own.2), other),
            Target::Version(other) => relation.holds(&number(|own| own.3), other),
        }
    }

    /// Returns the results of a transaction; none if it writes a key twice.
    fn run(&mut self, checks: &[Check], then: &[Act], otherwise: &[Act]) -> Option<Vec<String>> {
        let branch = if checks.iter().all(|check| self.holds(check)) { then } else { otherwise };
        let main = self.newest() + 1;
        let mut state = self.states.last().cloned().unwrap_or_default();
        let mut written = Vec::new();
        let mut results = Vec::new();
        for act in branch {
            match act {
                Act::Put(key, value) => {
                    let (created, version) =
                        state.get(key).map_or((main, 1), |old| (old.1, old.3 + 1));
                    state.insert(*key, (value.clone(), created, main, version));
                    written.push(*key);
                    results.push("put".into());
                }
                Act::Delete(keys) => {
                    let gone: Vec<_> =
                        state.keys().copied().filter(|key| keys.contains(*key)).collect();
                    // The same transaction has deleted this key before, and now deletes it by name.
                    let again = matches!(keys, Keys::One(one) if written.contains(one) && !gone.contains(one));
                    if again {
                        return None;
                    }
                    results.push(format!("deleted {}", gone.len()));
                    state.retain(|key, _| !gone.contains(key));
                    written.extend(gone);
                }
                Act::Get(keys, limit) => {
                    results.push(format!("{:?}", select(&state, keys, *limit)))
                }
            }
        }
        let writes = written.len();
        written.sort_unstable();
        written.dedup();
        if written.len() < writes {
            return None;
        }
        if writes > 0 {
            self.states.push(state);
        }
        Some(results)
    }
}

type Row = (u8, Vec<u8>, u64, u64, u64);

fn select(state: &Twin, keys: &Keys, limit: usize) -> Vec<Row> {
    let found = state.iter().filter(|(key, _)| keys.contains(**key)).take(limit);
    found
        .map(|(key, (value, created, modified, version))| {
            (*key, value.clone(), *created, *modified, *version)
        })
        .collect()
}

fn rows(entries: &[txn_kv::Entry]) -> Vec<Row> {
    let row = |entry: &txn_kv::Entry| {
        let record = &entry.record;
        let value = record.value.as_deref().expect("deletions are not found").to_vec();
        (record.key[0], value, record.created, entry.revision.main, record.version)
    };
    entries.iter().map(row).collect()
}

fn shown(outcome: &Outcome) -> Vec<String> {
    let show = |result: &OpResult| match result {
        OpResult::Put => "put".into(),
        OpResult::Deleted(keys) => format!("deleted {keys}"),
        OpResult::Found(entries) => format!("{:?}", rows(entries)),
    };
    outcome.results.iter().map(show).collect()
}

fn keys() -> impl Strategy<Value = Keys> {
    prop_oneof![
        3 => (0..6u8).prop_map(Keys::One),
        1 => (0..6u8, prop::option::of(0..7u8)).prop_map(|(from, to)| Keys::Span(from, to)),
    ]
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act = prop_oneof![
        3 => (0..6u8, prop::collection::vec(any::<u8>(), 0..3)).prop_map(|(key, value)| Act::Put(key, value)),
        1 => keys().prop_map(Act::Delete),
        1 => (keys(), 0..4usize).prop_map(|(keys, limit)| Act::Get(keys, limit)),
    ];
    prop::collection::vec(act, 0..4)
}

fn checks() -> impl Strategy<Value = Vec<Check>> {
    let relation = prop::sample::select(vec![
        Relation::Equal,
        Relation::NotEqual,
        Relation::Less,
        Relation::Greater,
    ]);
    let target = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..2).prop_map(|value| Target::Value(value.into())),
        (0..4u64).prop_map(Target::Version),
        (0..20u64).prop_map(Target::Created),
        (0..20u64).prop_map(Target::Modified),
    ];
    let check =
        (0..6u8, relation, target).prop_map(|(key, relation, target)| Check(key, relation, target));
    prop::collection::vec(check, 0..3)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (checks(), acts(), acts()).prop_map(|(checks, then, other)| Step::Txn(checks, then, other)),
        3 => (keys(), 0..110u64, 0..4usize).prop_map(|(keys, at, limit)| Step::Read(keys, at, limit)),
        1 => (0..110u64).prop_map(Step::Compact),
    ];
    prop::collection::vec(step, 1..60)
}

fn take(store: &Store, naive: &mut Naive, step: &Step) -> Result<(), TestCaseError> {
    match step {
        Step::Txn(checks, then, otherwise) => {
            let outcome = ask::run(store, txn(checks, then, otherwise));
            match naive.run(checks, then, otherwise) {
                Some(expected) => {
                    let outcome = outcome.expect("it does not fail");
                    prop_assert_eq!(shown(&outcome), expected);
                    prop_assert_eq!(outcome.revision, naive.newest());
                }
                None => {
                    let refused = matches!(outcome, Err(StoreError::WrittenTwice { .. }));
                    prop_assert!(refused, "{outcome:?}");
                }
            }
        }
        Step::Read(keys, hundredths, limit) => {
            let at = naive.newest() * hundredths / 100;
            let found = store.read(&keys.range(), Some(at), *limit);
            if at < naive.compacted {
                let refused = matches!(found, Err(StoreError::Compacted { .. }));
                prop_assert!(refused, "{found:?}");
            } else if at > naive.newest() {
                let refused = matches!(found, Err(StoreError::Future { .. }));
                prop_assert!(refused, "{found:?}");
            } else {
                let expected = select(&naive.states[at as usize], keys, *limit);
                prop_assert_eq!(rows(&found.expect("it can be read").entries), expected);
            }
            let newest = store.read(&keys.range(), None, *limit).expect("it can be read");
            let expected = select(&naive.states[naive.newest() as usize], keys, *limit);
            prop_assert_eq!(rows(&newest.entries), expected);
            prop_assert_eq!(newest.revision, naive.newest());
        }
        Step::Compact(hundredths) => {
            let at = naive.newest() * hundredths / 100;
            let possible = at > naive.compacted && at <= naive.newest();
            prop_assert_eq!(store.compact(at).is_ok(), possible);
            if possible {
                naive.compacted = at;
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_store_does_what_a_naive_one_does(steps in steps(), design in 0..Design::ALL.len()) {
        let design = Design::ALL[design];
        let store = Store::open(Memory::default(), design, Limits::default(), None).unwrap();
        let mut naive = Naive { states: vec![Twin::new()], compacted: 0 };
        for step in &steps {
            take(&store, &mut naive, step)?;
            store.check().expect("index and engine agree");
        }
        let stats = store.stats();
        prop_assert_eq!(stats.indexed, stats.read);
    }
}

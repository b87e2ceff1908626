//! A naive twin: transactions one after the other on a tree of keys.

use std::collections::BTreeMap;

use txn_kv::{Compare, Entry, Key, KeyRange, Op, OpResult, Outcome, Record, Revision, Target, Txn};

/// Newest entry of each key.
pub(crate) type State = BTreeMap<Key, Entry>;

pub(crate) fn found(state: &State, range: &KeyRange, limit: usize) -> Vec<Entry> {
    let inside = state.iter().filter(|(key, _)| range.contains(key));
    inside.take(limit).map(|(_, entry)| entry.clone()).collect()
}

fn holds(state: &State, Compare { key, relation, target }: &Compare) -> bool {
    let entry = state.get(key);
    let number = |part: fn(&Entry) -> u64| entry.map_or(0, part);
    match target {
        Target::Value(value) => {
            let own = entry.and_then(|entry| entry.record.value.as_ref());
            own.is_some_and(|own| relation.holds(own, value))
        }
        Target::Version(other) => relation.holds(&number(|entry| entry.record.version), other),
        Target::Created(other) => relation.holds(&number(|entry| entry.record.created), other),
        Target::Modified(other) => relation.holds(&number(|entry| entry.revision.main), other),
    }
}

pub(crate) fn run(state: &mut State, txn: &Txn, main: u64) -> Outcome {
    let succeeded = txn.compares.iter().all(|compare| holds(state, compare));
    let mut sub = 0;
    let mut results = Vec::new();
    let mut next = || {
        sub += 1;
        Revision { main, sub: sub - 1 }
    };
    for operation in if succeeded { &txn.then } else { &txn.otherwise } {
        results.push(match operation {
            Op::Put { key, value } => {
                let before = state.get(key);
                let created = before.map_or(main, |before| before.record.created);
                let version = before.map_or(0, |before| before.record.version) + 1;
                let value = Some(value.clone());
                let record = Record { key: key.clone(), created, version, value };
                let entry = Entry { revision: next(), record: record.into() };
                state.insert(key.clone(), entry);
                OpResult::Put
            }
            Op::Delete(range) => {
                let gone = found(state, range, usize::MAX);
                for entry in &gone {
                    let _ = next();
                    state.remove(&entry.record.key);
                }
                OpResult::Deleted(gone.len() as u64)
            }
            Op::Get { range, limit } => OpResult::Found(found(state, range, *limit)),
        });
    }
    Outcome { revision: main, succeeded, results }
}

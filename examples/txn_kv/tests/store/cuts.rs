//! The power is cut while transactions and compactions go on. Acknowledged transactions are there,
//! each other transaction is there whole or not at all, and deleted keys do not come back.
//!
//! `TXN_KV_CUTS` sets how often; `EG_TEST_SEED` repeats a run.

use crate::support::ask;
use crate::support::forgetful::Forgetful;
use crate::support::twin::{self, State};
use lab::random::{Random, seed, times};
use txn_kv::store::Store;
use txn_kv::{Entry, Key, KeyRange, Op, Txn};

/// Enough keys that a compaction has more to remove than one flush takes.
const KEYS: u8 = 100;

/// Expected content of the store: the state of each revision, and the first revision to read.
struct Known {
    states: Vec<State>,
    compacted: u64,
}

fn all() -> KeyRange {
    KeyRange::Span(Key::default(), None)
}

fn txn(random: &mut Random) -> Txn {
    let key = |at: u8| Key::from([at]);
    let number = |random: &mut Random| u8::try_from(random.below(KEYS.into())).expect("a byte");
    let put = |at| Op::Put { key: key(at), value: Box::from([at]) };
    let then = match random.below(10) {
        0..5 => (0..KEYS).map(put).collect(),
        5..8 => vec![put(number(random))],
        _ => {
            let (one, other) = (number(random), number(random));
            vec![Op::Delete(KeyRange::Span(key(one.min(other)), Some(key(one.max(other)))))]
        }
    };
    Txn { then, ..Txn::default() }
}

impl Known {
    /// Asserts that the store holds all known states. `perhaps` is the state after a transaction
    /// without an answer. Reads begin where they did, or at `at_most` if a compaction was cut.
    fn check(&mut self, store: &Store, perhaps: Option<State>, at_most: u64) {
        let newest = self.states.len() as u64;
        if store.revision() == newest {
            self.states.push(perhaps.expect("nothing was asked for that is there now"));
        } else {
            assert_eq!(store.revision() + 1, newest);
        }
        let compacted = store.compacted();
        assert!(compacted == self.compacted || compacted == at_most, "compacted at {compacted}");
        self.compacted = compacted;
        for at in compacted..=store.revision() {
            let found = store.read(&all(), Some(at), 1_000).expect("it can be read").entries;
            let state = &self.states[usize::try_from(at).expect("an index")];
            assert!(
                found.iter().eq(state.values()),
                "revision {at}: {}",
                difference(&found, state)
            );
        }
        store.check().expect("index and engine agree");
    }
}

fn difference(found: &[Entry], state: &State) -> String {
    let name = |entry: &Entry| format!("{} of {:?}", entry.revision, entry.record.key);
    let other = found.iter().find(|entry| state.get(&entry.record.key) != Some(entry));
    let missing = state.values().find(|entry| !found.contains(entry));
    format!("found {:?}, missing {:?}", other.map(name), missing.map(name))
}

#[test]
fn what_was_acknowledged_is_there_after_a_cut_and_what_was_deleted_is_not() {
    let seed = seed();
    println!("EG_TEST_SEED={seed}");
    let mut random = Random(seed);
    let new = || Known { states: vec![State::new()], compacted: 0 };
    let (mut file, mut known) = (Forgetful::database(), new());
    let (mut perhaps, mut at_most) = (None, 0);
    for cut in 0..times("TXN_KV_CUTS", 20) {
        if cut % 20 == 0 {
            (file, known, perhaps, at_most) = (Forgetful::database(), new(), None, 0);
        }
        let below = Forgetful::new(file);
        below.cut_after(random.pick(&[20, 100, 300]) + random.below(100), random.next());
        if let Some(store) = below.store() {
            known.check(&store, perhaps.take(), at_most);
            while !below.is_cut() {
                if random.percent(10) {
                    at_most = store.revision();
                    if store.compact(at_most).is_ok() {
                        known.compacted = at_most;
                    }
                    continue;
                }
                let (txn, mut state) =
                    (txn(&mut random), known.states[known.states.len() - 1].clone());
                let main = known.states.len() as u64;
                let twin = twin::run(&mut state, &txn, main);
                match ask::run(&store, txn) {
                    Ok(outcome) if outcome.revision < main => {}
                    Ok(outcome) => {
                        assert_eq!(outcome, twin);
                        known.states.push(state);
                    }
                    Err(error) => {
                        assert!(below.is_cut(), "{error}");
                        perhaps = Some(state);
                    }
                }
            }
        }
        file = below.cut();
    }
}

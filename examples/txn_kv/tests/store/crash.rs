//! The power is cut at random points while several threads write, again and again on the same file.
//! Every acknowledged transaction is there, none is there by half, and index and engine agree.
//!
//! `TXN_KV_CUTS` sets how often; `EG_TEST_SEED` repeats the random choices, but not the order of
//! the threads.

use std::thread;

use lab::random::{Random, seed, times};
use txn_kv::StoreError;
use txn_kv::store::Store;

use crate::support::forgetful::Forgetful;
use crate::support::history::{self, History, transactions};

const WRITERS: u8 = 4;
/// Most transactions of one writer until the power is cut.
const MOST: u64 = 1000;

#[test]
fn what_was_told_survives_cuts_and_no_transaction_is_there_by_half() {
    let seed = seed();
    println!("EG_TEST_SEED={seed}");
    let mut random = Random(seed);
    let (mut image, mut histories) = (Vec::new(), Vec::new());
    let (mut told, mut untold, mut opened) = (0, 0, 0);
    let cuts = times("TXN_KV_CUTS", 100);
    for cut in 0..cuts {
        if cut % 20 == 0 {
            histories = (0..WRITERS).map(History::new).collect();
            image = Forgetful::database();
        }
        let file = Forgetful::new(image);
        let most = random.pick(&[20, 100, 300]);
        file.cut_after(random.below(most), random.next());
        if let Some(store) = file.store() {
            opened += 1;
            let before = transactions(&histories);
            history::check(&store, &mut histories);
            untold += transactions(&histories) - before;
            let before = transactions(&histories);
            write_until_the_cut(&store, &file, &mut histories, &mut random);
            assert!(file.is_cut(), "somebody failed");
            told += transactions(&histories) - before;
        }
        image = file.cut();
    }
    // The image of the last cut is checked as well.
    history::check(&Forgetful::new(image).store().expect("no cut"), &mut histories);
    println!("opened {opened} times; {told} transactions were told, {untold} were there untold");
    assert!(cuts < 100 || told > 0, "cuts come too early");
}

fn write_until_the_cut(
    store: &Store,
    file: &Forgetful,
    histories: &mut [History],
    random: &mut Random,
) {
    thread::scope(|scope| {
        for history in histories {
            let mut random = Random(random.next());
            let most = history.len() + MOST;
            scope.spawn(move || {
                while history.write(&mut store.clone(), &mut random).is_ok() {
                    assert!(history.len() < most, "nothing reaches the file");
                }
            });
        }
        let (mut random, first) = (Random(random.next()), store.revision());
        scope.spawn(move || {
            while !file.is_cut() && store.revision() < first + u64::from(WRITERS) * MOST {
                compact(store, &mut random);
                thread::yield_now();
            }
        });
    });
}

/// Compacts, and reads what is left: whole groups, also after the cut.
fn compact(store: &Store, random: &mut Random) {
    let at = store.revision().saturating_sub(random.below(20));
    match store.compact(at) {
        Ok(_) | Err(StoreError::Compacted { .. } | StoreError::Write(_)) => {}
        Err(error) => panic!("{error}"),
    }
    let n = random.below(history::GROUPS.into()) as u8;
    if let Ok(found) = store.read(&history::group(n), None, 100) {
        history::assert_whole(&found.entries);
    }
}

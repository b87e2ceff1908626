//! Transactions that are begun, and waited for.

use std::sync::mpsc;
use std::thread;

use lab::LONG;
use txn_kv::store::Store;
use txn_kv::{Outcome, StoreError, Txn};

/// Receiver of the outcome of a transaction.
pub(crate) type Told = mpsc::Receiver<Result<Outcome, StoreError>>;

/// Begins a transaction on this thread.
pub(crate) fn begin(store: &Store, txn: Txn) -> Told {
    let (tell, told) = mpsc::channel();
    // The receiver waits for the outcome, or has given up.
    store.txn(txn, move |outcome| drop(tell.send(outcome)));
    told
}

/// Begins a transaction on a thread of its own, because it will lead and wait for the disk.
pub(crate) fn begin_elsewhere(store: &Store, txn: Txn) -> Told {
    let (tell, told) = mpsc::channel();
    let store = store.clone();
    thread::spawn(move || store.txn(txn, move |outcome| drop(tell.send(outcome))));
    told
}

/// Waits for the outcome.
pub(crate) fn outcome(told: &Told) -> Result<Outcome, StoreError> {
    told.recv_timeout(LONG).expect("each transaction has an outcome")
}

/// Does a transaction.
pub(crate) fn run(store: &Store, txn: Txn) -> Result<Outcome, StoreError> {
    outcome(&begin(store, txn))
}

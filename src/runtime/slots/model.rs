//! Loom models of [`Slots`]: pin against close against reclaim against reuse, in the shipped code.
//!
//! Left out: two inserts at once (the free list is a lock), [`Slots::pin_all`], and the wrap-around
//! of a version.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use loom::thread;

use super::{Released, Slots, Token};
use crate::sync::mutant::{explore, mutants};

struct Table {
    slots: Slots<u32>,
    /// Number of times that a thread released the last reference to the first value.
    lasts: AtomicUsize,
    /// Token of the second value. Relaxed: it gives no order with the value.
    second: AtomicU64,
}

impl Table {
    fn release(&self, token: Token, value: u32) {
        if self.slots.pinned(token).release() == Released::Last {
            if value == 1 {
                self.lasts.fetch_add(1, Ordering::Relaxed);
            }
            assert_eq!(self.slots.take(token), Some(value), "taken once");
        }
    }

    /// An event of a value that may be gone already.
    fn event(&self, token: Token, value: u32) {
        if let Some(pinned) = self.slots.pin(token) {
            // SAFETY: pinned.
            assert_eq!(*unsafe { pinned.get() }, value, "reached another value");
            self.release(token, value);
        }
    }
}

fn pin_close_reclaim_reuse() {
    explore(|| {
        let slots = Slots::new();
        let first = slots.insert(1).expect("room");
        let (lasts, second) = (AtomicUsize::new(0), AtomicU64::new(0));
        let table = Arc::new(Table { slots, lasts, second });
        let here = Arc::clone(&table);
        let closes = thread::spawn(move || {
            here.release(first, 1);
            let second = here.slots.insert(2).expect("room");
            here.second.store(second.encode(), Ordering::Relaxed);
            here.release(second, 2);
        });
        let here = Arc::clone(&table);
        let event = thread::spawn(move || here.event(first, 1));
        let second = table.second.load(Ordering::Relaxed);
        if second == 0 {
            table.event(first, 1);
        } else {
            table.event(Token::decode(second), 2);
        }
        closes.join().expect("no panic");
        event.join().expect("no panic");
        assert_eq!(table.lasts.load(Ordering::Relaxed), 1);
        let (slots, free) = table.slots.usage();
        assert_eq!(slots, free, "every slot came back");
    });
}

#[test]
fn slots() {
    pin_close_reclaim_reuse();
}

mutants! {
    pin_of_any_version: PinIgnoresVersion, pin_close_reclaim_reuse(), "reached another value";
    pin_of_the_dead: PinRevives, pin_close_reclaim_reuse(), "panicked";
    pin_without_acquire: PinRelaxed, pin_close_reclaim_reuse(), "Causality violation";
    insert_without_release: InsertRelaxed, pin_close_reclaim_reuse(), "Causality violation";
    release_without_order: ReleaseRelaxed, pin_close_reclaim_reuse(), "Causality violation";
}

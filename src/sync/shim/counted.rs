//! Atomics of unit tests. They count the locked operations of each thread: read-modify-writes, and
//! SeqCst fences, which cost as much.
//!
//! An operation that is not defined here does not compile in a unit test, so no locked operation of
//! these types goes uncounted. The count leaves out reference counts of `Arc`, `AtomicPtr`, and
//! atomics that are imported from std.

use std::cell::Cell;
use std::sync::atomic;

pub(crate) use std::sync::atomic::{AtomicPtr, Ordering};

/// Number of locked operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Locked {
    pub(crate) updates: usize,
    pub(crate) fences: usize,
}

thread_local! {
    static LOCKED: Cell<Locked> = const { Cell::new(Locked { updates: 0, fences: 0 }) };
}

/// Returns the number of locked operations since the last call on this thread.
pub(crate) fn take_locked() -> Locked {
    LOCKED.take()
}

pub(super) fn count_updates(updates: usize) {
    let locked = LOCKED.get();
    LOCKED.set(Locked { updates: locked.updates + updates, ..locked });
}

pub(crate) fn fence(order: Ordering) {
    let locked = LOCKED.get();
    LOCKED.set(Locked { fences: locked.fences + 1, ..locked });
    atomic::fence(order);
}

macro_rules! counted {
    ($($name:ident: $value:ty, $($update:ident)*;)*) => {$(
        #[derive(Debug, Default)]
        pub(crate) struct $name(atomic::$name);

        #[allow(dead_code, reason = "one list of operations for all types")]
        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }

            pub(crate) fn into_inner(self) -> $value {
                self.0.into_inner()
            }

            $(pub(crate) fn $update(&self, value: $value, order: Ordering) -> $value {
                count_updates(1);
                self.0.$update(value, order)
            })*

            pub(crate) fn compare_exchange(
                &self,
                before: $value,
                after: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                count_updates(1);
                self.0.compare_exchange(before, after, success, failure)
            }

            pub(crate) fn compare_exchange_weak(
                &self,
                before: $value,
                after: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                count_updates(1);
                self.0.compare_exchange_weak(before, after, success, failure)
            }

            pub(crate) fn fetch_update(
                &self,
                set: Ordering,
                fetch: Ordering,
                update: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                count_updates(1);
                self.0.fetch_update(set, fetch, update)
            }
        }
    )*};
}

counted! {
    AtomicBool: bool, swap fetch_and fetch_or;
    AtomicU8: u8, swap fetch_and fetch_or fetch_add fetch_sub fetch_max;
    AtomicU32: u32, swap fetch_and fetch_or fetch_add fetch_sub fetch_max;
    AtomicU64: u64, swap fetch_and fetch_or fetch_add fetch_sub fetch_max;
    AtomicUsize: usize, swap fetch_and fetch_or fetch_add fetch_sub fetch_max;
}

//! A global allocator that tells what it does.

#![allow(unsafe_code, reason = "an allocator is")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Allocator that calls its function before each change, with the bytes taken and the bytes given
/// back. A reallocation takes the new size, and then gives the old size back.
pub struct Noting(pub fn(usize, usize));

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        (self.0)(layout.size(), 0);
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        (self.0)(0, layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        (self.0)(size, 0);
        (self.0)(0, layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// Counts the bytes that the whole process holds, for tests that run in a process of their own.
pub const LIVE: Noting = Noting(|taken, given_back| {
    HELD.fetch_add(taken, Ordering::Relaxed);
    HELD.fetch_sub(given_back, Ordering::Relaxed);
});

static HELD: AtomicUsize = AtomicUsize::new(0);

/// Asserts that `round`, which repeats something `times` times, keeps less than a byte for each time.
///
/// A table or a spare buffer may grow in one round. A leak shows in every round, so one round of ten
/// without growth is enough.
#[track_caller]
pub fn leaves_nothing(times: usize, mut round: impl FnMut()) {
    let mut left = Vec::new();
    while left.len() < 10 {
        let before = held_bytes();
        round();
        let grown = held_bytes().saturating_sub(before);
        if grown < times {
            return;
        }
        left.push(grown / times);
    }
    panic!("{left:?} bytes are kept for each of {times}");
}

/// Bytes that this process holds. Its global allocator must be [`LIVE`].
pub fn held_bytes() -> usize {
    let held = HELD.load(Ordering::Relaxed);
    assert!(held > 0, "this program counts what it allocates");
    held
}

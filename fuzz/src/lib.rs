//! What the targets share: memory is counted, and split inputs are taken apart.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What is allowed above four bytes for each byte of the input: tables of fixed size, the first
/// element of vectors, the text of errors.
pub const CONSTANT_BYTES: usize = 64 << 10;

/// Runs `decode` and asserts that it never held more than four times `input_bytes` and
/// [`CONSTANT_BYTES`] at once. What it returns counts.
pub fn bounded<T>(input_bytes: usize, decode: impl FnOnce() -> T) -> T {
    within(input_bytes.saturating_mul(4).saturating_add(CONSTANT_BYTES), decode)
}

/// Runs `code` and asserts that it never held more than `allowed` bytes at once.
pub fn within<T>(allowed: usize, code: impl FnOnce() -> T) -> T {
    let before = CURRENT.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = code();
    let held = PEAK.load(Relaxed).saturating_sub(before);
    assert!(held <= allowed, "{held} bytes held, of {allowed}");
    result
}

/// Takes a piece of `input` off its front whose length its first byte says, if all of it is there.
pub fn short_piece<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = input.split_first()?;
    take(input, rest, usize::from(length))
}

/// The same with two bytes, little-endian.
pub fn piece<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (&length, rest) = input.split_first_chunk::<2>()?;
    take(input, rest, usize::from(u16::from_le_bytes(length)))
}

fn take<'a>(input: &mut &'a [u8], rest: &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (piece, rest) = rest.split_at_checked(length)?;
    *input = rest;
    Some(piece)
}

/// The allocator of the system, counted. The engine runs a target on one thread, so what other
/// threads do is nothing to care about.
struct Counted;

#[global_allocator]
static COUNTED: Counted = Counted;

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let current = CURRENT.fetch_add(bytes, Relaxed).wrapping_add(bytes);
    PEAK.fetch_max(current, Relaxed);
}

fn shrink(bytes: usize) {
    CURRENT.fetch_sub(bytes, Relaxed);
}

// SAFETY: everything is handed to the allocator of the system as it is.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // While it moves both are there.
        grow(bytes);
        shrink(layout.size());
        // SAFETY: the caller keeps the contract.
        unsafe { System.realloc(place, layout, bytes) }
    }
}

//! Upper bounds on the memory that a target holds. Each thread is counted on its own, so that the
//! tests of one program can run side by side. A target runs on one thread.

use std::cell::Cell;

use lab::allocator::Noting;

/// Runs `decode` and asserts that it never held more than [`CONSTANT_BYTES`] and four bytes for each
/// byte of input at once. The result of `decode` counts.
pub(crate) fn bounded<T>(input_bytes: usize, decode: impl FnOnce() -> T) -> T {
    within(input_bytes.saturating_mul(4).saturating_add(CONSTANT_BYTES), decode)
}

/// Runs `code` and asserts that it never held more than `allowed` bytes at once.
pub(crate) fn within<T>(allowed: usize, code: impl FnOnce() -> T) -> T {
    let before = CURRENT.get();
    PEAK.set(before);
    let result = code();
    let held = PEAK.get().saturating_sub(before);
    assert!(held <= allowed, "{held} bytes held, of {allowed}");
    result
}

/// Memory that does not depend on the length of the input: tables of fixed size, first elements of
/// vectors, texts of errors.
const CONSTANT_BYTES: usize = 64 << 10;

#[global_allocator]
static COUNTED: Noting = Noting(note);

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts a change. Neither thread-local has a destructor, so both stay readable until the last
/// deallocation of a thread.
fn note(more: usize, less: usize) {
    // A thread may free what another one allocated.
    let current = (CURRENT.get() + more).saturating_sub(less);
    CURRENT.set(current);
    PEAK.set(PEAK.get().max(current));
}

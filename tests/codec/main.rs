//! The codec: faults that were found and fixed, and its memory as the allocator counts it.
//!
//! The counts are those of the calling thread: tests that run side by side do not see each other's.

use lab::allocator::Noting;

mod allocations;
mod memory;
mod regressions;

#[global_allocator]
static ALLOCATOR: Noting = Noting(note);

fn note(taken: usize, given_back: usize) {
    allocations::note(taken);
    memory::note(taken, given_back);
}

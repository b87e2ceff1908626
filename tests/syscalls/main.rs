//! The system fails: each call with each errno, bytes one at a time, signals, a stopped process, clocks
//! that jump, children, limits.
#![cfg(all(feature = "server", feature = "client"))]

mod matrix;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/syscalls/mod.rs"]
mod syscalls;
mod world;

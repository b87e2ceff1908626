//! The system fails: each call with each errno, short transfers, signals, clocks that jump, children,
//! limits.
//!
//! Not under a sanitizer, which wants these functions of the C library for itself.
#![cfg(all(feature = "server", feature = "client", feature = "pool", not(sanitized)))]

mod children;
mod clocks;
mod limits;
mod matrix;
#[path = "../support/mod.rs"]
mod support;
#[path = "../support/syscalls/mod.rs"]
mod syscalls;
mod transfers;
mod world;

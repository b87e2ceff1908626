//! The system fails: each call with each errno, short transfers, signals, clocks that jump, children,
//! limits.
#![cfg(all(feature = "server", feature = "client"))]

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

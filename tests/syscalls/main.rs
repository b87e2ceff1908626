//! The system fails: each call with each errno, short transfers, signals, clocks that jump, children,
//! limits.
//!
//! Not under a sanitizer, which wants these functions of the C library for itself.
#![cfg(all(feature = "server", feature = "client", feature = "pool", not(sanitized)))]

mod children;
mod clocks;
mod limits;
mod matrix;
mod shims;
mod transfers;
mod world;

//! The system fails: each call with each errno, short transfers, signals, clocks that jump,
//! children, limits.
//!
//! Left out under a sanitizer, which replaces the same functions of the C library.
#![cfg(all(feature = "server", feature = "client", feature = "pool", not(sanitized)))]

mod children;
mod clocks;
mod counts;
mod limits;
mod matrix;
mod shims;
mod transfers;
mod world;

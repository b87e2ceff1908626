//! The runtime: starting and ending, tasks, timers, threads that come and go, changes while it runs.
//!
//! Tests that need a process of their own, for its limits or its descriptors, run in a child. A test that
//! finds threads by their names gives its runtime a name that no other test here has.
#![cfg(feature = "server")]

mod affinity;
mod blocked;
#[cfg(feature = "client")]
mod frozen;
mod life;
mod panics;
mod reconfigure;
mod regressions;
// The address sanitizer itself asks for the CPUs of each thread, and ends the process if that is refused.
#[cfg(not(sanitized))]
mod sandbox;
mod scaling;
mod shutdown;
mod slices;
mod stats;
mod tasks;
mod timers;

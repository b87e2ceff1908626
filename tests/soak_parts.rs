//! The parts of the soak that decide: what is mixed with what, and what counts as growth. Its own
//! target has no tests, as it would run again those of the examples that it is made of.
#![cfg(feature = "server")]

#[path = "support/abuse/mod.rs"]
mod abuse;
#[path = "support/faults.rs"]
mod faults;
#[allow(dead_code, reason = "the soak uses more of it")]
#[path = "../examples/soak/hazard.rs"]
mod hazard;
#[allow(dead_code, reason = "the soak uses more of it")]
#[path = "../examples/soak/slope.rs"]
mod slope;
mod support;

//! The part of `lab` that programs need: command lines, signals, tables, and the load
//! generator. A package of its own, because the rest of `lab` takes as long to build as the crate, and
//! features of `lab` would not keep it out: Cargo unites those of all default members.

pub mod address;
pub mod args;
pub mod cpu;
pub mod load;
pub mod progress;
pub mod prometheus;
pub mod report;
pub mod signals;
pub mod table;
pub mod terminal;
pub mod units;

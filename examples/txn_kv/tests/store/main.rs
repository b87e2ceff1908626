//! The store: both engines, transactions beside one another, and what survives cuts, kills and full disks.
#![cfg(not(feature = "model"))]

mod crash;
mod cuts;
mod engine;
mod failing;
mod group_commit;
mod invariant;
mod kill;
mod regressions;
mod serial;
mod support;
mod twin;

//! Synchronisation: the [`Runner`](runner::Runner), and the shim that lets loom see it.
#![allow(unsafe_code)]

pub(crate) mod mutant;
pub(crate) mod runner;
pub(crate) mod shim;

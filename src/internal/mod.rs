//! A door for benches and fuzzers into what the crate does not promise. Nothing here is stable.

#[cfg(all(feature = "server", target_os = "linux"))]
mod server;

#[cfg(all(feature = "server", target_os = "linux"))]
pub use server::{Deadline, Queue, Stalls, Timers};

#[cfg(all(feature = "pool", fuzzing))]
pub use crate::pool::exercise::exercise as pool_ops;

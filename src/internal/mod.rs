//! Access for benches and fuzzers to parts that the crate does not promise. Nothing here is stable.

#[cfg(all(feature = "server", target_os = "linux"))]
mod server;
#[cfg(all(feature = "server", target_os = "linux"))]
pub mod simulated;

#[cfg(all(feature = "server", target_os = "linux"))]
pub use server::{Deadline, Queue, Stalls, Timers, login};

#[cfg(all(feature = "client", target_os = "linux"))]
pub use crate::client::fuzzed::connection as client_connection;

/// Applies operations of two bytes each to a pool's backend and to its naive twin.
///
/// # Panics
///
/// Panics if the two differ.
#[cfg(feature = "pool")]
pub fn pool_ops(bytes: &[u8]) {
    crate::pool::exercise(bytes);
}

//! Sessions of other servers: calls, answers, ends, faults.
#![cfg(all(feature = "server", feature = "client"))]

mod answers;
mod calls;
mod ends;
mod faults;
mod proxied;
#[cfg(feature = "pool")]
mod restart;
mod stress;
#[cfg(feature = "tls")]
mod tls;
mod waits;

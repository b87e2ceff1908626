//! Sessions of other servers: calls, answers, ends, faults.
#![cfg(all(feature = "server", feature = "client"))]

mod answers;
mod calls;
mod ends;
mod faults;
mod stress;
mod waits;

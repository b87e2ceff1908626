//! The server's side of the protocol: logins, sessions, requests, flow control, ends.
//!
//! The tests of `logs` run in child processes, because the log subscriber of a process receives the
//! events of all its servers.
#![cfg(feature = "server")]

mod accounts;
mod changes;
mod deferred;
mod ends;
#[cfg(feature = "client")]
mod faults;
mod flow;
mod glitches;
mod groups;
mod kill;
mod limits;
mod locks;
mod login;
mod logs;
mod malformed;
mod matrix;
mod order;
mod panics;
mod relay;
mod requests;
mod review;
mod spans;
mod stress;
mod support;
mod turns;

#[global_allocator]
static ALLOCATOR: lab::allocator::Noting = lab::allocator::LIVE;

//! A client's connection against whatever a server sends: each request has one outcome, what is sent are
//! whole frames, what nobody reads is bounded, and nothing is left at the end.
//!
//! ```text
//! input = logged in u8 │ (what u8, which u8, what it needs …) …
//! ```

#![no_main]

use epoll_group::internal::client_connection;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| client_connection(input));

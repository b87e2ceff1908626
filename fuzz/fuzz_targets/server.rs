//! A server's connection against whatever a client sends, before and after a login: what it sends are
//! whole messages, nothing of the library panics, what is kept is bounded, and nothing is left at the end.
//!
//! ```text
//! input = logged in u8 │ (what u8, which u8, what it needs …) …
//! ```

#![no_main]

use epoll_group_fuzz::within;
use libfuzzer_sys::fuzz_target;

/// A server without connections, and the most that its limits let one connection make it keep.
const MOST_BYTES: usize = 8 << 20;

fuzz_target!(|input: &[u8]| within(MOST_BYTES, || lab::fuzzed::server(input)));

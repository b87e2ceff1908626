//! A backend of a pool: sequences of operations, compared with a naive twin after each one.
//!
//! ```text
//! input = (operation u8 │ parameter u8) …
//! ```

#![no_main]

use epoll_group::internal::pool_ops;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| pool_ops(input));

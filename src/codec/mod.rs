//! The wire format: bytes in, values out, and back.
//!
//! A connection carries frames, one after the other, in both directions, without a handshake:
//!
//! ```text
//! ┌──────────────────────┬──────────────┬──────────────────────┬──────────
//! │ header, 13 bytes     │ body         │ header, 13 bytes     │ body …
//! │ session, length, kind│ length-1     │                      │
//! └──────────────────────┴──────────────┴──────────────────────┴──────────
//! ```
//!
//! The codec is sans-I/O. It knows no socket, clock, thread or configuration: the caller owns the
//! buffers and says how large a frame may be. More bytes needed is a value (`Ok(None)`), not an
//! error, and what a peer sends, whatever it is, never panics and never allocates.
//! `cargo check --no-default-features` builds this module alone.

#![forbid(unsafe_code)]
#![warn(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::big_endian_bytes,
    clippy::host_endian_bytes
)]

pub mod header;

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
//! The codec is sans-I/O. It knows no socket, clock, thread or configuration. The caller owns the
//! buffers and bounds the input with [`Limits`](limits::Limits). The need for more bytes is a value
//! (`Ok(None)`), not an error. Bytes of a peer never cause a panic. They take memory for the bytes
//! that really came, not for the announced number.
//! `cargo check --no-default-features` builds this module alone.
//!
//! # Input
//!
//! 1. [`frame`]: bytes in any pieces to frames, or frames in place from the caller's buffer
//! 2. [`message`]: a frame to a message, one type per kind, and the meaning of its content; the
//!    generated types are in [`proto`]
//! 3. [`row`], [`chunk`]: cells of a result to a [`value`]
//!
//! # Output
//!
//! 1. [`encoder`]: results straight into the output buffer, without a message between
//! 2. [`message`]: everything else
//! 3. [`auth`]: arithmetic of the login, both sides
//!
//! Errors are small values that tell the fault, its place and its scope ([`error::Scope`]).

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

pub mod auth;
mod check;
pub mod chunk;
pub mod encoder;
pub mod error;
pub mod frame;
pub mod limits;
pub mod message;
pub mod proto;
pub mod row;
mod secrets;
pub mod value;
mod wire;

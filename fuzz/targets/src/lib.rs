//! Bodies of the fuzz targets, as functions that stable Rust can build. The programs in
//! `fuzz/fuzz_targets` hand them to libFuzzer, and the test `replay` runs them over the stored seeds.
//!
//! A target panics if a promise does not hold. An input has one or more [`parts`]. The target checks
//! each part on its own, so that one seed can cover several cases.

mod auth;
mod chunk;
mod frames;
mod input;
mod memory;
mod message;
mod plan;
mod row;
mod status;
mod tls;

pub use input::{join, keep_one_part, parts};

use input::each_part;

/// Texts of a login.
pub fn auth(input: &[u8]) {
    each_part(input, auth::check);
}

/// Columnar results.
pub fn chunk(input: &[u8]) {
    each_part(input, chunk::check);
}

/// A client's connection against arbitrary bytes from a server. Each request has one outcome, the
/// client sends whole frames, unread answers are bounded, and nothing is left at the end.
///
/// ```text
/// part = logged in u8 │ (operation u8, parameter u8, its arguments …) …
/// ```
pub fn client(input: &[u8]) {
    each_part(input, epoll_group::internal::client_connection);
}

/// The decoder of frames.
pub fn frames(input: &[u8]) {
    each_part(input, frames::check);
}

/// Bodies of messages.
pub fn message(input: &[u8]) {
    each_part(input, message::check);
}

/// Execution plans.
pub fn plan(input: &[u8]) {
    each_part(input, plan::check);
}

/// Operations of a pool's backend, compared with a naive twin after each of them.
///
/// ```text
/// part = (operation u8 │ parameter u8) …
/// ```
pub fn pool_ops(input: &[u8]) {
    each_part(input, epoll_group::internal::pool_ops);
}

/// The header by which a proxy names its client, under every cut.
pub fn proxy_header(input: &[u8]) {
    each_part(input, epoll_group::internal::proxy_header);
}

/// Bodies of rows.
pub fn row(input: &[u8]) {
    each_part(input, row::check);
}

/// TLS of a server, whose client's stream comes in pieces, and perhaps with one changed byte.
///
/// ```text
/// part = place of the changed byte u16 LE │ its change u8, or 0 │ size of each piece u8 …
/// ```
pub fn tls(input: &[u8]) {
    each_part(input, tls::check);
}

/// A server's connection against arbitrary bytes from a client, before and after a login. The server
/// sends whole messages, its own code does not panic, its memory is bounded, and nothing is left at
/// the end.
///
/// ```text
/// part = logged in u8 │ (operation u8, parameter u8, its arguments …) …
/// ```
pub fn server(input: &[u8]) {
    each_part(input, |part| memory::within(SERVER_BYTES, || lab::fuzzed::server(part)));
}

/// Requests of a client of the status page, under every cut.
pub fn status(input: &[u8]) {
    each_part(input, status::check);
}

/// Memory of a server without connections, plus the most that one connection may hold under its limits.
const SERVER_BYTES: usize = 8 << 20;

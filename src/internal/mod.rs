//! Access for benches and fuzzers to parts that the crate does not promise. Nothing here is stable.

#[cfg(all(feature = "server", target_os = "linux"))]
mod server;
#[cfg(all(feature = "server", target_os = "linux"))]
pub mod simulated;

#[cfg(all(feature = "server", target_os = "linux"))]
pub use server::{Deadline, Queue, Stalls, Timers, login};

#[cfg(all(feature = "client", target_os = "linux"))]
pub use crate::client::fuzzed::connection as client_connection;

/// Reads the first request of a client of the status page. Returns its length and its path.
///
/// # Errors
///
/// Returns the status line of the refusal.
#[cfg(all(feature = "status", target_os = "linux"))]
pub fn status_request(bytes: &[u8]) -> Result<Option<(usize, &str)>, &'static str> {
    let request = crate::status::http::parse(bytes).map_err(|refusal| refusal.0)?;
    Ok(request.map(|request| (request.length, request.path)))
}
#[cfg(all(feature = "tls", target_os = "linux"))]
pub use crate::net::tls::TlsPieces;

/// Applies operations of two bytes each to a pool's backend and to its naive twin.
///
/// # Panics
///
/// Panics if the two differ.
#[cfg(feature = "pool")]
pub fn pool_ops(bytes: &[u8]) {
    crate::pool::exercise(bytes);
}

/// Reads the first bytes of a stream as a PROXY header, under every cut.
///
/// # Panics
///
/// Panics if the cuts differ, a limit is passed, or a header that was read cannot be sent.
#[cfg(all(feature = "server", target_os = "linux"))]
pub fn proxy_header(stream: &[u8]) {
    crate::net::check_proxy_header(stream);
}

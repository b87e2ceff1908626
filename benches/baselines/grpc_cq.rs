//! To be written.

use std::io;
use std::net::SocketAddr;

/// Whom a completion wakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wake {
    All,
    One,
}

pub(crate) fn start(address: SocketAddr, threads: usize, wake: Wake) -> io::Result<SocketAddr> {
    unimplemented!()
}

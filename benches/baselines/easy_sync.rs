//! To be written.

use std::io;
use std::net::SocketAddr;

pub(crate) fn start(address: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
    unimplemented!()
}

//! To be written.

use std::io;
use std::net::SocketAddr;

pub(crate) fn start(
    address: SocketAddr,
    io_threads: usize,
    workers: usize,
) -> io::Result<SocketAddr> {
    unimplemented!()
}

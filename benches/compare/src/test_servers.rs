//! Servers that live in the process of a test.

use std::net::SocketAddr;

use epoll_group::{Config, Runtime};

use super::protocol::Echo;

/// Any port.
pub(crate) fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// The library with one group of so many threads.
pub(crate) fn epoll_group(threads: usize) -> (Runtime, SocketAddr) {
    let config = Config::default().epoll_groups(1).epoll_threads_per_group(threads);
    let runtime = Runtime::builder().config(config).start().unwrap();
    let listener = runtime.listen(any(), Echo::default()).unwrap();
    let address = listener.local_addr().to_string().parse().unwrap();
    (runtime, address)
}

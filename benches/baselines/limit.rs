//! The limit: what an echo server costs when it is nothing but system calls.
//!
//! One level-triggered epoll loop for each thread, each with a listener of its own on the same
//! address (`SO_REUSEPORT`): a connection belongs to one thread for life. No locks, no shared
//! state, no timers, no wake-ups between threads, and for a short frame three system calls at
//! the most: wait, receive, send. What a runtime adds to this per request is its price. What this
//! cannot do is its other half: a connection whose handler is slow holds up all others of its
//! thread, whatever the other threads do.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};

use super::epoll::{self, Epoll};
use super::event_loop::{self, Connection, Next, Received, Table};

const EVENTS_PER_WAIT: usize = 64;
const RECEIVE_BYTES: usize = 64 << 10;

/// Starts the threads; they serve until the process ends.
pub(crate) fn start(address: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
    event_loop::start_listening(address, threads, run)
}

fn run(listener: &TcpListener) -> io::Result<Infallible> {
    let epoll = Epoll::new()?;
    epoll.add(listener, libc::EPOLLIN)?;
    let mut connections = Table::new();
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut events = epoll::events::<EVENTS_PER_WAIT>();
    loop {
        let count = epoll.wait(&mut events, -1)?;
        for event in &events[..count] {
            let (fd, bits) = (event.u64 as RawFd, event.events as i32);
            if fd == listener.as_raw_fd() {
                if let Some(connection) = Connection::accept(listener, &epoll)? {
                    connections.insert(connection.as_raw_fd(), connection);
                }
                continue;
            }
            let Some(connection) = connections.get(fd) else { continue };
            // Whatever goes wrong on a connection ends that connection.
            if let Ok(Next::Close) | Err(_) = serve(connection, &epoll, bits, &mut buffer) {
                connections.remove(fd);
            }
        }
    }
}

fn serve(
    connection: &mut Connection,
    epoll: &Epoll,
    bits: i32,
    buffer: &mut [u8],
) -> io::Result<Next> {
    if bits & libc::EPOLLOUT != 0 {
        connection.send_backlog(epoll)?;
    }
    if bits & !libc::EPOLLOUT == 0 || connection.has_backlog() {
        return Ok(Next::Keep);
    }
    match connection.receive(buffer)? {
        Received::Bytes(count) => connection.answer(epoll, &buffer[..count])?,
        Received::Nothing => {}
        Received::End => return Ok(Next::Close),
    }
    Ok(Next::Keep)
}

//! Event loops with one thread each, and nothing shared: the limit of what an echo can cost, and libuv.
//!
//! ```text
//!  thread: epoll ── listener of its own (SO_REUSEPORT)
//!            └───── its connections: receive, perform, send
//! ```
//!
//! [`LIMIT`] is nothing but system calls. Each thread has a level-triggered epoll loop and a listener of
//! its own on the same address, so a connection belongs to one thread for life. There are no locks, no
//! shared state, no timers and no wake-ups between threads. A short frame takes three system calls at
//! most: wait, receive, send. The price of a runtime is what it adds to this per request.
//!
//! [`UV`] is libuv's way, as its Design overview (docs.libuv.org, "The I/O loop") and its Guide describe
//! it; the numbers are those of its sources (MIT, `src/unix`: `linux.c`, `stream.c`). It differs from the
//! limit in the events of a wait, the clock that is read in each turn, and the reads: a filled buffer is
//! read again, up to 32 times, before any other connection gets its turn. The server on top is a careful
//! one. Its alloc callback returns the same 64 KiB each time. It tries to write at once
//! (`uv_try_write`), queues the rest, and stops reading while there is any.
//!
//! Good at: nothing is shared, so nothing is locked. Bad at: a slow handler holds up all connections of
//! its thread, and no loop can help another.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::hint::black_box;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use super::epoll::{self, Epoll};
use super::event_loop::{self, Connection, Next, Received, Table};

/// How a loop treats its events.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    events_per_wait: usize,
    reads_per_event: usize,
    /// The time is read in each turn, for timers.
    updates_time: bool,
}

/// System calls and nothing else.
pub const LIMIT: Style = Style { events_per_wait: 64, reads_per_event: 1, updates_time: false };
/// As libuv has it.
pub const UV: Style = Style { events_per_wait: 1024, reads_per_event: 32, updates_time: true };

const MOST_EVENTS: usize = 1024;
const RECEIVE_BYTES: usize = 64 << 10;

/// Starts the threads. They serve until the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, threads: usize, style: Style) -> io::Result<SocketAddr> {
    event_loop::start_listening(address, threads, move |listener| run(listener, style))
}

fn run(listener: &TcpListener, style: Style) -> io::Result<Infallible> {
    let epoll = Epoll::new()?;
    epoll.add(listener, libc::EPOLLIN)?;
    let mut connections = Table::new();
    let mut buffer = vec![0; RECEIVE_BYTES];
    let mut events = epoll::events::<MOST_EVENTS>();
    loop {
        let count = epoll.wait(&mut events[..style.events_per_wait], -1)?;
        if style.updates_time {
            black_box(Instant::now());
        }
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
            if let Ok(Next::Close) | Err(_) = serve(connection, &epoll, bits, &mut buffer, style) {
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
    style: Style,
) -> io::Result<Next> {
    if bits & libc::EPOLLOUT != 0 {
        connection.send_backlog(epoll)?;
    }
    if bits & !libc::EPOLLOUT == 0 {
        return Ok(Next::Keep);
    }
    for _ in 0..style.reads_per_event {
        if connection.has_backlog() {
            break;
        }
        let count = match connection.receive(buffer)? {
            Received::Bytes(count) => count,
            Received::Nothing => break,
            Received::End => return Ok(Next::Close),
        };
        connection.answer(epoll, &buffer[..count])?;
        if count < buffer.len() {
            break;
        }
    }
    Ok(Next::Keep)
}

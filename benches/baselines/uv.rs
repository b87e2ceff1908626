//! libuv's way: event loops with one thread each, several of them side by side.
//!
//! ```text
//!  loop: update the time ▸ due timers ▸ wait, up to 1 024 events ▸ callbacks ─┐
//!    ▲                                                                        │
//!    └────────────────────────────────────────────────────────────────────────┘
//!  readable: alloc callback ▸ read ▸ read callback: perform, try to write ─▸ write queue
//!            (again while the buffer was filled, 32 times at the most)           │
//!  writable: write what is queued ◀──────────────────────────────────────────────┘
//! ```
//!
//! It is described in libuv's Design overview (docs.libuv.org, "The I/O loop") and its Guide, which
//! runs several loops, each in a thread or process of its own; the numbers are those of its sources
//! (MIT, `src/unix`: `linux.c`, `stream.c`). A loop and all that belongs to it is for one thread
//! alone. Here each loop has a listener at the same address (`SO_REUSEPORT`), which its TCP handles
//! can ask for, and the connections that the kernel deals to it.
//!
//! The server on top is a careful one: its alloc callback returns the same 64 KiB each time, it
//! tries to write at once (`uv_try_write`), queues the rest, and stops reading while there is any.
//!
//! What `limit` is, is much of it: the same calls for a short frame, the same life of a connection.
//! Different are the events of a wait, the clock that is read in each turn whether or not somebody
//! asks for the time, and the reads: a filled buffer is read again before any other connection gets
//! its turn. libuv also collects changes of what is watched until it waits; there is hardly ever
//! more than one at a time, so here they are made at once.
//!
//! Good and bad at what `limit` is: nothing is shared, so nothing is locked, and no loop can help
//! another whose connections are busy or whose callback is slow.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Instant;

use super::epoll::{self, Epoll};
use super::event_loop::{self, Connection, Next, Received, Table};

/// One loop and what belongs to it.
struct Loop<'a> {
    epoll: Epoll,
    /// For timers, of which an echo has none.
    now: Instant,
    listener: &'a TcpListener,
    connections: Table<Connection>,
    /// What the alloc callback returns.
    buffer: Vec<u8>,
}

const EVENTS_PER_WAIT: usize = 1024;
/// What libuv suggests to the alloc callback.
const SUGGESTED_BYTES: usize = 64 << 10;
const READS_PER_EVENT: usize = 32;

/// Starts the loops; they serve until the process ends.
pub(crate) fn start(address: SocketAddr, loops: usize) -> io::Result<SocketAddr> {
    event_loop::start_listening(address, loops, |listener| Loop::new(listener)?.run())
}

impl<'a> Loop<'a> {
    fn new(listener: &'a TcpListener) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        epoll.add(listener, libc::EPOLLIN)?;
        Ok(Self {
            epoll,
            now: Instant::now(),
            listener,
            connections: Table::new(),
            buffer: vec![0; SUGGESTED_BYTES],
        })
    }

    fn run(&mut self) -> io::Result<Infallible> {
        let mut events = epoll::events::<EVENTS_PER_WAIT>();
        loop {
            let count = self.epoll.wait(&mut events, -1)?;
            self.now = Instant::now();
            for event in &events[..count] {
                let (fd, bits) = (event.u64 as RawFd, event.events as i32);
                if fd == self.listener.as_raw_fd() {
                    self.server_io()?;
                } else if let Ok(Next::Close) | Err(_) = self.stream_io(fd, bits) {
                    self.connections.remove(fd);
                }
            }
        }
    }

    fn server_io(&mut self) -> io::Result<()> {
        if let Some(connection) = Connection::accept(self.listener, &self.epoll)? {
            self.connections.insert(connection.as_raw_fd(), connection);
        }
        Ok(())
    }

    fn stream_io(&mut self, fd: RawFd, bits: i32) -> io::Result<Next> {
        let Some(connection) = self.connections.get(fd) else { return Ok(Next::Keep) };
        if bits & libc::EPOLLOUT != 0 {
            connection.send_backlog(&self.epoll)?;
        }
        if bits & !libc::EPOLLOUT == 0 {
            return Ok(Next::Keep);
        }
        for _ in 0..READS_PER_EVENT {
            if connection.has_backlog() {
                break;
            }
            let count = match connection.receive(&mut self.buffer)? {
                Received::Bytes(count) => count,
                Received::Nothing => break,
                Received::End => return Ok(Next::Close),
            };
            connection.answer(&self.epoll, &self.buffer[..count])?;
            if count < SUGGESTED_BYTES {
                break;
            }
        }
        Ok(Next::Keep)
    }
}

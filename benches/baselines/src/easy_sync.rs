//! libeasy's synchronous shape: io threads that process requests themselves.
//!
//! ```text
//!               ┌─ the turn to accept goes round ─┐
//!  listener ──▶ io thread 0   io thread 1   io thread 2
//!               epoll         epoll         epoll
//!                 │ readable
//!                 ▼
//!               message: receive ▸ decode ▸ process each request ▸ one write
//!                                                                  │ the rest
//!               writable ───────────────────────────────────────────┘
//! ```
//!
//! libeasy is the network library under OceanBase and other servers of Alibaba. It is public under
//! the Apache license in ApsaraDB/PolarDB-for-PostgreSQL (`dependency/easy`: `easy_connection.c`
//! has the accepting, reading, processing and writing, `easy_message.c` the memory). Its shape:
//!
//! * One listening socket. One io thread at a time watches it, and passes this turn on, so that
//!   connections are spread. libeasy passes the turn on by timers. Here a thread passes it on as
//!   soon as it has accepted, so all threads have equal numbers of connections.
//! * A connection has a message, which is a pool of memory with the input in it. It is allocated
//!   when something arrives, lives until all its requests are answered, and gives its memory back
//!   in one piece. Requests come from that pool, for the price of moving a pointer. Here the
//!   message is a vector that the socket is received into. It starts with 1 KiB, as libeasy's does. A
//!   connection that fills it gets twice as much, up to 64 KiB as the other servers here have (libeasy
//!   stops at 8 KiB).
//! * All requests of a message are processed before their answers leave together. libeasy keeps the answers
//!   in a list of buffers for `writev`. Here they are contiguous already.
//!
//! Left out, because they only cost: timers, statistics, moving connections to other threads.
//!
//! Good at: no request changes threads, so the costs are those of a bare loop and an allocation for each
//! message. Bad at: a slow request holds up all connections of its io thread, and the turn to accept.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use super::epoll::{self, Address, Epoll};
use super::event_loop::{self, Connection, Next, Received, Table};
use super::frames;

/// The io threads' epolls, and the listener that they take turns to watch.
#[derive(Debug)]
pub(crate) struct Turns {
    listener: TcpListener,
    epolls: Vec<Epoll>,
}

/// An io thread.
struct Io {
    index: usize,
    turns: Arc<Turns>,
    connections: Table<Client>,
}

struct Client {
    connection: Connection,
    /// Capacity of its next message.
    message_bytes: usize,
}

const EVENTS_PER_WAIT: usize = 64;
/// Capacity of the first message of a connection.
pub(crate) const FIRST_MESSAGE_BYTES: usize = 1 << 10;
/// Largest capacity of later messages. A message that is filled doubles that of the next.
pub(crate) const MESSAGE_BYTES: usize = 64 << 10;

/// Starts the threads. They serve until the process ends.
///
/// # Errors
/// It cannot listen at the address.
pub fn start(address: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
    let turns = Arc::new(Turns::new(address, threads)?);
    for index in 0..threads {
        let turns = Arc::clone(&turns);
        let mut thread = Io { index, turns, connections: Table::new() };
        event_loop::start(move || thread.run());
    }
    turns.address()
}

impl Turns {
    /// The first thread has the first turn.
    pub(crate) fn new(address: SocketAddr, threads: usize) -> io::Result<Self> {
        let listener = epoll::listen(address, Address::Alone)?;
        listener.set_nonblocking(true)?;
        let epolls = (0..threads).map(|_| Epoll::new()).collect::<io::Result<Vec<_>>>()?;
        for epoll in &epolls {
            epoll.add(&listener, NOT_NOW)?;
        }
        let turns = Self { listener, epolls };
        turns.give(0)?;
        Ok(turns)
    }

    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    pub(crate) fn epoll_of(&self, thread: usize) -> &Epoll {
        &self.epolls[thread]
    }

    /// True if an event is that of the listener.
    pub(crate) fn is_accept(&self, fd: RawFd) -> bool {
        fd == self.listener.as_raw_fd()
    }

    /// Accepts on the thread whose turn it is, and lets the next one watch.
    pub(crate) fn accept(&self, thread: usize) -> io::Result<Option<Connection>> {
        let accepted = Connection::accept(&self.listener, self.epoll_of(thread));
        self.give((thread + 1) % self.epolls.len())?;
        accepted
    }

    /// Gives a thread the turn, for one event.
    fn give(&self, thread: usize) -> io::Result<()> {
        self.epolls[thread].modify(&self.listener, libc::EPOLLIN | NOT_NOW)
    }
}

impl Io {
    fn run(&mut self) -> io::Result<Infallible> {
        let turns = Arc::clone(&self.turns);
        let epoll = turns.epoll_of(self.index);
        let mut events = epoll::events::<EVENTS_PER_WAIT>();
        loop {
            let count = epoll.wait(&mut events, -1)?;
            for event in &events[..count] {
                let (fd, bits) = (event.u64 as RawFd, event.events as i32);
                if turns.is_accept(fd) {
                    if let Some(connection) = turns.accept(self.index)? {
                        let fd = connection.as_raw_fd();
                        let client = Client { connection, message_bytes: FIRST_MESSAGE_BYTES };
                        self.connections.insert(fd, client);
                    }
                    continue;
                }
                let Some(client) = self.connections.get(fd) else { continue };
                // Whatever goes wrong on a connection ends that connection.
                if let Ok(Next::Close) | Err(_) = client.serve(epoll, bits) {
                    self.connections.remove(fd);
                }
            }
        }
    }
}

impl Client {
    fn serve(&mut self, epoll: &Epoll, bits: i32) -> io::Result<Next> {
        let connection = &mut self.connection;
        if bits & libc::EPOLLOUT != 0 {
            connection.send_backlog(epoll)?;
        }
        if bits & !libc::EPOLLOUT == 0 || connection.has_backlog() {
            return Ok(Next::Keep);
        }
        // The last message, if it waits for the rest of a request, or a new one.
        let mut message = std::mem::take(&mut connection.partial);
        match connection.receive_behind(&mut message, self.message_bytes)? {
            Received::Bytes(count) if count == self.message_bytes => {
                self.message_bytes = MESSAGE_BYTES.min(2 * count);
            }
            Received::Bytes(_) | Received::Nothing => {}
            Received::End => return Ok(Next::Close),
        }
        let whole = frames::perform(&message)?;
        connection.send(epoll, &message[..whole])?;
        if whole < message.len() {
            message.drain(..whole);
            connection.partial = message;
        }
        Ok(Next::Keep)
    }
}

/// Watched without reports: the state that `EPOLLONESHOT` leaves after its event.
const NOT_NOW: i32 = libc::EPOLLONESHOT;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpStream};

    use super::*;

    #[test]
    fn connections_go_round_all_threads() {
        let turns = Turns::new((Ipv4Addr::LOCALHOST, 0).into(), 3).unwrap();
        let mut events = epoll::events::<4>();
        let mut peers = Vec::new();
        let mut accepted = Vec::new();
        for turn in 0..7 {
            peers.push(TcpStream::connect(turns.address().unwrap()).unwrap());
            let thread = turn % 3;
            for other in (0..3).filter(|other| *other != thread) {
                assert_eq!(turns.epoll_of(other).wait(&mut events, 0).unwrap(), 0);
            }
            assert_eq!(turns.epoll_of(thread).wait(&mut events, 10_000).unwrap(), 1);
            assert!(turns.is_accept(events[0].u64 as RawFd));
            accepted.push(turns.accept(thread).unwrap().unwrap());
        }
    }
}

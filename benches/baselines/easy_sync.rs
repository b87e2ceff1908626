//! libeasy's synchronous shape: io threads that do the work of a request themselves.
//!
//! ```text
//!               ┌─ the turn to accept goes round ─┐
//!  listener ──▶ io thread 0   io thread 1   io thread 2
//!               epoll         epoll         epoll
//!                 │ readable
//!                 ▼
//!               message: receive ▸ decode ▸ process each request ▸ one write
//!                                                                  │ what is left
//!               writable ───────────────────────────────────────────┘
//! ```
//!
//! libeasy is the network library under OceanBase and other servers of Alibaba. It is public under
//! the Apache license in ApsaraDB/PolarDB-for-PostgreSQL (`dependency/easy`: `easy_connection.c`
//! has the accepting, reading, processing and writing, `easy_message.c` the memory). Its shape:
//!
//! * One listening socket. One io thread watches it, and passes that on when it has accepted, so
//!   that connections are spread. libeasy passes it on by timers; here the thread that accepts
//!   hands it to the next at once, so all threads have as many.
//! * A connection has a message, which is a pool of memory with the input in it. It is allocated
//!   when something arrives, lives until all its requests are answered, and gives its memory back
//!   in one piece. Requests come from that pool, for the price of moving a pointer. Here the
//!   message is a vector that the socket is received into. It starts with 1 KiB, as libeasy's does;
//!   a connection that fills that gets as much as the other servers here (libeasy stops at 8 KiB).
//! * All requests of a message are processed before their answers leave together. libeasy keeps
//!   the answers in a list of buffers for `writev`; here they stand one behind the other already.
//!
//! Left out, as it would only cost: timers, statistics, moving connections to other threads.
//!
//! Good at: nothing is handed over, the costs are those of `limit` and an allocation for each
//! message. Bad at: a slow request holds up all connections of its io thread, and the turn to
//! accept waits there as well.

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

/// One io thread's world.
struct Io {
    index: usize,
    turns: Arc<Turns>,
    connections: Table<Client>,
}

struct Client {
    connection: Connection,
    /// What its next message has room for.
    message_bytes: usize,
}

const EVENTS_PER_WAIT: usize = 64;
/// What the first message of a connection has room for.
pub(crate) const FIRST_MESSAGE_BYTES: usize = 1 << 10;
/// What later ones have, once the first was filled.
pub(crate) const MESSAGE_BYTES: usize = 64 << 10;

/// Starts the threads; they serve until the process ends.
pub(crate) fn start(address: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
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

    /// Whether an event is that of the listener.
    pub(crate) fn is_accept(&self, fd: RawFd) -> bool {
        fd == self.listener.as_raw_fd()
    }

    /// Accepts on the thread whose turn it is, and lets the next one watch.
    pub(crate) fn accept(&self, thread: usize) -> io::Result<Option<Connection>> {
        let accepted = Connection::accept(&self.listener, self.epoll_of(thread));
        self.give((thread + 1) % self.epolls.len())?;
        accepted
    }

    /// For one event: then it is the next one's turn.
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
        // A new message, unless the last one waits for the rest of a request.
        let mut message = std::mem::take(&mut connection.partial);
        match connection.receive_behind(&mut message, self.message_bytes)? {
            Received::Bytes(count) if count == self.message_bytes => {
                self.message_bytes = MESSAGE_BYTES;
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

/// Watched, but nothing is reported: what `EPOLLONESHOT` leaves behind after its event.
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

//! Loops of one thread each, and the state of their connections.
//!
//! ```text
//!  readable ──▶ receive ──▶ the server's work ──▶ send ──▶ socket
//!                                                  │ what it does not take
//!                                                  ▼
//!  writable ─────────────── send_backlog ◀── backlog
//! ```
//!
//! One thread owns a connection, so nothing here is locked. While there is a backlog, or the owner has paused
//! the connection, epoll does not report input. So a peer that does not read is not read from.

#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::thread;

use super::epoll::{self, Address, Epoll, again};
use super::frames;

/// An accepted socket, with its partial input and its backlog.
#[derive(Debug)]
pub struct Connection {
    socket: TcpStream,
    /// The start of a frame whose rest has not arrived.
    pub partial: Vec<u8>,
    /// Output that the socket did not take, from `sent` on.
    backlog: Vec<u8>,
    sent: usize,
    paused: bool,
    /// Events that epoll reports.
    watched: i32,
}

/// Result of one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    Bytes(usize),
    Nothing,
    /// The peer sends no more.
    End,
}

/// State of a connection after its event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Keep,
    Close,
}

/// Connections of a thread, each at the place of its descriptor's number.
#[derive(Debug)]
pub struct Table<T>(Vec<Option<T>>);

/// Starts loops that have a listener each, all at the same address, among which the kernel deals
/// connections out. They serve until the process ends.
pub fn start_listening(
    address: SocketAddr,
    count: usize,
    run: impl Fn(&TcpListener) -> io::Result<Infallible> + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    let mut address = address;
    for _ in 0..count {
        let listener = epoll::listen(address, Address::Shared)?;
        listener.set_nonblocking(true)?;
        // The first one may have been given any free port. The others join it there.
        address = listener.local_addr()?;
        let run = run.clone();
        start(move || run(&listener));
    }
    Ok(address)
}

/// Starts a loop. It ends only if its epoll fails.
pub fn start(run: impl FnOnce() -> io::Result<Infallible> + Send + 'static) {
    thread::spawn(move || {
        let Err(error) = run();
        panic!("epoll: {error}");
    });
}

impl Connection {
    /// Accepts a connection and watches it. Returns `None` if no connection waits after all, or if it
    /// cannot be accepted. The listener is level-triggered, so it reports again while more connections
    /// wait.
    pub fn accept(listener: &TcpListener, epoll: &Epoll) -> io::Result<Option<Self>> {
        let Ok((socket, _)) = listener.accept() else {
            return Ok(None);
        };
        Self::watched(socket, epoll).map(Some)
    }

    /// Waits until the connection is established, and watches it.
    pub fn connect(to: SocketAddr, epoll: &Epoll) -> io::Result<Self> {
        Self::watched(TcpStream::connect(to)?, epoll)
    }

    fn watched(socket: TcpStream, epoll: &Epoll) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        epoll.add(&socket, libc::EPOLLIN)?;
        Ok(Self {
            socket,
            partial: Vec::new(),
            backlog: Vec::new(),
            sent: 0,
            paused: false,
            watched: libc::EPOLLIN,
        })
    }

    pub fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        received(self.socket.read(buffer))
    }

    /// Appends what it receives to `bytes`, `at_most` bytes.
    pub fn receive_behind(&self, bytes: &mut Vec<u8>, at_most: usize) -> io::Result<Received> {
        received(epoll::receive_behind(&self.socket, bytes, at_most))
    }

    /// Answers the frames that end in what has arrived, and keeps the start of the next.
    pub fn answer(&mut self, epoll: &Epoll, arrived: &[u8]) -> io::Result<()> {
        if self.partial.is_empty() {
            let whole = frames::perform(arrived)?;
            self.send(epoll, &arrived[..whole])?;
            self.partial.extend_from_slice(&arrived[whole..]);
        } else {
            let mut bytes = std::mem::take(&mut self.partial);
            bytes.extend_from_slice(arrived);
            let whole = frames::perform(&bytes)?;
            self.send(epoll, &bytes[..whole])?;
            bytes.drain(..whole);
            self.partial = bytes;
        }
        Ok(())
    }

    /// Sends what the socket takes and keeps the rest.
    pub fn send(&mut self, epoll: &Epoll, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = if self.has_backlog() { 0 } else { sent(self.socket.write(bytes))? };
        if sent < bytes.len() {
            self.backlog.extend_from_slice(&bytes[sent..]);
            self.watch(epoll)?;
        }
        Ok(())
    }

    pub fn send_backlog(&mut self, epoll: &Epoll) -> io::Result<()> {
        self.sent += sent(self.socket.write(&self.backlog[self.sent..]))?;
        if self.has_backlog() {
            return Ok(());
        }
        // The memory is freed: this backlog may have been long, and may be the last.
        self.backlog = Vec::new();
        self.sent = 0;
        self.watch(epoll)
    }

    pub fn has_backlog(&self) -> bool {
        self.sent < self.backlog.len()
    }

    /// Stops or restarts the reports of input.
    pub fn pause(&mut self, epoll: &Epoll, paused: bool) -> io::Result<()> {
        self.paused = paused;
        self.watch(epoll)
    }

    /// Makes a system call only if the events to watch have changed.
    fn watch(&mut self, epoll: &Epoll) -> io::Result<()> {
        let bits = match (self.has_backlog(), self.paused) {
            (true, _) => libc::EPOLLOUT,
            (false, true) => 0,
            (false, false) => libc::EPOLLIN,
        };
        if bits != self.watched {
            epoll.modify(&self.socket, bits)?;
            self.watched = bits;
        }
        Ok(())
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl<T> Table<T> {
    pub fn new() -> Self {
        Self(Vec::new())
    }

    pub fn insert(&mut self, fd: RawFd, entry: T) {
        let place = fd as usize;
        if self.0.len() <= place {
            self.0.resize_with(place + 1, || None);
        }
        self.0[place] = Some(entry);
    }

    /// `None`: the connection was closed after its event or its answer was made.
    pub fn get(&mut self, fd: RawFd) -> Option<&mut T> {
        self.0.get_mut(fd as usize)?.as_mut()
    }

    pub fn remove(&mut self, fd: RawFd) {
        self.0[fd as usize] = None;
    }
}

fn received(result: io::Result<usize>) -> io::Result<Received> {
    match result {
        Ok(0) => Ok(Received::End),
        Ok(count) => Ok(Received::Bytes(count)),
        Err(error) if again(&error) => Ok(Received::Nothing),
        Err(error) => Err(error),
    }
}

fn sent(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if again(&error) => Ok(0),
        result => result,
    }
}

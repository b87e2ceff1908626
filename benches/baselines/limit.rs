//! The limit: what an echo server costs when it is nothing but system calls.
//!
//! One level-triggered epoll loop for each thread, each with a listener of its own on the same
//! address (`SO_REUSEPORT`): a connection belongs to one thread for life. No locks, no shared
//! state, no timers, no wake-ups between threads, and for a short frame three system calls at
//! the most: wait, receive, send. What a runtime adds to this per request is its price. What this
//! cannot do is its other half: a connection whose handler is slow holds up all others of its
//! thread, whatever the other threads do.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::thread;

use super::epoll::{self, Address, Epoll, again};
use super::frames;

/// One connection, owned by the thread that accepted it.
struct Connection {
    socket: TcpStream,
    /// The start of a frame whose rest has not arrived.
    partial: Vec<u8>,
    /// What the socket did not take. While there is any, nothing is received.
    backlog: Vec<u8>,
}

/// What becomes of a connection after its event.
enum Next {
    Keep,
    Close,
}

/// One thread's world.
struct Loop {
    epoll: Epoll,
    listener: TcpListener,
    /// At the place of its descriptor's number.
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
}

const EVENTS_PER_WAIT: usize = 64;
const RECEIVE_BYTES: usize = 64 << 10;

/// Starts the threads; they serve until the process ends.
pub(crate) fn start(address: SocketAddr, threads: usize) -> io::Result<SocketAddr> {
    let mut address = address;
    for _ in 0..threads {
        let mut thread = Loop::new(address)?;
        // The first one may have been given any free port: the others join it there.
        address = thread.listener.local_addr()?;
        thread::spawn(move || {
            let error = thread.run().expect_err("the loop has no other end");
            panic!("epoll_wait: {error}");
        });
    }
    Ok(address)
}

impl Loop {
    fn new(address: SocketAddr) -> io::Result<Self> {
        let listener = epoll::listen(address, Address::Shared)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            epoll: Epoll::new()?,
            listener,
            connections: Vec::new(),
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let listener = self.listener.as_raw_fd();
        self.epoll.add(&self.listener, libc::EPOLLIN)?;
        let mut events = epoll::events::<EVENTS_PER_WAIT>();
        loop {
            let count = self.epoll.wait(&mut events, -1)?;
            for event in &events[..count] {
                let (fd, bits) = (event.u64 as RawFd, event.events as i32);
                if fd == listener {
                    self.accept()?;
                    continue;
                }
                let place = &mut self.connections[fd as usize];
                let Some(connection) = place else { continue };
                // Whatever goes wrong on a connection ends that connection.
                let next = connection.serve(&self.epoll, bits, &mut self.buffer);
                if let Ok(Next::Close) | Err(_) = next {
                    *place = None;
                }
            }
        }
    }

    /// Takes one connection; a level-triggered listener reports again while more wait.
    fn accept(&mut self) -> io::Result<()> {
        let Ok((socket, _)) = self.listener.accept() else {
            return Ok(());
        };
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        self.epoll.add(&socket, libc::EPOLLIN)?;
        let place = socket.as_raw_fd() as usize;
        if self.connections.len() <= place {
            self.connections.resize_with(place + 1, || None);
        }
        self.connections[place] =
            Some(Connection { socket, partial: Vec::new(), backlog: Vec::new() });
        Ok(())
    }
}

impl Connection {
    fn serve(&mut self, epoll: &Epoll, bits: i32, buffer: &mut [u8]) -> io::Result<Next> {
        if bits & libc::EPOLLOUT != 0 {
            self.send_backlog(epoll)?;
        }
        if bits & !libc::EPOLLOUT == 0 || !self.backlog.is_empty() {
            return Ok(Next::Keep);
        }
        let count = match self.socket.read(buffer) {
            Ok(0) => return Ok(Next::Close),
            Ok(count) => count,
            Err(error) if again(&error) => return Ok(Next::Keep),
            Err(error) => return Err(error),
        };
        if self.partial.is_empty() {
            let whole = frames::perform(&buffer[..count])?;
            self.send(epoll, &buffer[..whole])?;
            self.partial.extend_from_slice(&buffer[whole..count]);
        } else {
            let mut bytes = std::mem::take(&mut self.partial);
            bytes.extend_from_slice(&buffer[..count]);
            let whole = frames::perform(&bytes)?;
            self.send(epoll, &bytes[..whole])?;
            bytes.drain(..whole);
            self.partial = bytes;
        }
        Ok(Next::Keep)
    }

    /// Sends what the socket takes and keeps the rest.
    fn send(&mut self, epoll: &Epoll, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let sent = match self.socket.write(bytes) {
            Ok(sent) => sent,
            Err(error) if again(&error) => 0,
            Err(error) => return Err(error),
        };
        if sent < bytes.len() {
            self.backlog.extend_from_slice(&bytes[sent..]);
            self.watch(epoll, libc::EPOLLOUT)?;
        }
        Ok(())
    }

    fn send_backlog(&mut self, epoll: &Epoll) -> io::Result<()> {
        match self.socket.write(&self.backlog) {
            Ok(sent) => drop(self.backlog.drain(..sent)),
            Err(error) if again(&error) => {}
            Err(error) => return Err(error),
        }
        if self.backlog.is_empty() {
            self.watch(epoll, libc::EPOLLIN)?;
        }
        Ok(())
    }

    fn watch(&self, epoll: &Epoll, bits: i32) -> io::Result<()> {
        epoll.modify(&self.socket, bits)
    }
}

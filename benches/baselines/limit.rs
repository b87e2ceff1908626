//! The limit: what an echo server costs when it is nothing but system calls.
//!
//! One level-triggered epoll loop for each thread, each with a listener of its own on the same
//! address (`SO_REUSEPORT`): a connection belongs to one thread for life. No locks, no shared
//! state, no timers, no wake-ups between threads, and for a short frame three system calls at
//! the most: wait, receive, send. What a runtime adds to this per request is its price. What this
//! cannot do is its other half: a connection whose handler is slow holds up all others of its
//! thread, whatever the other threads do.

#![expect(unsafe_code, reason = "a bare epoll loop is the point of this file")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::thread;

use socket2::{Domain, Socket, Type};

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
    epoll: OwnedFd,
    listener: TcpListener,
    /// At the place of its descriptor's number.
    connections: Vec<Option<Connection>>,
    buffer: Vec<u8>,
}

const EVENTS_PER_WAIT: usize = 64;
const RECEIVE_BYTES: usize = 64 << 10;
const LISTEN_QUEUE: i32 = 4096;

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
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(LISTEN_QUEUE)?;
        socket.set_nonblocking(true)?;
        // SAFETY: takes no pointer; the result is checked before it is used.
        let epoll = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the call above has just returned this descriptor, and nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(epoll) };
        Ok(Self {
            epoll,
            listener: socket.into(),
            connections: Vec::new(),
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let listener = self.listener.as_raw_fd();
        control(&self.epoll, libc::EPOLL_CTL_ADD, listener, libc::EPOLLIN)?;
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; EVENTS_PER_WAIT];
        loop {
            let count = wait(&self.epoll, &mut events)?;
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
        let fd = socket.as_raw_fd();
        control(&self.epoll, libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN)?;
        let place = fd as usize;
        if self.connections.len() <= place {
            self.connections.resize_with(place + 1, || None);
        }
        self.connections[place] =
            Some(Connection { socket, partial: Vec::new(), backlog: Vec::new() });
        Ok(())
    }
}

impl Connection {
    fn serve(&mut self, epoll: &OwnedFd, bits: i32, buffer: &mut [u8]) -> io::Result<Next> {
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
    fn send(&mut self, epoll: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
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

    fn send_backlog(&mut self, epoll: &OwnedFd) -> io::Result<()> {
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

    fn watch(&self, epoll: &OwnedFd, bits: i32) -> io::Result<()> {
        control(epoll, libc::EPOLL_CTL_MOD, self.socket.as_raw_fd(), bits)
    }
}

fn again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

fn control(epoll: &OwnedFd, what: i32, fd: RawFd, bits: i32) -> io::Result<()> {
    let mut event = libc::epoll_event { events: bits as u32, u64: fd as u64 };
    // SAFETY: the event outlives the call, and both descriptors are open: the caller owns them.
    checked(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), what, fd, &raw mut event) }).map(drop)
}

fn wait(epoll: &OwnedFd, events: &mut [libc::epoll_event]) -> io::Result<usize> {
    let (slots, room) = (events.as_mut_ptr(), events.len() as i32);
    // SAFETY: `slots` points to `room` events that are ours for the length of the call.
    match checked(unsafe { libc::epoll_wait(epoll.as_raw_fd(), slots, room, -1) }) {
        Ok(count) => Ok(count as usize),
        Err(error) if error.kind() == ErrorKind::Interrupted => Ok(0),
        Err(error) => Err(error),
    }
}

fn checked(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

//! The limit: what an echo server costs when it is nothing but system calls.
//!
//! One level-triggered epoll loop for each thread, each with a listener of its own on the same
//! address (`SO_REUSEPORT`): a connection belongs to one thread for life. No locks, no shared
//! state, no timers, no wake-ups between threads, and for a short frame three system calls at
//! the most: wait, receive, send. What a runtime adds to this per request is its price. What this
//! cannot do is its other half: a connection whose handler is slow holds up all others of its
//! thread, whatever the other threads do.

#![forbid(unsafe_code)]

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsRawFd, RawFd};
use std::thread;

use super::connection::{Connection, Next, Received, Table};
use super::epoll::{self, Address, Epoll};

/// One thread's world.
struct Loop {
    epoll: Epoll,
    listener: TcpListener,
    connections: Table<Connection>,
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
            connections: Table::new(),
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
                let Some(connection) = self.connections.get(fd) else { continue };
                // Whatever goes wrong on a connection ends that connection.
                let next = serve(connection, &self.epoll, bits, &mut self.buffer);
                if let Ok(Next::Close) | Err(_) = next {
                    self.connections.remove(fd);
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        if let Some(connection) = Connection::accept(&self.listener, &self.epoll)? {
            self.connections.insert(connection.as_raw_fd(), connection);
        }
        Ok(())
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

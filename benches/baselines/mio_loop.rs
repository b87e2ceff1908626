//! The limit a second time, on mio: to see that `limit.rs` is one.
//!
//! ```text
//!  thread: Poll ── listener of its own (SO_REUSEPORT)
//!            └──── its connections: read until dry, perform, write
//! ```
//!
//! The same shape, one `Poll` for each thread and connections that stay where they were accepted,
//! in the words of mio, the layer under tokio, as its examples have them. mio watches for edges, so
//! a socket is read until it is dry: until it would block, or gives less than it was asked for, which
//! epoll(7) says is as good for a stream (its questions and answers, Q9). An end that came along with
//! the data has no edge of its own, so its event is read to the end. Both directions are watched from
//! the start: with edges that costs nothing, and no call is needed when a socket is full.
//!
//! Good and bad at what the limit is.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::thread;

use mio::event::Event;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::epoll::{self, Address, again};
use super::frames;

/// One connection, owned by the thread that accepted it.
struct Connection {
    socket: TcpStream,
    /// The start of a frame whose rest has not arrived.
    partial: Vec<u8>,
    /// What the socket did not take. While there is any, nothing is received.
    backlog: Vec<u8>,
}

/// One thread's world.
struct Loop {
    poll: Poll,
    listener: TcpListener,
    /// At the place of its token.
    connections: Vec<Option<Connection>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

/// What becomes of a connection after its event.
enum Next {
    Keep,
    Close,
}

const LISTENER: Token = Token(usize::MAX);
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
            panic!("poll: {error}");
        });
    }
    Ok(address)
}

impl Loop {
    fn new(address: SocketAddr) -> io::Result<Self> {
        let listener = epoll::listen(address, Address::Shared)?;
        listener.set_nonblocking(true)?;
        let mut listener = TcpListener::from_std(listener);
        let poll = Poll::new()?;
        poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            listener,
            connections: Vec::new(),
            free: Vec::new(),
            buffer: vec![0; RECEIVE_BYTES],
        })
    }

    fn run(&mut self) -> io::Result<()> {
        let mut events = Events::with_capacity(EVENTS_PER_WAIT);
        loop {
            match self.poll.poll(&mut events, None) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                result => result?,
            }
            for event in &events {
                if event.token() == LISTENER {
                    self.accept()?;
                    continue;
                }
                let Token(place) = event.token();
                let Some(connection) = &mut self.connections[place] else { continue };
                // Whatever goes wrong on a connection ends that connection.
                if let Ok(Next::Close) | Err(_) = connection.serve(event, &mut self.buffer) {
                    self.connections[place] = None;
                    self.free.push(place);
                }
            }
        }
    }

    /// Takes all that wait: there is no other edge for them.
    fn accept(&mut self) -> io::Result<()> {
        loop {
            let mut socket = match self.listener.accept() {
                Ok((socket, _)) => socket,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => continue,
            };
            socket.set_nodelay(true)?;
            let place = self.free.pop().unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            let both = Interest::READABLE | Interest::WRITABLE;
            self.poll.registry().register(&mut socket, Token(place), both)?;
            let connection = Connection { socket, partial: Vec::new(), backlog: Vec::new() };
            self.connections[place] = Some(connection);
        }
    }
}

impl Connection {
    fn serve(&mut self, event: &Event, buffer: &mut [u8]) -> io::Result<Next> {
        self.send_backlog()?;
        while self.backlog.is_empty() {
            let count = match self.socket.read(buffer) {
                Ok(0) => return Ok(Next::Close),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if again(&error) => break,
                Err(error) => return Err(error),
            };
            self.take(&buffer[..count])?;
            if count < buffer.len() && !event.is_read_closed() {
                break;
            }
        }
        Ok(Next::Keep)
    }

    fn take(&mut self, arrived: &[u8]) -> io::Result<()> {
        if self.partial.is_empty() {
            let whole = frames::perform(arrived)?;
            self.send(&arrived[..whole])?;
            self.partial.extend_from_slice(&arrived[whole..]);
        } else {
            let mut bytes = std::mem::take(&mut self.partial);
            bytes.extend_from_slice(arrived);
            let whole = frames::perform(&bytes)?;
            self.send(&bytes[..whole])?;
            bytes.drain(..whole);
            self.partial = bytes;
        }
        Ok(())
    }

    /// Sends what the socket takes and keeps the rest, which its next edge sends.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.socket.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if again(&error) => break,
                Err(error) => return Err(error),
            }
        }
        self.backlog.extend_from_slice(bytes);
        Ok(())
    }

    fn send_backlog(&mut self) -> io::Result<()> {
        if self.backlog.is_empty() {
            return Ok(());
        }
        let backlog = std::mem::take(&mut self.backlog);
        self.send(&backlog)
    }
}

//! The sockets behind a completion queue, and what a thread does for them when it polls.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::connection::{Connection, Step};
use crate::epoll::{self, Address, Epoll};

/// A connection that has received, for the thread that runs the handler.
pub(super) type Completion = Arc<Connection>;

pub(super) struct Reactor {
    epoll: Epoll,
    listener: TcpListener,
    /// Connections, each at the place of its descriptor's number.
    connections: Mutex<Vec<Option<Arc<Connection>>>>,
}

/// Results of polling. Each thread has one and fills it again and again.
#[derive(Default)]
pub(super) struct Batch {
    events: Vec<(Arc<Connection>, i32)>,
    pub(super) completions: Vec<Completion>,
}

const EVENTS_PER_WAIT: usize = 64;

impl Reactor {
    pub(super) fn new(address: SocketAddr) -> io::Result<Self> {
        let listener = epoll::listen(address, Address::Alone)?;
        listener.set_nonblocking(true)?;
        let epoll = Epoll::new()?;
        epoll.add(&listener, libc::EPOLLIN)?;
        Ok(Self { epoll, listener, connections: Mutex::new(Vec::new()) })
    }

    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Takes the events that are there and receives for all of them. Appends to the completions of the batch.
    pub(super) fn poll(&self, batch: &mut Batch) -> io::Result<()> {
        let mut events = epoll::events::<EVENTS_PER_WAIT>();
        let count = self.epoll.wait(&mut events, 0)?;
        let mut listener_is_ready = false;
        let connections = self.connections();
        for event in &events[..count] {
            let (fd, bits) = (event.u64 as RawFd, event.events as i32);
            listener_is_ready |= fd == self.listener.as_raw_fd();
            // The connection may have been closed since. Another one with its number loses nothing.
            let found = connections.get(fd as usize).cloned().flatten();
            batch.events.extend(found.map(|connection| (connection, bits)));
        }
        drop(connections);
        for (connection, bits) in batch.events.drain(..) {
            let step = connection.handle_event(bits);
            batch.completions.extend(self.settle(connection, step));
        }
        if listener_is_ready {
            self.accept();
        }
        Ok(())
    }

    /// Runs the handler. Returns the connection if it has received again by then.
    pub(super) fn answer(&self, completion: Completion) -> Option<Completion> {
        let step = completion.answer();
        self.settle(completion, step)
    }

    fn settle(&self, connection: Arc<Connection>, step: Step) -> Option<Completion> {
        match step {
            Step::Received => return Some(connection),
            Step::Waits => {}
            Step::Closed => self.connections()[connection.as_raw_fd() as usize] = None,
        }
        None
    }

    /// Accepts all connections that wait. The listener is watched level-triggered, so a failed one is
    /// reported again.
    fn accept(&self) {
        while let Ok((socket, _)) = self.listener.accept() {
            // An error ends its connection, as it would end any connection.
            let _ = self.add(socket);
        }
    }

    fn add(&self, socket: TcpStream) -> io::Result<()> {
        let connection = Arc::new(Connection::new(socket)?);
        let place = connection.as_raw_fd() as usize;
        let mut connections = self.connections();
        if connections.len() <= place {
            connections.resize(place + 1, None);
        }
        connections[place] = Some(Arc::clone(&connection));
        drop(connections);
        let added = self.epoll.add(connection.socket(), Connection::EVENTS);
        if added.is_err() {
            self.settle(connection, Step::Closed);
        }
        added
    }

    fn connections(&self) -> MutexGuard<'_, Vec<Option<Arc<Connection>>>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsFd for Reactor {
    /// Readable while there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

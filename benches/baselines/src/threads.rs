//! Parts of the servers that have threads for connections or sessions: accepting, the queue between two
//! threads, and a connection on which several threads send.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::epoll::{self, Address};

/// Queue between a thread that reads and the one thread that serves.
#[derive(Debug)]
pub struct Mailbox<T> {
    inner: Mutex<Inbox<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Inbox<T> {
    items: Vec<T>,
    closed: bool,
}

/// A connection on which one thread receives and several send whole answers.
#[derive(Debug)]
pub struct Shared {
    socket: TcpStream,
    sending: Mutex<()>,
}

/// Small enough for thousands of threads, and large enough for an embedded database.
const STACK_BYTES: usize = 256 << 10;

/// Starts to accept. Each connection has a thread, until its peer leaves or the process ends.
pub fn accept(
    address: SocketAddr,
    serve: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = epoll::listen(address, Address::Alone)?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let serve = serve.clone();
            // An error ends its connection, and so does a thread that cannot be made.
            let _ = spawn(move || serve(socket));
        }
    });
    Ok(address)
}

/// Starts a thread that is not joined.
pub fn spawn(run: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(run).map(drop)
}

impl<T> Mailbox<T> {
    pub fn push(&self, item: T) {
        self.add(|items| items.push(item));
    }

    /// Adds some at once; at least one.
    pub fn extend(&self, items: &[T])
    where
        T: Copy,
    {
        self.add(|inbox| inbox.extend_from_slice(items));
    }

    fn add(&self, add: impl FnOnce(&mut Vec<T>)) {
        let mut inbox = lock(&self.inner);
        let was_empty = inbox.items.is_empty();
        add(&mut inbox.items);
        drop(inbox);
        // If the inbox was not empty, the owner was woken before and has not looked yet.
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Ends the queue. Its items are dropped.
    pub fn close(&self) {
        lock(&self.inner).closed = true;
        self.arrived.notify_one();
    }

    /// Waits for items and swaps all of them for `empty`. Returns false if the queue was closed.
    pub fn take_all(&self, empty: &mut Vec<T>) -> bool {
        let inbox = lock(&self.inner);
        let nothing = |inbox: &mut Inbox<T>| inbox.items.is_empty() && !inbox.closed;
        let inbox = self.arrived.wait_while(inbox, nothing);
        let mut inbox = inbox.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut inbox.items, empty);
        !inbox.closed
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        let inbox = Inbox { items: Vec::new(), closed: false };
        Self { inner: Mutex::new(inbox), arrived: Condvar::new() }
    }
}

impl Shared {
    pub fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self { socket, sending: Mutex::new(()) })
    }

    /// Waits for bytes. Returns 0 at the end of the stream.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(&self.socket, buffer)
    }

    /// Sends all slices, without bytes of other threads between them.
    #[expect(single_use_lifetimes, reason = "`impl Trait` takes no other on stable")]
    pub fn send<'a>(&self, slices: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let _turn = lock(&self.sending);
        slices.into_iter().try_for_each(|slice| (&self.socket).write_all(slice))
    }

    /// Ends the connection for all threads, also for those inside a call.
    pub fn end(&self) {
        // It may have ended already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Waits for bytes. Returns 0 at the end of the stream.
pub fn receive(mut socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// These locks guard no state that a panic could leave half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_mailbox_hands_over_in_order_until_it_is_closed() {
        let mailbox = Arc::new(Mailbox::default());
        let inbox = Arc::clone(&mailbox);
        let worker = thread::spawn(move || {
            let (mut items, mut seen) = (Vec::new(), Vec::new());
            while seen.len() < 1000 && inbox.take_all(&mut items) {
                seen.append(&mut items);
            }
            let is_open = inbox.take_all(&mut items);
            (seen, is_open)
        });
        for first in (0..1000).step_by(2) {
            mailbox.push(first);
            mailbox.extend(&[first + 1]);
        }
        mailbox.close();
        let (seen, is_open) = worker.join().unwrap();
        assert!(!is_open);
        assert!(seen.iter().copied().eq(0..seen.len()), "{seen:?}");
    }
}

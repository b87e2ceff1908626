//! What the servers that give threads away share: how they accept, how one thread hands to another,
//! and how several send on one connection.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::epoll::{self, Address};

/// The queue between a thread that reads and the one thread that works it off.
#[derive(Debug)]
pub(crate) struct Mailbox<T> {
    inner: Mutex<Inbox<T>>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Inbox<T> {
    items: Vec<T>,
    closed: bool,
}

/// A connection that one thread receives on and several send on: whole answers, one after the other.
#[derive(Debug)]
pub(crate) struct Shared {
    socket: TcpStream,
    sending: Mutex<()>,
}

/// So that thousands of threads have room, and enough for an embedded database.
const STACK_BYTES: usize = 256 << 10;

/// Starts to accept; each connection has a thread, until its peer leaves or the process ends.
pub(crate) fn accept(
    address: SocketAddr,
    serve: impl Fn(TcpStream) -> io::Result<()> + Clone + Send + 'static,
) -> io::Result<SocketAddr> {
    let listener = epoll::listen(address, Address::Alone)?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            let serve = serve.clone();
            // An error ends its connection, and so does a thread too many.
            let _ = spawn(move || serve(socket));
        }
    });
    Ok(address)
}

/// A thread that nobody waits for.
pub(crate) fn spawn(run: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    thread::Builder::new().stack_size(STACK_BYTES).spawn(run).map(drop)
}

impl<T> Mailbox<T> {
    pub(crate) fn push(&self, item: T) {
        self.add(|items| items.push(item));
    }

    /// Adds some at once; at least one.
    pub(crate) fn extend(&self, items: &[T])
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
        // Whoever finds some there already knows that somebody was woken for them.
        if was_empty {
            self.arrived.notify_one();
        }
    }

    /// Nobody wants what is in it any more.
    pub(crate) fn close(&self) {
        lock(&self.inner).closed = true;
        self.arrived.notify_one();
    }

    /// Waits and swaps all there are for `empty`; `false` when it was closed.
    pub(crate) fn take_all(&self, empty: &mut Vec<T>) -> bool {
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
    pub(crate) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self { socket, sending: Mutex::new(()) })
    }

    /// Waits for bytes; none at the end of the stream.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        receive(&self.socket, buffer)
    }

    /// Sends all of it before anybody else sends.
    #[expect(single_use_lifetimes, reason = "`impl Trait` takes no other on stable")]
    pub(crate) fn send<'a>(&self, slices: impl IntoIterator<Item = &'a [u8]>) -> io::Result<()> {
        let _turn = lock(&self.sending);
        slices.into_iter().try_for_each(|slice| (&self.socket).write_all(slice))
    }

    /// Ends the connection for all that hold it, those inside a call included.
    pub(crate) fn end(&self) {
        // It may be gone already.
        let _ = self.socket.shutdown(Shutdown::Both);
    }
}

/// Waits for bytes; none at the end of the stream.
pub(crate) fn receive(mut socket: &TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.read(buffer) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// A thread that panicked has left nothing half done in what these locks guard.
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

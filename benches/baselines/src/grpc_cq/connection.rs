//! A connection that is watched edge-triggered, and that one thread at a time has in its hands.
//!
//! ```text
//!            an event                                 handler, send
//!  waiting ───────────▶ taken: receive ──▶ completion ───────────────▶ taken: receive again,
//!     ▲                   │ nothing there                                │     if there may be more
//!     ╰───────────────────┴──────────────────────────────────────────────╯
//!       only if no event has come meanwhile, because it may be the last
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::frames;

pub(super) struct Connection {
    socket: TcpStream,
    turn: Turn,
    /// Used by the thread that has the turn. The thread before it may be about to let go.
    io: Mutex<Io>,
}

/// State of a connection after a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Bytes have arrived, and wait for [`Connection::answer`].
    Received,
    /// Nothing to do until the next event.
    Waits,
    Closed,
}

/// Ownership of a connection: bits [`TAKEN`], [`EVENT`] and [`ENDED`].
///
/// Written by threads with an event of the connection and by the thread that has it. All changes are of one
/// word, so an event either finds the connection waiting, or its owner sees it.
struct Turn(AtomicU8);

/// A thread has the connection.
const TAKEN: u8 = 1;
/// An event has come since the owner last began to receive or send.
const EVENT: u8 = 2;
/// The peer has ended its stream, or an error has ended it. No event follows.
const ENDED: u8 = 4;

struct Io {
    /// Received bytes, up to `filled`.
    buffer: Vec<u8>,
    filled: usize,
    /// End of the frames that the handler has answered. They are sent from here, in place.
    whole: usize,
    /// Bytes of them that the socket has taken. Until it has all, nothing is received.
    sent: usize,
    /// The last receive has taken all there was.
    dry: bool,
}

#[derive(PartialEq, Eq)]
enum Sent {
    All,
    Some,
}

/// First size of the receive buffer, which is gRPC's default too.
const RECEIVE_BYTES: usize = 8 << 10;
const END_EVENTS: i32 = libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR;

impl Connection {
    pub(super) const EVENTS: i32 =
        libc::EPOLLIN | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;

    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let io = Io { buffer: Vec::new(), filled: 0, whole: 0, sent: 0, dry: false };
        Ok(Self { socket, turn: Turn(AtomicU8::new(0)), io: Mutex::new(io) })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Carries on after an event. If a thread has the connection, that thread will.
    pub(super) fn handle_event(&self, bits: i32) -> Step {
        if !self.turn.take_on_event(bits & END_EVENTS != 0) {
            return Step::Waits;
        }
        self.carry_on(&mut self.io())
    }

    /// Runs the handler on what was received, sends, and receives again if there may be more.
    pub(super) fn answer(&self) -> Step {
        let mut io = self.io();
        match io.answer(&self.socket) {
            Ok(sent) if (io.dry || sent == Sent::Some) && self.turn.give_back() => Step::Waits,
            Ok(_) => self.carry_on(&mut io),
            Err(_) => Step::Closed,
        }
    }

    fn carry_on(&self, io: &mut Io) -> Step {
        loop {
            let ended = self.turn.begin();
            match io.send_and_receive(&self.socket) {
                Ok(0) => {
                    if self.turn.give_back() {
                        return Step::Waits;
                    }
                }
                Ok(_) => {
                    io.dry &= !ended;
                    return Step::Received;
                }
                Err(_) => return Step::Closed,
            }
        }
    }

    fn io(&self) -> MutexGuard<'_, Io> {
        self.io.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl Turn {
    /// Marks an event. Returns true if the caller now has the connection.
    fn take_on_event(&self, ended: bool) -> bool {
        let end = if ended { ENDED } else { 0 };
        // Pairs with the release in `give_back`, so that the changes of the last owner are visible.
        self.0.fetch_or(TAKEN | EVENT | end, Ordering::AcqRel) & TAKEN == 0
    }

    /// Called before the socket is tried, which serves all events up to here. Returns true if the peer has
    /// ended.
    fn begin(&self) -> bool {
        self.0.fetch_and(!EVENT, Ordering::AcqRel) & ENDED != 0
    }

    /// Gives the connection back. Returns false if an event has come since `begin`; then the caller still
    /// has it.
    fn give_back(&self) -> bool {
        let mut now = self.0.load(Ordering::Relaxed);
        while now & EVENT == 0 {
            let then = now & !TAKEN;
            match self.0.compare_exchange_weak(now, then, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(changed) => now = changed,
            }
        }
        false
    }
}

impl Io {
    /// Sends what is left, then receives. `Ok(0)`: the socket has nothing, or takes nothing.
    ///
    /// # Errors
    /// The stream has ended, or is broken.
    fn send_and_receive(&mut self, mut socket: &TcpStream) -> io::Result<usize> {
        if self.sent < self.whole && self.send(socket)? == Sent::Some {
            return Ok(0);
        }
        if self.filled == self.buffer.len() {
            self.buffer.resize((2 * self.filled).max(RECEIVE_BYTES), 0);
        }
        let room = &mut self.buffer[self.filled..];
        let count = match tried(|| socket.read(room)) {
            Ok(Some(0)) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(Some(count)) => count,
            Ok(None) => return Ok(0),
            Err(error) => return Err(error),
        };
        self.dry = count < room.len();
        self.filled += count;
        Ok(count)
    }

    fn answer(&mut self, socket: &TcpStream) -> io::Result<Sent> {
        self.whole = frames::perform(&self.buffer[..self.filled])?;
        self.send(socket)
    }

    /// Sends until the socket takes no more: only then an event follows.
    fn send(&mut self, mut socket: &TcpStream) -> io::Result<Sent> {
        while self.sent < self.whole {
            let rest = &self.buffer[self.sent..self.whole];
            match tried(|| socket.write(rest))? {
                Some(sent) => self.sent += sent,
                None => return Ok(Sent::Some),
            }
        }
        self.buffer.copy_within(self.whole..self.filled, 0);
        self.filled -= self.whole;
        self.whole = 0;
        self.sent = 0;
        Ok(Sent::All)
    }
}

/// `None`: it would have waited.
fn tried(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<Option<usize>> {
    loop {
        match call() {
            Ok(count) => return Ok(Some(count)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

//! One connection of an attacker.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use epoll_group::codec::auth;
use epoll_group::codec::frame::{Decoder, Dialect, Header};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{ClientMessage, ServerMessage};
use socket2::{Domain, Protocol, Socket, Type};

use super::Tally;
use crate::random::Random;

/// How the attacker reads the server's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    All,
    Nothing,
    /// At most this many bytes per interval.
    Trickle(usize, Duration),
}

/// How an attacker ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leave {
    /// Shuts down sending and reads to the end.
    Finish,
    /// The server gets a reset.
    Reset,
    /// An orderly close.
    Close,
}

/// One frame of the server: its session and kind, and its body.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'a> {
    pub session: u64,
    pub kind: u8,
    pub body: &'a [u8],
}

/// The connection as its manner sees it.
pub struct Wire {
    pub(super) socket: Socket,
    decoder: Decoder,
    pub(super) out: Vec<u8>,
    /// Bytes of `out` that are sent.
    gone: usize,
    /// Most bytes of one write, and the time between two.
    piece: usize,
    pace: Duration,
    reading: Reading,
    pub(super) write_after: Instant,
    pub(super) read_after: Instant,
    pub(super) idle_after: Instant,
    pub(super) leave: Option<Leave>,
    pub(super) finished: bool,
    /// The manner is not called until a frame arrives.
    pub(super) waits: bool,
    /// Requests that are not answered.
    outstanding: u64,
    pub(super) tally: Tally,
    pub random: Random,
}

impl Wire {
    /// Begins to connect.
    pub(super) fn connect(
        to: SocketAddr,
        from: Option<Ipv4Addr>,
        receive_buffer: Option<usize>,
        seed: u64,
    ) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        if let Some(bytes) = receive_buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        if let (Some(from), IpAddr::V4(_)) = (from, to.ip()) {
            socket.bind(&SocketAddr::from((from, 0)).into())?;
        }
        match socket.connect(&to.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(error) => return Err(error),
        }
        socket.set_tcp_nodelay(true)?;
        let now = Instant::now();
        Ok(Self {
            socket,
            decoder: Decoder::with_dialect(Limits::default(), Dialect::Legacy),
            out: Vec::new(),
            gone: 0,
            piece: usize::MAX,
            pace: Duration::ZERO,
            reading: Reading::All,
            write_after: now,
            read_after: now,
            idle_after: now,
            leave: None,
            finished: false,
            waits: false,
            outstanding: 0,
            tally: Tally::default(),
            random: Random(seed),
        })
    }

    /// Adds a request and counts it.
    pub fn ask(&mut self, session: u64, message: &ClientMessage) {
        self.say(session, message);
        self.count_requests(1);
    }

    /// Adds a message that has no answer.
    pub fn say(&mut self, session: u64, message: &ClientMessage) {
        message.encode(Dialect::Legacy, session, &mut self.out).expect("it is small");
    }

    /// Adds a frame with any kind and body.
    pub fn frame(&mut self, session: u64, kind: u8, body: &[u8]) {
        self.out.extend_from_slice(&Header::new(session, kind, body.len() as u32).encode());
        self.out.extend_from_slice(body);
    }

    /// Adds any bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Counts the requests that were added as raw bytes.
    pub const fn count_requests(&mut self, count: u64) {
        self.tally.requests += count;
        self.outstanding += count;
    }

    /// Sends from here on in pieces of `bytes`, one every `pace`.
    pub const fn pieces(&mut self, bytes: usize, pace: Duration) {
        self.piece = bytes;
        self.pace = pace;
    }

    pub const fn read(&mut self, reading: Reading) {
        self.reading = reading;
    }

    /// The manner is not asked for output again before this time has passed.
    pub fn pause(&mut self, time: Duration) {
        let longest = Duration::from_secs(1 << 20);
        self.idle_after = Instant::now() + time.min(longest);
    }

    /// The manner is not asked for output again before a frame has arrived.
    pub const fn wait(&mut self) {
        self.waits = true;
    }

    /// Ends the connection when all output is sent.
    pub const fn leave(&mut self, how: Leave) {
        self.leave = Some(how);
    }

    /// Ends the connection by a reset and discards unsent output.
    pub fn go_now(&mut self) {
        self.out.clear();
        self.gone = 0;
        self.leave = Some(Leave::Reset);
    }

    pub const fn socket(&self) -> &Socket {
        &self.socket
    }

    pub const fn outstanding(&self) -> u64 {
        self.outstanding
    }

    pub(super) fn unsent(&self) -> bool {
        self.gone < self.out.len()
    }

    pub(super) fn wants_to_read(&self, now: Instant) -> bool {
        self.reading != Reading::Nothing && self.read_after <= now
    }

    pub(super) fn wants_to_write(&self, now: Instant) -> bool {
        self.unsent() && self.write_after <= now
    }

    /// Sends as much as may be sent now. An error is the end of the connection.
    pub(super) fn write(&mut self, now: Instant) -> io::Result<()> {
        while self.unsent() && self.write_after <= now {
            let rest = &self.out[self.gone..];
            let piece = &rest[..rest.len().min(self.piece)];
            match (&self.socket).write(piece) {
                Ok(count) => {
                    self.gone += count;
                    self.tally.sent_bytes += count as u64;
                    if !self.pace.is_zero() {
                        self.write_after = now + self.pace;
                    }
                }
                Err(error) if is_not_now(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        if !self.unsent() {
            self.out.clear();
            self.gone = 0;
        }
        Ok(())
    }

    /// Reads as much as may be read now. Returns false at the end of the connection.
    pub(super) fn receive(&mut self, now: Instant, piece: &mut [u8]) -> io::Result<bool> {
        let most = match self.reading {
            Reading::All => piece.len(),
            Reading::Nothing => return Ok(true),
            Reading::Trickle(bytes, every) => {
                self.read_after = now + every;
                bytes.min(piece.len())
            }
        };
        match (&self.socket).read(&mut piece[..most]) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.tally.received_bytes += count as u64;
                self.decoder.feed(&piece[..count]);
                Ok(true)
            }
            Err(error) if is_not_now(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Returns the next whole frame that was read, or `None`, also if the bytes are no frame.
    pub(super) fn heard(&mut self, body: &mut Vec<u8>) -> Option<(u64, u8)> {
        let frame = self.decoder.next_frame().ok()??;
        body.clear();
        body.extend_from_slice(frame.body());
        let (session, kind) = (frame.session(), frame.kind());
        // Frames that end a request: OK, ERROR, capabilities, both steps of a login,
        // STMT_EXECUTE_OK, TSO.
        if matches!(kind, 0..=4 | 17 | 20) && self.outstanding > 0 {
            self.outstanding -= 1;
            if kind == 1 {
                self.tally.failed += 1;
            } else {
                self.tally.answered += 1;
            }
        }
        Some((session, kind))
    }

    /// Counts the requests without an answer as cut.
    pub(super) const fn settle(&mut self) {
        self.tally.cut += self.outstanding;
        self.outstanding = 0;
    }
}

fn is_not_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted | io::ErrorKind::NotConnected
    )
}

/// Returns the proof that a challenge asks for, or nothing if the body is no challenge.
pub fn prove(user: &str, password: &str, body: &[u8]) -> Vec<u8> {
    let message = ServerMessage::decode(Dialect::Legacy, 3, body, &Limits::default());
    let Ok(ServerMessage::AuthenticateContinue(message)) = message else { return Vec::new() };
    let Ok(challenge) = auth::Challenge::parse(&message.auth_data) else { return Vec::new() };
    let Ok(proof) = challenge.prove(password.as_bytes(), 10_000) else { return Vec::new() };
    auth::Reply::new(user.as_bytes(), proof).encode().unwrap_or_default()
}

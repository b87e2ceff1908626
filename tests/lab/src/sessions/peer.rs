//! One connection: its sessions, what is on its way, and whose answer a frame belongs to.

use std::error::Error;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use epoll_group::codec::decoder::Decoder;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::message::sql::TokenOffer;
use hdrhistogram::Histogram;

use super::answer::{Checker, Next, Progress};
use super::login;
use super::question::{Asker, Form, TOKEN, encode};

#[derive(Debug)]
pub(super) struct Peer {
    index: usize,
    socket: TcpStream,
    decoder: Decoder,
    sessions: Vec<Session>,
    /// Sessions whose requests stand in `out` and have no time yet.
    asked: Vec<u32>,
    out: Vec<u8>,
    out_sent: usize,
    /// The socket took less than it was offered: `out` waits for it to be writable.
    blocked: bool,
    /// Requests that are written down and not answered.
    in_flight: u64,
}

#[derive(Clone, Debug)]
struct Session {
    sent_at: Instant,
    /// What its request asks for.
    id: i64,
    in_flight: bool,
    /// How it was asked for last.
    form: Form,
    progress: Progress,
}

/// What the answers of one receive lead to.
pub(super) struct Arrivals<'a> {
    pub(super) now: Instant,
    pub(super) asker: &'a mut Asker,
    pub(super) checker: &'a mut Checker,
    pub(super) asks_again: bool,
    pub(super) hist: &'a mut Histogram<u64>,
    pub(super) misses: &'a mut u64,
}

impl Peer {
    pub(super) fn connect(
        index: usize,
        address: SocketAddr,
        sessions: usize,
    ) -> Result<Self, Box<dyn Error>> {
        let ids = (0..sessions as u32).map(|session| session_id(index, session));
        let socket = login::connect(address, ids)
            .map_err(|error| format!("connection {index} to {address}: {error}"))?;
        let session = Session {
            sent_at: Instant::now(),
            id: 0,
            in_flight: false,
            form: Form::DigestAlone,
            progress: Progress::default(),
        };
        Ok(Self {
            index,
            socket,
            decoder: Decoder::new(Limits::default()),
            sessions: vec![session; sessions],
            asked: Vec::new(),
            out: Vec::new(),
            out_sent: 0,
            blocked: false,
            in_flight: 0,
        })
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(super) fn failure(&self, what: &str) -> String {
        format!("connection {}: {what}", self.index)
    }

    /// Lets every session ask; nothing is in flight yet.
    pub(super) fn ask_all(&mut self, asker: &mut Asker) {
        for session in 0..self.sessions.len() as u32 {
            self.ask(session, asker);
        }
    }

    /// Sends what is written down, until the socket takes no more.
    ///
    /// The time of a request counts from the first call that could have taken it.
    pub(super) fn send(&mut self) -> io::Result<()> {
        if !self.asked.is_empty() {
            let now = Instant::now();
            for session in self.asked.drain(..) {
                self.sessions[session as usize].sent_at = now;
            }
        }
        self.blocked = false;
        while self.out_sent < self.out.len() {
            match self.socket.write(&self.out[self.out_sent..]) {
                Ok(sent) => self.out_sent += sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.out.clear();
        self.out_sent = 0;
        Ok(())
    }

    /// One receive; the number of bytes, or `None` when nothing waits.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, String> {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => return Err("closed by the server".to_owned()),
                Ok(count) => {
                    self.decoder.feed(&buffer[..count]);
                    return Ok(Some(count));
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("receive: {error}")),
            }
        }
    }

    /// Checks the frames that have arrived, and lets those ask again that have their answer.
    pub(super) fn take(&mut self, arrivals: &mut Arrivals<'_>) -> Result<(), String> {
        while let Some(frame) = self.decoder.next_frame().map_err(|error| error.to_string())? {
            let id = frame.session();
            let place = id as u32;
            let known = self.sessions.get_mut(place as usize);
            let known = known.filter(|_| id == session_id(self.index, place));
            let Some(session) = known.filter(|session| session.in_flight) else {
                let kind = frame.kind();
                return Err(format!("session {id:#x}: a frame of kind {kind} nobody asked for"));
            };
            let next = arrivals.checker.take(&mut session.progress, session.id, &frame);
            match next.map_err(|error| format!("session {id:#x}: {error}"))? {
                Next::More => {}
                Next::Done => {
                    session.in_flight = false;
                    self.in_flight -= 1;
                    let time = arrivals.now.saturating_duration_since(session.sent_at);
                    arrivals.hist.saturating_record(time.as_nanos() as u64);
                    if arrivals.asks_again {
                        self.ask(place, arrivals.asker);
                    }
                }
                Next::Missed if session.form == Form::Whole => {
                    return Err(format!("session {id:#x}: a miss of what was sent with its text"));
                }
                Next::Missed => {
                    session.form = Form::Whole;
                    *arrivals.misses += 1;
                    arrivals.asker.write(id, session.id, Form::Whole, &mut self.out);
                }
                Next::OutOfTokens => {
                    let offer = TokenOffer { token: Some(TOKEN) };
                    encode(&ClientMessage::TokenOffer(offer), id, &mut self.out);
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, place: u32, asker: &mut Asker) {
        let session = &mut self.sessions[place as usize];
        session.id = asker.draw();
        session.in_flight = true;
        session.form = Form::DigestAlone;
        asker.write(session_id(self.index, place), session.id, Form::DigestAlone, &mut self.out);
        self.asked.push(place);
        self.in_flight += 1;
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Ids differ between connections, so that an answer on the wrong one is noticed.
fn session_id(connection: usize, session: u32) -> u64 {
    ((connection as u64 + 1) << 32) | u64::from(session)
}

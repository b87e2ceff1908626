//! One connection to the server: its sessions, what is on its way, and the check of each answer.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use super::options::Target;
use super::question::{Pattern, Question, Shape};

/// Why a connection was given up.
#[derive(Clone, Debug)]
pub struct Failure {
    connection: usize,
    what: String,
}

/// Counted nanoseconds since the load was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    zero: Instant,
}

/// Takes note of each answer: when its request was sent, and which session may ask again.
pub(super) trait Answers {
    /// Returns whether the session asks again at once.
    fn answered(&mut self, session: u32, sent_at: u64) -> bool;
}

#[derive(Debug)]
pub(super) struct Peer {
    index: usize,
    socket: Socket,
    shape: Shape,
    pipeline: usize,
    sessions: Vec<Session>,
    /// Send time of each request in flight: a ring of `pipeline` places for each session.
    sent_at: Vec<u64>,
    /// Sessions that may ask, one entry for each request.
    due: VecDeque<u32>,
    /// Requests that are written down; those before `out_sent` are with the kernel.
    out: Vec<u8>,
    out_sent: usize,
    /// The socket took less than it was offered: `out` waits for it to be writable.
    blocked: bool,
    /// Requests that are written down, sent or not, and not answered.
    in_flight: u64,
    answer: Answer,
}

#[derive(Clone, Debug)]
struct Session {
    asked: u64,
    answered: u64,
}

/// The answer that is arriving. Its first bytes say whose it is; then it is compared.
#[derive(Debug)]
struct Answer {
    id: [u8; ID_BYTES],
    seen: usize,
    session: u32,
    question: Question,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

const ID_BYTES: usize = 8;
/// A send takes no more new requests once it holds so many bytes.
const SEND_BYTES: usize = 64 << 10;

impl Peer {
    pub(super) fn connect(
        index: usize,
        target: &Target,
        shape: Shape,
        sessions: usize,
        pipeline: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            index,
            socket: Socket::connect(target)?,
            shape,
            pipeline,
            sessions: vec![Session { asked: 0, answered: 0 }; sessions],
            sent_at: vec![0; sessions * pipeline],
            due: VecDeque::with_capacity(sessions * pipeline),
            out: Vec::new(),
            out_sent: 0,
            blocked: false,
            in_flight: 0,
            answer: Answer {
                id: [0; ID_BYTES],
                seen: 0,
                session: 0,
                question: Question::new(shape, 0, 0),
            },
        })
    }

    /// Lets every session ask as often as its pipeline is deep; nothing is in flight yet.
    pub(super) fn ask_all(&mut self) {
        for _ in 0..self.pipeline {
            self.due.extend(0..self.sessions.len() as u32);
        }
    }

    /// Lets one session ask once more.
    pub(super) fn ask(&mut self, session: u32) {
        self.due.push_back(session);
    }

    /// Forgets what is due and not yet written down.
    pub(super) fn stop_asking(&mut self) {
        self.due.clear();
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// Something is due, and the socket may take it.
    pub(super) fn wants_to_send(&self) -> bool {
        !self.blocked && !self.due.is_empty()
    }

    /// Sends what is due until nothing is left or the socket takes no more.
    ///
    /// A request's time counts from the call that offers its first byte to the kernel.
    pub(super) fn send(&mut self, pattern: &Pattern, clock: Clock) -> Result<(), Failure> {
        self.blocked = false;
        loop {
            if self.out_sent == self.out.len() {
                self.out.clear();
                self.out_sent = 0;
                if self.due.is_empty() {
                    return Ok(());
                }
                self.write_down(pattern, clock.now());
            }
            match self.socket.write(&self.out[self.out_sent..]) {
                Ok(sent) => self.out_sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.blocked = true;
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(format!("send: {error}"))),
            }
        }
    }

    /// One receive; the number of bytes, or `None` when nothing waits.
    pub(super) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Failure> {
        loop {
            match self.socket.read(buffer) {
                Ok(0) => {
                    let open = self.in_flight;
                    return Err(self
                        .failure(format!("closed by the server with {open} requests unanswered")));
                }
                Ok(count) => return Ok(Some(count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(format!("receive: {error}"))),
            }
        }
    }

    /// Compares the bytes that arrived with the questions they answer.
    pub(super) fn check(
        &mut self,
        mut bytes: &[u8],
        pattern: &Pattern,
        answers: &mut impl Answers,
    ) -> Result<(), Failure> {
        while !bytes.is_empty() {
            if self.answer.seen < ID_BYTES {
                let count = bytes.len().min(ID_BYTES - self.answer.seen);
                let (id, rest) = bytes.split_at(count);
                self.answer.id[self.answer.seen..][..count].copy_from_slice(id);
                self.answer.seen += count;
                bytes = rest;
                if self.answer.seen == ID_BYTES {
                    self.begin_answer()?;
                }
                continue;
            }
            let question = &self.answer.question;
            let count = bytes.len().min(question.frame_bytes - self.answer.seen);
            let (found, rest) = bytes.split_at(count);
            if let Err(difference) = question.compare(pattern, self.answer.seen, found) {
                let session = self.answer.session as usize;
                return Err(self.failure(format!(
                    "session {session}: byte {} of the answer to request {} is {:#04x}, \
                     but {:#04x} was sent",
                    difference.offset,
                    self.sessions[session].answered,
                    difference.found,
                    difference.expected,
                )));
            }
            self.answer.seen += count;
            bytes = rest;
            if self.answer.seen == question.frame_bytes {
                self.end_answer(answers);
            }
        }
        Ok(())
    }

    pub(super) fn failure(&self, what: String) -> Failure {
        Failure { connection: self.index, what }
    }

    fn write_down(&mut self, pattern: &Pattern, now: u64) {
        while self.out.len() < SEND_BYTES {
            let Some(session) = self.due.pop_front() else {
                break;
            };
            let id = session_id(self.index, session);
            let session = session as usize;
            let sequence = self.sessions[session].asked;
            self.sessions[session].asked += 1;
            self.in_flight += 1;
            self.sent_at[session * self.pipeline + sequence as usize % self.pipeline] = now;
            Question::new(self.shape, id, sequence).append_to(&mut self.out, pattern);
        }
    }

    /// The answer's first bytes are here: finds the oldest open question of their session.
    fn begin_answer(&mut self) -> Result<(), Failure> {
        let id = u64::from_le_bytes(self.answer.id);
        let session = id as u32;
        let open = self.sessions.get(session as usize);
        let known = open.filter(|_| id == session_id(self.index, session));
        let Some(open) = known else {
            return Err(
                self.failure(format!("an answer to {id:#x}, which is none of its sessions"))
            );
        };
        if open.asked == open.answered {
            return Err(self.failure(format!("session {session}: an answer that nobody asked for")));
        }
        self.answer.session = session;
        self.answer.question = Question::new(self.shape, id, open.answered);
        Ok(())
    }

    fn end_answer(&mut self, answers: &mut impl Answers) {
        let session = self.answer.session;
        let place = session as usize;
        let sequence = self.sessions[place].answered;
        let sent_at = self.sent_at[place * self.pipeline + sequence as usize % self.pipeline];
        self.sessions[place].answered += 1;
        self.in_flight -= 1;
        self.answer.seen = 0;
        if answers.answered(session, sent_at) {
            self.due.push_back(session);
        }
    }
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket) => socket.as_fd(),
            Socket::Unix(socket) => socket.as_fd(),
        }
    }
}

impl Socket {
    fn connect(target: &Target) -> io::Result<Self> {
        match target {
            Target::Tcp(address) => {
                let socket = TcpStream::connect(address)?;
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Tcp(socket))
            }
            Target::Unix(path) => {
                let socket = UnixStream::connect(path)?;
                socket.set_nonblocking(true)?;
                Ok(Self::Unix(socket))
            }
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.read(buffer),
            Self::Unix(socket) => socket.read(buffer),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(socket) => socket.write(bytes),
            Self::Unix(socket) => socket.write(bytes),
        }
    }
}

impl Clock {
    pub(super) fn start() -> Self {
        Self { zero: Instant::now() }
    }

    pub(super) fn now(self) -> u64 {
        nanos(self.zero.elapsed())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}: {}", self.connection, self.what)
    }
}

/// Ids differ between connections, so that an answer on the wrong one is noticed.
fn session_id(connection: usize, session: u32) -> u64 {
    ((connection as u64 + 1) << 32) | u64::from(session)
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

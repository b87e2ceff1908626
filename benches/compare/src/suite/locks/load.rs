//! Connections that take locks and give them back, two requests a transaction.
//!
//! ```text
//!  0         8        12     13       17            25
//!  +---------+--------+------+--------+-------------+-----------+
//!  | session | length | kind | number | transaction | 0 … 0     |   64 bytes, like other frames
//!  +---------+--------+------+--------+-------------+-----------+
//! ```

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::cpu;
use crate::load::sys::{self, Events, Poll, Watch};
use crate::workload::Report;

/// What a server is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) connections: usize,
    /// Each transaction takes one of so many.
    pub(crate) locks: u32,
    /// A server that answers nobody for so long hangs.
    pub(crate) patience: Duration,
}

/// Open connections. None has a lock, unless the server hangs.
#[derive(Debug)]
pub(crate) struct Load {
    poll: Poll,
    events: Events,
    peers: Vec<Peer>,
    shape: Shape,
    answers_total: u64,
    hangs: bool,
}

#[derive(Debug)]
struct Peer {
    socket: TcpStream,
    index: usize,
    /// Those that it has begun.
    transactions: u64,
    began: Instant,
    /// The lock of the latest one.
    number: u32,
    /// The request that is not answered yet. Its answer is the same.
    request: Option<Request>,
    answer: [u8; FRAME_BYTES],
    filled: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Lock,
    Unlock,
}

/// What one event has brought about.
enum Progress {
    None,
    /// It has the lock.
    Locked,
    /// The transaction is over.
    Over,
}

const FRAME_BYTES: usize = 64;
const LOCK: u8 = 0x7c;
const UNLOCK: u8 = 0x7b;
const EVENTS: usize = 256;

impl Load {
    pub(crate) fn connect(address: SocketAddr, shape: &Shape) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut peers = Vec::with_capacity(shape.connections);
        for index in 0..shape.connections {
            let peer = Peer::connect(address, index)?;
            poll.add(&peer.socket, index as u64, Watch::Reading)?;
            peers.push(peer);
        }
        Ok(Self {
            poll,
            events: Events::with_room_for(EVENTS),
            peers,
            shape: *shape,
            answers_total: 0,
            hangs: false,
        })
    }

    /// Transactions for so long, then the ends of those that have begun. A server that hangs, now
    /// or before, has answered nothing.
    ///
    /// # Errors
    /// Any connection on which anything but the right answer came.
    pub(crate) fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        sys::wake_precisely()?;
        let cpu_before = cpu::of_thread();
        let start = Instant::now();
        let mut hist = Histogram::new(3)?;
        let mut last = start;
        if !self.hangs {
            for peer in &mut self.peers {
                peer.begin(self.shape.locks)?;
            }
            let locks = self.shape.locks;
            self.turn(self.peers.len(), |peer| {
                last = Instant::now();
                let nanos = (last - peer.began).as_nanos() as u64;
                hist.record(nanos).map_err(io::Error::other)?;
                let again = last - start < time;
                if again {
                    peer.begin(locks)?;
                }
                Ok(again)
            })?;
        }
        if self.hangs {
            hist.reset();
            last = Instant::now();
        }
        Ok(Report {
            requests: hist.len(),
            heavy_requests: 0,
            seconds: (last - start).as_secs_f64().max(1e-9),
            hist,
            client_cpu: cpu::of_thread().saturating_sub(cpu_before),
        })
    }

    /// The first connection takes the lock, all others ask for it, and when `waiting` returns, the
    /// first one gives it back. How long it takes from then until all have had it; `None` if the
    /// server hangs.
    ///
    /// # Errors
    /// Those of [`run_for`](Self::run_for).
    pub(crate) fn release(
        &mut self,
        waiting: impl FnOnce(),
    ) -> Result<Option<Duration>, Box<dyn Error>> {
        // One after the other, so that the server knows all of them and nobody has to wait.
        for index in 0..self.peers.len() {
            self.peers[index].begin(1)?;
            self.turn(1, |_| Ok(false))?;
        }
        self.peers[0].begin(1)?;
        while !self.hangs && self.peers[0].request.is_some() {
            self.wait()?;
            if matches!(self.peers[0].take_in(&mut self.answers_total)?, Progress::Locked) {
                break;
            }
        }
        if self.hangs {
            return Ok(None);
        }
        for peer in &mut self.peers[1..] {
            peer.begin(1)?;
        }
        waiting();
        for peer in &mut self.peers[1..] {
            if !matches!(peer.take_in(&mut self.answers_total)?, Progress::None) {
                return Err(format!("{peer}: was given a lock that another one has").into());
            }
        }
        let start = Instant::now();
        self.peers[0].ask(Request::Unlock)?;
        self.turn(self.peers.len(), |_| Ok(false))?;
        Ok((!self.hangs).then(|| start.elapsed()))
    }

    pub(crate) fn answers_total(&self) -> u64 {
        self.answers_total
    }

    /// Turns until so many transactions are over, not counting those after which `over` has begun
    /// another; or nothing comes any more.
    fn turn(
        &mut self,
        mut open: usize,
        mut over: impl FnMut(&mut Peer) -> io::Result<bool>,
    ) -> Result<(), Box<dyn Error>> {
        while open > 0 && !self.hangs {
            self.wait()?;
            for place in 0..self.events.len() {
                let peer = &mut self.peers[self.events.get(place).token as usize];
                match peer.take_in(&mut self.answers_total)? {
                    Progress::None => {}
                    Progress::Locked => peer.ask(Request::Unlock)?,
                    Progress::Over => open -= usize::from(!over(peer)?),
                }
            }
        }
        Ok(())
    }

    fn wait(&mut self) -> io::Result<()> {
        self.poll.wait(&mut self.events, self.shape.patience)?;
        self.hangs = self.events.len() == 0;
        Ok(())
    }
}

impl Peer {
    fn connect(address: SocketAddr, index: usize) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            index,
            transactions: 0,
            began: Instant::now(),
            number: 0,
            request: None,
            answer: [0; FRAME_BYTES],
            filled: 0,
        })
    }

    /// The next transaction, which takes one of so many locks.
    fn begin(&mut self, locks: u32) -> io::Result<()> {
        self.transactions += 1;
        self.began = Instant::now();
        self.number = spread(self.transactions ^ (self.index as u64) << 32) as u32 % locks;
        self.ask(Request::Lock)
    }

    fn ask(&mut self, request: Request) -> io::Result<()> {
        self.request = Some(request);
        let frame = self.frame(request);
        // Nothing else is on its way: there is room for it.
        match self.socket.write(&frame)? {
            FRAME_BYTES => Ok(()),
            _ => Err(ErrorKind::WriteZero.into()),
        }
    }

    /// One receive.
    fn take_in(&mut self, answers: &mut u64) -> Result<Progress, Box<dyn Error>> {
        match self.socket.read(&mut self.answer[self.filled..]) {
            Ok(0) => return Err(format!("{self}: closed by the server").into()),
            Ok(count) => self.filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(format!("{self}: {error}").into()),
        }
        let Some(request) = self.request.filter(|_| self.filled == FRAME_BYTES) else {
            // Edges may come late, when what they tell of has been received.
            return match (self.request, self.filled) {
                (Some(_), _) | (None, 0) => Ok(Progress::None),
                (None, _) => Err(format!("{self}: an answer that nobody asked for").into()),
            };
        };
        if self.answer != self.frame(request) {
            return Err(format!("{self}: the answer is not what was asked").into());
        }
        self.filled = 0;
        self.request = None;
        *answers += 1;
        Ok(match request {
            Request::Lock => Progress::Locked,
            Request::Unlock => Progress::Over,
        })
    }

    fn frame(&self, request: Request) -> [u8; FRAME_BYTES] {
        let kind = match request {
            Request::Lock => LOCK,
            Request::Unlock => UNLOCK,
        };
        let mut frame = [0; FRAME_BYTES];
        frame[..8].copy_from_slice(&(self.index as u64 + 1).to_le_bytes());
        frame[8..12].copy_from_slice(&(FRAME_BYTES as u32 - 12).to_le_bytes());
        frame[12] = kind;
        frame[13..17].copy_from_slice(&self.number.to_le_bytes());
        frame[17..25].copy_from_slice(&self.transactions.to_le_bytes());
        frame
    }
}

/// Spreads the bits of a number over all of its bytes (the finisher of splitmix64).
fn spread(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connection {}", self.index)
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} over {} locks", self.connections, self.locks)
    }
}

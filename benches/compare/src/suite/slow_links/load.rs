//! The usual load, and a thread that drives connections whose frames are large and slow.
//!
//! A slow connection sends one frame, chunk by chunk, then takes the answer, chunk by chunk, and
//! begins again. One of every few milliseconds is its turn, so no readiness is needed. Between
//! windows it stops where it is.

use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::cpu;
use crate::experiment;
use crate::load::{self, HEADER_BYTES, Target, sys};
use crate::workload::{self, Report};

/// What a server is loaded with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) light: usize,
    pub(crate) slow: usize,
}

/// Open connections.
#[derive(Debug)]
pub(crate) struct Load {
    light: load::Load,
    slow: Slow,
}

/// The slow ones.
#[derive(Debug)]
struct Slow {
    links: Vec<Link>,
    buffer: Vec<u8>,
    /// Whose turn is next.
    next: usize,
    answers_total: u64,
}

#[derive(Debug)]
struct Link {
    socket: TcpStream,
    index: usize,
    frame: Vec<u8>,
    /// Bytes of the frame that have been sent, and those of its answer that have come.
    sent: usize,
    received: usize,
}

/// What a connection sends or takes at a time, and the pause after it.
pub(super) const CHUNK_BYTES: usize = 4 << 10;
pub(super) const PAUSE: Duration = Duration::from_millis(4);

/// Connections have frames of so many bytes, one size each, in turn.
const FRAME_BYTES: [usize; 5] = [64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20];
/// Small, so that a slow answer waits in the server and not in the kernel.
const RECEIVE_BUFFER: usize = 16 << 10;
/// All light connections together ask 10 000 times a second.
const BETWEEN_LIGHT: Duration = Duration::from_micros(100);
/// For an answer, once the load is over.
const PATIENCE: Duration = Duration::from_secs(10);
const KIND: u8 = 1;

impl Load {
    pub(crate) fn connect(address: SocketAddr, shape: &Shape) -> io::Result<Self> {
        let light = experiment::Shape {
            think: BETWEEN_LIGHT * shape.light as u32,
            ..experiment::Shape::plain(shape.light)
        };
        let light = load::Load::connect(&light.options(Target::Tcp(address)))?;
        let links = (0..shape.slow).map(|index| Link::connect(address, index));
        let mut slow = Slow {
            links: links.collect::<io::Result<_>>()?,
            buffer: vec![0; CHUNK_BYTES],
            next: 0,
            answers_total: 0,
        };
        // A server may close a connection that says nothing for long, and the load may begin late.
        for link in &mut slow.links {
            link.turn(&mut slow.buffer)?;
        }
        Ok(Self { light, slow })
    }

    /// Requests of the light ones; the others count as heavy.
    ///
    /// # Errors
    /// Any connection on which anything but the right answer came.
    pub(crate) fn run_for(&mut self, time: Duration) -> Result<Report, Box<dyn Error>> {
        let over = AtomicBool::new(false);
        let (light, slow) = (&mut self.light, &mut self.slow);
        thread::scope(|scope| {
            let slow = scope.spawn(|| slow.run_until(&over));
            let report = workload::frames(light, time);
            over.store(true, Ordering::Relaxed);
            let slow = slow.join().map_err(|_| "the slow connections panicked")?;
            let (frames, client_cpu) = slow?;
            let report = report?;
            let client_cpu = report.client_cpu + client_cpu;
            Ok(Report { heavy_requests: frames, client_cpu, ..report })
        })
    }

    /// Frames that have ended. Those under way may have been answered already.
    pub(crate) fn answers_total(&self) -> u64 {
        self.light.answers_total() + self.slow.answers_total
    }

    /// Ends the frames that are under way, without a pause; all answers that came.
    ///
    /// # Errors
    /// Those of [`run_for`](Self::run_for).
    pub(crate) fn finish(mut self) -> io::Result<u64> {
        for link in &mut self.slow.links {
            self.slow.answers_total += u64::from(link.finish()?);
        }
        Ok(self.answers_total())
    }
}

impl Slow {
    /// Returns the answers, and the CPU time that this has cost.
    fn run_until(&mut self, over: &AtomicBool) -> io::Result<(u64, Duration)> {
        sys::wake_precisely()?;
        let before = self.answers_total;
        let pause = PAUSE / self.links.len().max(1) as u32;
        let mut at = Instant::now();
        while !over.load(Ordering::Relaxed) {
            at += pause;
            thread::sleep(at.saturating_duration_since(Instant::now()));
            if let Some(link) = self.links.get_mut(self.next) {
                self.answers_total += u64::from(link.turn(&mut self.buffer)?);
                self.next = (self.next + 1) % self.links.len();
            }
        }
        Ok((self.answers_total - before, cpu::of_thread()))
    }
}

impl Link {
    fn connect(address: SocketAddr, index: usize) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        socket.connect(&address.into())?;
        socket.set_tcp_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let frame_bytes = FRAME_BYTES[index % FRAME_BYTES.len()];
        let mut frame = Vec::with_capacity(frame_bytes);
        frame.extend_from_slice(&(index as u64 + 1).to_le_bytes());
        frame.extend_from_slice(&((frame_bytes - HEADER_BYTES + 1) as u32).to_le_bytes());
        frame.push(KIND);
        // No two neighbouring blocks are alike, nor are those of two connections.
        frame.extend((frame.len()..frame_bytes).map(|at| (at + at / 251 + index) as u8));
        Ok(Self { socket: socket.into(), index, frame, sent: 0, received: 0 })
    }

    /// One chunk, there or back; `true`: it was the end of an answer.
    fn turn(&mut self, buffer: &mut [u8]) -> io::Result<bool> {
        if self.sent < self.frame.len() {
            let end = self.frame.len().min(self.sent + CHUNK_BYTES);
            self.sent += moved(self.socket.write(&self.frame[self.sent..end]))?;
            return Ok(false);
        }
        match self.socket.read(buffer) {
            Ok(0) => return Err(self.failure("closed by the server")),
            Ok(count) => {
                let expected = self.frame.get(self.received..self.received + count);
                if expected != Some(&buffer[..count]) {
                    return Err(self.failure("the answer is not what was asked"));
                }
                self.received += count;
            }
            result => drop(moved(result)?),
        }
        if self.received < self.frame.len() {
            return Ok(false);
        }
        (self.sent, self.received) = (0, 0);
        Ok(true)
    }

    /// `true`: there was a frame to end.
    fn finish(&mut self) -> io::Result<bool> {
        if self.sent == 0 {
            return Ok(false);
        }
        self.socket.set_nonblocking(false)?;
        self.socket.set_read_timeout(Some(PATIENCE))?;
        self.socket.write_all(&self.frame[self.sent..])?;
        let mut rest = vec![0; self.frame.len() - self.received];
        self.socket.read_exact(&mut rest)?;
        if rest != self.frame[self.received..] {
            return Err(self.failure("the answer is not what was asked"));
        }
        Ok(true)
    }

    fn failure(&self, what: &str) -> io::Error {
        io::Error::other(format!("slow connection {}: {what}", self.index))
    }
}

/// Nothing, when the socket would have to wait.
fn moved(result: io::Result<usize>) -> io::Result<usize> {
    match result {
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        result => result,
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} light, {} slow", self.light, self.slow)
    }
}

//! One thread of the load: some connections, an epoll loop, a histogram.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Report;
use super::answer::Checker;
use super::peer::{Arrivals, Peer};
use super::question::{Asker, Question};
use crate::cpu;
use crate::load::sys::{self, Events, Poll, Ready, Watch};

#[derive(Debug)]
pub(super) struct Driver {
    poll: Poll,
    events: Events,
    /// `None`: given up after a failure.
    peers: Vec<Option<Peer>>,
    asker: Asker,
    checker: Checker,
    buffer: Vec<u8>,
    asking: bool,
    last_answer: Instant,
    hist: Histogram<u64>,
    misses: u64,
    errors: u64,
    first_error: Option<String>,
}

const RECEIVE_BYTES: usize = 256 << 10;
const EVENTS: usize = 64;
/// How long the end of a window waits for answers.
const QUIESCE: Duration = Duration::from_secs(10);
const LONGEST_LATENCY: Duration = Duration::from_secs(3600);

impl Driver {
    /// Drivers with different seeds ask for different rows.
    pub(super) fn new(question: Question, rows: u32, seed: u64) -> io::Result<Self> {
        Ok(Self {
            poll: Poll::new()?,
            events: Events::with_room_for(EVENTS),
            peers: Vec::new(),
            asker: Asker::new(question, rows, seed),
            checker: Checker::new(question),
            buffer: vec![0; RECEIVE_BYTES],
            asking: false,
            last_answer: Instant::now(),
            hist: latencies(),
            misses: 0,
            errors: 0,
            first_error: None,
        })
    }

    /// Opens a connection with so many sessions.
    pub(super) fn add(
        &mut self,
        connection: usize,
        address: SocketAddr,
        sessions: usize,
    ) -> Result<(), Box<dyn Error>> {
        let peer = Peer::connect(connection, address, sessions)?;
        self.poll.add(&peer, self.peers.len() as u64, Watch::Reading)?;
        self.peers.push(Some(peer));
        Ok(())
    }

    /// Asks for so long, then waits for what is in flight.
    pub(super) fn run_for(&mut self, time: Duration) -> io::Result<Report> {
        sys::wake_precisely()?;
        let cpu_before = cpu::of_thread();
        let start = Instant::now();
        self.last_answer = start;
        self.asking = true;
        for index in 0..self.peers.len() {
            if let Some(peer) = &mut self.peers[index] {
                peer.ask_all(&mut self.asker);
                self.send(index)?;
            }
        }
        self.turn_until(start + time)?;
        self.asking = false;
        self.turn_until(Instant::now() + QUIESCE)?;
        self.give_up_unanswered();
        let hist = std::mem::replace(&mut self.hist, latencies());
        Ok(Report {
            requests: hist.len(),
            seconds: self.last_answer.duration_since(start).as_secs_f64().max(1e-9),
            hist,
            client_cpu: cpu::of_thread().saturating_sub(cpu_before),
            misses: std::mem::take(&mut self.misses),
            errors: std::mem::take(&mut self.errors),
            first_error: self.first_error.take(),
        })
    }

    /// Turns until `end`, or until there is nothing to wait for.
    fn turn_until(&mut self, end: Instant) -> io::Result<()> {
        loop {
            let mut open = self.peers.iter().flatten().peekable();
            let quiet =
                open.peek().is_none() || (!self.asking && open.all(|peer| peer.in_flight() == 0));
            let left = end.saturating_duration_since(Instant::now());
            if quiet || left.is_zero() {
                return Ok(());
            }
            self.poll.wait(&mut self.events, left)?;
            for place in 0..self.events.len() {
                self.serve(self.events.get(place))?;
            }
        }
    }

    /// Takes in all that waits on one connection, then sends what the answers led to.
    fn serve(&mut self, ready: Ready) -> io::Result<()> {
        let index = ready.token as usize;
        match self.take_in(index, ready) {
            Ok(()) => self.send(index),
            Err(what) => {
                self.give_up(index, &what);
                Ok(())
            }
        }
    }

    fn take_in(&mut self, index: usize, ready: Ready) -> Result<(), String> {
        let Some(peer) = &mut self.peers[index] else {
            return Ok(());
        };
        while let Some(count) = peer.receive(&mut self.buffer)? {
            let before = self.hist.len();
            let now = Instant::now();
            peer.take(&mut Arrivals {
                now,
                asker: &mut self.asker,
                checker: &mut self.checker,
                asks_again: self.asking,
                hist: &mut self.hist,
                misses: &mut self.misses,
            })?;
            if self.hist.len() > before {
                self.last_answer = now;
            }
            // A stream that gave less than asked for is empty; its next bytes are a new edge.
            if count < self.buffer.len() && !ready.ended {
                break;
            }
        }
        Ok(())
    }

    fn send(&mut self, index: usize) -> io::Result<()> {
        let Some(peer) = &mut self.peers[index] else {
            return Ok(());
        };
        let was_blocked = peer.is_blocked();
        if let Err(error) = peer.send() {
            self.give_up(index, &format!("send: {error}"));
        } else if peer.is_blocked() != was_blocked {
            let watch = if peer.is_blocked() { Watch::ReadingAndWriting } else { Watch::Reading };
            self.poll.modify(&*peer, index as u64, watch)?;
        }
        Ok(())
    }

    fn give_up(&mut self, index: usize, what: &str) {
        if let Some(peer) = self.peers[index].take() {
            self.errors += 1;
            self.first_error.get_or_insert_with(|| peer.failure(what));
        }
    }

    fn give_up_unanswered(&mut self) {
        for index in 0..self.peers.len() {
            let unanswered = self.peers[index].as_ref().map_or(0, Peer::in_flight);
            if unanswered > 0 {
                self.give_up(index, &format!("{unanswered} requests unanswered after {QUIESCE:?}"));
            }
        }
    }
}

/// An empty histogram of nanoseconds with three significant digits.
pub(super) fn latencies() -> Histogram<u64> {
    let longest = LONGEST_LATENCY.as_nanos() as u64;
    Histogram::new_with_bounds(1, longest, 3).expect("the bounds are constants in range")
}

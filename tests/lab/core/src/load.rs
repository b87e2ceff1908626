//! The load generator: many connections, one thread, an epoll loop of its own.
//!
//! Each connection keeps `sessions × pipeline` requests in flight. An answer is compared byte
//! by byte with its question, its latency is counted from the send of that question, and its
//! session asks again, at once or after the think time. The loop is closed: a slow server is
//! asked less often, so compare latencies at equal rates.
//!
//! ```ignore
//! let mut load = Load::connect(&Options::new("127.0.0.1:4711".parse()?))?;
//! let report = load.run_for(Duration::from_secs(1), |_| ())?;   // again and again; quiet between
//! ```
//!
//! Benches include this file by its path, hence the paths below.

use std::io;
use std::time::Duration;

use hdrhistogram::Histogram;

mod options;
mod peer;
mod question;
pub mod sys;
mod window;

pub use options::{Heavy, Options, Target};
pub use peer::Failure;
pub use question::HEADER_BYTES;
pub use sys::raise_descriptor_limit;

use peer::{Clock, Peer, nanos};
use question::{HEAVY_FRAME_BYTES, Pattern, Shape};
use sys::{Events, Poll, Ready, Watch};
use window::{Again, Arrivals, Phase, Wake, Window};

/// Open connections. Quiet except inside [`Load::run_for`].
#[derive(Debug)]
pub struct Load {
    poll: Poll,
    events: Events,
    /// Light connections first, then the heavy ones. `None`: given up after a failure.
    peers: Vec<Option<Peer>>,
    light: usize,
    pattern: Pattern,
    buffer: Vec<u8>,
    clock: Clock,
    think: Duration,
    quiesce: Duration,
    /// Connections not given up.
    open: usize,
    /// Requests that wait for their answer, all connections together.
    in_flight: u64,
    answers_total: u64,
    window: Window,
}

/// How far a window has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub elapsed: Duration,
    pub answers: u64,
}

/// One window: all requests that were asked in it, each with its answer.
#[derive(Debug)]
pub struct Report {
    /// Answers to light connections.
    pub requests: u64,
    pub heavy_requests: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Nanoseconds, light connections.
    pub hist: Histogram<u64>,
    /// Nanoseconds, heavy connections.
    pub heavy_hist: Histogram<u64>,
    /// Connections given up in this window.
    pub errors: u64,
    pub first_error: Option<Failure>,
}

/// So many connections are opened at a time, and greeted before the next: a listener's queue is
/// often 128 long, and what overflows it is tried again only after a second.
const WAVE: usize = 64;
const RECEIVE_BYTES: usize = 256 << 10;
const EVENTS: usize = 256;
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

impl Load {
    /// Opens all connections and exchanges one frame on each, so that the first window meets
    /// a server that knows them all and holds none of them for silent.
    ///
    /// # Errors
    /// The first connection that cannot be opened, or that does not echo.
    pub fn connect(options: &Options) -> io::Result<Self> {
        let heavy =
            options.heavy.unwrap_or(Heavy { connections: 0, burn: Duration::ZERO, pipeline: 1 });
        let light_shape = Shape { frame_bytes: options.frame_bytes, burn: None };
        let heavy_shape = Shape {
            frame_bytes: options.frame_bytes.max(HEAVY_FRAME_BYTES),
            burn: Some(heavy.burn),
        };
        if options.frame_bytes < HEADER_BYTES {
            let bytes = options.frame_bytes;
            let text = format!("a frame of {bytes} bytes is below its header's {HEADER_BYTES}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if options.sessions_per_connection == 0 || options.pipeline.min(heavy.pipeline) == 0 {
            let text = "a connection needs at least one session and a pipeline of one";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let count = options.connections + heavy.connections;
        let mut load = Self {
            poll: Poll::new()?,
            events: Events::with_room_for(EVENTS),
            peers: Vec::with_capacity(count),
            light: options.connections,
            pattern: Pattern::new(heavy_shape.frame_bytes),
            buffer: vec![0; RECEIVE_BYTES],
            clock: Clock::start(),
            think: options.think,
            quiesce: options.quiesce,
            open: 0,
            in_flight: 0,
            answers_total: 0,
            window: Window::new(),
        };
        for index in 0..count {
            let (shape, sessions, pipeline) = if index < options.connections {
                (light_shape, options.sessions_per_connection, options.pipeline)
            } else {
                (heavy_shape, 1, heavy.pipeline)
            };
            let peer = Peer::connect(index, &options.target, shape, sessions, pipeline);
            load.add(peer.map_err(|error| {
                let text = format!("connection {index} to {}: {error}", options.target);
                io::Error::new(error.kind(), text)
            })?)?;
            if load.peers.len().is_multiple_of(WAVE) || load.peers.len() == count {
                load.greet()?;
            }
        }
        Ok(load)
    }

    /// Asks for so long, then waits for what is in flight. May be called again and again;
    /// runs on the calling thread, and calls `progress` ten times a second.
    ///
    /// # Errors
    /// Only when the poller itself fails; what happens to a connection is in the report.
    pub fn run_for(
        &mut self,
        time: Duration,
        mut progress: impl FnMut(&Progress),
    ) -> io::Result<Report> {
        sys::wake_precisely()?;
        self.window = Window::new();
        let start = self.clock.now();
        self.begin(start);
        self.turn_until(start, start + nanos(time), &mut progress)?;
        self.stop();
        self.turn_until(start, self.clock.now() + nanos(self.quiesce), &mut progress)?;
        self.give_up_unanswered();

        let window = std::mem::replace(&mut self.window, Window::new());
        Ok(Report {
            requests: window.light.len(),
            heavy_requests: window.heavy.len(),
            seconds: window.last_answer.saturating_sub(start).max(1) as f64 / 1e9,
            hist: window.light,
            heavy_hist: window.heavy,
            errors: window.errors,
            first_error: window.first_error,
        })
    }

    /// All answers since the connections were opened, the ones exchanged then included.
    pub fn answers_total(&self) -> u64 {
        self.answers_total
    }

    fn add(&mut self, peer: Peer) -> io::Result<()> {
        let token = self.peers.len() as u64;
        self.poll.add(&peer, token, Watch::Reading)?;
        self.peers.push(Some(peer));
        self.open += 1;
        Ok(())
    }

    /// Exchanges one frame on each connection of the latest wave.
    fn greet(&mut self) -> io::Result<()> {
        self.window.phase = Phase::Stopping;
        let first = (self.peers.len() - 1) / WAVE * WAVE;
        for index in first..self.peers.len() {
            if let Some(peer) = &mut self.peers[index] {
                peer.ask(0);
                self.send(index)?;
            }
        }
        let now = self.clock.now();
        self.turn_until(now, now + nanos(self.quiesce), &mut |_| ())?;
        self.give_up_unanswered();
        match self.window.first_error.take() {
            Some(failure) => Err(io::Error::other(failure.to_string())),
            None => Ok(()),
        }
    }

    /// Lets every connection ask. With a think time they are spread over it from the start,
    /// as they would be after a while.
    fn begin(&mut self, start: u64) {
        let light = self.light;
        let delay = |index| nanos(self.think) * index as u64 / light as u64;
        let heavy = (light..self.peers.len()).map(|index| (start, index));
        let light = (0..light).map(|index| (start + delay(index), index));
        let wakes = heavy.chain(light);
        let wakes = wakes.map(|(at, peer)| Wake { at, peer, again: Again::AllSessions });
        self.window.thinking.extend(wakes);
    }

    fn stop(&mut self) {
        self.window.phase = Phase::Stopping;
        self.window.thinking.clear();
        for peer in self.peers.iter_mut().flatten() {
            peer.stop_asking();
        }
    }

    /// Turns until `end`; when stopping, until nothing is in flight.
    fn turn_until(
        &mut self,
        start: u64,
        end: u64,
        progress: &mut impl FnMut(&Progress),
    ) -> io::Result<()> {
        let mut next_progress = self.clock.now() + nanos(PROGRESS_EVERY);
        loop {
            let now = self.clock.now();
            let quiet = self.window.phase == Phase::Stopping && self.in_flight == 0;
            if now >= end || quiet || self.open == 0 {
                return Ok(());
            }
            if now >= next_progress {
                next_progress = now + nanos(PROGRESS_EVERY);
                let answers = self.window.light.len() + self.window.heavy.len();
                progress(&Progress { elapsed: Duration::from_nanos(now - start), answers });
            }
            let next_wake = self.wake_thinkers(now)?;
            let limit = end.min(next_progress).min(next_wake).saturating_sub(self.clock.now());
            self.poll.wait(&mut self.events, Duration::from_nanos(limit))?;
            for place in 0..self.events.len() {
                self.serve(self.events.get(place))?;
            }
        }
    }

    /// Lets those ask whose think time is over; returns when the next one ends.
    fn wake_thinkers(&mut self, now: u64) -> io::Result<u64> {
        while let Some(&wake) = self.window.thinking.front() {
            if wake.at > now {
                return Ok(wake.at);
            }
            self.window.thinking.pop_front();
            if let Some(peer) = &mut self.peers[wake.peer] {
                match wake.again {
                    Again::Session(session) => peer.ask(session),
                    Again::AllSessions => peer.ask_all(),
                }
                if peer.wants_to_send() {
                    self.send(wake.peer)?;
                }
            }
        }
        Ok(u64::MAX)
    }

    /// Takes in all that waits on one connection, then sends what the answers made due.
    fn serve(&mut self, ready: Ready) -> io::Result<()> {
        let index = ready.token as usize;
        if let Err(failure) = self.take_in(index, ready) {
            self.give_up(index, failure);
        }
        match &self.peers[index] {
            Some(peer) if ready.writable || peer.wants_to_send() => self.send(index),
            _ => Ok(()),
        }
    }

    fn take_in(&mut self, index: usize, ready: Ready) -> Result<(), Failure> {
        let Some(peer) = &mut self.peers[index] else {
            return Ok(());
        };
        while let Some(count) = peer.receive(&mut self.buffer)? {
            let now = self.clock.now();
            let light = index < self.light;
            let thinks = light && !self.think.is_zero();
            let window = &mut self.window;
            let mut arrivals = Arrivals {
                now,
                peer: index,
                asks_again: window.phase == Phase::Asking && !thinks,
                thinking: (window.phase == Phase::Asking && thinks)
                    .then_some((&mut window.thinking, now + nanos(self.think))),
                hist: if light { &mut window.light } else { &mut window.heavy },
                count: 0,
            };
            let result = peer.check(&self.buffer[..count], &self.pattern, &mut arrivals);
            let answers = arrivals.count;
            self.in_flight -= answers;
            self.answers_total += answers;
            window.last_answer = now;
            result?;
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
        let (was_blocked, before) = (peer.is_blocked(), peer.in_flight());
        let result = peer.send(&self.pattern, self.clock);
        self.in_flight += peer.in_flight() - before;
        if let Err(failure) = result {
            self.give_up(index, failure);
        } else if peer.is_blocked() != was_blocked {
            let watch = if peer.is_blocked() { Watch::ReadingAndWriting } else { Watch::Reading };
            self.poll.modify(&*peer, index as u64, watch)?;
        }
        Ok(())
    }

    fn give_up(&mut self, index: usize, failure: Failure) {
        if let Some(peer) = self.peers[index].take() {
            self.in_flight -= peer.in_flight();
            self.open -= 1;
            self.window.errors += 1;
            self.window.first_error.get_or_insert(failure);
        }
    }

    fn give_up_unanswered(&mut self) {
        let waited = self.quiesce;
        for index in 0..self.peers.len() {
            let unanswered = self.peers[index].as_ref().filter(|peer| peer.in_flight() > 0);
            if let Some(peer) = unanswered {
                let count = peer.in_flight();
                let failure = peer.failure(format!("{count} requests unanswered after {waited:?}"));
                self.give_up(index, failure);
            }
        }
    }
}

//! Many attackers on few threads.

use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::poll::{self, Watch};
use super::wire::{Heard, Leave, Wire, prove};
use super::{Course, Tally, Target};
use crate::xrpc::request;

/// Behaviour of one peer after it has connected and, if the rules say so, logged in.
pub trait Manner: Send {
    /// Called before the first byte is sent, and before a login.
    fn connected(&mut self, _: &mut Wire) {}

    /// Called when all output is sent and the pause is over. Adds the next output.
    fn idle(&mut self, wire: &mut Wire);

    /// Called for each frame that is not part of the login.
    fn heard(&mut self, _: &mut Wire, _: Heard<'_>) {}
}

/// Settings that the peers of an abuse share.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    pub login: bool,
    pub receive_buffer: Option<usize>,
    /// Pause between the end of a connection and the peer's next one.
    pub rest: Duration,
    /// True if each peer has an address of its own.
    pub scattered: bool,
    pub threads: usize,
}

impl Rules {
    /// Peers connect, log in, and connect again after the end.
    pub const fn logged_in() -> Self {
        Self { login: true, receive_buffer: None, rest: AT_ONCE, scattered: false, threads: 2 }
    }

    /// Peers connect without a login.
    pub const fn stranger() -> Self {
        Self { login: false, ..Self::logged_in() }
    }
}

/// Pause of peers that connect as often as possible.
const AT_ONCE: Duration = Duration::from_millis(5);
/// Pause of peers whose abuse is not the number of connections.
pub const WHILE: Duration = Duration::from_secs(1);

/// Runs the peers until [`Course::stop`]. `manner` makes the behaviour of a peer's new connection.
pub fn run<M: Manner>(
    target: &Target,
    course: &Course<'_>,
    rules: Rules,
    manner: impl Fn(usize) -> M + Sync,
) -> Tally {
    let threads = rules.threads.min(course.peers).max(1);
    let mut tally = Tally::default();
    thread::scope(|scope| {
        let parts: Vec<_> = (0..threads)
            .map(|part| {
                let manner = &manner;
                scope.spawn(move || {
                    let numbers = (part..course.peers).step_by(threads);
                    let seats = numbers.map(|number| Seat::new(number, course.seed)).collect();
                    let part =
                        Part { target, course, rules, manner, seats, tally: Tally::default() };
                    part.run()
                })
            })
            .collect();
        for part in parts {
            tally.add(&part.join().expect("an attacker does not panic"));
        }
    });
    tally
}

/// One peer, through all its connections.
struct Seat<M> {
    number: usize,
    seed: u64,
    talk: Option<Talk<M>>,
    come_after: Instant,
    /// Pause after the next refusal.
    rest: Duration,
}

struct Talk<M> {
    wire: Wire,
    manner: M,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Connecting,
    /// The login has begun; the challenge is awaited.
    Start,
    /// The proof is sent; the answer is awaited.
    Proof,
    Ready,
}

impl<M> Seat<M> {
    fn new(number: usize, seed: u64) -> Self {
        let seed = seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Self { number, seed, talk: None, come_after: Instant::now(), rest: AT_ONCE }
    }
}

struct Part<'a, M, F> {
    target: &'a Target,
    course: &'a Course<'a>,
    rules: Rules,
    manner: &'a F,
    seats: Vec<Seat<M>>,
    tally: Tally,
}

impl<M: Manner, F: Fn(usize) -> M> Part<'_, M, F> {
    fn run(mut self) -> Tally {
        let mut piece = vec![0; 1 << 16];
        let mut watches = Vec::new();
        let mut seats = std::mem::take(&mut self.seats);
        while !self.course.stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            let mut next = now + Duration::from_millis(20);
            watches.clear();
            for seat in &mut seats {
                if seat.talk.is_none() && seat.come_after <= now {
                    self.come(seat);
                }
                watches.push(seat.watch(now, &mut next));
            }
            poll::wait(&mut watches, next.saturating_duration_since(now));
            let now = Instant::now();
            for (seat, watch) in seats.iter_mut().zip(&watches) {
                self.drive(seat, *watch, now, &mut piece);
            }
        }
        for seat in &mut seats {
            if let Some(talk) = seat.talk.take() {
                self.tally.kept += u64::from(talk.stage != Stage::Connecting);
                self.settle(talk);
            }
        }
        self.tally
    }

    fn come(&mut self, seat: &mut Seat<M>) {
        let host = if self.rules.scattered { seat.number + 2 } else { 1 };
        let from = match self.target.address.ip() {
            IpAddr::V4(to) if to.is_loopback() => {
                Some(Ipv4Addr::new(127, 66, (host >> 8) as u8, host as u8))
            }
            _ => None,
        };
        seat.seed = seat.seed.wrapping_add(1);
        match Wire::connect(self.target.address, from, self.rules.receive_buffer, seat.seed) {
            Ok(mut wire) => {
                let mut manner = (self.manner)(seat.number);
                manner.connected(&mut wire);
                seat.talk = Some(Talk { wire, manner, stage: Stage::Connecting });
            }
            Err(_) => {
                self.tally.refused += 1;
                seat.retreat(Instant::now());
            }
        }
    }

    /// One round of one peer.
    fn drive(&mut self, seat: &mut Seat<M>, watch: Watch, now: Instant, piece: &mut [u8]) {
        let Some(talk) = &mut seat.talk else { return };
        if talk.stage == Stage::Connecting {
            if matches!(talk.wire.socket.take_error(), Ok(Some(_)) | Err(_)) {
                self.tally.refused += 1;
                seat.talk = None;
                seat.retreat(now);
                return;
            }
            if !watch.writable() {
                return;
            }
            self.tally.connected += 1;
            talk.stage = Stage::Ready;
            if self.rules.login && self.target.logins {
                talk.wire.ask(0, &request::login_start());
                talk.stage = Stage::Start;
            }
        }
        let alive = talk.step(self.target, watch, now, piece);
        if let Some(by_server) = alive {
            self.tally.closed_by_server += u64::from(by_server);
            self.tally.kept += u64::from(!by_server);
            let talk = seat.talk.take().expect("it was there");
            match talk.stage {
                Stage::Ready => seat.leave(now, self.rules.rest),
                _ => seat.retreat(now),
            }
            self.settle(talk);
        }
    }

    fn settle(&mut self, mut talk: Talk<M>) {
        talk.wire.settle();
        self.tally.add(&talk.wire.tally);
        if talk.wire.leave == Some(Leave::Reset) {
            let _ = talk.wire.socket.set_linger(Some(Duration::ZERO));
        }
    }
}

impl<M: Manner> Seat<M> {
    fn watch(&self, now: Instant, next: &mut Instant) -> Watch {
        let Some(talk) = &self.talk else {
            *next = (*next).min(self.come_after);
            return Watch::nothing();
        };
        let wire = &talk.wire;
        if talk.stage == Stage::Connecting {
            return Watch::new(wire.socket.as_raw_fd(), false, true);
        }
        let waits = if wire.unsent() { wire.write_after } else { wire.idle_after };
        if waits > now {
            *next = (*next).min(waits);
        } else if !wire.unsent() && !wire.waits && talk.stage == Stage::Ready {
            *next = now;
        }
        if wire.read_after > now {
            *next = (*next).min(wire.read_after);
        }
        let (read, write) = (wire.wants_to_read(now), wire.wants_to_write(now));
        Watch::new(wire.socket.as_raw_fd(), read, write)
    }

    fn leave(&mut self, now: Instant, rest: Duration) {
        self.rest = AT_ONCE;
        self.come_after = now + rest;
    }

    /// Backs off after a refused connection. Hammering on the listener is another abuse.
    fn retreat(&mut self, now: Instant) {
        self.come_after = now + self.rest;
        self.rest = (2 * self.rest).min(WHILE);
    }
}

impl<M: Manner> Talk<M> {
    /// Reads, writes, and calls the manner. Returns `Some` if the connection has ended, with true
    /// if the server ended it.
    fn step(
        &mut self,
        target: &Target,
        watch: Watch,
        now: Instant,
        piece: &mut [u8],
    ) -> Option<bool> {
        if watch.readable() && self.wire.wants_to_read(now) {
            match self.wire.receive(now, piece) {
                Ok(true) => self.listen(target),
                Ok(false) | Err(_) => return Some(!self.wire.finished),
            }
        } else if watch.gone() {
            return Some(!self.wire.finished);
        }
        if self.stage == Stage::Ready
            && !self.wire.unsent()
            && !self.wire.waits
            && !self.wire.finished
            && self.wire.idle_after <= now
        {
            self.manner.idle(&mut self.wire);
        }
        if self.wire.write(now).is_err() {
            return Some(true);
        }
        if self.wire.unsent() {
            return None;
        }
        match self.wire.leave {
            None => None,
            Some(Leave::Finish) => {
                if !self.wire.finished {
                    self.wire.finished = true;
                    let _ = self.wire.socket.shutdown(std::net::Shutdown::Write);
                }
                None
            }
            Some(Leave::Reset | Leave::Close) => Some(false),
        }
    }

    fn listen(&mut self, target: &Target) {
        let mut body = Vec::new();
        while let Some((session, kind)) = self.wire.heard(&mut body) {
            self.wire.waits = false;
            match (self.stage, kind) {
                (Stage::Start, 3) => {
                    let proof = prove(&target.user, &target.password, &body);
                    self.wire.ask(0, &request::login_continue(proof));
                    self.stage = Stage::Proof;
                }
                (Stage::Proof, 4) => self.stage = Stage::Ready,
                (Stage::Ready, _) => {
                    self.manner.heard(&mut self.wire, Heard { session, kind, body: &body });
                }
                _ => {}
            }
        }
    }
}

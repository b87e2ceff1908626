//! [`Plan`]: the way of the bytes of one direction. Pure: bytes and times go in, pieces to send and
//! times to wait for come out.
//!
//! ```text
//!  bytes ─▶ corrupt ─▶ delay ─▶ coalesce ─▶ chop ─▶ rate ─▶ bytes
//!                 taken ▲     due ▲   released ▲           sent ▲
//! ```
//!
//! The names are positions in the stream: `sent` is at most `released`, which is at most `due`, which
//! is at most `taken`. A stop or a cut limits `sent`.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::time::Duration;

use super::script::{Dice, Faults, How, Mark, Purpose};

/// Bytes that a plan holds at most: more is not read, which the sender feels.
pub const CAPACITY: usize = 256 << 10;

/// A rate is cut into this number of pieces per second.
const PACE: u64 = 100;

/// One direction of one connection. Times are counted from when the connection was made.
#[derive(Debug)]
pub struct Plan {
    faults: Faults,
    dice: Dice,
    /// Bytes taken and not sent. The first one stands at `sent`.
    held: VecDeque<u8>,
    taken: u64,
    due: u64,
    released: u64,
    sent: u64,
    /// Delayed bytes.
    arrivals: VecDeque<Arrival>,
    /// Since when bytes are gathered.
    gathering: Option<Duration>,
    /// End of the piece that is being sent.
    piece_end: u64,
    next_flip: Option<u64>,
    flipped: u64,
    /// Time before which the rate allows no byte.
    pace: Duration,
    /// When the stop at a byte was reached.
    stopped: Option<Duration>,
    ended: bool,
}

/// Bytes up to `end` that may go on at `due`.
#[derive(Debug)]
struct Arrival {
    end: u64,
    due: Duration,
}

/// The next thing to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Send this, all at once, and tell by [`Plan::handle_sent`].
    Send(&'a [u8]),
    /// Nothing, until more bytes come or until this time.
    Wait(Option<Duration>),
    /// All was sent: the stream ends.
    End,
    /// Both directions end here.
    Cut(How),
}

impl Plan {
    pub fn new(faults: &Faults, dice: Dice) -> Self {
        let mut plan = Self {
            faults: faults.clone(),
            dice,
            held: VecDeque::new(),
            taken: 0,
            due: 0,
            released: 0,
            sent: 0,
            arrivals: VecDeque::new(),
            gathering: None,
            piece_end: 0,
            next_flip: None,
            flipped: 0,
            pace: Duration::ZERO,
            stopped: None,
            ended: false,
        };
        plan.next_flip = plan.flip_from(0);
        plan
    }

    /// Number of bytes that the plan takes now.
    pub fn room(&self) -> usize {
        if self.ended { 0 } else { CAPACITY - self.held.len() }
    }

    /// Bytes that came in.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Bytes that were passed on.
    pub const fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes that were corrupted, passed on or not.
    pub const fn flipped(&self) -> u64 {
        self.flipped
    }

    /// Bytes came in, not more than there is room for.
    pub fn handle_bytes(&mut self, now: Duration, bytes: &[u8]) {
        assert!(bytes.len() <= self.room(), "{} bytes for {}", bytes.len(), self.room());
        let from = self.taken;
        self.held.extend(bytes);
        self.taken += bytes.len() as u64;
        self.corrupt();
        let jitter = self.faults.jitter.mul_f64(self.dice.fraction(Purpose::Jitter, from));
        let due = now + self.faults.delay + jitter;
        // Bytes stay in order. No byte is due before an earlier one.
        let due = self.arrivals.back().map_or(due, |last| last.due.max(due));
        self.arrivals.push_back(Arrival { end: self.taken, due });
    }

    /// No more bytes will come.
    pub fn handle_end(&mut self) {
        self.ended = true;
    }

    /// `count` bytes of the last [`Step::Send`] were sent.
    pub fn handle_sent(&mut self, now: Duration, count: usize) {
        self.held.drain(..count);
        self.sent += count as u64;
        if let Some(rate) = self.faults.rate {
            let cost = Duration::from_nanos(count as u64 * 1_000_000_000 / rate);
            self.pace = self.pace.max(now) + cost;
        }
    }

    pub fn poll(&mut self, now: Duration) -> Step<'_> {
        let mut limit = u64::MAX;
        let mut cut_at = None;
        if let Some(cut) = self.faults.cut {
            match cut.at {
                Mark::Byte(byte) if self.sent >= byte => return Step::Cut(cut.how),
                Mark::Time(time) if now >= time => return Step::Cut(cut.how),
                Mark::Byte(byte) => limit = byte,
                Mark::Time(time) => cut_at = Some(time),
            }
        }
        self.ripen(now);
        match self.stop(now) {
            Gate::Open => {}
            Gate::Until(byte) => limit = limit.min(byte),
            Gate::Shut(end) => return Step::Wait(earliest(end, cut_at)),
        }
        limit = limit.min(self.released);
        if self.sent < limit {
            if now < self.pace {
                return Step::Wait(earliest(Some(self.pace), cut_at));
            }
            return Step::Send(self.piece(limit));
        }
        if self.ended && self.sent == self.taken {
            return Step::End;
        }
        let next = self.arrivals.front().map(|arrival| arrival.due);
        let gathered = self.gathering.zip(self.faults.coalesce);
        let gathered = gathered.map(|(since, coalesce)| since + coalesce.time);
        Step::Wait(earliest(earliest(next, gathered), cut_at))
    }

    /// Lets those bytes through whose time has come.
    fn ripen(&mut self, now: Duration) {
        while let Some(&Arrival { end, due }) = self.arrivals.front()
            && due <= now
        {
            self.arrivals.pop_front();
            self.due = end;
            self.gathering.get_or_insert(due);
        }
        let Some(since) = self.gathering else { return };
        let whole = match self.faults.coalesce {
            None => true,
            Some(coalesce) => {
                self.due - self.released >= coalesce.bytes || now >= since + coalesce.time
            }
        };
        if whole || (self.ended && self.due == self.taken) {
            self.released = self.due;
            self.gathering = None;
        }
    }

    fn stop(&mut self, now: Duration) -> Gate {
        let Some(stop) = self.faults.stop else { return Gate::Open };
        let began = match stop.at {
            Mark::Byte(byte) if self.sent < byte => return Gate::Until(byte),
            Mark::Byte(_) => *self.stopped.get_or_insert(now),
            Mark::Time(time) if now < time => return Gate::Open,
            Mark::Time(time) => time,
        };
        let end = stop.pause.map(|pause| began + pause);
        if end.is_some_and(|end| now >= end) {
            self.faults.stop = None;
            return Gate::Open;
        }
        Gate::Shut(end)
    }

    /// The next piece, up to `limit`.
    fn piece(&mut self, limit: u64) -> &[u8] {
        let mut end = limit;
        if let Some(longest) = self.faults.chop {
            if self.piece_end <= self.sent {
                let length = 1 + self.dice.at(Purpose::Chop, self.sent) % longest;
                self.piece_end = self.sent + length;
            }
            end = end.min(self.piece_end);
        }
        if let Some(rate) = self.faults.rate {
            end = end.min(self.sent + (rate / PACE).max(1));
        }
        let count = (end - self.sent) as usize;
        let held = self.held.make_contiguous();
        &held[..count]
    }

    /// Flips a bit in each new byte that is to be corrupted.
    fn corrupt(&mut self) {
        while let Some(at) = self.next_flip.filter(|&at| at < self.taken) {
            let index = (at - self.sent) as usize;
            self.held[index] ^= 1 << (self.dice.at(Purpose::Bit, at) % 8);
            self.flipped += 1;
            self.next_flip = self.flip_from(at + 1);
        }
    }

    /// The next byte that is corrupted, at or behind `from`: gaps have a geometric distribution.
    fn flip_from(&self, from: u64) -> Option<u64> {
        let rate = self.faults.corrupt;
        if rate <= 0.0 {
            return None;
        }
        // Above 0 and at most 1, so that the logarithm is finite.
        let drawn = 1.0 - self.dice.fraction(Purpose::Flip, from);
        let gap = if rate < 1.0 { (drawn.ln() / (-rate).ln_1p()).floor() } else { 0.0 };
        from.checked_add(gap as u64)
    }
}

/// State of a stop.
enum Gate {
    Open,
    /// Up to this byte.
    Until(u64),
    /// Up to this time, or for ever.
    Shut(Option<Duration>),
}

pub fn earliest(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

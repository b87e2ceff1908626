//! [`Driver`]: the loop of a load.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use socket2::Socket;

use super::{Answer, Conversation, Report, sys};
use crate::cpu;

/// Connections that are loaded by one thread. They are quiet except inside [`run_for`](Self::run_for).
#[derive(Debug)]
pub struct Driver<C> {
    epoll: OwnedFd,
    /// `None`: given up after a failure.
    peers: Vec<Option<Peer<C>>>,
    /// Ends of pauses: time, connection, session.
    pauses: BinaryHeap<Reverse<(u64, usize, u32)>>,
    random: fastrand::Rng,
    buffer: Vec<u8>,
    answers: Vec<Answer>,
    /// Times are nanoseconds since this.
    zero: Instant,
    /// Silence of the server after which the end of a window gives up.
    patience: Duration,
    asking: bool,
    /// Questions without an answer, all connections together.
    in_flight: u64,
    answers_total: u64,
    last_answer: u64,
    window: Report,
}

/// How the sessions of a connection ask.
#[derive(Clone, Copy, Debug)]
pub struct Habit {
    pub sessions: u32,
    /// Questions in flight for each session.
    pub pipeline: usize,
    pub pause: Pause,
    /// Counted apart.
    pub heavy: bool,
}

/// Time between an answer and the next question of its session.
#[derive(Clone, Copy, Debug)]
pub enum Pause {
    None,
    Exactly(Duration),
    /// At random between a half of this and one and a half.
    Around(Duration),
    /// At random with this mean and an exponential distribution, as between events of a Poisson process.
    Random(Duration),
    /// Until the next of the times `offset`, `offset + every`, … of the driver's clock.
    Until {
        every: Duration,
        offset: Duration,
    },
}

/// How far a window has come.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub elapsed: Duration,
    pub answers: u64,
}

#[derive(Debug)]
struct Peer<C> {
    socket: Socket,
    conversation: C,
    habit: Habit,
    /// Sessions that are to ask, one entry for each question.
    due: VecDeque<u32>,
    /// Send times of the questions in flight, of each session.
    sent_at: Vec<VecDeque<u64>>,
    /// Bytes for the socket; those before `out_sent` are with the kernel.
    out: Vec<u8>,
    out_sent: usize,
    /// Questions written to `out` and not answered.
    in_flight: u64,
}

const RECEIVE_BYTES: usize = 256 << 10;
const EVENTS: usize = 256;
/// A send takes no more new questions once it holds this many bytes.
const SEND_BYTES: usize = 64 << 10;
const PROGRESS_EVERY: Duration = Duration::from_millis(100);

impl<C: Conversation> Driver<C> {
    /// A driver without connections.
    ///
    /// # Errors
    /// The system has no epoll left.
    pub fn new(patience: Duration, seed: u64) -> io::Result<Self> {
        Ok(Self {
            epoll: epoll::create(CreateFlags::CLOEXEC)?,
            peers: Vec::new(),
            pauses: BinaryHeap::new(),
            random: fastrand::Rng::with_seed(seed),
            buffer: vec![0; RECEIVE_BYTES],
            answers: Vec::new(),
            zero: Instant::now(),
            patience,
            asking: false,
            in_flight: 0,
            answers_total: 0,
            last_answer: 0,
            window: Report::new(),
        })
    }

    /// Adds a connection. Its number is that of the connections before it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn add(&mut self, socket: Socket, conversation: C, habit: Habit) -> io::Result<()> {
        self.peers.push(None);
        self.replace(self.peers.len() - 1, socket, conversation, habit)
    }

    /// Replaces a connection that was given up.
    ///
    /// # Errors
    /// Those of the system.
    pub fn replace(
        &mut self,
        place: usize,
        socket: Socket,
        conversation: C,
        habit: Habit,
    ) -> io::Result<()> {
        // Edge-triggered, so both directions can be watched from the start at no cost.
        let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        epoll::add(&self.epoll, &socket, EventData::new_u64(place as u64), flags)?;
        self.peers[place] = Some(Peer {
            socket,
            conversation,
            habit,
            due: VecDeque::new(),
            sent_at: vec![VecDeque::with_capacity(1); habit.sessions as usize],
            out: Vec::new(),
            out_sent: 0,
            in_flight: 0,
        });
        Ok(())
    }

    /// Numbers of the connections that were given up.
    pub fn given_up(&self) -> Vec<usize> {
        (0..self.peers.len()).filter(|&place| self.peers[place].is_none()).collect()
    }

    /// All answers since the connections were opened, those of [`greet`](Self::greet) included.
    pub fn answers_total(&self) -> u64 {
        self.answers_total
    }

    /// Exchanges one question and its answer on each of these connections.
    ///
    /// # Errors
    /// The first connection that does not answer as it should.
    pub fn greet(&mut self, places: Range<usize>) -> io::Result<()> {
        self.window = Report::new();
        for place in places {
            self.ask(place, 0);
        }
        self.settle()?;
        std::mem::replace(&mut self.window, Report::new()).checked().map(drop)
    }

    /// Asks for this long, then waits for what is in flight. Runs on the calling thread and may be
    /// called again and again. Calls `progress` ten times a second.
    ///
    /// # Errors
    /// Epoll fails. Failures of connections are in the report.
    pub fn run_for(
        &mut self,
        time: Duration,
        mut progress: impl FnMut(&Progress),
    ) -> io::Result<Report> {
        sys::wake_precisely()?;
        let cpu_before = cpu::of_thread();
        self.window = Report::new();
        let start = self.now();
        (self.asking, self.last_answer) = (true, start);
        self.begin(start);
        let end = start + nanos(time);
        let mut next_progress = start;
        loop {
            let now = self.now();
            if now >= end || self.peers.iter().all(Option::is_none) {
                break;
            }
            if now >= next_progress {
                let answers = self.window.requests + self.window.heavy_requests;
                progress(&Progress { elapsed: Duration::from_nanos(now - start), answers });
                next_progress = now + nanos(PROGRESS_EVERY);
            }
            let next_pause = self.end_pauses(now);
            self.turn(end.min(next_progress).min(next_pause))?;
        }
        self.asking = false;
        self.pauses.clear();
        self.peers.iter_mut().flatten().for_each(|peer| peer.due.clear());
        self.settle()?;

        let mut report = std::mem::replace(&mut self.window, Report::new());
        report.seconds = self.last_answer.saturating_sub(start).max(1) as f64 / 1e9;
        report.client_cpu = cpu::of_thread().saturating_sub(cpu_before);
        Ok(report)
    }

    /// Lets every session ask. Sessions that pause are spread over their pause from the start, as they
    /// would be after a while.
    fn begin(&mut self, start: u64) {
        let pausing = |peer: &&Peer<C>| !matches!(peer.habit.pause, Pause::None);
        let pausing = self.peers.iter().flatten().filter(pausing);
        let total: u64 = pausing.map(|peer| u64::from(peer.habit.sessions)).sum();
        let mut number = 0;
        for place in 0..self.peers.len() {
            let Some(habit) = self.peers[place].as_ref().map(|peer| peer.habit) else { continue };
            match habit.pause {
                Pause::None => {
                    let peer = self.peers[place].as_mut().expect("it was there");
                    (0..habit.pipeline).for_each(|_| peer.due.extend(0..habit.sessions));
                    self.send(place);
                }
                Pause::Exactly(pause) | Pause::Around(pause) => {
                    for session in 0..habit.sessions {
                        let at = start + nanos(pause) * number / total;
                        let entry = Reverse((at, place, session));
                        self.pauses.extend(std::iter::repeat_n(entry, habit.pipeline));
                        number += 1;
                    }
                }
                pause @ (Pause::Random(_) | Pause::Until { .. }) => {
                    for session in 0..habit.sessions {
                        for _ in 0..habit.pipeline {
                            let at = pause.end(start, &mut self.random);
                            self.pauses.push(Reverse((at, place, session)));
                        }
                    }
                }
            }
        }
    }

    /// Lets the sessions ask whose pause is over. Returns the end of the next pause.
    fn end_pauses(&mut self, now: u64) -> u64 {
        while let Some(&Reverse((at, place, session))) = self.pauses.peek() {
            if at > now {
                return at;
            }
            self.pauses.pop();
            self.ask(place, session);
        }
        u64::MAX
    }

    /// Turns until nothing is in flight. Gives connections up once the server has been silent for
    /// longer than the driver is patient.
    fn settle(&mut self) -> io::Result<()> {
        let mut answers = self.answers_total;
        let mut until = self.now() + nanos(self.patience);
        while self.in_flight > 0 {
            if self.answers_total > answers {
                answers = self.answers_total;
                until = self.now() + nanos(self.patience);
            }
            if self.now() >= until {
                break;
            }
            self.turn(until)?;
        }
        for place in 0..self.peers.len() {
            let open = self.peers[place].as_ref().map_or(0, |peer| peer.in_flight);
            if open > 0 {
                self.window.silent += 1;
                self.give_up(
                    place,
                    &format!("{open} requests unanswered after {:?}", self.patience),
                );
            }
        }
        Ok(())
    }

    /// Waits for events until this time at most, and serves the connections that have one.
    fn turn(&mut self, until: u64) -> io::Result<()> {
        let left = Duration::from_nanos(until.saturating_sub(self.now()));
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        let mut room = [const { MaybeUninit::uninit() }; EVENTS];
        let (events, _) = match epoll::wait(&self.epoll, &mut room[..], Some(&left)) {
            Err(Errno::INTR) => return Ok(()),
            result => result?,
        };
        for &mut Event { flags, data } in events {
            let place = data.u64() as usize;
            let ended = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
            if flags.intersects(EventFlags::IN | ended)
                && let Err(what) = self.receive(place, flags.intersects(ended))
            {
                self.give_up(place, &what);
            }
            self.send(place);
        }
        Ok(())
    }

    fn ask(&mut self, place: usize, session: u32) {
        if let Some(peer) = &mut self.peers[place] {
            peer.due.push_back(session);
            self.send(place);
        }
    }

    /// Receives until the socket is empty.
    fn receive(&mut self, place: usize, ended: bool) -> Result<(), String> {
        loop {
            let Some(peer) = &mut self.peers[place] else { return Ok(()) };
            let count = match peer.socket.read(&mut self.buffer) {
                Ok(0) => return Err("closed by the server".to_owned()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(format!("receive: {error}")),
            };
            let bytes = &self.buffer[..count];
            let taken = peer.conversation.take(bytes, &mut peer.out, &mut self.answers);
            self.count_answers(place);
            taken?;
            // A stream that gave less than asked for is empty. Its next bytes are a new edge.
            if count < self.buffer.len() && !ended {
                return Ok(());
            }
        }
    }

    /// Counts the answers that a receive has completed, and lets their sessions ask again.
    fn count_answers(&mut self, place: usize) {
        let now = self.now();
        let Some(peer) = &mut self.peers[place] else { return };
        for Answer { session, wrong } in self.answers.drain(..) {
            let sent_at = peer.sent_at.get_mut(session as usize).and_then(VecDeque::pop_front);
            let sent_at = sent_at.expect("conversations report answers to their questions");
            peer.in_flight -= 1;
            self.in_flight -= 1;
            self.answers_total += 1;
            self.last_answer = now;
            let window = &mut self.window;
            match wrong {
                None if peer.habit.heavy => {
                    window.heavy_requests += 1;
                    window.heavy_hist.saturating_record(now - sent_at);
                }
                None => {
                    window.requests += 1;
                    window.hist.saturating_record(now - sent_at);
                }
                Some(wrong) => {
                    window.failed += 1;
                    window.first_error.get_or_insert(wrong);
                }
            }
            match peer.habit.pause {
                _ if !self.asking => {}
                Pause::None => peer.due.push_back(session),
                pause => {
                    let end = pause.end(now, &mut self.random);
                    self.pauses.push(Reverse((end, place, session)));
                }
            }
        }
    }

    /// Writes down what is due and sends it, until nothing is left or the socket takes no more. The
    /// time of a question counts from the call that offers its first byte to the kernel.
    fn send(&mut self, place: usize) {
        let Some(peer) = &mut self.peers[place] else { return };
        loop {
            if peer.out_sent == peer.out.len() {
                peer.out.clear();
                peer.out_sent = 0;
            }
            if peer.out_sent == 0 && !peer.due.is_empty() {
                let now = nanos(self.zero.elapsed());
                while peer.out.len() < SEND_BYTES
                    && let Some(session) = peer.due.pop_front()
                {
                    peer.conversation.ask(session, &mut peer.out);
                    peer.sent_at[session as usize].push_back(now);
                    peer.in_flight += 1;
                    self.in_flight += 1;
                    self.window.asked += 1;
                }
            }
            if peer.out.is_empty() {
                return;
            }
            match peer.socket.write(&peer.out[peer.out_sent..]) {
                Ok(count) => peer.out_sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return self.give_up(place, &format!("send: {error}")),
            }
        }
    }

    fn give_up(&mut self, place: usize, what: &str) {
        if let Some(peer) = self.peers[place].take() {
            self.in_flight -= peer.in_flight;
            self.window.failed += peer.in_flight;
            self.window.errors += 1;
            self.window.first_error.get_or_insert_with(|| format!("connection {place}: {what}"));
        }
    }

    fn now(&self) -> u64 {
        nanos(self.zero.elapsed())
    }
}

impl Pause {
    /// End of a pause that begins now.
    fn end(self, now: u64, random: &mut fastrand::Rng) -> u64 {
        match self {
            Self::None => now,
            Self::Exactly(pause) => now + nanos(pause),
            Self::Around(mean) => now + nanos(mean) / 2 + random.u64(0..=nanos(mean)),
            Self::Random(mean) => {
                let pause = -(1.0 - random.f64()).ln() * mean.as_nanos() as f64;
                now + pause as u64
            }
            Self::Until { every, offset } => {
                let (every, offset) = (nanos(every).max(1), nanos(offset));
                let passed = now.checked_sub(offset).map_or(0, |since| since / every + 1);
                offset + passed * every
            }
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn random_pauses_have_their_mean_and_bursts_their_times() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut pause = |pause: Pause, now| pause.end(now, &mut random) - now;
        let sum: u64 = (0..100_000).map(|_| pause(Pause::Random(MS), 7)).sum();
        assert!((99_000_000_000..101_000_000_000).contains(&sum), "{sum}");
        let longer = (0..100_000).filter(|_| pause(Pause::Random(MS), 7) > 1_000_000).count();
        // A part of 1/e.
        assert!((36_000..37_600).contains(&longer), "{longer}");
        let until = Pause::Until { every: MS, offset: MS / 4 };
        let ends = [0, 249_999, 250_000, 1_000_000, 1_250_000].map(|now| now + pause(until, now));
        assert_eq!(ends, [250_000, 250_000, 1_250_000, 1_250_000, 2_250_000]);
    }
}

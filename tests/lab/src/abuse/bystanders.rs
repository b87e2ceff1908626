//! Well-behaved sessions beside an abuse: what becomes of them, and how long they wait.
//!
//! Some connections with some sessions each, all on one thread. A session asks for a number, waits
//! for the answer, compares it, thinks, and asks again. A connection that breaks fails what it had
//! in flight and is opened again at the start of the next window.
//!
//! ```ignore
//! let mut bystanders = Bystanders::connect(&target, Habits::default())?;
//! let quiet = bystanders.run_for(Duration::from_millis(500))?;   // again and again; silent between
//! assert!(quiet.is_complete() && quiet.failed == 0, "{quiet:?}");
//! ```

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::Target;
use super::bystander::Line;
use crate::load::sys::{self, Events, Poll, Watch};
use crate::random::Random;

/// How bystanders behave.
#[derive(Clone, Debug)]
pub struct Habits {
    pub connections: usize,
    /// Of each connection.
    pub sessions: usize,
    /// Mean time from an answer to the next question of the session; between half of it and
    /// one and a half.
    pub think: Duration,
    /// What is asked, followed by a number. The answer is one cell: the number, or its text.
    pub statement: &'static str,
    /// How long an answer is waited for.
    pub patience: Duration,
    pub seed: u64,
}

impl Default for Habits {
    /// 16 connections of 4 sessions that think for 10 ms: 6 000 requests a second, a part of what
    /// one CPU does.
    fn default() -> Self {
        Self {
            connections: 16,
            sessions: 4,
            think: Duration::from_millis(10),
            statement: "select ",
            patience: Duration::from_secs(30),
            seed: 7,
        }
    }
}

/// Open connections. Silent except inside [`run_for`](Self::run_for).
pub struct Bystanders {
    target: Target,
    habits: Habits,
    poll: Poll,
    events: Events,
    /// `None`: broken.
    lines: Vec<Option<Line>>,
    /// Who asks when: time, connection, session.
    due: BinaryHeap<Reverse<(Instant, usize, usize)>>,
    random: Random,
    next_number: u64,
    window: Report,
}

/// One window: every request that was asked in it is answered or has failed.
#[derive(Clone, Debug)]
pub struct Report {
    pub asked: u64,
    /// With the right number.
    pub answered: u64,
    /// With an error, wrongly, not in time, or not at all because the connection broke.
    pub failed: u64,
    pub first_failure: Option<String>,
    /// From the first question to the last answer.
    pub seconds: f64,
    /// Nanoseconds from question to answer, of those that were answered.
    pub times: Histogram<u64>,
}

/// A time that no clock of a test reaches.
const LONGEST: Duration = Duration::from_secs(3600);
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Report {
    fn new() -> Self {
        let times = Histogram::new_with_bounds(1, LONGEST.as_nanos() as u64, 3);
        Self {
            asked: 0,
            answered: 0,
            failed: 0,
            first_failure: None,
            seconds: 0.0,
            times: times.expect("bounds that are in order"),
        }
    }

    /// Nothing is lost: what was asked was answered or has failed.
    pub fn is_complete(&self) -> bool {
        self.asked == self.answered + self.failed
    }

    /// The time within which such a part of the answers came.
    pub fn quantile(&self, part: f64) -> Duration {
        Duration::from_nanos(self.times.value_at_quantile(part))
    }

    /// Answers a second.
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.seconds.max(1e-9)
    }

    /// Both windows as one.
    pub fn add(&mut self, other: &Self) {
        self.asked += other.asked;
        self.answered += other.answered;
        self.failed += other.failed;
        self.seconds += other.seconds;
        self.times.add(&other.times).expect("the same bounds");
        if self.first_failure.is_none() {
            self.first_failure.clone_from(&other.first_failure);
        }
    }

    pub(super) fn fail(&mut self, count: u64, why: impl FnOnce() -> String) {
        self.failed += count;
        if count > 0 && self.first_failure.is_none() {
            self.first_failure = Some(why());
        }
    }
}

impl Bystanders {
    /// Connects, logs in, opens all sessions.
    ///
    /// # Errors
    /// The first connection that is refused.
    pub fn connect(target: &Target, habits: Habits) -> io::Result<Self> {
        let (poll, random) = (Poll::new()?, Random(habits.seed));
        let mut bystanders = Self {
            target: target.clone(),
            poll,
            events: Events::with_room_for(64),
            lines: (0..habits.connections).map(|_| None).collect(),
            due: BinaryHeap::new(),
            random,
            next_number: 0,
            window: Report::new(),
            habits,
        };
        bystanders.mend()?;
        Ok(bystanders)
    }

    /// Asks for so long, then waits for what is in flight.
    ///
    /// # Errors
    /// A broken connection that cannot be opened again, or the poller.
    pub fn run_for(&mut self, time: Duration) -> io::Result<Report> {
        let until = Instant::now() + time;
        self.run_while(|| Instant::now() < until)
    }

    /// The same while `goes_on`, which is asked every 20 ms or more often.
    pub fn run_while(&mut self, mut goes_on: impl FnMut() -> bool) -> io::Result<Report> {
        sys::wake_precisely()?;
        self.mend()?;
        self.window = Report::new();
        let began = Instant::now();
        self.begin(began);
        while goes_on() {
            self.ask_due();
            self.turn(LOOK_EVERY)?;
        }
        let until = Instant::now() + self.habits.patience;
        while self.in_flight() > 0 && Instant::now() < until {
            // Nobody asks again.
            self.due.clear();
            self.turn(LOOK_EVERY)?;
        }
        for line in 0..self.lines.len() {
            if self.lines[line].as_ref().is_some_and(|line| line.in_flight() > 0) {
                self.give_up(line, "no answer in time");
            }
        }
        let mut report = std::mem::replace(&mut self.window, Report::new());
        report.seconds = began.elapsed().as_secs_f64();
        Ok(report)
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.lines.iter().flatten().count()
    }

    fn in_flight(&self) -> u64 {
        self.lines.iter().flatten().map(Line::in_flight).sum()
    }

    /// Opens what is not open.
    fn mend(&mut self) -> io::Result<()> {
        for (token, place) in self.lines.iter_mut().enumerate() {
            if place.is_none() {
                let line = Line::open(&self.target, self.habits.sessions, self.habits.patience)?;
                self.poll.add(line.socket(), token as u64, Watch::ReadingAndWriting)?;
                *place = Some(line);
            }
        }
        Ok(())
    }

    /// All sessions are due, spread over the time that they think.
    fn begin(&mut self, now: Instant) {
        // Of those who were answered when the last window was over.
        self.due.clear();
        for line in 0..self.lines.len() {
            for session in 0..self.habits.sessions {
                let wait = self.random.below(self.habits.think.as_nanos().max(1) as u64);
                self.due.push(Reverse((now + Duration::from_nanos(wait), line, session)));
            }
        }
    }

    fn ask_due(&mut self) {
        while let Some(&Reverse((at, index, session))) = self.due.peek() {
            if at > Instant::now() {
                return;
            }
            self.due.pop();
            let Some(line) = &mut self.lines[index] else { continue };
            // Different for each, and few in all, so that a server may keep what it has parsed.
            self.next_number = (self.next_number + 1) % 4096;
            self.window.asked += 1;
            if let Err(error) = line.ask(session, self.habits.statement, self.next_number) {
                self.give_up(index, &error.to_string());
            }
        }
    }

    /// Waits until something comes, somebody is due or `limit` has passed, and takes it in.
    fn turn(&mut self, limit: Duration) -> io::Result<()> {
        let due = self.due.peek().map(|Reverse((at, ..))| *at);
        let wait = due.map_or(limit, |at| at.saturating_duration_since(Instant::now()).min(limit));
        self.poll.wait(&mut self.events, wait)?;
        for place in 0..self.events.len() {
            let index = self.events.get(place).token as usize;
            let Some(line) = &mut self.lines[index] else { continue };
            let mut answered = Vec::new();
            let taken = line.take_in(&mut self.window, &mut answered);
            let now = Instant::now();
            for session in answered {
                let think = self.habits.think.as_nanos() as u64;
                let wait = think / 2 + self.random.below(think.max(1));
                self.due.push(Reverse((now + Duration::from_nanos(wait), index, session)));
            }
            if let Err(error) = taken {
                self.give_up(index, &error.to_string());
            }
        }
        Ok(())
    }

    fn give_up(&mut self, index: usize, why: &str) {
        if let Some(line) = self.lines[index].take() {
            self.window.fail(line.in_flight(), || format!("connection {index}: {why}"));
        }
    }
}

//! Well-behaved sessions beside an abuse: what they lose, and how long they wait.
//!
//! A session asks for a number, waits for the answer, compares it, pauses, and asks again. If a
//! connection breaks, its open questions have failed, and it is opened again at the start of the next
//! window.
//!
//! ```ignore
//! let mut bystanders = Bystanders::connect(&target, Habits::default())?;
//! let quiet = bystanders.run_for(Duration::from_millis(500))?;   // again and again; silent between
//! assert!(quiet.is_complete() && quiet.failed == 0, "{quiet:?}");
//! ```

#![forbid(unsafe_code)]

use std::io;
use std::time::Duration;

use epoll_group::codec::frame::{Decoder, Dialect};
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use socket2::Socket;

use super::Target;
use crate::load::{Answer, Conversation, Driver, Habit, Pause};
use crate::sessions::login;
use crate::xrpc::{Datum, Exchange, Reply, Ticket, request};

pub use crate::load::Report;

/// Load of the bystanders.
#[derive(Clone, Debug)]
pub struct Habits {
    pub connections: usize,
    /// Sessions of each connection.
    pub sessions: usize,
    /// Mean pause from an answer to the next question of the session. A pause lasts between a half of
    /// it and one and a half.
    pub think: Duration,
    /// Statement, to which a number is appended. The answer is one cell: the number, or its text.
    pub statement: &'static str,
    /// Silence of the server after which a window gives up.
    pub patience: Duration,
    pub seed: u64,
}

impl Default for Habits {
    /// 16 connections of 4 sessions that pause for 10 ms: 6 000 requests a second, a part of what one
    /// CPU does.
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

/// Open connections. They are silent except inside [`run_for`](Self::run_for).
pub struct Bystanders {
    target: Target,
    habits: Habits,
    driver: Driver<Numbers>,
}

/// Questions and answers of one connection. All frames are checked against the table of what a client
/// accepts.
#[derive(Debug)]
struct Numbers {
    statement: &'static str,
    decoder: Decoder,
    exchange: Exchange,
    next: u64,
    /// Open question of each session, with its number.
    asked: Vec<Option<(Ticket, u64)>>,
}

/// Id of the first session.
const FIRST: u64 = 1;
/// Numbers differ from one question to the next, and there are few, so that a server may keep what it has
/// parsed.
const NUMBERS: u64 = 4096;

impl Bystanders {
    /// Connects, logs in, and opens all sessions.
    ///
    /// # Errors
    /// The first connection that is refused.
    pub fn connect(target: &Target, habits: Habits) -> io::Result<Self> {
        let driver = Driver::new(habits.patience, habits.seed)?;
        let mut bystanders = Self { target: target.clone(), habits, driver };
        for place in 0..bystanders.habits.connections {
            let (socket, numbers, habit) = bystanders.log_in(place)?;
            bystanders.driver.add(socket, numbers, habit)?;
        }
        Ok(bystanders)
    }

    /// Asks for this long, then waits for what is in flight.
    ///
    /// # Errors
    /// A broken connection cannot be opened again, or epoll fails.
    pub fn run_for(&mut self, time: Duration) -> io::Result<Report> {
        for place in self.driver.given_up() {
            let (socket, numbers, habit) = self.log_in(place)?;
            self.driver.replace(place, socket, numbers, habit)?;
        }
        self.driver.run_for(time, |_| ())
    }

    /// Number of open connections.
    pub fn open(&self) -> usize {
        self.habits.connections - self.driver.given_up().len()
    }

    fn log_in(&self, place: usize) -> io::Result<(Socket, Numbers, Habit)> {
        let Habits { sessions, statement, patience, think, .. } = self.habits;
        let account = (self.target.user.as_str(), self.target.password.as_str());
        let ids = FIRST..FIRST + sessions as u64;
        let (socket, exchange) = login::connect(self.target.address, account, ids, patience)?;
        let numbers = Numbers {
            statement,
            decoder: Decoder::new(Limits::default()),
            exchange,
            next: place as u64,
            asked: vec![None; sessions],
        };
        let pause = Pause::Around(think);
        Ok((socket, numbers, Habit { sessions: sessions as u32, pipeline: 1, pause, heavy: false }))
    }
}

impl Conversation for Numbers {
    fn ask(&mut self, session: u32, out: &mut Vec<u8>) {
        self.next = (self.next + 1) % NUMBERS;
        let sql = format!("{}{}", self.statement, self.next);
        let message = ClientMessage::ExecSql(request::query(&sql));
        let id = FIRST + u64::from(session);
        message.encode(Dialect::Legacy, id, out).expect("it is small");
        let ticket = self.exchange.sent(id, &message).expect("it is answered");
        self.asked[session as usize] = Some((ticket, self.next));
    }

    fn take(
        &mut self,
        bytes: &[u8],
        _: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), String> {
        self.decoder.feed(bytes);
        while let Some(frame) = self.decoder.next_frame().map_err(|error| error.to_string())? {
            let outcome = self.exchange.received(&frame).map_err(|error| format!("{error:?}"))?;
            for ticket in outcome.ended {
                let of = |asked: &Option<(Ticket, u64)>| asked.is_some_and(|(of, _)| of == ticket);
                let session = self.asked.iter().position(of);
                let (Some(session), Some(reply)) = (session, self.exchange.take(ticket)) else {
                    continue;
                };
                let (_, number) = self.asked[session].take().expect("it was found");
                let wrong = (!is_answer(&reply, number))
                    .then(|| format!("asked for {number}, got {reply:?}"));
                answers.push(Answer { session: session as u32, wrong });
            }
        }
        Ok(())
    }
}

fn is_answer(reply: &Reply, number: u64) -> bool {
    if reply.error.is_some() || reply.rows.len() != 1 {
        return false;
    }
    match reply.rows[0].as_slice() {
        [cell] if cell.integer().is_some() => cell.integer() == Some(number.into()),
        [Datum::Bytes(text)] => *text == number.to_string().into_bytes(),
        _ => false,
    }
}

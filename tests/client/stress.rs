//! Many requests with tags, while time-outs, cancels, ends of sessions and of connections come at
//! random: each answer belongs to its request, and nothing is executed twice.
#![expect(clippy::print_stderr, reason = "the seed, to repeat a failed run")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{Answer, Client, Error, Fate, Pending, Request, Session};
use epoll_group::session::Server;
use lab::both::options;
use lab::faults::{Relay, Script, relay};
use lab::random::{Random, seed};
use lab::tagged::Tagged;
use lab::{LONG, eventually, often};

const THREADS: u64 = 8;

#[test]
fn every_answer_belongs_to_its_request() {
    run(u64::from(often(10_000)));
}

/// Takes minutes without optimisation.
#[test]
#[ignore = "the same at its full size"]
fn every_answer_of_a_million_belongs_to_its_request() {
    run(1_000_000);
}

/// Outcome of a request.
enum Outcome {
    Answered,
    Failed(Error),
    /// The request was given up.
    Unknown,
}

struct Stress {
    client: Client,
    relay: Relay,
    next_tag: AtomicU64,
    outcomes: Mutex<Vec<(u64, Outcome)>>,
}

fn run(requests: u64) {
    let seed = seed();
    eprintln!("EG_TEST_SEED={seed}");
    let server = Runtime::builder().config(lab::engine::config()).start().expect("started");
    let service = Arc::new(Tagged::new(server.handle()));
    let listener = server.listen("127.0.0.1:0", Server::shared(Arc::clone(&service)));
    let listener = listener.expect("listening");
    let address = listener.local_addr().to_string().parse().expect("TCP");
    let relay = relay(Script::clean(), address);
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let options = options(relay.tcp())
        .session_timeout(LONG)
        .reconnect_min(Duration::from_millis(1))
        .reconnect_max(Duration::from_millis(10))
        .window_bytes(4 << 10)
        .max_pipelined(4)
        .request_timeout(LONG);
    let client = Client::new(&runtime.handle(), options).expect("good options");
    let stress =
        Arc::new(Stress { client, relay, next_tag: AtomicU64::new(0), outcomes: Mutex::default() });
    let threads = (0..THREADS).map(|thread| {
        let stress = Arc::clone(&stress);
        thread::spawn(move || stress.drive(Random(seed ^ thread), requests))
    });
    threads.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().expect("no panic"));

    let outcomes = stress.outcomes.lock().expect("no panic");
    let [mut answered, mut refused, mut not_sent, mut unknown] = [0; 4];
    for (tag, outcome) in &*outcomes {
        let executed = service.executed(*tag);
        match outcome {
            Outcome::Answered => {
                answered += 1;
                assert_eq!(executed, 1, "{tag} was answered");
            }
            Outcome::Failed(error) if error.fate() == Fate::NotSent => {
                not_sent += 1;
                assert_eq!(executed, 0, "{tag}: {error}");
            }
            Outcome::Failed(error) => {
                let count = if error.fate() == Fate::Refused { &mut refused } else { &mut unknown };
                *count += 1;
                assert!(executed <= 1, "{tag} was executed {executed} times: {error}");
            }
            Outcome::Unknown => {
                unknown += 1;
                assert!(executed <= 1, "{tag} was executed {executed} times");
            }
        }
    }
    eprintln!("{answered} answered, {refused} refused, {not_sent} not sent, {unknown} unknown");
    assert_eq!(outcomes.len() as u64, stress.next_tag.load(Ordering::Relaxed), "one outcome each");
    assert!(answered > requests / 4, "only {answered} of {requests} were answered");
    eventually(LONG, || {
        let connections = stress.client.status().connections;
        connections.iter().all(|connection| (connection.sessions, connection.outstanding) == (0, 0))
    });
    eventually(LONG, || server.stats().sessions == 0);
}

impl Stress {
    fn drive(self: Arc<Self>, mut random: Random, requests: u64) {
        let (give, called) = mpsc::channel();
        let mut calls = 0;
        let mut session = self.session();
        while self.next_tag.load(Ordering::Relaxed) < requests {
            if !session.is_alive() {
                session = self.session();
            }
            match random.below(1000) {
                0..3 => self.relay.cut(random.below(1 << 32)),
                3..10 => session = self.session(),
                10..200 => {
                    calls += 1;
                    self.call(&mut session, &mut random, give.clone());
                }
                200..400 => self.pipeline(&mut session, &mut random),
                400..450 => self.give_up(&mut session, &mut random),
                450..500 => self.cancel(&mut session, &mut random),
                500..520 => {
                    let tag = self.tag();
                    let answer = self.client.execute(format!("{tag} echo"));
                    self.note(tag, answer);
                }
                _ => {
                    let (tag, request) = self.request(&mut random);
                    let answer = session.execute(request);
                    self.note(tag, answer);
                }
            }
        }
        drop(session);
        (0..calls).for_each(|_| called.recv_timeout(LONG).expect("every closure is called"));
    }

    /// Tries until it has a session.
    fn session(&self) -> Session {
        loop {
            match self.client.session() {
                Ok(session) => return session,
                Err(error) => assert!(!error.is_timeout(), "{error}"),
            }
        }
    }

    fn tag(&self) -> u64 {
        self.next_tag.fetch_add(1, Ordering::Relaxed)
    }

    fn request(&self, random: &mut Random) -> (u64, Request) {
        let tag = self.tag();
        let text = match random.below(100) {
            0..60 => format!("{tag} echo"),
            60..75 => format!("{tag} rows 300"),
            75..85 => format!("{tag} fail"),
            85..86 => format!("{tag} fatal"),
            _ => format!("{tag} late {}", random.below(3)),
        };
        let request = Request::sql(text);
        let request = if random.below(5) == 0 { request.cached() } else { request };
        let timed = random.below(10) == 0;
        let timeout = Duration::from_micros(random.below(3000));
        (tag, if timed { request.timeout(timeout) } else { request })
    }

    fn note(&self, tag: u64, answer: Result<Answer, Error>) {
        let outcome = match answer.and_then(|answer| read(answer, tag)) {
            Ok(()) => Outcome::Answered,
            Err(error) => {
                if let Some(refusal) = error.server_error().filter(|error| error.code == 1234)
                    && error.fate() == Fate::Refused
                {
                    let text = String::from_utf8_lossy(&refusal.msg);
                    assert_eq!(text, tag.to_string(), "the error of another");
                }
                Outcome::Failed(error)
            }
        };
        self.outcomes.lock().expect("no panic").push((tag, outcome));
    }

    fn call(self: &Arc<Self>, session: &mut Session, random: &mut Random, done: Sender<()>) {
        let (tag, request) = self.request(random);
        let stress = Arc::clone(self);
        session.execute_then(request, move |answer| {
            stress.note(tag, answer);
            done.send(()).expect("counted");
        });
    }

    /// Sends several requests at a time. Sometimes waits for them after the end of their session.
    fn pipeline(&self, session: &mut Session, random: &mut Random) {
        let mut sent: Vec<(u64, Result<Pending, Error>)> = Vec::new();
        for _ in 0..=random.below(8) {
            let (tag, request) = self.request(random);
            sent.push((tag, session.send(request)));
        }
        if random.below(20) == 0 {
            *session = self.session();
        }
        // Answers are taken in order, because unread rows hold up the answers behind them.
        for (tag, pending) in sent {
            if random.below(8) == 0 {
                self.give(tag, pending.map(drop));
            } else {
                self.note(tag, pending.and_then(Pending::wait));
            }
        }
    }

    /// Notes a request whose answer is dropped.
    fn give(&self, tag: u64, sent: Result<(), Error>) {
        let outcome = sent.map_or_else(Outcome::Failed, |()| Outcome::Unknown);
        self.outcomes.lock().expect("no panic").push((tag, outcome));
    }

    /// Gives up a request, before or after its answer has begun.
    fn give_up(&self, session: &mut Session, random: &mut Random) {
        let tag = self.tag();
        let sent = session.send(format!("{tag} rows 3000"));
        let begun = match sent {
            Ok(pending) if random.below(2) == 0 => pending.wait().map(drop),
            other => other.map(drop),
        };
        self.give(tag, begun);
    }

    fn cancel(&self, session: &mut Session, random: &mut Random) {
        let tag = self.tag();
        let sent = session.send(format!("{tag} late {}", random.below(3)));
        session.canceller().cancel();
        self.note(tag, sent.and_then(Pending::wait));
    }
}

/// Asserts that all rows of an answer have the tag.
fn read(mut answer: Answer, tag: u64) -> Result<(), Error> {
    let tag = tag.to_string();
    let mut rows = 0;
    while let Some(row) = answer.next_row()? {
        let cell = row.get(0)?;
        let epoll_group::codec::value::Value::Bytes(text) = cell else { panic!("{cell:?}") };
        assert_eq!(String::from_utf8_lossy(text), tag, "the answer of another");
        rows += 1;
    }
    assert!(rows > 0, "an answer without rows");
    Ok(())
}

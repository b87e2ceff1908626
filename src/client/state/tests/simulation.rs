//! Random requests against a server that keeps to the protocol. At random it is late, cuts its
//! frames, fails and ends sessions.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::time::Duration;

use proptest::prelude::*;

use super::bench::{Bench, Sent, encoded, frames, options, row, texts};
use crate::client::error::Fate;
use crate::client::request::Request;
use crate::codec::error::code::CACHE_MISS;
use crate::codec::message::ServerMessage;
use crate::codec::proto::generic::ErrorReply;

/// Random numbers chosen by proptest.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// Work of the server for a session, in order.
enum Job {
    Text(String),
    Digest,
    Close,
}

#[derive(Default)]
struct Session {
    jobs: VecDeque<Job>,
    /// Rows sent of the first job; `None` before its columns.
    rows: Option<usize>,
    interrupted: bool,
    /// Set while the session waits for an offer.
    stopped: bool,
}

#[derive(Default)]
struct Server {
    sessions: BTreeMap<u64, Session>,
    executed: HashSet<String>,
    out: Vec<u8>,
}

const ROWS: usize = 3;

fn failure(session: u64, code: u32, fatal: bool) -> Vec<u8> {
    let make = if fatal { ErrorReply::fatal } else { ErrorReply::error };
    encoded(session, &ServerMessage::Error(make(code, b"HY000", "it failed")))
}

impl Server {
    fn hear(&mut self, sent: Sent, random: &mut Random) {
        match sent {
            Sent::New(id) if random.one_in(20) => self.out.extend(failure(id, 8001, true)),
            Sent::New(id) => {
                assert!(
                    self.sessions.insert(id, Session::default()).is_none(),
                    "{id} is used twice"
                );
                self.out.extend(frames(id, |encoder| encoder.ok(None)));
            }
            Sent::KillQuery(id) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.interrupted |= !session.jobs.is_empty();
                }
            }
            Sent::KillSession(id) => {
                self.sessions.remove(&id);
                self.out.extend(failure(id, 8001, true));
            }
            Sent::Offer(id) => {
                if let Some(session) = self.sessions.get_mut(&id) {
                    session.stopped = false;
                }
            }
            Sent::Text(id, text) => self.queue(id, Job::Text(text)),
            Sent::Digest(id) => self.queue(id, Job::Digest),
            Sent::Close(id) => self.queue(id, Job::Close),
            other => panic!("{other:?} was not asked for"),
        }
    }

    fn queue(&mut self, id: u64, job: Job) {
        match self.sessions.get_mut(&id) {
            Some(session) => session.jobs.push_back(job),
            None => self.out.extend(failure(id, 8001, true)),
        }
    }

    /// Advances one session by one frame.
    fn step(&mut self, random: &mut Random) {
        let busy = self.sessions.iter().filter(|(_, session)| !session.jobs.is_empty());
        let busy: Vec<_> = busy.map(|(&id, _)| id).collect();
        if busy.is_empty() {
            return;
        }
        let id = busy[random.below(busy.len() as u64) as usize];
        let session = self.sessions.get_mut(&id).expect("it is busy");
        if random.one_in(200) {
            self.sessions.remove(&id);
            return self.out.extend(failure(id, 1053, true));
        }
        let text = match session.jobs.front().expect("it is busy") {
            Job::Close => {
                self.sessions.remove(&id);
                return self.out.extend(frames(id, |encoder| encoder.ok(None)));
            }
            Job::Digest => {
                session.jobs.pop_front();
                return self.out.extend(failure(id, CACHE_MISS, false));
            }
            Job::Text(text) => text.clone(),
        };
        let done = match session.rows {
            _ if session.interrupted || random.one_in(30) => {
                self.out.extend(failure(id, 1317, false));
                true
            }
            _ if session.stopped => return,
            None => {
                assert!(self.executed.insert(text.clone()), "{text} is executed twice");
                self.out.extend(frames(id, |encoder| row(encoder, &text)));
                session.rows = Some(1);
                false
            }
            Some(ROWS) => {
                self.out.extend(frames(id, |encoder| {
                    encoder.fetch_done();
                    encoder.execute_ok();
                }));
                true
            }
            Some(rows) => {
                session.stopped = random.one_in(3);
                self.out.extend(frames(id, |encoder| {
                    encoder.row(|row| row.text(&text)).expect("it is short");
                    if session.stopped {
                        encoder.token_done();
                    }
                }));
                session.rows = Some(rows + 1);
                false
            }
        };
        if done {
            session.jobs.pop_front();
            (session.rows, session.interrupted, session.stopped) = (None, false, false);
        }
    }
}

/// Request that has no result yet.
struct Open {
    session: u64,
    seq: u64,
    text: String,
    rows: usize,
}

struct Simulation {
    bench: Bench,
    server: Server,
    /// Bytes sent to the client that it has not received yet.
    pipe: Vec<u8>,
    sessions: Vec<u64>,
    open: Vec<Open>,
    asked: usize,
    outcomes: usize,
}

impl Simulation {
    fn hear(&mut self, random: &mut Random) {
        for sent in self.bench.sent() {
            self.server.hear(sent, random);
        }
        self.pipe.append(&mut self.server.out);
    }

    fn deliver(&mut self, count: usize) {
        let count = count.min(self.pipe.len());
        let (taken, _) = self.bench.state.handle_input(&self.pipe[..count], self.bench.now);
        self.pipe.drain(..taken);
    }

    fn ask(&mut self, random: &mut Random) {
        let Some(&session) = self.sessions.last() else { return };
        let text = format!("tag {}", self.asked);
        let request = Request::sql(text.clone()).timeout(Duration::from_secs(1 + random.below(20)));
        let request = if random.one_in(3) { request.cached() } else { request };
        match self.bench.request(session, request) {
            Ok(seq) => {
                self.asked += 1;
                self.open.push(Open { session, seq, text, rows: 0 });
            }
            Err(error) => assert_eq!(error.fate(), Fate::NotSent),
        }
    }

    fn take(&mut self, index: usize) {
        let open = &mut self.open[index];
        let taken = self.bench.state.take(open.session, open.seq);
        for text in texts(&taken.bytes) {
            assert_eq!(text, open.text, "the answer of another");
            open.rows += 1;
        }
        match taken.result {
            None => return,
            Some(Ok(())) => assert_eq!(open.rows, ROWS, "all of its rows"),
            Some(Err(error)) if error.fate() == Fate::NotSent => {
                assert!(!self.server.executed.contains(&open.text), "{error}");
            }
            Some(Err(_)) => {}
        }
        self.outcomes += 1;
        self.open.swap_remove(index);
    }

    fn act(&mut self, random: &mut Random) {
        let some = random.below(self.open.len().max(1) as u64) as usize;
        let which = random.below(self.sessions.len().max(1) as u64) as usize;
        match random.below(100) {
            0..4 => self.sessions.extend(self.bench.state.try_open()),
            4..30 => self.ask(random),
            30..34 if !self.sessions.is_empty() => {
                let last = self.sessions.len() - 1;
                self.sessions.swap(which, last);
            }
            34..60 if !self.open.is_empty() => self.take(some),
            60..63 if !self.open.is_empty() => {
                let open = self.open.swap_remove(some);
                drop(self.bench.state.abandon(open.session, open.seq));
                self.outcomes += 1;
            }
            63..65 if !self.sessions.is_empty() => self.bench.state.cancel(self.sessions[which]),
            65..67 if !self.sessions.is_empty() => {
                let session = self.sessions.swap_remove(which);
                self.bench.close(session);
            }
            67..69 => self.bench.state.set_full(random.one_in(2)),
            69..71 => self.bench.pass(Duration::from_millis(random.below(3000))),
            71..80 => self.hear(random),
            80..90 => self.server.step(random),
            _ => self.deliver(random.below(300) as usize),
        }
    }

    /// Runs all requests to their ends.
    fn finish(mut self, random: &mut Random) {
        self.bench.state.set_full(false);
        for session in std::mem::take(&mut self.sessions) {
            self.bench.close(session);
        }
        for _ in 0..100_000 {
            if self.bench.state.exchanges.is_empty() {
                break;
            }
            self.hear(random);
            self.server.step(random);
            self.deliver(usize::MAX);
            (0..self.open.len()).rev().for_each(|index| self.take(index));
        }
        self.bench.is_empty();
        assert_eq!(self.outcomes, self.asked, "one outcome each");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn each_request_has_one_outcome_and_it_is_its_own(seed in any::<u64>(), steps in 1..2000_usize) {
        let mut random = Random(seed);
        let options = options().max_pipelined(4).probe_interval(Duration::from_secs(86_400));
        let mut simulation = Simulation {
            bench: Bench::ready_with(options.window_bytes(1024)),
            server: Server::default(),
            pipe: Vec::new(),
            sessions: Vec::new(),
            open: Vec::new(),
            asked: 0,
            outcomes: 0,
        };
        (0..steps).for_each(|_| simulation.act(&mut random));
        simulation.finish(&mut random);
    }
}

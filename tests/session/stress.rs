//! All kinds of requests at once, at random: the replies are legal, in order, one for each request,
//! and every opened session is closed.
//!
//! `EG_TEST_SEED` repeats a run, as far as threads can.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::session::KillSessionType;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::stats::Counter;
use lab::engine::{Control, Fixture, config, finish_with};
use lab::random::{Random, seed};
use lab::threads::threads;
use lab::xrpc::request::{kill, query, savepoint, timestamps, update};
use lab::xrpc::{AUTO, Client, Reply, Ticket};
use lab::{LONG, eventually, often};

const SESSIONS: u64 = 12;

/// Expected reply, unless its session was interrupted or killed.
#[derive(Clone, Debug)]
enum Expected {
    Text(String),
    Rows(usize),
    Fails(u32),
    Fine,
    /// Any reply is right: the session may end before it answers.
    Anything,
}

struct Actor {
    client: Client,
    random: Random,
    open: Vec<u64>,
    /// Requests of each session, in order.
    asked: BTreeMap<u64, Vec<(Ticket, Expected)>>,
    /// Session ids in use. A spoilt id is not used again, because an offer for it may come late.
    ids: Vec<u64>,
    spoilt: BTreeSet<u64>,
    next_id: u64,
    next_auto: u64,
    next_text: u64,
}

impl Actor {
    fn new(server: &Fixture, seed: u64) -> Self {
        let mut client = server.client();
        client.set_offers(Some(4));
        let (random, open, asked) = (Random(seed), Vec::new(), BTreeMap::new());
        let (ids, next_id) = ((2..2 + SESSIONS).collect(), 2 + SESSIONS);
        let spoilt = BTreeSet::new();
        Self { client, random, open, asked, ids, spoilt, next_id, next_auto: 0, next_text: 0 }
    }

    fn ask(&mut self, session: u64, message: &ClientMessage, expected: Expected) {
        if let Some(ticket) = self.client.queue(session, message) {
            self.asked.entry(session).or_default().push((ticket, expected));
        }
    }

    fn statement(&mut self) -> (StmtExecute, Expected) {
        self.next_text += 1;
        let text = format!("{}", self.next_text);
        let rows = self.random.below(60) as usize;
        let (sql, expected) = match self.random.below(20) {
            0..8 => (format!("echo {text}"), Expected::Text(text)),
            8 => (format!("defer-finish {text}"), Expected::Text(text)),
            9 => ("defer later".into(), Expected::Text("later".into())),
            10 => ("defer-drop".into(), Expected::Fails(1317)),
            11 => (format!("source {rows} 100"), Expected::Rows(rows)),
            12 => (format!("rows {rows} 100"), Expected::Rows(rows)),
            13 => ("fail 1062".into(), Expected::Fails(1062)),
            14 => (format!("source-fail {rows} 50"), Expected::Fails(1234)),
            15 => ("begin".into(), Expected::Fine),
            16 => ("commit".into(), Expected::Fine),
            17 => ("lock".into(), Expected::Fine),
            18 => (format!("defer-finish-fail {text}"), Expected::Text(text)),
            _ => ("affect 3".into(), Expected::Fine),
        };
        let mut statement = if self.random.below(2) == 0 { query(&sql) } else { update(&sql) };
        if statement.token.is_some() {
            statement.token = Some(self.random.below(3) as i32);
        }
        statement.chunk_result = (self.random.below(3) == 0).then_some(true);
        (statement, expected)
    }

    fn act(&mut self) {
        let session = self.ids[self.random.below(SESSIONS) as usize];
        if !self.open.contains(&session) {
            // Takes the replies of the old session with this id first.
            self.take(session);
            self.open.push(session);
            return self.ask(session, &ClientMessage::SessionNew, Expected::Fine);
        }
        match self.random.below(40) {
            0..26 => {
                for _ in 0..=self.random.below(4) {
                    let (statement, expected) = self.statement();
                    let locks = statement.stmt.as_deref() == Some(b"lock");
                    self.ask(session, &ClientMessage::ExecSql(statement), expected);
                    if locks {
                        let unlock = ClientMessage::ExecSql(update("unlock"));
                        self.ask(session, &unlock, Expected::Fine);
                    }
                }
            }
            26..29 => {
                let id = AUTO | self.next_auto;
                self.next_auto += 1;
                let (statement, expected) = self.statement();
                if statement.stmt.as_deref() != Some(b"lock") {
                    self.ask(id, &ClientMessage::ExecSql(statement), expected);
                }
            }
            29..32 => self.take(session),
            32 => self.ask(session, &savepoint(Operation::Set, "a"), Expected::Fine),
            33 => self.ask(session, &timestamps(3), Expected::Fine),
            34 => self.ask(session, &ClientMessage::CapabilitiesGet, Expected::Fine),
            35 => self.interrupt(session),
            36 => self.end(session, &kill(session, KillSessionType::Connection)),
            37 => self.end(session, &ClientMessage::SessionClose),
            38 => {
                let statement = ClientMessage::ExecSql(update("panic"));
                self.end(session, &statement);
            }
            _ => {
                // After this offer, the client's own offer for a TOKEN_DONE may come when no result
                // waits for it.
                self.spoilt.insert(session);
                let offer = lab::xrpc::request::offer(self.random.below(5) as i32);
                self.ask(session, &offer, Expected::Anything);
            }
        }
        if self.random.below(3) > 0 {
            self.client.flush();
        }
    }

    /// Interrupts a session. An error may answer each request that it has been sent.
    fn interrupt(&mut self, session: u64) {
        if let Some(asked) = self.asked.get_mut(&session) {
            asked.iter_mut().for_each(|(_, expected)| *expected = Expected::Anything);
        }
        self.spoilt.insert(session);
        self.client.queue(session, &kill(session, KillSessionType::Query));
        // Takes the replies first, so that the kill cannot hit a later request.
        self.take(session);
        // The kill may have hit the unlock, so it is sent again.
        self.ask(session, &ClientMessage::ExecSql(update("unlock")), Expected::Fine);
    }

    /// Sends the last request of a session.
    fn end(&mut self, session: u64, message: &ClientMessage) {
        self.open.retain(|open| *open != session);
        if !matches!(message, ClientMessage::SessionClose) {
            let asked = self.asked.entry(session).or_default();
            asked.iter_mut().for_each(|(_, expected)| *expected = Expected::Anything);
            self.spoilt.insert(session);
        }
        if self.spoilt.remove(&session) {
            self.ids.retain(|id| *id != session);
            self.ids.push(self.next_id);
            self.next_id += 1;
        }
        self.ask(session, message, Expected::Anything);
    }

    /// Takes the replies of a session and checks them.
    fn take(&mut self, session: u64) {
        self.client.flush();
        for (ticket, expected) in self.asked.remove(&session).unwrap_or_default() {
            check(&self.client.reply_to(ticket), &expected);
        }
    }

    fn take_all(&mut self) {
        let sessions: Vec<_> = self.asked.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.take(session));
    }
}

fn check(reply: &Reply, expected: &Expected) {
    let code = reply.error.as_ref().map(|failure| failure.code);
    assert!(reply.done, "{reply:?}");
    match expected {
        Expected::Text(text) => assert_eq!(reply.clone().one().text(), Some(&**text)),
        Expected::Rows(count) => {
            assert_eq!((code, reply.rows.len()), (None, *count));
            let rows = reply.rows.iter().enumerate();
            rows.for_each(|(at, row)| assert_eq!(row[0].integer(), Some(at as i128)));
        }
        Expected::Fails(expected) => assert_eq!(code, Some(*expected)),
        Expected::Fine => assert_eq!(code, None, "{reply:?}"),
        Expected::Anything => {}
    }
}

/// Finishes deferred requests until `done` is set.
fn finish_all(control: &Control, done: &AtomicBool) {
    loop {
        let last = done.load(Ordering::Acquire);
        for deferred in control.deferred_by_now("later") {
            let _ = finish_with(deferred, "later");
        }
        if last {
            return;
        }
        thread::park_timeout(Duration::from_micros(50));
    }
}

#[test]
fn everything_at_once() {
    let seed = seed();
    let server = Fixture::start(config().dynamic_threads_shrink_time(Duration::from_secs(1)));
    let before = threads(&server.stats());
    let done = Arc::new(AtomicBool::new(false));
    let finishers = [(); 2].map(|()| {
        let (control, done) = (Arc::clone(&server.control), Arc::clone(&done));
        thread::spawn(move || finish_all(&control, &done))
    });
    thread::scope(|scope| {
        let mut actors = Vec::new();
        for actor in 0..4 {
            let server = &server;
            let run = move || {
                let mut choices = Random(seed.wrapping_add(actor));
                for life in 0..4 {
                    let mut actor = Actor::new(server, choices.below(u64::MAX) + life);
                    for _ in 0..often(250) {
                        actor.act();
                    }
                    match choices.below(3) {
                        // In the middle of everything.
                        0 => actor.client.reset(),
                        1 => {
                            actor.client.flush();
                            actor.client.finish();
                        }
                        _ => {
                            actor.take_all();
                            for session in std::mem::take(&mut actor.open) {
                                actor.client.close(session).good();
                            }
                            assert_eq!(actor.client.waiting(), [], "EG_TEST_SEED={seed}");
                        }
                    }
                }
            };
            actors.push(scope.spawn(run));
        }
        let ends: Vec<_> = actors.into_iter().map(thread::ScopedJoinHandle::join).collect();
        assert!(ends.iter().all(Result::is_ok), "EG_TEST_SEED={seed}");
    });
    eventually(LONG, || server.stats().connections == 0);
    server.wait_until_even();
    done.store(true, Ordering::Release);
    finishers.into_iter().for_each(|finisher| finisher.join().expect("no panic"));
    // Requests that were deferred too late for their connections.
    server.control.drop_deferred();
    let stats = server.stats();
    let gauges = [
        stats.queued_requests,
        stats.queued_request_bytes,
        stats.deferred_requests,
        stats.waiting_writers,
        stats.buffered_bytes,
        stats.unauthenticated_connections,
    ];
    assert_eq!(gauges, [0; 6], "EG_TEST_SEED={seed}\n{stats}");
    assert_eq!(stats.get(Counter::SessionsOpened), stats.get(Counter::SessionsClosed));
    eventually(LONG, || threads(&server.stats()) == before);
}

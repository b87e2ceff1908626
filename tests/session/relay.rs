//! Answers of another server are passed on unchanged, as they come and as the client takes them.

mod ends;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use epoll_group::codec::message::{Notice, ServerKind};
use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::row::Column;
use epoll_group::session::{Ending, Relay, Relayed, SessionError, Wake};
use epoll_group::stats::Counter;
use lab::engine::backend::{Backend, Piece, chunk, end, meta, more, result, row};
use lab::engine::{Fixture, config};
use lab::threads::threads;
use lab::xrpc::request::{query, savepoint, update};
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually, often};

fn with_token(kib: i32) -> StmtExecute {
    StmtExecute { token: Some(kib), ..query("") }
}

#[test]
fn frames_pass_unchanged_and_the_layer_writes_the_ends() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let middle = [meta(), vec![row(1, "one"), chunk(2, "two"), more()], meta(), vec![row(3, "")]];
    let middle: Vec<Piece> = middle.concat();
    for deferred in [false, true] {
        let backend = Backend::of(middle.clone());
        backend.push([end()]);
        let form = StmtExecute { chunk_result: Some(true), ..query("defer a") };
        if deferred {
            client.send_sql(2, form);
            let answer = backend.relay();
            assert!(server.control.take_one_deferred("a").finish(|reply| {
                reply.relay(answer);
                Ok(())
            }));
        } else {
            backend.send(&server, &mut client, 2, form);
        }
        // The client of these tests does not accept two results.
        for piece in &middle {
            let frame = client.raw_frame().expect("a frame");
            let Piece::Frame(kind, body) = piece else { panic!("all are frames") };
            assert_eq!((frame.session, frame.kind, &frame.body), (2, kind.number(), body));
        }
        let ends = [(); 3].map(|()| client.raw_frame().expect("a frame").kind);
        assert_eq!(ends, [14, 11, 17]);
        eventually(LONG, || backend.dropped() == 1);
    }
}

#[test]
fn the_text_of_a_warning_is_cut() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let mut ending = Ending::default();
    ending.warning(Level::Note, 1003, "x".repeat(100_000));
    Backend::of(vec![Piece::End(ending)]).send(&server, &mut client, 2, update(""));
    assert_eq!(client.reply(2).good().warnings[0].msg.len(), 2048);
}

#[test]
fn the_ending_says_what_the_other_server_said() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let mut ending = Ending::default();
    ending.affected = 3;
    ending.insert_id = 17;
    ending.info = "Records: 3".into();
    ending.warning(Level::Note, 1003, "careful");
    ending.feedback = Some((100, "PRIMARY".into()));
    ending.server_state = 1;
    let asks = StmtExecute { feed_back: Some(true), ..update("") };
    let reply = |client: &mut Client, pieces: Vec<Piece>| {
        Backend::of(pieces).send(&server, client, 2, asks.clone());
        client.reply(2)
    };
    let change = reply(&mut client, vec![Piece::End(ending.clone())]).good();
    assert_eq!((change.affected, change.insert_id), (Some(3), Some(17)));
    assert_eq!(change.produced.as_deref(), Some(&b"Records: 3"[..]));
    assert_eq!((change.warnings[0].code, change.warnings[0].level()), (1003, Level::Note));
    assert_eq!(change.notices, [Notice::ServerState(1)]);
    assert_eq!(change.fetch_done, None);

    let whole = [meta(), vec![row(1, "x"), Piece::End(ending.clone())]].concat();
    let done = reply(&mut client, whole).good().fetch_done.expect("there was a result");
    assert_eq!(
        (done.examined_row_count, done.chosen_index.as_deref()),
        (Some(100), Some(&b"PRIMARY"[..]))
    );

    // Only a client that asks gets costs. The bits that the handler has set stay set.
    server.control.plant("bits", {
        let backend = Backend::of([meta(), vec![Piece::End(ending.clone())]].concat()).relay();
        |reply| {
            reply.ending().server_state = 2;
            reply.relay(backend);
            Ok(())
        }
    });
    client.send_sql(2, update("script bits"));
    let change = client.reply(2).good();
    assert_eq!(change.notices, [Notice::ServerState(3)]);
    assert_eq!(change.fetch_done.expect("there was a result").examined_row_count, None);

    // An error, behind rows and with warnings, or alone.
    let error = SessionError::new(1062, b"23000", "Duplicate entry");
    ending.error = Some(error.clone());
    let failed = vec![row(1, "x"), Piece::End(ending)];
    let failed = reply(&mut client, [meta(), failed].concat());
    assert_eq!((failed.row_count, failed.warnings.len()), (1, 1));
    let failure = failed.failure();
    assert_eq!((failure.fatal, failure.code, &*failure.state), (false, 1062, "23000"));
    assert_eq!(reply(&mut client, vec![Piece::Fail(error.clone())]).failure(), failure);
    let planted = error.clone();
    server.control.plant("failing", |reply| {
        reply.ending().error = Some(planted);
        Ok(())
    });
    let (planted, unread) = (error.clone(), Backend::of([row(1, "unread")]).relay());
    server.control.plant("failing with a relay", |reply| {
        reply.ending().error = Some(planted);
        reply.relay(unread);
        Ok(())
    });
    server.control.plant("failing later", |reply| {
        reply.defer().finish(|reply| {
            reply.ending().error = Some(error);
            Ok(())
        });
        Ok(())
    });
    for script in ["failing", "failing with a relay", "failing later"] {
        client.send_sql(2, update(&format!("script {script}")));
        assert_eq!(client.reply(2).failure(), failure, "{script}");
    }

    client.send_sql(2, query("echo behind"));
    assert_eq!(client.reply(2).one().text(), Some("behind"));
    let fatal = SessionError::fatal(1053, b"08S01", "server shutdown");
    let failure = reply(&mut client, vec![Piece::Fail(fatal)]).failure();
    assert_eq!((failure.fatal, failure.code, &*failure.state), (true, 1053, "08S01"));
}

#[test]
fn it_follows_what_the_handler_wrote_itself() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    for chunks in [false, true] {
        let backend = Backend::of([row(2, "theirs"), Piece::End(Ending::default())]);
        let answer = backend.relay();
        server.control.plant("own", |reply| {
            reply.columns(&[Column::signed("id"), Column::text("pad", 45, 255)])?;
            reply.row(|row| {
                row.int(1);
                row.text("ours");
            })?;
            reply.ending().affected = 5;
            reply.ending().warning(Level::Warning, 1, "ours");
            reply.relay(answer);
            Ok(())
        });
        let statement = StmtExecute { chunk_result: Some(chunks), ..query("script own") };
        let reply = client.run(2, statement).good();
        let ids: Vec<_> = reply.rows.iter().map(|row| row[0].integer()).collect();
        assert_eq!((ids, reply.affected), (vec![Some(1), Some(2)], Some(0)));
        assert_eq!(reply.warnings.len(), 1);
    }
}

#[test]
fn it_comes_as_it_is_found_and_no_thread_waits() {
    let server = Fixture::start(config());
    let before = threads(&server.stats());
    let mut client = server.client_with_sessions(2..42);
    let all: Vec<_> = (2..42)
        .map(|session| {
            let backend = Backend::default();
            let ticket = backend.send(&server, &mut client, session, update(""));
            eventually(LONG, || backend.is_waiting());
            (session, ticket, backend)
        })
        .collect();
    let stats = server.wait_until_idle(before);
    assert_eq!(stats.deferred_requests, 40, "{stats}");
    for (session, ticket, backend) in all {
        backend.push(meta());
        for at in 1..10 {
            backend.push([row(at, "x")]);
            client.wait_for(ticket, |reply| reply.row_count == at as u64);
        }
        backend.push([end()]);
        assert_eq!(client.reply(session).good().row_count, 9);
        assert_eq!(backend.dropped(), 1);
    }
    assert_eq!(server.stats().deferred_requests, 0);
}

/// Relay that returns `Later` each time, while another thread adds one more row and wakes it at
/// that very moment.
struct Racing {
    there: Arc<AtomicU64>,
    taken: u64,
    rows: u64,
    ask: Sender<Wake>,
    /// The relay wakes itself, too, before it returns `Later`.
    wakes_itself: bool,
    body: Vec<u8>,
}

impl Relay for Racing {
    fn next(&mut self, wake: &Wake) -> Result<Relayed<'_>, SessionError> {
        if self.there.load(Ordering::SeqCst) == self.taken {
            self.ask.send(wake.clone()).expect("somebody wakes");
            if self.wakes_itself {
                wake.wake();
            }
            return Ok(Relayed::Later);
        }
        self.taken += 1;
        let piece = match self.taken {
            1 => meta().swap_remove(0),
            2 => meta().swap_remove(1),
            at if at <= self.rows + 2 => row(at as i64, "x"),
            _ => end(),
        };
        match piece {
            Piece::Frame(kind, body) => {
                self.body = body;
                Ok(Relayed::Frame { kind, body: &self.body })
            }
            _ => Ok(Relayed::End(Ending::default())),
        }
    }
}

#[test]
fn a_wake_up_between_looking_and_saying_later_is_not_lost() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..6);
    for round in 0..often(200) {
        let wakers: Vec<_> = (2..6)
            .map(|session| {
                let (ask, asked) = mpsc::channel::<Wake>();
                let there = Arc::new(AtomicU64::new(0));
                let (rows, wakes_itself) = (20, (u64::from(round) + session) % 3 == 0);
                let seen = Arc::clone(&there);
                let racing = Racing { there, taken: 0, rows, ask, wakes_itself, body: Vec::new() };
                server.control.plant(&session.to_string(), |reply| {
                    reply.relay(racing);
                    Ok(())
                });
                let waker = thread::spawn(move || {
                    for wake in asked {
                        seen.fetch_add(1, Ordering::SeqCst);
                        wake.wake();
                    }
                });
                client.send_sql(session, query(&format!("script {session}")));
                waker
            })
            .collect();
        (2..6).for_each(|session| assert_eq!(client.reply(session).good().row_count, 20));
        wakers.into_iter().for_each(|waker| waker.join().expect("no panic"));
    }
}

#[test]
fn it_is_asked_while_there_is_credit_and_no_further() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.set_offers(None);
    let pad = "x".repeat(300);
    for chunks in [false, true] {
        let rows = (0..100).map(|at| if chunks { chunk(at, &pad) } else { row(at, &pad) });
        // Descriptions of columns cost no credit.
        let columns = meta().into_iter().cycle().take(100);
        let pieces: Vec<_> = columns.chain([more()]).chain(meta()).chain(rows).collect();
        let backend = Backend::of(pieces);
        let form = StmtExecute { chunk_result: Some(chunks), ..with_token(1) };
        backend.send(&server, &mut client, 2, form);
        let mut kinds = Vec::new();
        while kinds.last() != Some(&ServerKind::TokenDone.number()) {
            kinds.push(client.raw_frame().expect("a frame").kind);
        }
        assert_eq!(kinds.len(), 103 + 4 + 1, "{kinds:?}");
        let asked = backend.asked();
        assert_eq!(asked, 103 + 4);
        backend.push([end()]);
        // Without credit the relay is not asked, even if the backend reports more.
        client.probe();
        assert_eq!(backend.asked(), asked);
        client.offer(2, 1000);
        let rest = std::iter::from_fn(|| client.raw_frame()).take(96 + 3);
        assert_eq!(rest.last().map(|frame| frame.kind), Some(17));
    }
}

#[test]
fn who_grants_little_gets_every_row() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.set_offers(Some(1));
    for bytes in [10, 300, 5_000] {
        let backend = Backend::of(result(300, &"x".repeat(bytes)));
        backend.send(&server, &mut client, 2, with_token(0));
        let reply = client.reply(2).good();
        assert!(reply.rows.iter().zip(0..).all(|(row, at)| row[0].integer() == Some(at)));
        assert_eq!(reply.rows.len(), 300);
        assert!(reply.token_done > 1);
    }
    // Credit that comes while the backend has nothing counts as well.
    client.set_offers(None);
    let backend = Backend::of(meta());
    let ticket = backend.send(&server, &mut client, 2, with_token(1));
    eventually(LONG, || backend.is_waiting());
    client.offer(2, 1);
    client.probe();
    assert_eq!(backend.asked(), 3, "it was not woken");
    backend.push([row(0, &"x".repeat(2000)), row(1, "x")]);
    client.wait_for(ticket, |reply| reply.row_count == 2);
    backend.push([end()]);
    client.reply(2).good();
}

/// A hundred megabytes of rows, each made when it is asked for.
struct Many {
    asked: Arc<AtomicU64>,
    body: Vec<u8>,
}

const MANY: u64 = 100_000;

impl Relay for Many {
    fn next(&mut self, _: &Wake) -> Result<Relayed<'_>, SessionError> {
        let at = self.asked.fetch_add(1, Ordering::SeqCst);
        let piece = match at {
            0 | 1 => meta().swap_remove(at as usize),
            _ if at < MANY + 2 => row(0, &"x".repeat(1000)),
            _ => return Ok(Relayed::End(Ending::default())),
        };
        let Piece::Frame(kind, body) = piece else { panic!("all are frames") };
        self.body = body;
        Ok(Relayed::Frame { kind, body: &self.body })
    }
}

#[test]
fn a_client_that_does_not_read_costs_bounded_memory_and_no_thread() {
    let high = 256 << 10;
    let server = Fixture::start(
        config().write_high_watermark_bytes(high).write_low_watermark_bytes(high / 2),
    );
    let mut client = server.client_with_sessions([2]);
    let mut bystander = server.client_with_sessions([2]);
    let asked = Arc::new(AtomicU64::new(0));
    let many = Many { asked: Arc::clone(&asked), body: Vec::new() };
    server.control.plant("many", |reply| {
        reply.relay(many);
        Ok(())
    });
    client.send_sql(2, update("script many"));
    eventually(LONG, || server.stats().buffered_bytes > high as u64);
    // The kernel's buffers grow to some MiB, so the server sends more now and then.
    eventually(LONG, || server.stats().running_threads == 0);
    for _ in 0..20 {
        bystander.execute(2, "one").one();
    }
    let stats = server.stats();
    assert!(stats.buffered_bytes < 3 * high as u64, "{stats}");
    let so_far = asked.load(Ordering::SeqCst);
    assert!(so_far < MANY / 2, "{so_far}");
    client.forget_rows();
    assert_eq!(client.reply(2).good().row_count, MANY);
}

#[test]
fn savepoints_and_statements_in_sessions_of_their_own_are_relayed_too() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let failed = Piece::Fail(SessionError::new(1305, b"42000", "SAVEPOINT does not exist"));
    for (piece, code) in [(end(), 0), (failed, 1305), (meta().swap_remove(0), 8001)] {
        client.send(2, &savepoint(Operation::Set, "deferred"));
        let answer = Backend::of([piece]).relay();
        assert!(server.control.take_one_deferred("savepoint").finish(|reply| {
            reply.relay(answer);
            Ok(())
        }));
        assert_eq!(client.reply(2).error.map_or(0, |error| error.code), code);
    }
    for id in 0..50 {
        let backend = Backend::default();
        backend.send(&server, &mut client, AUTO | id, update(""));
        backend.push(result(3, "x"));
        assert_eq!(client.reply(AUTO | id).good().row_count, 3);
    }
    eventually(LONG, || server.stats().sessions == 1);
}

#[test]
fn many_wake_ups_do_no_harm() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..5);
    let backends: Vec<_> = (2..4).map(|_| Backend::default()).collect();
    for (session, backend) in (2..).zip(&backends) {
        backend.send(&server, &mut client, session, update(""));
        eventually(LONG, || backend.is_waiting());
        backend.push(meta());
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        for backend in backends.iter().chain(&backends) {
            let (wake, over) = (backend.waker(), &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    wake.wake();
                }
            });
        }
        for _ in 0..often(200) {
            backends.iter().for_each(|backend| backend.push([row(1, "x")]));
            client.execute(4, "one").one();
        }
        backends.iter().for_each(|backend| backend.push([end()]));
        for session in 2..4 {
            assert_eq!(client.reply(session).good().row_count, u64::from(often(200)));
        }
        // Later requests run while the wake-ups of the ended relays go on.
        for _ in 0..often(200) {
            client.execute(2, "one").one();
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(server.count(Counter::RelaysRefused), 0);
}

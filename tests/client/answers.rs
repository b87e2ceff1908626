//! A client: sessions, answers, errors, against a server with an engine.

use std::net::Ipv6Addr;
use std::sync::mpsc;
use std::time::Duration;

use epoll_group::Runtime;
use epoll_group::client::{Client, Error, ErrorKind, Fate, Options, Request, Session};
use epoll_group::codec::encoder::Encoder;
use epoll_group::codec::frame::Dialect;
use epoll_group::codec::message::{Notice, ServerKind, ServerMessage};
use epoll_group::codec::proto::notice::Warning;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::tso::{Operation, ResultTso};
use epoll_group::codec::row::Column;
use epoll_group::codec::value::Value;
use epoll_group::session::CancelReason;
use epoll_group::stats::Counter;
use lab::both::{Both, one, options};
use lab::engine::{Fixture, PASSWORD, config};
use lab::scripted::{put, serve};
use lab::{LONG, eventually};
use prost::Message;

fn start() -> Both {
    Both::start()
}

fn start_with(change: impl FnOnce(Options) -> Options) -> Both {
    Both::start_with(change)
}

#[track_caller]
fn session(both: &Both) -> Session {
    both.session()
}

#[test]
fn a_statement_is_answered() {
    let both = start();
    let mut session = session(&both);
    assert_eq!(one(session.execute("echo hello")), "hello");
    assert_eq!(one(session.execute("one")), "1");
    let summary = session.run("insert 77").expect("done");
    assert_eq!((summary.affected, summary.insert_id), (1, Some(77)));
    assert_eq!(summary.info, b"inserted");
    assert_eq!(session.run("warn 3").expect("done").warnings.len(), 3);
    assert_eq!((summary.server_state, summary.feedback), (0, None));
    assert_eq!(session.run("cost").expect("done").feedback, None, "nobody asked for it");
    let asks = StmtExecute {
        stmt: Some(b"cost".to_vec()),
        feed_back: Some(true),
        ..StmtExecute::default()
    };
    let summary = session.run(Request::statement(asks)).expect("done");
    let cost = summary.feedback.expect("it is told");
    assert_eq!(
        (cost.examined_row_count, cost.chosen_index),
        (Some(100), Some(b"shop.t.PRIMARY".to_vec()))
    );
    assert_eq!(summary.server_state, 1);
}

#[test]
fn an_error_leaves_the_session_and_says_that_it_was_refused() {
    let both = start();
    let mut session = session(&both);
    let error = session.run("fail 1234").expect_err("it fails");
    assert_eq!(error.fate(), Fate::Refused);
    let refusal = error.server_error().expect("of the server");
    assert_eq!(
        (refusal.code, &*refusal.sql_state, &*refusal.msg),
        (1234, &b"42000"[..], &b"it failed"[..])
    );
    assert_eq!(one(session.execute("echo on")), "on");
    let error = session.run("fatal 1234").expect_err("it fails");
    assert_eq!(error.fate(), Fate::Unknown);
    let error = session.run("one").expect_err("it is gone");
    assert_eq!(error.fate(), Fate::NotSent);
    assert!(!session.is_alive());
}

#[test]
fn requests_are_answered_in_order() {
    let both = start();
    let mut session = session(&both);
    let pending: Vec<_> =
        (0..300).map(|n| session.send(format!("echo {n}")).expect("sent")).collect();
    for (n, pending) in pending.into_iter().enumerate().rev() {
        assert_eq!(one(pending.wait()), n.to_string());
    }
}

#[test]
fn a_closure_gets_the_answer() {
    let both = start();
    let mut session = session(&both);
    let (give, given) = mpsc::channel();
    for n in 0..50 {
        let give = give.clone();
        session.execute_then(format!("echo {n}"), move |answer| {
            give.send((n, one(answer))).expect("somebody listens");
        });
    }
    let mut answers: Vec<_> = (0..50).map(|_| given.recv_timeout(LONG).expect("called")).collect();
    // Several workers call closures.
    answers.sort_unstable();
    assert!(answers.into_iter().eq((0..50).map(|n| (n, n.to_string()))));
}

#[test]
fn many_rows_come_in_windows_and_chunks_read_like_rows() {
    let both = start_with(|options| options.window_bytes(8 << 10));
    read_many_rows(&mut session(&both));
}

#[test]
fn a_client_of_the_other_dialect_is_served_alike() {
    let dialect = Dialect::Galaxy { version: 3 };
    let server = Fixture::start(config().galaxy_protocol(true).galaxy_version(3));
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let options = options(server.addr()).window_bytes(8 << 10);
    let connect = |options| Client::new(&runtime.handle(), options).expect("good options");
    let client = connect(options.clone().dialect(dialect));
    let mut session = client.session().expect("a session");
    read_many_rows(&mut session);
    assert_eq!(session.run("insert 77").expect("done").insert_id, Some(77));
    assert_eq!(session.run("fail 1234").expect_err("it fails").fate(), Fate::Refused);
    let first = client.timestamps(5).expect("timestamps");
    assert_eq!(client.timestamps(1).expect("a timestamp"), first + 5);
    let other = connect(options.dialect(Dialect::Galaxy { version: 4 }));
    let error = other.session().expect_err("another version").to_string();
    assert!(error.contains("version"), "{error}");
}

fn read_many_rows(session: &mut Session) {
    for request in [
        Request::sql("rows 3000 100"),
        Request::sql("rows 3000 100").chunks(),
        Request::sql("source 3000 100"),
    ] {
        let mut answer = session.execute(request).expect("an answer");
        assert_eq!(answer.columns().expect("columns").len(), 2);
        let mut next = 0;
        while let Some(row) = answer.next_row().expect("a row") {
            assert_eq!(row.get(0).expect("a value"), Value::Signed(next));
            assert_eq!(row.values().count(), 2);
            next += 1;
        }
        assert_eq!(next, 3000);
    }
}

#[test]
fn what_is_cached_is_sent_by_its_digest() {
    let both = start();
    let mut session = session(&both);
    for _ in 0..3 {
        assert_eq!(one(session.execute(Request::sql("echo often").cached())), "often");
    }
    assert_eq!(both.server.count(Counter::SqlHit), 2);
}

#[test]
fn an_account_with_a_digest_is_logged_in() {
    let both = start();
    let options =
        |password: &str| Options::new(both.server.addr().to_string(), "digest").password(password);
    let client =
        |password| Client::new(&both.runtime.handle(), options(password)).expect("good options");
    assert_eq!(one(client(PASSWORD).execute("who")), "digest");
    let error = client("wrong").execute("who").expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Login(_)), "{error}");
}

#[test]
fn an_answer_that_is_dropped_does_not_reach_the_next() {
    let both = start_with(|options| options.window_bytes(4 << 10));
    let mut session = session(&both);
    for _ in 0..20 {
        let mut answer = session.execute("source 100000 100").expect("an answer");
        answer.next_row().expect("a row").expect("one");
        drop(answer);
        assert_eq!(one(session.execute("echo mine")), "mine");
    }
}

#[test]
fn a_deadline_passes_and_the_session_is_used_again_when_the_answer_has_come() {
    let both = start();
    let mut session = session(&both);
    let request = Request::sql("stubborn a").timeout(Duration::from_millis(20));
    let error = session.run(request).expect_err("it is late");
    assert!(error.is_timeout(), "{error}");
    assert_eq!(error.fate(), Fate::Unknown);
    assert!(!session.is_idle());
    let request = Request::sql("echo never").timeout(Duration::from_millis(20));
    let error = session.run(request).expect_err("it waits for the other");
    assert_eq!(error.fate(), Fate::NotSent, "{error}");
    let next = session.send("echo next").expect("taken");
    both.server.control.open("a");
    assert_eq!(one(next.wait()), "next");
    assert!(session.is_idle());
}

#[test]
fn a_statement_is_cancelled() {
    let both = start();
    let mut session = session(&both);
    let canceller = session.canceller();
    let pending = session.send("gate a").expect("sent");
    both.server.control.wait_at("a", 1);
    canceller.cancel();
    let error = pending.wait().expect_err("interrupted");
    assert_eq!(error.server_error().expect("of the server").code, 1317);
    assert_eq!(one(session.execute("one")), "1");
}

#[test]
fn a_statement_without_a_session_is_interrupted_at_its_deadline() {
    let both = start();
    let request = Request::sql("gate a").timeout(Duration::from_millis(200));
    let error = both.client.execute(request).expect_err("the gate is closed");
    assert!(error.is_timeout(), "{error}");
    both.server.wait_until_even();
    assert_eq!(both.server.control.cancels(), [CancelReason::Query]);
    assert_eq!(one(both.client.execute("one")), "1");
}

#[test]
fn a_statement_without_a_session_is_interrupted_if_its_answer_is_dropped() {
    const STATEMENTS: u64 = 300;
    let both = start_with(|options| options.connections(1));
    for _ in 0..STATEMENTS {
        // At some of the statements the kill arrives behind the end.
        let mut answer = both.client.execute("rows 3000 100").expect("an answer");
        answer.next_row().expect("a row").expect("one");
    }
    assert_eq!(one(both.client.execute("one")), "1");
    both.server.wait_until_even();
    assert_eq!(both.server.count(Counter::Glitches), 0);
    assert_eq!(both.server.count(Counter::ConnectionsAccepted), 1);
}

#[test]
fn savepoints_timestamps_and_statements_without_a_session() {
    let both = start();
    let mut session = session(&both);
    session.run(Request::savepoint(Operation::Set, "a")).expect("set");
    let first = both.client.timestamps(5).expect("timestamps");
    assert_eq!(both.client.timestamps(1).expect("a timestamp"), first + 5);
    assert_eq!(one(both.client.execute("echo alone")), "alone");
    let error = both.client.timestamps(1 << 31).expect_err("too many");
    assert_eq!(error.fate(), Fate::NotSent);
    assert!(matches!(error.kind(), ErrorKind::TooManyTimestamps(2_147_483_648)), "{error}");
}

#[test]
fn sessions_are_spread_over_connections() {
    let both = start_with(|options| options.connections(3));
    let sessions: Vec<_> = (0..9).map(|_| session(&both)).collect();
    eventually(LONG, || {
        both.client.status().connections.iter().all(|connection| connection.age.is_some())
    });
    // The first sessions may all be on the connection that was there first.
    let more: Vec<_> = (0..18).map(|_| session(&both)).collect();
    for connection in both.client.status().connections {
        assert_eq!(connection.sessions, 9);
    }
    drop((sessions, more));
    both.server.wait_until_even();
}

#[test]
fn a_wrong_password_is_refused_at_once() {
    let both = start_with(|options| options.password("wrong"));
    let error = both.client.session().expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Login(_)), "{error}");
    assert_eq!(error.fate(), Fate::NotSent);
}

const MOST: usize = 1 << 20;

/// Client of a server whose answers `answer` writes, and the client's runtime. An answer may take
/// at most [`MOST`] bytes.
fn against(answer: impl Fn(&mut Encoder<'_>) + Send + 'static) -> (Client, Runtime) {
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let options = options(serve(answer)).connections(1).max_answer_bytes(MOST);
    (Client::new(&runtime.handle(), options).expect("good options"), runtime)
}

#[track_caller]
fn is_too_much(error: &Error) {
    match *error.kind() {
        ErrorKind::TooMuch { bytes, limit } => assert!(bytes > limit && limit == MOST, "{error}"),
        _ => panic!("{error}"),
    }
}

/// Body of a chunk of one column in which every row is NULL: one bit of a bitmap for each row.
fn nulls(bitmap_bytes: usize) -> Vec<u8> {
    use prost::encoding::encode_varint;
    let prefixed = |tag: u8, inside: &[u8]| {
        let mut field = vec![tag];
        encode_varint(inside.len() as u64, &mut field);
        [field, inside.to_vec()].concat()
    };
    let column = [prefixed(0x0a, &vec![0xff; bitmap_bytes]), vec![0x12, 2, 0x0a, 0]].concat();
    let mut body = vec![0x08];
    encode_varint(8 * bitmap_bytes as u64, &mut body);
    [body, prefixed(0x12, &column)].concat()
}

/// Servers may send the mark between two results before or behind the columns of the second one.
#[test]
fn each_result_of_an_answer_has_columns_of_its_own() {
    for is_mark_first in [true, false] {
        let (client, _runtime) = against(move |encoder| {
            let columns = |encoder: &mut Encoder<'_>, count| {
                for _ in 0..count {
                    encoder.column(&Column::signed("n")).expect("it is short");
                }
            };
            columns(encoder, 1);
            encoder.row(|row| row.int(7)).expect("it is short");
            if is_mark_first {
                encoder.fetch_done_more_resultsets();
            }
            columns(encoder, 2);
            if !is_mark_first {
                encoder.fetch_done_more_resultsets();
            }
            encoder.row(|row| (0..2).for_each(|_| row.int(8))).expect("it is short");
            encoder.fetch_done();
            encoder.execute_ok();
        });
        let mut session = client.session().expect("a session");
        let mut answer = session.execute("a").expect("an answer");
        let mut rows = Vec::new();
        while let Some(row) = answer.next_row().expect("a row") {
            rows.push(row.values().collect::<Result<Vec<_>, _>>().expect("values").len());
        }
        assert_eq!((rows, answer.columns().expect("columns").len()), (vec![1, 2], 2));
    }
}

#[test]
fn a_chunk_of_nulls_takes_no_more_memory_than_an_answer_may() {
    // As rows each bit would take fifteen bytes.
    for (bitmap_bytes, rows) in [(MOST / 2, None), (MOST / 128, Some(MOST / 16))] {
        let (client, _runtime) = against(move |encoder| {
            encoder.column(&Column::signed("n")).expect("it is short");
            encoder
                .frame(ServerKind::Chunk.number(), &[&nulls(bitmap_bytes)])
                .expect("it is short enough");
            encoder.fetch_done();
            encoder.execute_ok();
        });
        let mut session = client.session().expect("a session");
        let mut answer = session.execute(Request::sql("a").chunks()).expect("an answer");
        assert_eq!(answer.columns().expect("one").len(), 1);
        let mut read = 0;
        let end = loop {
            match answer.next_row() {
                Ok(Some(row)) => assert_eq!(row.get(0).expect("a value"), Value::Null),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
            read += 1;
        };
        assert_eq!(read, rows.unwrap_or(0));
        assert_eq!(end.is_none(), rows.is_some());
        end.iter().for_each(is_too_much);
    }
}

#[test]
fn a_request_above_max_allowed_packet_fails_alone() {
    let config = lab::config().max_allowed_packet(1 << 20);
    let both = Both::start_on(config, |options| options.connections(1));
    let (mut first, mut other) = (both.session(), both.session());
    let error = first.send(Request::sql(vec![b'x'; 2 << 20])).expect_err("it is too long");
    assert!(matches!(error.kind(), ErrorKind::TooLong { limit, .. } if *limit == 1 << 20));
    for session in [&mut first, &mut other] {
        assert_eq!(one(session.execute("one")), "1");
    }
}

#[test]
fn an_answer_that_ends_within_a_chunk_is_an_error() {
    for ends in [true, false] {
        let (client, _runtime) = against(move |encoder| {
            for name in ["a", "b"] {
                encoder.column(&Column::signed(name)).expect("it is short");
            }
            // This chunk has one of the two columns.
            encoder.frame(ServerKind::Chunk.number(), &[&nulls(1)]).expect("it is short");
            if !ends {
                encoder.row(|row| (0..2).for_each(|_| row.int(8))).expect("it is short");
            }
            encoder.fetch_done();
            encoder.execute_ok();
        });
        let mut session = client.session().expect("a session");
        let mut answer = session.execute(Request::sql("a").chunks()).expect("an answer");
        let error = answer.next_row().expect_err("a column is missing");
        assert_eq!(
            error.to_string(),
            "the server broke the protocol: a chunk is not complete (outcome unknown)"
        );
    }
}

/// Another line of servers gives these kinds second numbers.
#[test]
fn second_numbers_of_kinds_are_understood() {
    let (client, _runtime) = against(|encoder| {
        encoder.column(&Column::signed("n")).expect("it is short");
        encoder.frame(102, &[&nulls(1)]).expect("it is short");
        encoder.frame(100, &[]).expect("it is short");
        encoder.fetch_done();
        encoder.execute_ok();
    });
    let mut session = client.session().expect("a session");
    let mut answer = session.execute(Request::sql("a").chunks()).expect("an answer");
    let mut rows = 0;
    while answer.next_row().expect("a row").is_some() {
        rows += 1;
    }
    assert_eq!(rows, 8);
    let (client, _runtime) = against(|encoder| {
        let tso = ResultTso { ts: 7, ..ResultTso::default() }.encode_to_vec();
        encoder.frame(101, &[&tso]).expect("it is short");
    });
    assert_eq!(client.timestamps(1).expect("a timestamp"), 7);
}

#[test]
fn a_chunk_that_was_not_asked_for_ends_the_session() {
    let (client, _runtime) = against(|encoder| {
        encoder.column(&Column::signed("n")).expect("it is short");
        encoder.frame(ServerKind::Chunk.number(), &[&nulls(1)]).expect("it is short");
    });
    let mut session = client.session().expect("a session");
    let error = session.run("a").expect_err("it was not asked for");
    assert!(matches!(error.kind(), ErrorKind::Protocol(_)), "{error}");
    assert!(!session.is_alive());
}

fn warning(bytes: usize) -> ServerMessage {
    let warning = Warning { level: None, code: 1292, msg: vec![b'x'; bytes] };
    ServerMessage::Notice(Notice::Warning(warning).to_frame())
}

#[test]
fn warnings_without_end_take_bounded_memory() {
    // Short warnings: the summary keeps 64 and counts the others. Long ones make the answer too
    // much.
    let (client, _runtime) = against(|encoder| {
        (0..10_000).for_each(|_| put(encoder, &warning(10)));
        encoder.execute_ok();
    });
    let mut session = client.session().expect("a session");
    let summary = session.run("a").expect("an answer");
    assert_eq!((summary.warnings.len(), summary.warnings_left_out), (64, 10_000 - 64));

    let (client, _runtime) = against(|encoder| {
        (0..64).for_each(|_| put(encoder, &warning(60 << 10)));
        encoder.execute_ok();
    });
    let mut session = client.session().expect("a session");
    is_too_much(&session.run("a").expect_err("they are long"));
}

#[test]
fn columns_with_long_names_take_bounded_memory() {
    let (client, _runtime) = against(|encoder| {
        let name = "x".repeat(60 << 10);
        for _ in 0..64 {
            encoder.column(&Column::signed(&name)).expect("it is short enough");
        }
        encoder.fetch_done();
        encoder.execute_ok();
    });
    let mut session = client.session().expect("a session");
    let error = session.execute("a").and_then(|mut answer| answer.next_row().map(|_| ()));
    is_too_much(&error.expect_err("they are long"));
}

#[test]
fn notices_in_front_of_timestamps_take_no_memory() {
    let (client, _runtime) = against(|encoder| {
        // Together these warnings are longer than an answer may be.
        (0..100).for_each(|_| put(encoder, &warning(60 << 10)));
        encoder.timestamps(7);
    });
    assert_eq!(client.timestamps(1).expect("a timestamp"), 7);
}

#[test]
fn a_client_and_a_server_talk_over_ipv6() {
    if !lab::has_ipv6() {
        return;
    }
    let server = Fixture::start_at((Ipv6Addr::LOCALHOST, 0).into(), config());
    let runtime = Runtime::builder().config(lab::config()).start().expect("started");
    let options = options(server.addr()).connections(1);
    let client = Client::new(&runtime.handle(), options).expect("good options");
    let mut session = client.session().expect("a session");
    for n in 0..20 {
        assert_eq!(one(session.execute(format!("echo {n}"))), n.to_string());
    }
    assert_eq!(server.count(Counter::Logins), 1);
}

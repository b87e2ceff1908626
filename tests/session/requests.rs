//! State that requests share: repeated errors, blocks, caches, timestamps, capabilities, and
//! sessions for one statement.

use std::iter;

use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkJoiner};
use epoll_group::codec::frame::Dialect;
use epoll_group::codec::message::{ClientMessage, ServerKind};
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, PlanType};
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::tso::AutoSp;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::{Any, Scalar};
use epoll_group::codec::value::Value;
use epoll_group::stats::{Counter, Stage};
use lab::engine::{Counts, Fixture, config, finish_with};
use lab::xrpc::request::{digest, plan, plan_digest, query, savepoint, update};
use lab::xrpc::{AUTO, Client, Trouble};
use lab::{LONG, eventually};

/// A statement that runs only if the one before it went well.
fn chained(sql: &str) -> StmtExecute {
    StmtExecute { reset_error: Some(false), ..update(sql) }
}

fn codes(client: &mut Client, session: u64, count: usize) -> Vec<u32> {
    let code = |client: &mut Client| client.reply(session).error.map_or(0, |failure| failure.code);
    (0..count).map(|_| code(client)).collect()
}

#[test]
fn an_error_repeats_until_a_request_does_not_care() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    for sql in ["one", "fail 1062", "one", "fail 1146", "fatal 1"] {
        client.send_sql(2, chained(sql));
    }
    let reset_error = Some(false);
    let chained_savepoint = |op: Operation| AutoSp { op, sp_name: b"a".to_vec(), reset_error };
    client.send(2, &ClientMessage::AutoSavepoint(chained_savepoint(Operation::Set)));
    client.send_sql(2, update("affect 1"));
    client.send_sql(2, chained("one"));
    client.send(2, &ClientMessage::AutoSavepoint(chained_savepoint(Operation::Rollback)));
    client.send_sql(2, chained("one"));
    client.send(2, &savepoint(Operation::Set, "b"));
    client.send_sql(2, chained("one"));
    assert_eq!(codes(&mut client, 2, 6), [0, 1062, 1062, 1062, 1062, 1062]);
    assert_eq!(codes(&mut client, 2, 6), [0, 0, 1305, 1305, 0, 0]);
    // Each session has an error of its own.
    client.send_sql(2, chained("fail 7"));
    client.send_sql(3, chained("one"));
    assert_eq!(codes(&mut client, 3, 1), [0]);
    assert_eq!(codes(&mut client, 2, 1), [7]);
    assert_eq!(Counts::of(&server.control.counts.executed), 9);
}

#[test]
fn what_was_refused_or_interrupted_repeats_too() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, StmtExecute { token: Some(-3), ..chained("one") });
    client.send_sql(2, chained("one"));
    client.send_sql(2, query("gate a"));
    client.send_sql(2, chained("one"));
    assert_eq!(codes(&mut client, 2, 2), [8001, 8001]);
    server.control.wait_at("a", 1);
    client.kill_query(2);
    assert_eq!(codes(&mut client, 2, 2), [1317, 1317]);
    client.send_sql(2, query("defer-drop"));
    client.send_sql(2, chained("one"));
    client.send_sql(2, query("source-fail 3"));
    client.send_sql(2, chained("one"));
    assert_eq!(codes(&mut client, 2, 4), [1317, 1317, 1234, 1234]);
    // A cache miss does not count as such an error.
    client.send_sql(2, update("one"));
    client.send_sql(2, StmtExecute { stmt: None, stmt_digest: Some(vec![1]), ..chained("") });
    client.send_sql(2, chained("one"));
    assert_eq!(codes(&mut client, 2, 3), [0, 8000, 0]);
    // A skipped request neither reads the cache nor changes it.
    let (stmt, stmt_digest) = (Some(b"one".to_vec()), Some(digest(b"one")));
    let kept = StmtExecute { stmt, stmt_digest, ..chained("") };
    let cached = StmtExecute { stmt: None, ..kept.clone() };
    client.send_sql(2, update("fail 1062"));
    client.send_sql(2, cached.clone());
    client.send_sql(2, kept);
    client.send_sql(2, StmtExecute { reset_error: Some(true), ..cached });
    assert_eq!(codes(&mut client, 2, 4), [1062, 1062, 1062, 8000]);
}

#[test]
fn replies_have_what_their_statements_say() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    assert_eq!(client.execute(2, "affect 7").good().affected, Some(7));
    let reply = client.execute(2, "insert 300").good();
    assert_eq!((reply.affected, reply.insert_id), (Some(1), Some(300)));
    assert_eq!(reply.produced.as_deref(), Some(&b"inserted"[..]));
    assert_eq!(client.execute(2, "warn 3").good().warnings.len(), 3);
    assert_eq!(client.execute(2, "warn 1000").good().warnings.len(), 64);
    let failure = client.execute(2, "fail 1062").failure();
    assert_eq!((failure.fatal, failure.code, &*failure.state), (false, 1062, "42000"));
    let failure = client.execute(2, "source-fail 10").failure();
    assert_eq!(failure.code, 1234);
    for sql in ["no-columns", "source-bare 3"] {
        assert_eq!(client.execute(2, sql).failure().text, "a row without columns");
    }
    client.send(2, &savepoint(Operation::Set, "result"));
    assert_eq!(client.reply(2).failure().text, "a savepoint has no result");
    client.execute(2, "one").one();
    // The client of these tests does not accept two results.
    client.send_sql(2, query("twice"));
    let kinds: Vec<_> = (0..8).map(|_| client.raw_frame().expect("a frame").kind).collect();
    assert_eq!(kinds, [12, 13, 16, 12, 13, 14, 11, 17]);
}

#[test]
fn rows_of_one_result_in_chunks_are_not_lost_to_the_next_nor_counted_in_it() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.send(
        2,
        &ClientMessage::ExecSql(StmtExecute { chunk_result: Some(true), ..query("twice") }),
    );
    let frames: Vec<_> = (0..8).map(|_| client.raw_frame().expect("a frame")).collect();
    let kinds: Vec<_> = frames.iter().map(|frame| frame.kind).collect();
    assert_eq!(kinds, [12, 21, 16, 12, 21, 14, 11, 17]);
    for (frame, number) in [(1, 1), (4, 2)] {
        let mut joiner = ChunkJoiner::new(&[BlockKind::Signed], 1 << 20);
        let frame = ChunkFrame::parse(&frames[frame].body).expect("a chunk");
        let chunk = joiner.push(frame).expect("its form").expect("a whole one");
        let mut rows = chunk.rows();
        assert_eq!(rows.next_row(), Ok(Some(&[Value::Signed(number)][..])));
        assert_eq!(rows.next_row(), Ok(None));
    }
}

#[test]
fn long_strings_and_geometries_come_as_rows_though_chunks_were_asked_for() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    for (sql, chunks, rows) in
        [("declared 2048", 1, 0), ("declared 2049", 0, 1), ("geometry", 0, 1), ("one", 1, 0)]
    {
        let statement = StmtExecute { chunk_result: Some(true), ..query(sql) };
        client.send(2, &ClientMessage::ExecSql(statement));
        let kinds = iter::from_fn(|| client.raw_frame()).map(|frame| frame.kind);
        let kinds: Vec<_> =
            kinds.take_while(|kind| *kind != ServerKind::StmtExecuteOk.number()).collect();
        let count = |kind: ServerKind| kinds.iter().filter(|at| **at == kind.number()).count();
        assert_eq!((count(ServerKind::Chunk), count(ServerKind::Row)), (chunks, rows), "{sql}");
    }
}

#[test]
fn arguments_reach_the_service_as_values_and_its_text_as_it_was() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    // Quotes, a backslash, and characters of which one byte is a backslash or hides a quote.
    let texts: [&[u8]; 5] = [b"' OR 1=1 -- ", b"\\' OR 1=1 -- ", b"\xbf' OR 1", b"\x95\\", b"\0"];
    let strings = texts.map(|text| Scalar::string(text, Some(28)));
    let others = [Scalar::null(), Scalar::raw_string("now()"), Scalar::identifier("a`b")];
    let scalars: Vec<_> = strings.into_iter().chain(others).collect();
    // The engine knows this text only if nothing else has been put into it.
    let args: Vec<_> = scalars.iter().cloned().map(Any::from).collect();
    let reply = client.run(2, StmtExecute { args, ..query("args ?") }).good();
    let told: Vec<_> = reply.rows.iter().map(|row| row[0].text().expect("a text")).collect();
    let meant = |scalar| format!("{:?}", Any::from(Scalar::clone(scalar)).value());
    assert_eq!(told, scalars.iter().map(meant).collect::<Vec<_>>());
}

#[test]
fn a_fatal_error_ends_the_session_and_what_waits_in_it() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    client.queue(2, &ClientMessage::ExecSql(query("echo before")));
    client.queue(2, &ClientMessage::ExecSql(query("fatal 1234")));
    client.queue(2, &ClientMessage::ExecSql(query("one")));
    client.flush();
    assert_eq!(client.reply(2).one().text(), Some("before"));
    let failure = client.reply(2).failure();
    assert_eq!((failure.fatal, failure.code), (true, 1234));
    client.reply(2).failure();
    eventually(LONG, || Counts::of(&server.control.counts.closed) == 1);
    client.execute(3, "one").one();
    client.new_session(2);
    client.execute(2, "one").one();
}

#[test]
fn a_block_that_expects_no_error_ends_with_the_first_one() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.expect_open(2).good();
    client.execute(2, "one").one();
    assert_eq!(client.execute(2, "fail 1062").failure().code, 1062);
    assert_eq!(client.execute(2, "one").failure().code, 5159);
    client.expect_open(2).good();
    assert_eq!(client.execute(2, "one").failure().code, 5159);
    assert_eq!(client.expect_close(2).failure().code, 5159);
    assert_eq!(client.expect_close(2).failure().code, 5159);
    assert_eq!(client.expect_close(2).failure().code, 5158);
    client.execute(2, "one").one();
    for _ in 0..16 {
        client.expect_open(2).good();
    }
    assert_eq!(client.expect_open(2).failure().code, 5160);
}

#[test]
fn what_is_in_no_cache_is_asked_for_once() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let text = "text of some length";
    let known = StmtExecute {
        stmt: None,
        stmt_digest: Some(digest(b"x")),
        schema_name: Some(b"elsewhere".to_vec()),
        snapshot_seq: Some(7),
        ..query("")
    };
    let failure = client.run(2, known).failure();
    // The service has heard neither of the database nor of the timestamp.
    assert_eq!(Counts::of(&server.control.counts.executed), 0, "the service has not heard of it");
    assert_eq!((failure.fatal, failure.code, &*failure.text), (false, 8000, "do not exist query!"));
    for round in 0..3 {
        assert_eq!(client.run_cached(2, query(text)).one().text(), Some(text));
        assert_eq!(server.count(Counter::SqlHit), round);
    }
    assert_eq!(server.count(Counter::SqlMiss), 2);
    let neither = StmtExecute { stmt: None, ..query("") };
    assert_eq!(client.run(2, neither).failure().text, "Neither stmt nor digest exist.");
    // Another session and another connection of the account know it, too.
    let known = StmtExecute { stmt: None, stmt_digest: Some(digest(text.as_bytes())), ..query("") };
    let mut other = server.client_with_sessions([2]);
    assert_eq!(other.run(2, known.clone()).one().text(), Some(text));
    assert_eq!(other.run(AUTO | 2, known).one().text(), Some(text));
}

#[test]
fn texts_that_are_too_long_are_run_and_not_kept() {
    let server = Fixture::start(config().request_cache_max_length(1000));
    let mut client = server.client_with_sessions([2]);
    for (length, kept) in [(990, true), (1001, false)] {
        let text = "text ".to_owned() + &"x".repeat(length - 5);
        for _ in 0..2 {
            assert_eq!(client.run_cached(2, query(&text)).one().text(), Some(&*text));
        }
        assert_eq!(server.count(Counter::SqlHit), u64::from(kept || length > 1000));
    }
}

#[test]
fn accounts_do_not_see_what_others_have_kept() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let mut thief = server.client_of("other");
    thief.new_session(2);
    // The key is not the MD5 but a number of the client's choice.
    let key = Some(vec![7; 8]);
    let known = StmtExecute { stmt: None, stmt_digest: key.clone(), ..query("") };
    client.run(2, StmtExecute { stmt_digest: key.clone(), ..query("text of root") }).one();
    assert_eq!(thief.run(2, known.clone()).failure().code, 8000);
    thief.run(2, StmtExecute { stmt_digest: key.clone(), ..query("text of other") }).one();
    assert_eq!(client.run(2, known.clone()).one().text(), Some("text of root"));
    assert_eq!(thief.run(2, known.clone()).one().text(), Some("text of other"));
    // A new text takes the place of the old one.
    client.run(2, StmtExecute { stmt_digest: key, ..query("text of root, too") }).one();
    assert_eq!(client.run(2, known.clone()).one().text(), Some("text of root, too"));
    assert_eq!(thief.run(2, known).one().text(), Some("text of other"));
    // The same holds for plans.
    let template = AnyPlan { plan_type: PlanType::RangeScan, ..AnyPlan::default() };
    client.run_plan_cached(2, plan(template.clone(), [])).good();
    let stolen = plan(template.clone(), []).cached(plan_digest(&template));
    let failure = thief.run_plan(2, stolen).failure();
    assert_eq!((failure.code, &*failure.text), (8000, "do not exist plan!"));
}

#[test]
fn what_has_no_room_in_the_cache_leaves_it_and_is_counted() {
    let server = Fixture::start(config().request_cache_number(128).request_cache_instances(1));
    let mut client = server.client_with_sessions([2]);
    for number in 1..=131 {
        client.run_cached(2, query(&format!("text {number}"))).one();
    }
    for number in 1_u64..=130 {
        let plan_digest = Some(number.to_le_bytes().to_vec());
        let template = AnyPlan { plan_type: PlanType::RangeScan, ..AnyPlan::default() };
        client.run_plan(2, ExecPlan { plan_digest, ..plan(template, []) }).good();
    }
    let evicted = [Counter::SqlEvict, Counter::PlanEvict].map(|counter| server.count(counter));
    assert_eq!(evicted, [3, 2]);
}

/// Seen with a proxy that corrupts bytes: a text with an error in it came with a digest that had none,
/// and all others of the account got the error.
#[test]
fn a_text_that_came_under_the_digest_of_another_is_run_by_nobody_else() {
    let server = Fixture::start(config());
    let mut corrupted = server.client_with_sessions([2]);
    let mut other = server.client_with_sessions([2]);
    let digest = Some(digest(b"text of both"));
    let wrong = StmtExecute { stmt_digest: digest.clone(), ..query("text or both") };
    let known = StmtExecute { stmt: None, stmt_digest: digest, ..query("") };
    assert_eq!(corrupted.run(2, wrong.clone()).one().text(), Some("text or both"));
    assert_eq!(other.run(2, known.clone()).failure().code, 8000);
    assert_eq!(other.run_cached(2, query("text of both")).one().text(), Some("text of both"));
    // The correct entry stays in the cache.
    corrupted.run(2, wrong).one();
    assert_eq!(other.run(2, known).one().text(), Some("text of both"));
}

#[test]
fn plans_run_with_their_parameters_and_are_kept() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let template = AnyPlan { plan_type: PlanType::RangeScan, ..AnyPlan::default() };
    for round in 0..3 {
        let parameters = (0..round).map(|_| Scalar::unsigned(1));
        let reply = client.run_plan_cached(2, plan(template.clone(), parameters)).good();
        let row: Vec<_> = reply.rows[0].iter().map(|cell| cell.integer()).collect();
        assert_eq!(row, [Some(8), Some(round.into())]);
    }
    assert_eq!((server.count(Counter::PlanMiss), server.count(Counter::PlanHit)), (1, 2));
}

#[test]
fn timestamps_come_in_order_on_any_session_open_or_not() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, query("gate a"));
    server.control.wait_at("a", 1);
    let mut expected = 0;
    let mut tickets = Vec::new();
    for round in 0..200 {
        let count = 1 + round % 5;
        tickets.push((client.queue([0, 2, 99][round as usize % 3], &ask(count)), expected));
        expected += count as u64;
        if round % 7 == 0 {
            client.flush();
        }
    }
    client.flush();
    for (ticket, expected) in tickets {
        let reply = client.reply_to(ticket.expect("answered")).good();
        assert_eq!(reply.timestamp, Some(expected));
    }
    for count in [0, -1] {
        assert_eq!(client.timestamps(99, count).failure().code, 8001);
    }
    client.send(AUTO | 2, &ask(1));
    assert_eq!(client.reply(AUTO | 2).failure().text, "Not support for polarx rpc.");
    server.control.open("a");
    client.reply(2).one();
}

/// Found by review: the parameters counted, so the plan was too long and its earlier entry was removed.
#[test]
fn long_parameters_do_not_keep_their_plan_from_the_cache() {
    let server = Fixture::start(config().request_cache_max_length(4096));
    let mut client = server.client_with_sessions([2]);
    let template = AnyPlan { plan_type: PlanType::RangeScan, ..AnyPlan::default() };
    let run = |client: &mut Client, stored: ExecPlan| {
        let stored = ExecPlan { plan_digest: Some(plan_digest(&template)), ..stored };
        client.run_plan(2, stored.clone()).good();
        client.run_plan(2, stored.cached(plan_digest(&template)))
    };
    for bytes in [1, 5000, 5000] {
        let parameter = Scalar::string(vec![b'x'; bytes], None);
        run(&mut client, plan(template.clone(), [parameter])).good();
    }
    // The text for the audit log is kept with the plan, so it counts.
    let long = ExecPlan { audit_str: Some(vec![b'x'; 5000]), ..plan(template.clone(), []) };
    assert_eq!(run(&mut client, long).failure().code, 8000);
}

fn ask(count: i32) -> ClientMessage {
    lab::xrpc::request::timestamps(count)
}

#[test]
fn capabilities_are_told_at_any_time() {
    let server = Fixture::start(config());
    let mut client = server.stranger();
    client.probe();
    client.challenge().expect("a challenge");
    client.probe();
    drop(client);
    let mut client = server.client_with_sessions([2]);
    client.send_sql(2, query("gate a"));
    server.control.wait_at("a", 1);
    client.send(2, &ClientMessage::CapabilitiesGet);
    let capabilities = client.probe().capabilities;
    assert_eq!(capabilities.len(), 1);
    assert_eq!(capabilities[0].name, b"polarx_rpc");
    server.control.open("a");
    client.wait_for_all();
}

#[test]
fn sessions_for_one_statement_take_statements_only() {
    let server = Fixture::start(config());
    let mut client = server.client();
    let session = AUTO | 2;
    let refused = |client: &mut Client, message: &ClientMessage| {
        client.send(session, message);
        let failure = client.reply(session).failure();
        assert_eq!((failure.fatal, failure.code), (false, 8001), "{message:?}");
        assert_eq!(failure.text, "Not support for polarx rpc.");
    };
    refused(&mut client, &ClientMessage::ExecPlan(Box::new(plan(AnyPlan::default(), []))));
    refused(&mut client, &ClientMessage::SessionClose);
    refused(&mut client, &ClientMessage::ExpectClose);
    refused(&mut client, &savepoint(Operation::Set, "a"));
    assert_eq!(Counts::of(&server.control.counts.opened), 0);
    // Errors keep their codes.
    assert_eq!(client.execute(session, "fail 1062").failure().code, 1062);
    assert_eq!(client.execute(session, "fatal 1062").failure().code, 1062);
    assert_eq!(client.execute(session, "one").one().integer(), Some(1));
    // Several requests on one id have a session each.
    for sql in ["begin", "echo a", "fail 7", "echo b"] {
        client.queue(session, &ClientMessage::ExecSql(chained(sql)));
    }
    client.flush();
    client.reply(session).good();
    assert_eq!(client.reply(session).one().text(), Some("a"));
    assert_eq!(client.reply(session).failure().code, 7);
    assert_eq!(client.reply(session).one().text(), Some("b"));
    server.wait_until_even();
    assert_eq!(Counts::of(&server.control.counts.opened), 7);
}

#[test]
fn files_are_not_transferred() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let messages = [
        ClientMessage::GetFileInfo(Default::default()),
        ClientMessage::TransferFileData(Default::default()),
        ClientMessage::ManageFile(Default::default()),
    ];
    for message in messages {
        client.send(2, &message);
        client.send_sql(2, StmtExecute { reset_error: Some(false), ..query("one") });
        let failure = client.reply(2).failure();
        assert_eq!(
            (failure.fatal, failure.code, &*failure.text),
            (false, 8001, "unsupported command")
        );
        client.reply(2).one();
    }
    client.expect_open(2).good();
    client.send(2, &ClientMessage::ManageFile(Default::default()));
    assert_eq!(client.reply(2).failure().code, 8001);
    assert_eq!(client.expect_close(2).failure().code, 5159);
}

#[test]
fn many_sessions_for_one_statement_run_and_end() {
    let server = Fixture::start(config());
    let mut client = server.client();
    let all = u64::from(lab::often(5000));
    for first in (0..all).step_by(50) {
        for id in first..first + 50 {
            client.queue(AUTO | id, &ClientMessage::ExecSql(query(&format!("echo {id}"))));
        }
        client.flush();
        for id in first..first + 50 {
            assert_eq!(client.reply(AUTO | id).one().text(), Some(&*id.to_string()));
        }
        // The same id can be used again at once.
        assert_eq!(client.execute(AUTO | first, "echo x").one().text(), Some("x"));
        assert_eq!(client.execute(AUTO | first, "echo y").one().text(), Some("y"));
    }
    server.wait_until_even();
}

#[test]
fn the_session_of_one_statement_makes_room_for_the_next_on_its_id() {
    let server = Fixture::start(config().max_sessions_per_connection(1));
    let mut client = server.client();
    for _ in 0..lab::often(1000) {
        client.send_sql(AUTO | 2, query("defer a"));
        assert!(finish_with(server.control.take_one_deferred("a"), "later"));
        assert_eq!(client.reply(AUTO | 2).one().text(), Some("later"));
    }
    server.wait_until_even();
}

#[test]
fn a_session_that_could_not_be_opened_makes_room_for_the_next() {
    let server = Fixture::start(config().max_sessions_per_connection(1));
    let mut client = server.client_of("no-entry");
    for _ in 0..lab::often(1000) {
        let failure = client.execute(AUTO | 2, "one").failure();
        assert_eq!((failure.fatal, failure.code), (true, 1040), "{}", failure.text);
    }
}

#[test]
fn statements_in_sessions_of_their_own_have_the_account_of_their_connection() {
    let server = Fixture::start(config());
    let mut clients = ["root", "other"].map(|account| (account, server.client_of(account)));
    for _ in 0..lab::often(100) {
        for id in 0..20 {
            for (_, client) in &mut clients {
                client.send_sql(AUTO | id, query("who"));
            }
        }
        for (account, client) in &mut clients {
            for id in 0..20 {
                assert_eq!(client.reply(AUTO | id).one().text(), Some(*account));
            }
        }
    }
}

#[test]
fn the_other_dialect_has_its_header_in_both_directions() {
    let server = Fixture::start(config().galaxy_protocol(true).galaxy_version(3));
    let mut client = server.client_with(Dialect::Galaxy { version: 3 });
    client.new_session(2);
    for sql in ["echo x", "defer-finish x"] {
        assert_eq!(client.execute(2, sql).one().text(), Some("x"));
    }
    client.expect_open(2).good();
    assert_eq!(client.execute(2, "fail 1").failure().code, 1);
    assert_eq!(client.expect_close(2).failure().code, 5159);
    client.send_sql(2, query("defer a"));
    assert!(finish_with(server.control.take_one_deferred("a"), "later"));
    assert_eq!(client.reply(2).one().text(), Some("later"));
    client.execute(AUTO | 2, "rows 10 10").good();
    // A client of another version gets an error in the server's version, and its connection is
    // closed.
    let mut client = Client::connect_with(server.addr(), Dialect::Galaxy { version: 4 });
    client.send(0, &ClientMessage::CapabilitiesGet);
    assert!(matches!(client.try_raw_frame(), Err(Trouble::Header(_))));
}

#[test]
fn decoding_login_and_ends_are_in_the_histograms() {
    let server = Fixture::start(config().enable_perf_hist(true));
    let mut client = server.client_with_sessions([2]);
    client.execute(2, "one").one();
    client.close(2).good();
    client.finish();
    let count = |stage| server.stats().histogram(stage).map_or(0, |histogram| histogram.count());
    eventually(LONG, || count(Stage::Fin) == 1);
    // Two messages of the login, and three of the session.
    assert_eq!([Stage::Auth, Stage::Decode, Stage::Cleanup].map(count), [1, 5, 1]);
}

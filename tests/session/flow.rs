//! Flow control: rows leave when the client takes them. A client that does not take them costs
//! little, and not for ever.

use std::time::Duration;

use epoll_group::Config;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::session::CancelReason;
use epoll_group::stats::Counter;
use lab::engine::{Counts, Fixture, config};
use lab::threads::threads;
use lab::xrpc::request::{query, update};
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually};

/// Statement with an initial credit of `kib` KiB.
fn with_token(sql: &str, kib: i32) -> StmtExecute {
    StmtExecute { token: Some(kib), ..query(sql) }
}

fn chunks(statement: StmtExecute) -> StmtExecute {
    StmtExecute { chunk_result: Some(true), ..statement }
}

/// Rows and chunks, each from a row source and from a handler that writes.
fn forms(rows: u64, bytes: usize, kib: i32) -> [StmtExecute; 4] {
    let [source, writer] =
        ["source", "rows"].map(|word| with_token(&format!("{word} {rows} {bytes}"), kib));
    [source.clone(), writer.clone(), chunks(source), chunks(writer)]
}

#[test]
fn a_short_result_of_a_source_leaves_in_one_send() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let calls = || server.stats().get(Counter::SendCalls);
    let before = calls();
    for _ in 0..100 {
        assert_eq!(client.execute(2, "source 3 10").good().rows.len(), 3);
    }
    assert_eq!(calls() - before, 100);
}

#[test]
fn a_source_without_credit_holds_no_thread() {
    let server = Fixture::start(config());
    let before = threads(&server.stats());
    let mut client = server.client_with_sessions(2..42);
    client.set_offers(None);
    for session in 2..40 {
        let ticket = client.send_sql(session, with_token("source 1000000 100", 1));
        client.wait_for(ticket, |reply| reply.token_done == 1);
        // The last row may exceed the credit.
        let sent = client.so_far(ticket).bytes;
        assert!((1024..1700).contains(&sent), "{sent} bytes");
    }
    let stats = server.wait_until_idle(before);
    assert_eq!(stats.waiting_writers, 0, "{stats}");
    assert_eq!(stats.get(Counter::TokenWaits), 38, "{stats}");
    client.execute(41, "one").one();
    for session in 2..40 {
        client.kill_query(session);
        assert_eq!(client.reply(session).failure().code, 1317);
    }
    assert_eq!(Counts::of(&server.control.counts.sources_dropped), 38);
}

#[test]
fn who_grants_nothing_is_cut_at_the_deadline() {
    let server = Fixture::start(config().request_timeout(Duration::from_millis(200)));
    let mut client = server.client_with_sessions(2..10);
    client.set_offers(None);
    for (session, statement) in (2..).zip(forms(1_000_000, 100, 1)) {
        client.send_sql(session, statement);
    }
    client.send_sql(6, query("gate a"));
    client.send_sql(7, query("defer a"));
    for session in 2..8 {
        let failure = client.reply(session).failure();
        assert_eq!((failure.fatal, failure.code), (false, 3024), "{session}: {failure:?}");
        client.execute(session, "one").one();
    }
    assert_eq!(server.control.cancels(), [CancelReason::Deadline; 6]);
    assert_eq!(Counts::of(&server.control.counts.cancelled), 6);
    assert_eq!(server.count(Counter::RequestsExpired), 6);
    eventually(LONG, || server.stats().waiting_writers == 0);
}

#[test]
fn handlers_that_write_rows_hold_a_bounded_number_of_threads() {
    let server = Fixture::start(config().max_waiting_writers(2));
    let mut client = server.client_with_sessions(2..8);
    client.set_offers(None);
    for session in 2..7 {
        let ticket = client.send_sql(session, with_token("rows 100000 100", 1));
        client.wait_for(ticket, |reply| reply.token_done == 1);
        // The writers come one after the other, so that the order of their waiting is known.
        let (waiting, cut) = ((session - 1).min(2), (session - 1).saturating_sub(2));
        eventually(LONG, || server.stats().waiting_writers == waiting);
        eventually(LONG, || server.count(Counter::WritersCut) == cut);
    }
    // The sessions that have waited longest are cut.
    for session in 2..5 {
        let failure = client.reply(session).failure();
        assert_eq!((failure.fatal, failure.code), (false, 3024));
    }
    assert_eq!(server.count(Counter::WritersCut), 3);
    eventually(LONG, || server.stats().waiting_writers == 2);
    client.execute(7, "one").one();
    client.set_offers(Some(100_000));
    for session in 5..7 {
        client.offer(session, 100_000);
        assert_eq!(client.reply(session).good().row_count, 100_000);
    }
    assert_eq!(server.stats().waiting_writers, 0);
}

#[test]
fn who_grants_slowly_gets_every_row() {
    let server = Fixture::start(config());
    for bytes in [10, 300, 5_000] {
        for statement in forms(300, bytes, 0) {
            let mut client = server.client_with_sessions([2]);
            client.set_offers(Some(1));
            client.send_sql(2, statement.clone());
            let reply = client.reply(2).good();
            assert_eq!(reply.rows.len(), 300, "{statement:?}");
            for (at, row) in reply.rows.iter().enumerate() {
                assert_eq!(row[0].integer(), Some(at as i128));
                assert_eq!(row[1].text().map(str::len), Some(bytes));
            }
            // Small rows may fit into one chunk.
            assert!(reply.token_done > 0 || reply.chunks == 1, "{} bytes", reply.bytes);
        }
    }
}

#[test]
fn credit_is_exceeded_by_one_row_or_one_chunk_at_most() {
    // A chunk is full when one of its blocks of 4 KiB is. Beside the block of texts it has one of
    // numbers.
    const ROW: usize = 400;
    const CHUNK: usize = 4096 + ROW;
    let server = Fixture::start(config());
    // Bytes beside the rows: columns, frames that report spent credit, headers.
    let beside = |pauses: usize| 200 + 13 * pauses;
    for (form, most, kib) in [(0, ROW, 1), (1, ROW, 1), (2, CHUNK, 8), (3, CHUNK, 8)] {
        let mut client = server.client_with_sessions([2]);
        client.set_offers(None);
        let ticket = client.send_sql(2, forms(1_000, 350, 2)[form].clone());
        let mut granted = 2048;
        for pauses in 1.. {
            let reply = client.wait_for(ticket, |reply| reply.token_done == pauses);
            let (bytes, done) = (reply.bytes, reply.done);
            assert!(bytes <= granted + most + beside(pauses), "{bytes} of {granted} at {pauses}");
            if done {
                break;
            }
            assert!(bytes + 13 * pauses > granted, "it waits too early: {bytes} of {granted}");
            granted += 1024 * kib as usize;
            client.offer(2, kib);
        }
        let reply = client.reply(2).good();
        assert_eq!((reply.rows.len(), reply.chunks > 0), (1_000, most == CHUNK));
    }
}

#[test]
fn offers_that_nobody_waits_for_are_harmless() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    client.set_offers(None);
    client.offer(2, 1000);
    // The offer came before this statement and does not count for it.
    let ticket = client.send_sql(2, with_token("source 1000 100", 1));
    client.wait_for(ticket, |reply| reply.token_done == 1);
    assert!(client.so_far(ticket).bytes < 2000);
    client.offer(2, -1);
    client.offer(2, -5);
    client.offer(2, 0);
    client.probe();
    assert_eq!(client.so_far(ticket).token_done, 1);
    client.offer(2, 1000);
    assert_eq!(client.reply(2).good().rows.len(), 1000);
    client.offer(2, 1);
    // Sessions for one statement have flow control, too.
    let ticket = client.send_sql(AUTO | 2, with_token("source 1000 100", 1));
    client.wait_for(ticket, |reply| reply.token_done == 1);
    client.offer(AUTO | 2, 1000);
    assert_eq!(client.reply(AUTO | 2).good().rows.len(), 1000);
    client.offer(AUTO | 2, 1000);
    client.offer(AUTO | 3, 1000);
    client.execute(2, "one").one();
    assert_eq!(client.strays(), []);
}

#[test]
fn credit_out_of_range_is_refused_and_much_of_it_is_not() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    for token in [-2, i32::MIN] {
        let failure = client.run(2, with_token("one", token)).failure();
        assert_eq!((failure.fatal, failure.code, &*failure.text), (false, 8001, "Invalid Token"));
    }
    for token in [-1, 0, 1, 4_194_305, i32::MAX] {
        for _ in 0..5 {
            client.offer(2, i32::MAX);
        }
        assert_eq!(client.run(2, with_token("source 1000 100", token)).good().rows.len(), 1000);
    }
    client.set_offers(Some(i32::MAX));
    for statement in forms(2000, 1000, 0) {
        client.send_sql(2, statement);
        for _ in 0..100 {
            client.offer(2, i32::MAX);
        }
        assert_eq!(client.reply(2).good().rows.len(), 2000);
    }
}

#[test]
fn a_client_that_does_not_read_costs_bounded_memory_and_no_thread() {
    for word in ["source", "rows"] {
        let high = 256 << 10;
        let server = Fixture::start(
            config().write_high_watermark_bytes(high).write_low_watermark_bytes(high / 2),
        );
        let mut client = server.client_with_sessions([2, 3]);
        let mut bystander = server.client_with_sessions([2]);
        client.send_sql(2, update(&format!("{word} 200000 1000")));
        eventually(LONG, || server.stats().buffered_bytes > high as u64);
        // The kernel's buffers grow to some MiB, so the server sends more now and then.
        eventually(LONG, || {
            let (stats, writers) = (server.stats(), u64::from(word == "rows"));
            stats.running_threads <= writers && stats.waiting_writers == writers
        });
        for _ in 0..20 {
            bystander.execute(2, "one").one();
        }
        let stats = server.stats();
        assert!(stats.buffered_bytes < 3 * high as u64, "{stats}");
        // When the client reads, it gets all rows.
        client.forget_rows();
        assert_eq!(client.reply(2).good().row_count, 200_000);
        eventually(LONG, || server.stats().waiting_writers == 0);
        // The same, but the client goes away.
        client.send_sql(2, update(&format!("{word} 200000 1000")));
        eventually(LONG, || server.stats().buffered_bytes > high as u64);
        drop(client);
        eventually(LONG, || server.stats().connections == 1 && server.stats().sessions == 1);
        eventually(LONG, || server.stats().waiting_writers == 0);
    }
}

/// Server, and its client that does not read, with handlers of sessions 2 to 5 that wait for room.
fn handlers_that_wait_for_room(config: Config) -> (Fixture, Client) {
    let high = 64 << 10;
    let server = Fixture::start(
        config
            .tcp_send_buf(16 << 10)
            .write_high_watermark_bytes(high)
            .write_low_watermark_bytes(high / 2),
    );
    let mut client = server.client_with_sessions(WRITERS);
    // They leave in one write, because a connection with a backlog is not read.
    for session in WRITERS {
        client.queue(session, &ClientMessage::ExecSql(update("rows 1000000 1000")));
    }
    client.flush();
    // The kernel's buffers are full when no handler writes any more.
    eventually(LONG, || server.stats().waiting_writers == WRITERS.count() as u64);
    (server, client)
}

const WRITERS: std::ops::Range<u64> = 2..6;

/// A handler may notice the end by itself before its session is cancelled, so there may be fewer
/// cancellations than handlers.
#[track_caller]
fn assert_cancelled_with_connection(server: &Fixture) {
    let cancels = server.control.cancels();
    assert!(cancels.len() <= WRITERS.count(), "{cancels:?}");
    assert!(cancels.iter().all(|reason| *reason == CancelReason::Connection), "{cancels:?}");
}

#[test]
fn handlers_that_wait_for_room_return_when_net_write_timeout_cuts_their_peer() {
    let config = config().net_write_timeout(Duration::from_millis(300));
    let (server, client) = handlers_that_wait_for_room(config);
    let mut bystander = server.client_with_sessions([2]);
    server.wait_for(Counter::ClosedWriteTimeout, 1);
    eventually(LONG, || {
        let stats = server.stats();
        (stats.waiting_writers, stats.stalled_threads, stats.sessions) == (0, 0, 1)
    });
    assert_cancelled_with_connection(&server);
    assert_eq!((server.count(Counter::WritersCut), server.stats().buffered_bytes), (0, 0));
    bystander.execute(2, "one").one();
    drop(client);
}

#[test]
fn handlers_that_wait_for_room_return_when_their_peer_resets() {
    let (server, client) = handlers_that_wait_for_room(config());
    client.reset();
    server.wait_until_even();
    eventually(LONG, || {
        let stats = server.stats();
        (stats.waiting_writers, stats.stalled_threads) == (0, 0)
    });
    assert_cancelled_with_connection(&server);
    assert_eq!((server.count(Counter::ClosedReset), server.stats().buffered_bytes), (1, 0));
}

#[test]
fn handlers_that_wait_for_room_return_when_a_drain_cuts_their_peer() {
    let (mut server, client) = handlers_that_wait_for_room(config());
    let report = server.drain_that_cuts(1, Duration::from_millis(50), "the peer does not read");
    assert!(report.stuck.is_empty(), "no handler keeps its thread: {report}");
    assert_cancelled_with_connection(&server);
    drop(client);
}

#[test]
fn who_grants_nothing_any_more_is_not_waited_for() {
    let server = Fixture::start(config());
    for statement in forms(1_000_000, 100, 1) {
        let mut client = server.client_with_sessions([2, 3]);
        client.set_offers(None);
        let ticket = client.send_sql(2, statement);
        client.wait_for(ticket, |reply| reply.token_done == 1);
        client.send_sql(2, with_token("source 100 10", 100));
        client.send_sql(3, with_token("source 100 100", 1));
        client.finish();
        assert_eq!(client.reply(2).failure().code, 1317);
        assert_eq!(client.reply(2).good().rows.len(), 100);
        assert_eq!(client.reply(3).failure().code, 1317);
        assert_eq!(client.rest(), []);
    }
}

#[test]
fn rows_of_many_that_grant_little_come_whole() {
    let server = Fixture::start(config());
    let clients = [(); 4].map(|()| server.client_with_sessions(2..10));
    let workers = clients.map(|mut client: Client| {
        std::thread::spawn(move || {
            client.set_offers(Some(3));
            for round in 0..5 {
                for session in 2..10 {
                    client.send_sql(
                        session,
                        forms(200, 50, 1)[(session + round) as usize % 4].clone(),
                    );
                }
                for session in 2..10 {
                    let reply = client.reply(session).good();
                    assert_eq!(reply.rows.len(), 200);
                    assert!(
                        reply
                            .rows
                            .iter()
                            .enumerate()
                            .all(|(at, row)| { row[0].integer() == Some(at as i128) })
                    );
                }
            }
        })
    });
    workers.into_iter().for_each(|worker| worker.join().expect("all rows"));
}

#[test]
fn two_long_results_take_turns_on_one_worker() {
    const ROWS: u64 = 40_000;
    // The backlog may hold both results, so neither waits for room.
    let config = config().write_high_watermark_bytes(64 << 20).write_low_watermark_bytes(32 << 20);
    // No second thread takes over the session that waits for its turn.
    let config = config
        .epoll_threads_per_group(1)
        .reserve_threads_per_group(0)
        .thread_deadlock_check_interval(Duration::from_secs(10))
        .enable_tasker(false);
    let server = Fixture::start(config);
    let mut client = server.client_with_sessions([2, 3]);
    client.forget_rows();
    let statement = ClientMessage::ExecSql(query(&format!("source {ROWS} 100")));
    let tickets = [2, 3].map(|session| client.queue(session, &statement).expect("answered"));
    client.flush();
    client
        .wait(|client| tickets.iter().any(|&ticket| client.so_far(ticket).done))
        .expect("a result");
    let rows = tickets.map(|ticket| client.so_far(ticket).row_count);
    assert!(rows.iter().all(|&rows| rows > ROWS / 2), "{rows:?}");
    for ticket in tickets {
        client.reply_to(ticket).good();
    }
}

//! Ends of relays, by a cancel, a cut, a misplaced frame or a panic; and wake-ups that come then.

use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::codec::message::ServerKind;
use epoll_group::session::{CancelReason, SessionError, Wake};
use epoll_group::stats::Counter;
use lab::engine::backend::{Backend, Piece, chunk, end, meta, more, result, row};
use lab::engine::{Counts, Fixture, config};
use lab::xrpc::request::update;
use lab::xrpc::{AUTO, Client};
use lab::{LONG, eventually, often};

/// Has one row relayed, and waits until the backend has nothing more.
#[track_caller]
fn send_and_wait(server: &Fixture, client: &mut Client, session: u64) -> Backend {
    let backend = Backend::of([meta(), vec![row(1, "x")]].concat());
    let ticket = backend.send(server, client, session, update(""));
    client.wait_for(ticket, |reply| reply.row_count == 1);
    eventually(LONG, || backend.is_waiting());
    backend
}

#[test]
fn one_that_is_killed_is_dropped_and_woken_in_vain() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2, 3]);
    for _ in 0..often(50) {
        let backend = send_and_wait(&server, &mut client, 2);
        client.kill_query(2);
        let reply = client.reply(2);
        assert_eq!((reply.row_count, reply.failure().code), (1, 1317));
        assert_eq!(backend.dropped(), 1);
        // A wake-up of the old backend does not reach the next request.
        let next = send_and_wait(&server, &mut client, 2);
        let asked = next.asked();
        backend.push([row(2, "late"), end()]);
        client.probe();
        assert_eq!(next.asked(), asked);
        next.push([end()]);
        client.reply(2).good();
    }
    let backend = send_and_wait(&server, &mut client, 3);
    let kill = client.kill_connection(3);
    client.reply_to(kill).failure();
    client.reply(3).failure();
    eventually(LONG, || backend.dropped() == 1);
    backend.push(result(1, "late"));
    client.new_session(3);
    client.execute(3, "one").one();
    assert_eq!(client.strays(), []);
}

#[test]
fn waking_races_with_killing_and_there_is_one_answer() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let (mut answered, mut killed) = (0, 0);
    let (began, least) = (Instant::now(), often(200));
    // Goes on until each of the two has won at least once.
    while answered + killed < least || answered == 0 || killed == 0 {
        assert!(began.elapsed() < LONG, "{answered} answered, {killed} killed");
        let backend = send_and_wait(&server, &mut client, 2);
        thread::scope(|scope| {
            scope.spawn(|| backend.push([row(2, "x"), end()]));
            client.kill_query(2);
            let reply = client.reply(2);
            if let Some(failure) = &reply.error {
                assert_eq!(failure.code, 1317);
                killed += 1;
            } else {
                assert_eq!(reply.row_count, 2);
                answered += 1;
            }
        });
        assert_eq!(backend.dropped(), 1);
        client.execute(2, "one").one();
    }
    assert_eq!(client.strays(), []);
}

#[test]
fn one_that_nobody_wakes_ends_at_the_deadline() {
    let server = Fixture::start(config().request_timeout(Duration::from_millis(200)));
    let mut client = server.client_with_sessions(2..10);
    let backends: Vec<_> = (2..10)
        .map(|session| {
            let backend = Backend::default();
            backend.send(&server, &mut client, session, update(""));
            backend
        })
        .collect();
    for session in 2..10 {
        let failure = client.reply(session).failure();
        assert_eq!((failure.fatal, failure.code), (false, 3024));
        client.execute(session, "one").one();
    }
    assert!(backends.iter().all(|backend| backend.dropped() == 1));
    assert_eq!(server.control.cancels(), [CancelReason::Deadline; 8]);
    assert_eq!(server.count(Counter::RequestsExpired), 8);
}

#[test]
fn its_wake_outlives_the_connection_and_holds_nothing() {
    let server = Fixture::start(config().half_close_timeout(Duration::from_millis(1)));
    for round in 0..often(50) {
        let mut client = server.client_with_sessions([2, 3]);
        let backends = [2, 3, AUTO | 1].map(|session| send_and_wait(&server, &mut client, session));
        let wakes = backends.each_ref().map(Backend::waker);
        if round % 2 == 0 {
            client.reset();
        } else {
            drop(client);
        }
        if round % 3 == 0 {
            wakes.iter().for_each(Wake::wake);
        }
        // A half-closed connection ends at its timeout, so its relays end a little later.
        eventually(LONG, || backends.iter().all(|backend| backend.dropped() == 1));
        server.wait_until_even();
        eventually(LONG, || server.stats().connections == 0);
        assert_eq!(server.stats().deferred_requests, 0);
        wakes.iter().for_each(Wake::wake);
    }
}

#[test]
fn what_comes_after_a_half_close_is_passed_on() {
    let server = Fixture::start(config().half_close_timeout(LONG));
    let mut client = server.client_with_sessions([2]);
    let backend = send_and_wait(&server, &mut client, 2);
    client.finish();
    backend.push([row(2, "x"), end()]);
    assert_eq!(client.reply(2).good().row_count, 2);
    assert_eq!(client.rest(), []);
}

#[test]
fn a_drain_waits_for_one_that_is_under_way() {
    let mut server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let backend = send_and_wait(&server, &mut client, 2);
    assert_eq!(server.stats().deferred_requests, 1);
    let addr = server.addr();
    let drained = server.drain_on_another_thread();
    // The drain has begun when new connections are refused.
    eventually(LONG, || TcpStream::connect(addr).is_err());
    backend.push([row(2, "x"), end()]);
    assert_eq!(client.reply(2).good().row_count, 2);
    drained.join().expect("no panic");
    assert_eq!(backend.dropped(), 1);
}

#[test]
fn the_deadline_of_a_drain_ends_it() {
    let mut server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let backend = send_and_wait(&server, &mut client, 2);
    let wake = backend.waker();
    server.drain_that_cuts(1, Duration::from_millis(50), "the source has no more rows");
    eventually(LONG, || backend.dropped() == 1);
    wake.wake();
    client.rest();
}

#[test]
fn what_is_out_of_place_ends_the_request_and_never_reaches_the_client() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let other = |kind| Piece::Frame(kind, Vec::new());
    let one = row(1, "x");
    let mut wrong = vec![
        (vec![one.clone()], "RESULTSET_ROW"),
        (vec![more()], "RESULTSET_FETCH_DONE_MORE_RESULTSETS"),
        ([meta(), vec![one.clone()], meta()].concat(), "RESULTSET_COLUMN_META_DATA"),
        // The statement did not ask for chunks.
        ([meta(), vec![chunk(1, "x")]].concat(), "RESULTSET_CHUNK"),
    ];
    let made_by_the_layer = (0..100).filter_map(ServerKind::from_number).filter(|kind| {
        use ServerKind::{Chunk, ColumnMetaData, FetchDoneMoreResultsets, Row};
        ![ColumnMetaData, Row, Chunk, FetchDoneMoreResultsets].contains(kind)
    });
    for kind in made_by_the_layer {
        wrong.push((vec![other(kind)], kind.protocol_name()));
        wrong.push(([meta(), vec![one.clone(), other(kind)]].concat(), kind.protocol_name()));
    }
    for (count, (pieces, what)) in (1..).zip(wrong) {
        let backend = Backend::of(pieces.clone());
        backend.push([one.clone(), end()]);
        backend.send(&server, &mut client, 2, update(""));
        let failure = client.reply(2).failure();
        assert_eq!((failure.fatal, failure.code), (false, 8001), "{pieces:?}");
        assert_eq!(failure.text, format!("{what} was relayed out of place"));
        assert_eq!(server.count(Counter::RelaysRefused), count);
        assert_eq!(backend.dropped(), 1);
        client.execute(2, "one").one();
    }
    // Between two results. The client of these tests does not accept those, so the frames are read
    // raw.
    for between in [more(), one, end()] {
        let pieces = [meta(), vec![more(), between]].concat();
        Backend::of(pieces).send(&server, &mut client, 2, update(""));
        let kinds = [(); 4].map(|()| client.raw_frame().expect("a frame").kind);
        assert_eq!(kinds, [12, 12, 16, 1]);
    }
}

#[test]
fn a_frame_that_is_too_long_is_an_error() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let long = Piece::Frame(ServerKind::Row, vec![0; 64 << 20]);
    Backend::of([meta(), vec![row(1, "x"), long]].concat()).send(
        &server,
        &mut client,
        2,
        update(""),
    );
    let reply = client.reply(2);
    assert_eq!(reply.row_count, 1);
    assert_eq!(reply.failure().text, "length 67108865 exceeds 67108864");
    client.execute(2, "one").one();
}

#[test]
fn a_panic_ends_the_session_and_nothing_else() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions(2..6);
    let panics = [vec![Piece::Panic], [meta(), vec![row(1, "x"), Piece::Panic]].concat()];
    for (session, pieces) in (2..).zip(panics) {
        // The same if the drop of the relay panics as well.
        for trap in [false, true] {
            let backend = Backend::of(pieces.clone());
            if trap {
                backend.panic_when_dropped();
            }
            backend.send(&server, &mut client, session, update(""));
            let failure = client.reply(session).failure();
            assert_eq!((failure.fatal, &*failure.text), (true, "Session unexpected killed."));
            assert_eq!(backend.dropped(), 1);
            client.new_session(session);
            client.execute(session, "one").one();
        }
    }
    assert_eq!(server.count(Counter::RequestPanics), 4);
    // A panic in the drop alone costs no session and no request.
    let backend = Backend::of(result(3, "x"));
    backend.panic_when_dropped();
    backend.send(&server, &mut client, 4, update(""));
    assert_eq!(client.reply(4).good().row_count, 3);
    let backend = send_and_wait(&server, &mut client, 5);
    backend.panic_when_dropped();
    client.kill_query(5);
    assert_eq!(client.reply(5).failure().code, 1317);
    client.execute(5, "one").one();
    client.execute(4, "one").one();
    assert_eq!(server.count(Counter::RequestPanics), 4);
    eventually(LONG, || Counts::of(&server.control.counts.closed) == 4);
}

#[test]
fn one_that_comes_too_late_or_twice_is_dropped() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let (deferred, failed, first, second) =
        (Backend::default(), Backend::default(), Backend::default(), Backend::of([end()]));
    let answers = [&deferred, &failed, &first, &second].map(Backend::relay);
    let [late, spoilt, replaced, taken] = answers;
    server.control.plant("deferred", |reply| {
        let handle = reply.defer();
        // The request is deferred by now, so this relay comes too late.
        reply.relay(late);
        assert!(handle.finish(|reply| {
            reply.relay(replaced);
            reply.relay(taken);
            Ok(())
        }));
        Ok(())
    });
    client.execute(2, "script deferred").good();
    server.control.plant("failed", |reply| {
        reply.relay(spoilt);
        Err(SessionError::new(1234, b"42000", "it failed"))
    });
    assert_eq!(client.execute(2, "script failed").failure().code, 1234);
    let all = [deferred, failed, first, second];
    assert_eq!(all.each_ref().map(Backend::dropped), [1; 4]);
    assert_eq!(all.each_ref().map(Backend::asked), [0, 0, 0, 1]);
    assert_eq!(server.stats().deferred_requests, 0);
}

#[test]
fn a_wake_up_after_the_end_asks_nobody() {
    let server = Fixture::start(config());
    let mut client = server.client_with_sessions([2]);
    let mut wakes = Vec::new();
    for _ in 0..often(200) {
        let backend = Backend::of(result(1, "x"));
        backend.send(&server, &mut client, 2, update(""));
        client.reply(2).good();
        wakes.push(backend.waker());
        let asked = backend.asked();
        wakes.iter().for_each(Wake::wake);
        client.execute(2, "one").one();
        assert_eq!((backend.asked(), backend.dropped()), (asked, 1));
    }
    drop(client);
    server.wait_until_even();
    wakes.iter().for_each(Wake::wake);
}

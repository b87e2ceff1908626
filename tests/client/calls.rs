//! The threads that call a client's closures, what closures may do, and the end of each waiting
//! call.

use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

use epoll_group::client::{Answer, Client, ErrorKind, Fate, Piece};
use epoll_group::stall;
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};
use lab::both::{Both, one, options};
use lab::{LONG, eventually, often};

fn one_worker() -> Config {
    lab::config().epoll_threads_per_group(1)
}

#[track_caller]
fn next<T>(given: &Receiver<T>) -> T {
    given.recv_timeout(LONG).expect("called")
}

/// Runs on one worker: a closure that waits must not block the next closure.
#[test]
fn closures_may_wait_for_one_another() {
    let both = Both::start_on(one_worker(), |options| options.connections(1));
    let mut session = both.session();
    for n in 0..often(50) {
        let gate = n.to_string();
        let (give, given) = mpsc::channel();
        let (called, others) = mpsc::channel();
        // Both answers come in one piece: the gate opens for the first of them.
        session.execute_then(format!("gate {gate}"), {
            let give = give.clone();
            move |answer| {
                stall::run(|| others.recv_timeout(LONG).expect("the other is called"));
                give.send(one(answer)).expect("the test listens");
            }
        });
        session.execute_then("echo b", move |answer| {
            give.send(one(answer)).expect("the test listens");
            called.send(()).expect("the first waits");
        });
        both.server.control.open(&gate);
        assert_eq!([next(&given), next(&given)], ["b", &gate]);
    }
}

/// Runs on one worker. The first closure waits for the second, and the second for the third.
#[test]
fn closures_of_a_connection_that_ends_may_wait_for_one_another() {
    let both = Both::start_on(one_worker(), |options| options.connections(1));
    let mut session = both.session();
    let (give, given) = mpsc::channel();
    let mut called_before: Option<Sender<()>> = None;
    for n in 0..3 {
        let (called, next_one) = mpsc::channel();
        let (give, called_before) = (give.clone(), called_before.replace(called));
        session.execute_then("gate never", move |answer| {
            let error = answer.expect_err("no answer comes");
            if let Some(called) = called_before {
                called.send(()).expect("the closure before waits");
            }
            if n < 2 {
                stall::run(|| next_one.recv_timeout(LONG).expect("the next one is called"));
            }
            give.send((n, error.kind().clone())).expect("the test listens");
        });
    }
    both.client.close();
    let ended = [(); 3].map(|()| next(&given));
    assert!(ended.iter().all(|(_, kind)| matches!(kind, ErrorKind::Closed)), "{ended:?}");
    both.server.control.open("never");
}

#[test]
fn a_closure_that_panics_harms_nobody() {
    let both = Both::start_with(|options| options.connections(1));
    let mut session = both.session();
    let (give, given) = mpsc::channel();
    for n in 0..20 {
        let give = give.clone();
        session.execute_then(format!("echo {n}"), move |answer| {
            assert!(n % 2 == 0, "a panic that is meant");
            give.send(one(answer)).expect("the test listens");
        });
    }
    drop(give);
    let mut answers: Vec<_> = given.iter().collect();
    answers.sort_by_key(|text| text.parse::<u32>().expect("a number"));
    assert!(answers.into_iter().eq((0..20).step_by(2).map(|n| n.to_string())));
    assert_eq!(one(session.execute("echo on")), "on");
    eventually(LONG, || both.runtime.stats().get(Counter::Panics) == 10);
}

#[test]
fn who_waits_for_a_session_is_served_though_another_panics() {
    let both = Both::start_with(|options| options.connections(1).sessions_per_connection(1));
    let session = both.session();
    let (give, given) = mpsc::channel();
    both.client.session_then(|_| panic!("a panic that is meant"));
    both.client.session_then(move |session| {
        let mut session = session.expect("a session");
        // This closure may wait, too.
        give.send(one(session.execute("echo mine"))).expect("the test listens");
    });
    assert_eq!(both.client.status().waiting, 2);
    drop(session);
    assert_eq!(next(&given), "mine");
    assert_eq!(one(both.session().execute("one")), "1");
}

#[test]
fn any_number_may_wait_for_one_session_in_turn() {
    let both = Both::start_with(|options| options.connections(1).sessions_per_connection(1));
    let session = both.session();
    let (give, given) = mpsc::channel();
    let count = often(20_000);
    for n in 0..count {
        let give = give.clone();
        both.client.session_then(move |session| {
            give.send(n).expect("the test listens");
            drop(session.expect("a session"));
        });
    }
    drop(session);
    let served: Vec<_> = (0..count).map(|_| next(&given)).collect();
    assert!(served.into_iter().eq(0..count), "in turn");
}

#[test]
fn one_more_than_may_wait_is_refused() {
    let both = Both::start_with(|options| {
        options.connections(1).sessions_per_connection(1).max_waiting(1)
    });
    let session = both.session();
    let (give, given) = mpsc::channel();
    both.client.session_then(move |session| give.send(session).expect("the test listens"));
    let error = both.client.session().expect_err("one waits already");
    assert!(matches!(error.kind(), ErrorKind::TooManyWait(1)), "{error}");
    assert_eq!(error.fate(), Fate::NotSent);
    assert_eq!(both.client.status().refused, 1);
    drop(session);
    assert!(next(&given).is_ok());
}

#[test]
fn who_does_not_have_to_wait_is_served_where_nobody_may() {
    let both = Both::start_with(|options| options.max_waiting(0));
    let error = both.client.session().expect_err("there is no connection yet");
    assert!(matches!(error.kind(), ErrorKind::TooManyWait(0)), "{error}");
    eventually(LONG, || both.client.status().connected == 1);
    assert_eq!(one(both.session().execute("one")), "1");
}

#[test]
fn a_session_that_its_server_ended_makes_room_for_who_waits() {
    let both = Both::start_with(|options| options.connections(1).sessions_per_connection(1));
    let mut session = both.session();
    let (give, given) = mpsc::channel();
    both.client.session_then(move |session| give.send(session).expect("the test listens"));
    session.run("fatal 1234").expect_err("it ends");
    // The session is still there for the closure that got it.
    assert!(next(&given).expect("a session").is_alive());
    assert!(!session.is_alive());
}

#[test]
fn workers_that_all_wait_for_answers_get_them() {
    let both = Both::start_on(one_worker(), |options| options.connections(2));
    let (give, given) = mpsc::channel();
    let handle = both.runtime.handle();
    for n in 0..16 {
        let (client, give) = (both.client.clone(), give.clone());
        let code = move || {
            let mut session = client.session().expect("a session");
            let text = one(session.execute(format!("echo {n}")));
            assert_eq!(text, n.to_string());
            give.send(client.timestamps(1).is_ok()).expect("the test listens");
        };
        handle.spawn(code).expect("there is room");
    }
    assert!((0..16).all(|_| next(&given)));
}

/// Returns an answer that was read as far as it has come. Its rest does not come while the gate is
/// shut.
fn begun(both: &Both, gate: &str) -> Answer {
    let mut session = both.session();
    let mut answer = session.execute(format!("stubborn {gate}")).expect("an answer");
    both.server.control.wait_at(gate, 1);
    while !matches!(answer.try_frame().expect("a frame"), Piece::Later) {}
    answer
}

#[test]
fn what_a_closure_holds_is_dropped_with_the_answer_that_it_watched() {
    let both = Both::start_with(|options| options.connections(1));
    let other = both.session();
    let (give, given) = mpsc::channel::<()>();
    let server = &both.server;
    thread::scope(|scope| {
        let answer = begun(&both, "a");
        scope.spawn(move || {
            // The closure may hold anything, also a session of the same connection.
            answer.when_more(move || drop((other, give)));
            drop(answer);
        });
        assert_eq!(given.recv_timeout(LONG), Err(mpsc::RecvTimeoutError::Disconnected));
        server.control.open("a");
    });
}

#[test]
fn what_takes_no_thread_takes_none_to_connect_either() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let runtime = Runtime::builder().config(one_worker()).start().expect("started");
    let day = Duration::from_secs(86_400);
    let options = options(address).session_timeout(day).login_timeout(day);
    let client = Client::new(&runtime.handle(), options).expect("good options");
    let (give, given) = mpsc::channel();
    let caller = client.clone();
    thread::spawn(move || {
        let answer = give.clone();
        caller.timestamps_then(1, move |first| {
            answer.send(first.map_err(|error| error.to_string())).expect("the test listens");
        });
        give.send(Ok(0)).expect("the test listens");
    });
    assert_eq!(next(&given), Ok(0), "it returned");
    client.close();
    assert!(next(&given).expect_err("closed").contains("closed"));
}

#[test]
fn a_time_that_no_clock_can_say_is_never() {
    let both = Both::start();
    let mut session = both.client.session_within(Duration::MAX).expect("a session");
    let request = epoll_group::client::Request::sql("one").timeout(Duration::MAX);
    assert_eq!(one(session.execute(request)), "1");
}

/// Starts every kind of waiting call, on a client of one session. The errors of the calls come to
/// the receiver.
fn waiting(both: &Both) -> Receiver<ErrorKind> {
    let mut session = both.session();
    let (give, given) = mpsc::channel();
    let gave = give.clone();
    session.execute_then("gate a", move |answer| {
        gave.send(answer.expect_err("no answer").kind().clone()).expect("the test listens");
    });
    let gave = give.clone();
    both.client.session_then(move |session| {
        gave.send(session.expect_err("no session").kind().clone()).expect("the test listens");
    });
    both.server.control.wait_at("a", 1);
    let (client, gave) = (both.client.clone(), give.clone());
    thread::spawn(move || {
        let error = client.session_within(Duration::MAX).expect_err("no session");
        gave.send(error.kind().clone()).expect("the test listens");
    });
    thread::spawn(move || {
        let error = session.run("echo behind").expect_err("no answer");
        give.send(error.kind().clone()).expect("the test listens");
    });
    eventually(LONG, || {
        let status = both.client.status();
        status.waiting == 2 && status.connections[0].outstanding == 2
    });
    given
}

fn one_session(options: epoll_group::client::Options) -> epoll_group::client::Options {
    options.connections(1).sessions_per_connection(1).session_timeout(LONG * 100)
}

#[test]
fn every_call_that_waits_ends_when_the_client_is_closed() {
    let both = Both::start_with(one_session);
    let given = waiting(&both);
    both.client.close();
    for _ in 0..4 {
        let kind = next(&given);
        assert!(matches!(kind, ErrorKind::Closed), "{kind:?}");
    }
    assert!(matches!(both.client.session().expect_err("closed").kind(), ErrorKind::Closed));
    both.server.control.open("a");
}

#[test]
fn every_call_that_waits_ends_with_the_runtime() {
    for limit in [Duration::ZERO, Duration::from_millis(20)] {
        let both = Both::start_with(one_session);
        let given = waiting(&both);
        let Both { client, server, runtime } = both;
        let report = runtime.drain(limit);
        assert_eq!((report.cut, report.stuck.len()), (1, 0), "requests wait: {report}");
        for _ in 0..4 {
            let _ = next(&given);
        }
        client.session().expect_err("no runtime");
        let (give, given) = mpsc::channel();
        client.session_then(move |session| give.send(session.is_err()).expect("it listens"));
        assert!(next(&given));
        server.control.open("a");
    }
}

#[test]
fn who_waits_for_the_next_try_to_connect_hears_of_the_end_of_the_runtime() {
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = nobody.local_addr().expect("an address");
    drop(nobody);
    let runtime = Runtime::builder().config(one_worker()).start().expect("started");
    let day = Duration::from_secs(86_400);
    let options = options(address).reconnect_min(day).reconnect_max(day).session_timeout(day);
    let client = Client::new(&runtime.handle(), options).expect("good options");
    let error = client.session().expect_err("nobody listens");
    assert!(matches!(error.kind(), ErrorKind::Connect(_)), "{error}");
    let (give, given) = mpsc::channel();
    for _ in 0..2 {
        let give = give.clone();
        client.session_then(move |session| give.send(session.is_err()).expect("it listens"));
    }
    assert_eq!(client.status().waiting, 2);
    drop(runtime);
    assert!(next(&given) && next(&given));
}

#[test]
fn much_in_both_directions_does_not_get_stuck() {
    const BYTES: usize = 300 << 10;
    let config = lab::config()
        .write_high_watermark_bytes(64 << 10)
        .write_low_watermark_bytes(16 << 10)
        .tcp_send_buf(64 << 10)
        .tcp_recv_buf(64 << 10);
    let both = Both::start_on(config, |options| {
        options.connections(1).request_timeout(LONG).probe_interval(LONG)
    });
    let (give, given) = mpsc::channel();
    let mut sessions: Vec<_> = (0..16).map(|_| both.session()).collect();
    for (n, session) in sessions.iter_mut().enumerate() {
        for _ in 0..8 {
            let text = n.to_string().repeat(BYTES);
            let give = give.clone();
            session.execute_then(format!("echo {text}"), move |answer| {
                let echoed = answer.map(|answer| one(Ok(answer)) == text);
                give.send(echoed.map_err(|error| error.to_string())).expect("it listens");
            });
        }
    }
    for _ in 0..16 * 8 {
        assert_eq!(next(&given), Ok(true));
    }
}

#[test]
fn a_part_that_was_announced_is_there() {
    let both = Both::start_with(|options| options.connections(1));
    let mut answer = begun(&both, "a");
    let (give, given) = mpsc::channel();
    answer.when_more(move || give.send(()).expect("the test listens"));
    both.server.control.open("a");
    next(&given);
    assert!(!matches!(answer.try_frame().expect("a frame"), Piece::Later));
}

#[test]
fn a_caller_for_whom_there_is_room_gets_its_session_at_once() {
    let both = Both::start_with(|options| options.connections(1));
    drop(both.session());
    let (give, given) = mpsc::channel();
    both.client.session_then(move |session| give.send(session).expect("the test listens"));
    assert!(given.try_recv().expect("called").is_ok());
}

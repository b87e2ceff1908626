//! Starting, names, hooks, foreign descriptors, several runtimes side by side, and nothing left
//! behind.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use epoll_group::net::{Connection, Input};
use epoll_group::stats::{Counter, Snapshot};
use epoll_group::{Config, Handle, Interest, Registration, Runtime, StartError};
use lab::child::{descriptors, in_child};
use lab::protocol::{Bytes, echo};
use lab::workers::{threads_named, workers};
use lab::{Kind, LONG, Peer, Server, assert_clean, config, eventually};

#[test]
fn a_value_out_of_its_range_is_named_and_nothing_starts() {
    let builder = Runtime::builder().config(Config::default().epoll_groups(200)).name("bad");
    let error = builder.start().expect_err("out of range");
    assert_eq!(error.to_string(), "configuration: epoll_groups 200 is outside 0..=128");
    let StartError::Config(error) = error else { panic!("{error:?}") };
    let parts = (error.field, error.value.as_str(), error.range.as_str());
    assert_eq!(parts, ("epoll_groups", "200", "0..=128"));
    assert_eq!(threads_named("bad"), Vec::<String>::new());
}

#[test]
fn a_name_with_a_zero_byte_is_refused() {
    let error = Runtime::builder().name("a\0b").start().expect_err("no thread has such a name");
    let expected = r#"configuration: name "a\0b" is outside names without zero bytes"#;
    assert_eq!(error.to_string(), expected);
    let StartError::Config(error) = error else { panic!("{error:?}") };
    assert_eq!((error.field, error.value.as_str()), ("name", r#""a\0b""#));
}

#[test]
fn threads_have_names_and_each_calls_its_hooks_once() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    let (started, stopped) = (Arc::clone(&calls), Arc::clone(&calls));
    let here = || std::thread::current().name().expect("named").to_owned();
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(2).epoll_threads_per_group(2))
        .name("hk")
        .on_thread_start(move |info| {
            assert_eq!(info.name, here());
            let call = ("start", info.name.clone(), info.group, info.worker);
            started.lock().expect("no panic").push(call);
        })
        .on_thread_stop(move |info| {
            assert_eq!(info.name, here());
            let call = ("stop", info.name.clone(), info.group, info.worker);
            stopped.lock().expect("no panic").push(call);
        })
        .start()
        .expect("a runtime");
    // The watchdog runs no code of the user.
    let names = ["hk-0-0", "hk-0-1", "hk-0-r2", "hk-1-0", "hk-1-1", "hk-1-r2", "hk-watchdog"];
    eventually(LONG, || threads_named("hk-") == names);
    let expected = |what: &'static str| {
        let places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)].into_iter().zip(names);
        places.map(move |((group, worker), name)| (what, name.to_owned(), group, worker))
    };
    let sorted = || {
        let mut calls = calls.lock().expect("no panic").clone();
        calls.sort();
        calls
    };
    assert_eq!(sorted(), expected("start").collect::<Vec<_>>());
    let handle = runtime.handle();
    drop(runtime);
    assert_eq!(sorted(), expected("start").chain(expected("stop")).collect::<Vec<_>>());
    eventually(LONG, || threads_named("hk-").is_empty());
    assert_eq!(handle.stats().get(Counter::Panics), 0);
}

#[test]
fn two_runtimes_do_not_see_each_other() {
    let busy = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    let quiet = Server::start(Kind::Tcp, config(), Bytes::new(echo));
    let untouched = |stats: &Snapshot| {
        let touched = [Counter::TasksRun, Counter::Receives, Counter::TimersFired, Counter::Panics];
        touched.iter().all(|counter| stats.get(*counter) == 0)
    };
    let mut peer = busy.peer();
    (0..50).for_each(|_| peer.echo(b"only there"));
    for _ in 0..10 {
        busy.runtime.handle().spawn(|| ()).expect("room");
        busy.runtime.handle().after(Duration::ZERO, || panic!("only there")).detach();
    }
    eventually(LONG, || busy.count(Counter::Panics) == 10);
    assert_eq!(busy.count(Counter::TimersFired), 10);
    assert!(untouched(&quiet.stats()), "{}", quiet.stats());
    assert_eq!((busy.stats().connections, quiet.stats().connections), (1, 0));

    let mut stays = quiet.peer();
    let report = busy.runtime.drain(LONG);
    assert_clean(&report);
    assert_eq!(report.finished, 1);
    (0..50).for_each(|_| stays.echo(b"goes on"));
    assert_eq!(quiet.count(Counter::Receives), 50);
}

#[test]
fn a_handler_of_one_runtime_uses_the_other() {
    let outer = workers(1);
    let inner = workers(1);
    let (tell, told) = mpsc::channel();
    let (outside, inside) = (outer.handle(), inner.handle());
    let code = move || {
        // This thread is a worker, but not of `inside`, so it may wait for that runtime.
        let (answer, answered) = mpsc::channel();
        for number in 0..1000 {
            let answer = answer.clone();
            let code = move || answer.send(number).expect("waited for");
            inside.spawn_wait(code).expect("nobody drains");
        }
        drop(answer);
        let sum: u64 = answered.iter().sum();
        outside.spawn(move || tell.send(sum).expect("waited for")).expect("room");
    };
    outer.handle().spawn(code).expect("room");
    assert_eq!(told.recv_timeout(LONG), Ok(499_500));
    assert_eq!(inner.stats().get(Counter::TasksRun), 1000);
    assert_eq!(outer.stats().get(Counter::TasksRun), 2);
}

#[test]
fn a_handler_owns_a_runtime_and_drops_it() {
    let outer = workers(1);
    let (tell, told) = mpsc::channel();
    let code = move || {
        let inner = Runtime::builder()
            .config(Config::default().epoll_groups(1))
            .name("nested")
            .start()
            .expect("a runtime");
        let (ran, has_run) = mpsc::channel();
        inner.handle().spawn(move || ran.send(()).expect("waited for")).expect("room");
        has_run.recv_timeout(LONG).expect("it runs");
        drop(inner);
        tell.send(()).expect("waited for");
    };
    outer.handle().spawn(code).expect("room");
    assert_eq!(told.recv_timeout(LONG), Ok(()));
    // A thread that was joined may still be listed for a moment.
    eventually(LONG, || threads_named("nested").is_empty());
}

/// Watches one end of a pair and sends every byte that arrives to `told`.
fn watch(handle: &Handle, told: mpsc::Sender<u8>) -> (Registration, UnixStream, i32) {
    let (mine, watched) = UnixStream::pair().expect("a pair");
    watched.set_nonblocking(true).expect("non-blocking");
    let number = watched.as_raw_fd();
    let code = move |fd: BorrowedFd<'_>, _| {
        let mut file = File::from(fd.try_clone_to_owned().expect("a second descriptor"));
        let mut byte = [0];
        while let Ok(1) = file.read(&mut byte) {
            let _ = told.send(byte[0]);
        }
    };
    let registration = handle.register(OwnedFd::from(watched), Interest::READABLE, code);
    (registration.expect("watched"), mine, number)
}

#[test]
fn a_foreign_descriptor_is_served_until_its_registration_is_dropped_and_then_closed() {
    let runtime = workers(2);
    let (tell, told) = mpsc::channel();
    let (registration, mut mine, _) = watch(&runtime.handle(), tell);
    for byte in 0..200 {
        mine.write_all(&[byte]).expect("room");
        assert_eq!(told.recv_timeout(LONG), Ok(byte));
    }
    drop(registration);
    // The closure is dropped together with its sender. Then the descriptor is closed, which the
    // other end sees.
    eventually(LONG, || matches!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected)));
    mine.set_read_timeout(Some(LONG)).expect("a time-out");
    assert_eq!(mine.read(&mut [0]).expect("the end"), 0);
    let stats = runtime.stats();
    assert_eq!(stats.slots_allocated, stats.slots_free);
}

#[test]
fn a_foreign_descriptor_ends_with_the_runtime_in_either_order() {
    for registration_first in [false, true] {
        let runtime = workers(2);
        let (tell, told) = mpsc::channel();
        let (registration, mut mine, _) = watch(&runtime.handle(), tell);
        mine.set_read_timeout(Some(LONG)).expect("a time-out");
        if registration_first {
            drop(registration);
            assert_clean(&runtime.drain(LONG));
        } else {
            assert_clean(&runtime.drain(LONG));
            drop(registration);
        }
        assert_eq!(mine.read(&mut [0]).expect("the end"), 0, "first: {registration_first}");
        assert!(told.recv().is_err());
    }
}

#[test]
fn what_cannot_be_watched_is_refused_and_closed() {
    let runtime = workers(1);
    let file = File::open("/proc/self/exe").expect("a regular file");
    let error = runtime.handle().register(file, Interest::READABLE, |_, _| ());
    assert_eq!(error.expect_err("a file is always ready").kind(), io::ErrorKind::PermissionDenied);
    eventually(LONG, || {
        let stats = runtime.stats();
        stats.slots_allocated == stats.slots_free
    });
}

#[test]
fn starting_and_ending_200_times_leaves_no_descriptor_and_no_thread() {
    in_child(|| {
        let threads = threads_named("").len();
        a_whole_life(0);
        let open = descriptors();
        (1..=200).for_each(a_whole_life);
        eventually(LONG, || threads_named("").len() == threads);
        assert_eq!(descriptors(), open);
    });
}

/// Starts and ends a runtime with everything that could keep its groups.
fn a_whole_life(number: u32) {
    let config = Config::default()
        .epoll_groups(2)
        .epoll_threads_per_group(2)
        .linger_timeout(Duration::from_millis(2));
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let handle = runtime.handle();
    let own = handle.clone();
    let answer = move |conn: &Connection, input: &mut Input<'_>| {
        assert_eq!(own.stats().groups, 2);
        echo(conn, input)
    };
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(answer)).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.echo(b"hello");
    let outgoing = runtime.connect(listener.local_addr(), Bytes::new(echo)).expect("begun");
    let mine = handle.clone();
    let timer = handle.every(LONG, move || drop(mine.clone()));
    let (tell, _told) = mpsc::channel();
    let watched = watch(&handle, tell);
    if number.is_multiple_of(2) {
        drop(runtime);
    } else {
        assert_clean(&runtime.drain(LONG));
    }
    assert!(outgoing.is_closed());
    drop((timer, watched));
}

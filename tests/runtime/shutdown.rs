//! The end of a runtime: work that was begun is finished or counted, and no wait is in vain.

mod outgoing;

use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::net::{Close, CloseReason, Connection, Hold, Input, Protocol, Turn};
use epoll_group::stats::Counter;
use epoll_group::{Config, DrainReport, Handle, Interest, Runtime};
use lab::protocol::{Bytes, echo};
use lab::workers::{Gate, LocksAtEnd, threads_named, workers};
use lab::{Kind, LONG, Peer, Server, assert_clean, config, eventually};

const REQUEST: &[u8] = b"question";

/// Answers each request of eight bytes after a wait, and counts it.
fn answer_after(
    wait: Duration,
    seen: Arc<AtomicUsize>,
) -> impl Fn(&Connection, &mut Input<'_>) -> Result<(), Close> + Send + Sync {
    move |conn, input| {
        while input.len() >= REQUEST.len() {
            seen.fetch_add(1, Ordering::SeqCst);
            if !wait.is_zero() {
                thread::park_timeout(wait);
            }
            conn.send(input.take(REQUEST.len()));
        }
        Ok(())
    }
}

/// Asks without pause until there is no answer. Returns the number of whole answers.
fn hammer(mut peer: Peer, begun: &AtomicUsize) -> usize {
    let mut answers = 0;
    loop {
        let mut answer = [0; REQUEST.len()];
        if peer.write_all(REQUEST).is_err() && peer.read_exact(&mut answer).is_err() {
            return answers;
        }
        if peer.read_exact(&mut answer).is_err() {
            return answers;
        }
        assert_eq!(answer, REQUEST);
        answers += 1;
        if answers == 1 {
            begun.fetch_add(1, Ordering::SeqCst);
        }
    }
}

const CLIENTS: usize = 24;

/// Drains while clients hammer; `(seen, answered, report)`.
fn drain_under_load(kind: Kind, wait: Duration) -> (usize, usize, DrainReport) {
    let seen = Arc::new(AtomicUsize::new(0));
    let protocol = Bytes::new(answer_after(wait, Arc::clone(&seen)));
    let server = Server::start(kind, config(), protocol);
    let begun = AtomicUsize::new(0);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let peer = server.peer();
                scope.spawn(|| hammer(peer, &begun))
            })
            .collect();
        eventually(LONG, || begun.load(Ordering::SeqCst) == CLIENTS);
        let handle = server.runtime.handle();
        let report = server.runtime.drain(Duration::from_secs(5));
        let drained = handle.stats().get(Counter::ClosedDraining);
        assert_eq!(drained, CLIENTS as u64, "{kind:?}, {wait:?}: {report}");
        let answered = clients.into_iter().map(|client| client.join().expect("no panic"));
        (seen.load(Ordering::SeqCst), answered.sum(), report)
    })
}

#[test]
fn under_full_load_each_accepted_request_is_answered() {
    for kind in lab::BOTH {
        for wait in [0, 1, 8] {
            let (seen, answered, report) = drain_under_load(kind, Duration::from_millis(wait));
            assert_clean(&report);
            assert_eq!(answered, seen, "{kind:?}, {wait} ms: {report}");
            assert_eq!(report.finished, CLIENTS as u64, "{report}");
        }
    }
}

#[test]
fn connections_that_are_idle_or_never_spoke_do_not_hold_up_a_drain() {
    for kind in lab::BOTH {
        let server = Server::start(kind, config(), Bytes::new(echo));
        let mut idle: Vec<_> = (0..100).map(|_| server.peer()).collect();
        let mute: Vec<_> = (0..100).map(|_| server.peer()).collect();
        idle.iter_mut().for_each(|peer| peer.echo(REQUEST));
        server.wait_for(Counter::ConnectionsAccepted, 200);
        let report = server.runtime.drain(LONG);
        assert_clean(&report);
        assert_eq!((report.finished, report.refused), (200, 0));
        assert!(report.took < LONG / 6, "{report}");
        for mut peer in idle.into_iter().chain(mute) {
            assert_eq!(peer.receive_to_finish(), b"");
        }
    }
}

#[test]
fn a_handler_that_never_returns_is_named_and_not_waited_for() {
    let gate = Gate::default();
    let block = gate.clone();
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(3))
        .name("st")
        .start();
    let runtime = runtime.expect("a runtime");
    let stuck = Arc::new(Mutex::new(String::new()));
    let name = Arc::clone(&stuck);
    let block = move |conn: &Connection, input: &mut Input<'_>| {
        *name.lock().expect("no panic") = thread::current().name().expect("named").to_owned();
        block.pass();
        echo(conn, input)
    };
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(block)).expect("a listener");
    let mut peer = Peer::connect(listener.local_addr());
    peer.send(REQUEST);
    gate.wait_for(1);
    let limit = Duration::from_millis(300);
    let began = Instant::now();
    let report = runtime.drain(limit);
    assert!(began.elapsed() >= limit, "the handler had its time");
    assert!(began.elapsed() < limit * 10, "{report}");
    assert_eq!(report.stuck, [stuck.lock().expect("no panic").clone()]);
    assert_eq!((report.cut, report.finished), (1, 0), "{report}");
    // A thread that was joined may still be listed for a moment.
    eventually(LONG, || threads_named("st-") == report.stuck);
    gate.open();
    eventually(LONG, || threads_named("st-").is_empty());
}

#[test]
fn a_stuck_task_is_named_too_and_the_others_end() {
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
        .name("sk")
        .start();
    let runtime = runtime.expect("a runtime");
    let gate = Gate::default();
    let block = gate.clone();
    runtime.handle().spawn(move || block.pass()).expect("room");
    gate.wait_for(1);
    let report = runtime.drain(Duration::ZERO);
    assert_eq!((report.stuck.len(), report.cut), (1, 0), "{report}");
    eventually(LONG, || threads_named("sk-") == report.stuck);
    gate.open();
    eventually(LONG, || threads_named("sk-").is_empty());
}

#[test]
fn a_destructor_of_a_source_that_waits_for_a_stuck_handler_does_not_hold_up_the_drain() {
    beside_a_stuck_handler("ds", |handle, last| {
        let (socket, _) = UnixStream::pair().expect("sockets");
        let code = move |_: BorrowedFd<'_>, _| _ = &last;
        handle.register(socket, Interest::WRITABLE, code).expect("room")
    });
}

#[test]
fn a_destructor_of_a_timer_that_waits_for_a_stuck_handler_does_not_hold_up_the_drain() {
    beside_a_stuck_handler("dt", |handle, last| handle.after(LONG, move || drop(last)));
}

/// Drains while a handler that never returns holds a lock. The value that `keep` makes takes this
/// lock when it is dropped.
fn beside_a_stuck_handler<T>(name: &str, keep: impl FnOnce(&Handle, LocksAtEnd) -> T) {
    let config = Config::default().epoll_groups(1).epoll_threads_per_group(1);
    let runtime = Runtime::builder().config(config).name(name).start().expect("a runtime");
    let (gate, lock) = (Gate::default(), Arc::default());
    let kept = keep(&runtime.handle(), LocksAtEnd(Arc::clone(&lock)));
    let block = gate.clone();
    let code = move || {
        let _held = lock.lock();
        block.pass();
    };
    runtime.handle().spawn(code).expect("room");
    gate.wait_for(1);
    let report = runtime.drain(Duration::ZERO);
    assert_eq!(gate.held(), 1, "the drain did not wait for the handler");
    assert_eq!(report.stuck.len(), 2, "{report}");
    gate.open();
    eventually(LONG, || threads_named(name).is_empty());
    drop(kept);
}

#[test]
fn a_descriptor_that_is_refused_after_a_drain_is_closed_though_a_thread_is_stuck() {
    let runtime = workers(1);
    let handle = runtime.handle();
    let gate = Gate::default();
    let block = gate.clone();
    handle.spawn(move || block.pass()).expect("room");
    gate.wait_for(1);
    assert_eq!(runtime.drain(Duration::ZERO).stuck.len(), 1);
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    theirs.set_read_timeout(Some(LONG)).expect("a socket");
    assert!(handle.register(ours, Interest::READABLE, |_, _| ()).is_err());
    assert_eq!(theirs.read(&mut [0]).expect("the end"), 0);
    let stats = handle.stats();
    assert_eq!((stats.slots_allocated, gate.held()), (stats.slots_free, 1));
    gate.open();
}

#[test]
fn a_handler_that_drains_its_runtime_ends_the_rest_of_its_own_group_itself() {
    // No thread is added for the blocked one: on a busy machine it might end too late.
    let config = config()
        .epoll_groups(2)
        .epoll_threads_per_group(1)
        .reserve_threads_per_group(0)
        .thread_deadlock_check_interval(Duration::from_secs(10));
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let handle = runtime.handle();
    let (gate, lock) = (Gate::default(), Arc::default());
    let block = gate.clone();
    handle.spawn(move || block.pass()).expect("room");
    gate.wait_for(1);
    // The next closure goes to the other group.
    let last = LocksAtEnd(Arc::clone(&lock));
    let (tell, told) = mpsc::channel();
    let drains = move || {
        runtime.handle().after(LONG, move || drop(last)).detach();
        let _held = lock.lock();
        tell.send(runtime.drain(Duration::ZERO)).expect("waited for");
    };
    handle.spawn(drains).expect("room");
    let report = told.recv_timeout(LONG).expect("the drain returns");
    assert_eq!((report.stuck.len(), gate.held()), (1, 1), "{report}");
    gate.open();
}

#[test]
fn a_handler_that_holds_what_a_timer_locks_at_its_end_can_drain_its_runtime() {
    let runtime = workers(1);
    let handle = runtime.handle();
    let lock = Arc::default();
    let last = LocksAtEnd(Arc::clone(&lock));
    handle.after(LONG, move || drop(last)).detach();
    let (tell, told) = mpsc::channel();
    let drains = move || {
        let _held = lock.lock();
        tell.send(runtime.drain(LONG)).expect("waited for");
    };
    handle.spawn(drains).expect("room");
    assert_clean(&told.recv_timeout(LONG).expect("the drain returns"));
}

/// Passes a gate when it is dropped.
struct PassesAtEnd(Gate);

impl Drop for PassesAtEnd {
    fn drop(&mut self) {
        self.0.pass();
    }
}

thread_local! {
    static LAST: Cell<Option<PassesAtEnd>> = const { Cell::new(None) };
}

#[test]
fn a_thread_local_whose_destructor_waits_does_not_hold_up_the_drain_and_is_the_one_named() {
    for workers in [1, 4] {
        let name = format!("sl{workers}");
        let runtime = Runtime::builder()
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(workers))
            .name(&name)
            .start();
        let runtime = runtime.expect("a runtime");
        let gate = Gate::default();
        let last = PassesAtEnd(gate.clone());
        let (tell, told) = mpsc::channel();
        let task = move || {
            LAST.set(Some(last));
            tell.send(thread::current().name().map(str::to_owned)).expect("waited for");
        };
        runtime.handle().spawn(task).expect("room");
        let stuck = told.recv_timeout(LONG).expect("it runs").expect("a name");
        let report = runtime.drain(Duration::from_millis(100));
        assert_eq!((report.stuck.as_slice(), report.cut), ([stuck].as_slice(), 0), "{report}");
        assert_eq!(gate.held(), 1, "the drain did not wait for the destructor");
        gate.open();
        eventually(LONG, || threads_named(&name).is_empty());
    }
}

#[test]
fn queued_tasks_run_before_the_threads_leave() {
    for _ in 0..20 {
        let runtime = workers(2);
        let ran = Arc::new(AtomicUsize::new(0));
        for _ in 0..200 {
            let ran = Arc::clone(&ran);
            let code = move || {
                thread::park_timeout(Duration::from_micros(100));
                ran.fetch_add(1, Ordering::Relaxed);
            };
            runtime.handle().spawn(code).expect("room");
        }
        let report = runtime.drain(LONG);
        assert_clean(&report);
        assert_eq!((ran.load(Ordering::Relaxed), report.refused), (200, 0));
    }
}

#[test]
fn what_spawn_accepted_runs_though_a_drain_begins() {
    for _ in 0..50 {
        let runtime = workers(2);
        let (accepted, ran) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..3 {
                let handle = runtime.handle();
                let (accepted, ran, ended) = (&accepted, &ran, &ended);
                scope.spawn(move || {
                    while !ended.load(Ordering::Relaxed) {
                        let ran = Arc::clone(ran);
                        let code = move || {
                            ran.fetch_add(1, Ordering::SeqCst);
                        };
                        if handle.spawn(code).is_ok() {
                            accepted.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                });
            }
            eventually(LONG, || accepted.load(Ordering::Relaxed) > 100);
            let report = runtime.drain(LONG);
            ended.store(true, Ordering::Relaxed);
            assert_clean(&report);
        });
        assert_eq!(ran.load(Ordering::SeqCst), accepted.load(Ordering::SeqCst));
    }
}

#[test]
fn a_wait_for_room_ends_when_the_drain_begins() {
    let gate = Gate::default();
    let inside = gate.clone();
    let block = move |conn: &Connection, input: &mut Input<'_>| {
        inside.pass();
        echo(conn, input)
    };
    let config = config().epoll_threads_per_group(1).max_threads(2);
    let server = Server::start(Kind::Tcp, config, Bytes::new(block));
    let mut peer = server.peer();
    peer.send(REQUEST);
    gate.wait_for(1);
    let handle = server.runtime.handle();
    while handle.spawn(|| ()).is_ok() {}
    // A worker of another runtime waits for room, so its statistics show that it does.
    let other = workers(1);
    let (tell, told) = mpsc::channel();
    let waits = move || tell.send(handle.spawn_wait(|| ())).expect("waited for");
    other.handle().spawn(waits).expect("room");
    eventually(LONG, || other.stats().stalled_threads == 1);
    let drain = thread::spawn(move || server.runtime.drain(LONG));
    let refused = told.recv().expect("no panic").expect_err("a drain");
    assert_eq!((refused.is_full(), gate.held()), (false, 1), "the handler is still inside");
    gate.open();
    assert_eq!(peer.receive_to_finish(), REQUEST);
    drop(peer);
    assert_clean(&drain.join().expect("no panic"));
}

#[test]
fn a_drain_with_no_time_returns_and_says_what_it_cut() {
    let seen = Arc::new(AtomicUsize::new(0));
    let protocol = Bytes::new(answer_after(Duration::from_millis(50), Arc::clone(&seen)));
    let server = Server::start(Kind::Tcp, config(), protocol);
    let mut peers: Vec<_> = (0..4).map(|_| server.peer()).collect();
    peers.iter_mut().for_each(|peer| peer.send(REQUEST));
    eventually(LONG, || seen.load(Ordering::SeqCst) == 4);
    let handle = server.runtime.handle();
    let report = server.runtime.drain(Duration::ZERO);
    assert_eq!(report.finished + report.cut, 4, "{report}");
    assert_eq!((report.cut, handle.stats().get(Counter::ClosedCut)), (4, 4), "{report}");
    // A handler may be reported as stuck, because it sleeps when the drain begins.
    assert!(report.took < LONG / 6, "{report}");
    assert!(handle.spawn(|| ()).is_err());
}

/// Descriptor whose runtime drains while it is being registered.
struct DrainsFirst(Runtime, UnixStream);

impl From<DrainsFirst> for OwnedFd {
    fn from(DrainsFirst(runtime, socket): DrainsFirst) -> Self {
        assert_clean(&runtime.drain(LONG));
        socket.into()
    }
}

#[test]
fn a_descriptor_that_is_registered_beside_a_drain_is_refused_and_closed() {
    let runtime = workers(1);
    let handle = runtime.handle();
    let (ours, mut theirs) = UnixStream::pair().expect("sockets");
    let code = |_: BorrowedFd<'_>, _| unreachable!("refused");
    let refused = handle.register(DrainsFirst(runtime, ours), Interest::READABLE, code);
    assert_eq!(refused.expect_err("a drain").to_string(), "the runtime drains");
    assert_eq!(theirs.read(&mut [0]).expect("the end"), 0);
    let stats = handle.stats();
    assert_eq!(stats.slots_allocated, stats.slots_free);
}

/// Place of a runtime from which one of its handlers, tasks or timers takes and ends the runtime.
struct Own {
    runtime: Arc<Mutex<Option<Runtime>>>,
    tell: mpsc::Sender<Option<DrainReport>>,
}

#[derive(Clone, Copy, Debug)]
enum End {
    Drain,
    Drop,
}

const ENDS: [End; 2] = [End::Drain, End::Drop];

impl Own {
    fn new() -> (Self, mpsc::Receiver<Option<DrainReport>>) {
        let (tell, told) = mpsc::channel();
        (Self { runtime: Arc::default(), tell }, told)
    }

    fn end(&self, how: End) {
        let runtime = self.runtime.lock().expect("no panic").take().expect("ended once");
        let report = match how {
            End::Drain => Some(runtime.drain(LONG)),
            End::Drop => {
                drop(runtime);
                None
            }
        };
        self.tell.send(report).expect("waited for");
    }
}

#[test]
fn a_runtime_can_end_in_a_task_or_a_timer_of_its_own() {
    for (round, how) in [ENDS, ENDS].concat().into_iter().enumerate() {
        let prefix = format!("ot{round}");
        let builder = Runtime::builder()
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(3))
            .name(&prefix);
        let runtime = builder.start().expect("a runtime");
        let handle = runtime.handle();
        let (own, told) = Own::new();
        *own.runtime.lock().expect("no panic") = Some(runtime);
        if round < 2 {
            handle.spawn(move || own.end(how)).expect("room");
        } else {
            handle.after(Duration::from_millis(1), move || own.end(how)).detach();
        }
        let report = told.recv_timeout(LONG).expect("it ends");
        if let Some(report) = report {
            assert_clean(&report);
        }
        eventually(LONG, || threads_named(&prefix).is_empty());
    }
}

#[test]
fn a_runtime_can_end_in_a_handler_of_its_own_whose_peer_is_still_answered() {
    for how in ENDS {
        let (own, told) = Own::new();
        let slot = Arc::clone(&own.runtime);
        let code = move |conn: &Connection, input: &mut Input<'_>| {
            own.end(how);
            echo(conn, input)
        };
        let prefix = format!("oh{how:?}");
        let builder = Runtime::builder()
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(3))
            .name(&prefix);
        let runtime = builder.start().expect("a runtime");
        let listener = runtime.listen("127.0.0.1:0", Bytes::new(code)).expect("a listener");
        let mut other = Peer::connect(listener.local_addr());
        let mut peer = Peer::connect(listener.local_addr());
        eventually(LONG, || runtime.stats().connections == 2);
        *slot.lock().expect("no panic") = Some(runtime);
        peer.send(REQUEST);
        if let Some(report) = told.recv_timeout(LONG).expect("it ends") {
            assert_clean(&report);
            assert_eq!(peer.receive_to_finish(), REQUEST);
        }
        assert_eq!(other.receive_to_finish(), b"");
        eventually(LONG, || threads_named(&prefix).is_empty());
    }
}

/// Holds the requests of others. The connection that sends [`SHUTDOWN`] breaks, and drains its runtime.
struct Admin {
    own: Own,
    broken: Mutex<Option<Connection>>,
    held: mpsc::Sender<(Connection, Hold)>,
}

const SHUTDOWN: &[u8] = b"shutdown";

impl Protocol for Admin {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        if input.take_all() == SHUTDOWN {
            *self.broken.lock().expect("no panic") = Some(conn.clone());
        } else {
            self.held.send((conn.clone(), conn.hold())).expect("waited for");
        }
        Ok(())
    }

    fn released(&self, _: &Connection, _: Turn) {
        let broken = self.broken.lock().expect("no panic").take();
        if let Some(conn) = broken {
            conn.abort("broken");
            self.own.end(End::Drain);
        }
    }
}

#[test]
fn a_drain_in_a_handler_whose_connection_breaks_waits_for_the_others() {
    let ((own, told), (hold, held)) = (Own::new(), mpsc::channel());
    let slot = Arc::clone(&own.runtime);
    let config = Config::default().epoll_groups(1).epoll_threads_per_group(3);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let admin = Admin { own, broken: Mutex::default(), held: hold };
    let listener = runtime.listen("127.0.0.1:0", admin).expect("a listener");
    let [mut peer, mut breaks] = [(); 2].map(|()| Peer::connect(listener.local_addr()));
    peer.send(REQUEST);
    let (conn, hold) = held.recv_timeout(LONG).expect("a request");
    let handle = runtime.handle();
    *slot.lock().expect("no panic") = Some(runtime);
    breaks.send(SHUTDOWN);
    eventually(LONG, || handle.spawn(|| ()).is_err());
    eventually(LONG, || handle.stats().connections == 1);
    thread::park_timeout(Duration::from_millis(20));
    conn.send(REQUEST);
    drop((conn, hold));
    assert_clean(&told.recv_timeout(LONG).expect("it ends").expect("a report"));
    assert_eq!(peer.receive_to_finish(), REQUEST);
}

/// Ends its runtime when its connection has ended.
struct EndsLast(Own);

impl Protocol for EndsLast {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        Ok(())
    }

    fn received(&self, _: &Connection, (): &mut (), _: &mut Input<'_>) -> Result<(), Close> {
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), _: &CloseReason) {
        self.0.end(End::Drain);
    }
}

#[test]
fn a_drain_in_closed_does_not_wait_for_its_own_connection() {
    let (own, told) = Own::new();
    let slot = Arc::clone(&own.runtime);
    let runtime = workers(2);
    let listener = runtime.listen("127.0.0.1:0", EndsLast(own)).expect("a listener");
    let peer = Peer::connect(listener.local_addr());
    eventually(LONG, || runtime.stats().connections == 1);
    *slot.lock().expect("no panic") = Some(runtime);
    drop(peer);
    assert_clean(&told.recv_timeout(LONG).expect("it ends").expect("a report"));
}

#[test]
fn a_drain_in_a_task_of_the_only_worker_runs_the_tasks_behind_it() {
    let (runtime, gate) = (workers(1), Gate::default());
    let handle = runtime.handle();
    let (tell, told) = mpsc::channel();
    let held = gate.clone();
    let drains = move || {
        held.pass();
        tell.send(runtime.drain(LONG)).expect("waited for");
    };
    handle.spawn(drains).expect("room");
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    handle.spawn(move || runs.store(true, Ordering::SeqCst)).expect("room");
    gate.open();
    assert_clean(&told.recv_timeout(LONG).expect("the drain returns"));
    assert!(ran.load(Ordering::SeqCst));
}

/// Ends its runtime when it is dropped.
struct EndsWhenDropped(Own, mpsc::Sender<()>);

impl Drop for EndsWhenDropped {
    fn drop(&mut self) {
        self.1.send(()).expect("waited for");
        self.0.end(End::Drain);
    }
}

#[test]
fn a_drain_in_a_task_waits_for_the_one_connection_that_is_busy() {
    beside_a_busy_connection(|handle, ends| {
        handle.spawn(move || drop(ends)).expect("room");
    });
}

#[test]
fn a_drain_in_a_destructor_waits_for_the_one_connection_that_is_busy() {
    beside_a_busy_connection(|handle, ends| {
        // The code of a registration is dropped by a worker.
        let (socket, _) = UnixStream::pair().expect("sockets");
        socket.set_nonblocking(true).expect("set");
        let code = move |_: BorrowedFd<'_>, _| {
            let _kept = &ends;
        };
        drop(handle.register(socket, Interest::READABLE, code).expect("room"));
    });
}

/// Has `begin` end a runtime on a worker of its own, while a connection is busy.
fn beside_a_busy_connection(begin: impl FnOnce(&Handle, EndsWhenDropped)) {
    let gate = Gate::default();
    let inside = gate.clone();
    let server = Server::start(
        Kind::Tcp,
        config(),
        Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
            inside.pass();
            echo(conn, input)
        }),
    );
    let mut peer = server.peer();
    peer.send(REQUEST);
    gate.wait_for(1);
    let handle = server.runtime.handle();
    let (own, told) = Own::new();
    *own.runtime.lock().expect("no panic") = Some(server.runtime);
    let (begins, begun) = mpsc::channel();
    begin(&handle, EndsWhenDropped(own, begins));
    begun.recv_timeout(LONG).expect("a worker ends it");
    // The drain has begun when tasks are refused. Within 20 ms, a drain that does not wait for the
    // connection would have ended.
    eventually(LONG, || handle.spawn(|| ()).is_err());
    thread::park_timeout(Duration::from_millis(20));
    gate.open();
    let report = told.recv_timeout(LONG).expect("it ends").expect("a report");
    assert_clean(&report);
    assert_eq!(report.finished, 1);
    assert_eq!(peer.receive_to_finish(), REQUEST);
}

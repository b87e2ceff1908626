//! Unusual uses of a wait by handlers, and edge cases of threads that start and leave.

use std::cell::RefCell;
use std::mem;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use epoll_group::net::{Close, CloseReason, Connection, Input, Protocol};
use epoll_group::stall::{self, Stall};
use epoll_group::stats::Counter;
use epoll_group::{Class, Config, Interest, Readiness, Runtime, ThreadInfo, ThreadKind};
use lab::protocol::Bytes;
use lab::workers::{Gate, all_rest};
use lab::{Kind, LONG, Server, eventually};

fn echo() -> impl Protocol {
    Bytes::new(|conn: &Connection, input: &mut Input<'_>| -> Result<(), Close> {
        conn.send(input.take_all());
        Ok(())
    })
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

thread_local! {
    /// A wait that outlives the handler which began it.
    static KEPT: RefCell<Option<Stall>> = const { RefCell::new(None) };
}

#[test]
fn a_wait_that_outlives_its_handler_leaves_the_network_served() {
    let config = lab::config().dynamic_threads_shrink_time(Duration::from_millis(10));
    let server = Server::start(Kind::Unix, config, echo());
    let handle = server.runtime.handle();
    let mut peer = server.peer();
    handle.spawn(|| KEPT.set(Some(stall::enter()))).expect("room");
    eventually(LONG, || server.stats().stalled_threads == 1);
    for round in 0..60 {
        let (tell, told) = mpsc::channel();
        for _ in 0..8 {
            let tell = tell.clone();
            let keep_or_end = move || {
                let before = KEPT.take();
                if before.is_none() {
                    KEPT.set(Some(stall::enter()));
                }
                drop(before);
                // Long enough for its worker to look at the network when it is over.
                spin(Duration::from_micros(if round % 2 == 0 { 1100 } else { 10 }));
                tell.send(()).expect("waited for");
            };
            handle.spawn(keep_or_end).expect("room");
        }
        for _ in 0..8 {
            told.recv_timeout(LONG).expect("it runs");
        }
        for _ in 0..20 {
            peer.echo(b"still there");
        }
    }
}

#[test]
fn the_reserve_goes_back_when_a_stuck_handler_is_done_and_not_at_the_next_look() {
    let config = lab::config()
        .epoll_threads_per_group(1)
        .max_threads(2)
        .thread_deadlock_check_interval(Duration::from_millis(20));
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let gate = Gate::default();
    let blocked = gate.clone();
    runtime.handle().spawn(move || blocked.pass()).expect("room");
    eventually(LONG, || runtime.stats().standby_threads == 0);
    let rarely = |config: Config| config.thread_deadlock_check_interval(Duration::from_secs(10));
    runtime.reconfigure(rarely).expect("valid");
    let checks = || runtime.stats().get(Counter::WatchdogChecks);
    let before = checks();
    eventually(LONG, || checks() > before);
    gate.open();
    eventually(Duration::from_secs(5), || runtime.stats().standby_threads == 1);
}

#[test]
fn slots_that_are_used_again_do_not_pass_for_progress() {
    /// Threads that looks of the watchdog add one after the other, as long as none finds progress.
    const STEPS: [u64; 3] = [1, 2, 4];
    let config = lab::config()
        .epoll_threads_per_group(1)
        .enable_tasker(false)
        .dynamic_threads_shrink_time(Duration::from_millis(10))
        .thread_deadlock_check_interval(Duration::from_millis(20));
    // Added threads are held back before they begin. Meanwhile no look adds any.
    let begins = Arc::new(Mutex::new(Gate::default()));
    let begin = Arc::clone(&begins);
    let hook = move |info: &ThreadInfo| {
        if info.kind == ThreadKind::Worker {
            let begin = begin.lock().expect("no panic").clone();
            begin.pass();
        }
    };
    let builder = Runtime::builder().config(config).on_thread_start(hook);
    let runtime = builder.start().expect("a runtime");
    let added = || runtime.stats().get(Counter::ThreadsStartedWatchdog);
    let look = || {
        let checks = || runtime.stats().get(Counter::WatchdogChecks);
        let before = checks();
        // Looks are counted when they begin.
        eventually(LONG, || checks() >= before + 2);
    };
    let begin_with = |next: Gate| mem::replace(&mut *begins.lock().expect("no panic"), next);
    for round in ["new", "used"] {
        let (gate, mut before) = (Gate::default(), added());
        let _ = begin_with(Gate::default());
        // With the base worker, one thread for each.
        let crowd = 1 + STEPS.iter().sum::<u64>() as usize;
        for _ in 0..crowd {
            let gate = gate.clone();
            runtime.handle().spawn(move || gate.pass()).expect("room");
        }
        for step in STEPS {
            eventually(LONG, || added() > before);
            look();
            assert_eq!(added() - before, step, "{round} slots");
            before += step;
            let held = begins.lock().expect("no panic").clone();
            held.wait_for(step as usize);
            begin_with(Gate::default()).open();
        }
        gate.wait_for(crowd);
        begin_with(Gate::opened()).open();
        gate.open();
        // A run that ends later would be progress in the next round.
        eventually(LONG, || runtime.stats().workers == 1);
        all_rest(&runtime);
    }
}

#[test]
fn without_a_reserve_there_is_none() {
    let config = lab::config()
        .epoll_threads_per_group(1)
        .reserve_threads_per_group(0)
        .max_threads(2)
        .thread_deadlock_check_interval(Duration::from_millis(10));
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let (handle, gate) = (runtime.handle().with_class(Class::InProgress), Gate::default());
    for _ in 0..3 {
        let gate = gate.clone();
        handle.spawn(move || stall::run(|| gate.pass())).expect("room");
    }
    gate.wait_for(2);
    let checks = || runtime.stats().get(Counter::WatchdogChecks);
    let before = checks();
    eventually(LONG, || checks() > before + 2);
    let stats = runtime.stats();
    assert_eq!(stats.reserve_threads, 0, "{stats}");
    assert_eq!(stats.get(Counter::ThreadsStartedReserve), 0, "{stats}");
    gate.open();
}

/// Waits when it is dropped.
struct Waits(Gate);

impl Drop for Waits {
    fn drop(&mut self) {
        stall::run(|| self.0.pass());
    }
}

#[test]
fn destructors_that_wait_do_not_use_the_reserve_up() {
    let config = lab::config().epoll_threads_per_group(1).max_threads(32).enable_tasker(false);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let (handle, gate) = (runtime.handle(), Gate::default());
    // Registrations, whose closures are dropped on a worker when they end.
    let watched: Vec<_> = (0..4)
        .map(|_| {
            let waits = Waits(gate.clone());
            let (ours, _) = UnixStream::pair().expect("a pair");
            let code = move |_: BorrowedFd<'_>, _: Readiness| _ = &waits;
            handle
                .with_class(Class::InProgress)
                .register(ours, Interest::READABLE, code)
                .expect("registered")
        })
        .collect();
    let ordinary = Gate::default();
    let mut waiting = 0;
    // All threads that ordinary work can get wait.
    loop {
        let gate = ordinary.clone();
        handle.spawn(move || stall::run(|| gate.pass())).expect("room");
        eventually(LONG, || {
            let stats = runtime.stats();
            stats.stalled_threads > waiting || stats.get(Counter::ThreadsLimited) > 0
        });
        let stats = runtime.stats();
        if stats.get(Counter::ThreadsLimited) > 0 && stats.tasks_in_progress > stats.stalled_threads
        {
            break;
        }
        waiting = stats.stalled_threads;
    }
    drop(watched);
    let (tell, told) = mpsc::channel();
    handle
        .with_class(Class::Admin)
        .spawn(move || tell.send(()).expect("waited for"))
        .expect("room");
    // Before the gates give up.
    told.recv_timeout(LONG / 2).expect("an operator can look inside");
    ordinary.open();
    gate.open();
}

/// Reports the threads on which a connection has opened and ended.
struct Reports(mpsc::Sender<String>);

impl Reports {
    fn report(&self) {
        let here = std::thread::current();
        let _ = self.0.send(here.name().unwrap_or_default().to_owned());
    }
}

impl Protocol for Reports {
    type State = ();

    fn opened(&self, _: &Connection) -> Result<(), Close> {
        self.report();
        Ok(())
    }

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        conn.send(input.take_all());
        Ok(())
    }

    fn closed(&self, _: &Connection, (): (), _: &CloseReason) {
        self.report();
    }
}

#[test]
fn what_is_urgent_no_more_is_not_run_by_the_reserve() {
    let config = lab::config().epoll_threads_per_group(1).max_threads(2);
    let runtime = Runtime::builder().config(config).name("ur").start().expect("a runtime");
    let (tell, told) = mpsc::channel();
    let listener = runtime.listen("127.0.0.1:0", Bytes::new(|_, _| Ok(()))).expect("a listener");
    let handle = runtime.handle().with_class(Class::InProgress);
    let conn = handle.connect(listener.local_addr(), Reports(tell)).expect("a connection");
    told.recv_timeout(LONG).expect("opened");
    eventually(LONG, || runtime.stats().get(Counter::ConnectionsAccepted) == 1);
    let [ordinary, urgent] = [(); 2].map(|()| Gate::default());
    let waits = ordinary.clone();
    runtime.handle().spawn(move || stall::run(|| waits.pass())).expect("room");
    ordinary.wait_for(1);
    let blocks = urgent.clone();
    handle.spawn(move || blocks.pass()).expect("room");
    urgent.wait_for(1);
    conn.close("enough");
    conn.set_class(Class::Ordinary);
    let (tell, told_urgent) = mpsc::channel();
    handle.spawn(move || tell.send(()).expect("waited for")).expect("room");
    urgent.open();
    told_urgent.recv_timeout(LONG).expect("the reserve runs it");
    assert!(told.try_recv().is_err(), "the reserve has run what is ordinary");
    ordinary.open();
    assert_eq!(told.recv_timeout(LONG).as_deref(), Ok("ur-0-0"));
}

/// Found by the test of operators' sessions: the request that ends a transaction stood behind work that
/// waited for it.
#[test]
fn what_becomes_urgent_while_it_is_queued_is_run_by_the_reserve() {
    let config = lab::config().epoll_threads_per_group(1).max_threads(2);
    let (tell, told) = mpsc::channel();
    let protocol = Bytes::new(move |conn: &Connection, input: &mut Input<'_>| {
        conn.send(input.take_all());
        let _ = tell.send(conn.clone());
        Ok(())
    });
    let server = Server::start(Kind::Tcp, config, protocol);
    let mut peer = server.peer();
    peer.echo(b"?");
    let conn = told.recv_timeout(LONG).expect("a connection");
    let gate = Gate::default();
    let waits = gate.clone();
    server.runtime.handle().spawn(move || stall::run(|| waits.pass())).expect("room");
    gate.wait_for(1);
    let queued = || server.stats().get(Counter::BatchEventsQueued);
    let before = queued();
    peer.send(b"!");
    eventually(LONG, || queued() > before);
    conn.set_class(Class::InProgress);
    assert_eq!(peer.receive(1), b"!");
    assert_eq!(server.stats().stalled_threads, 1, "it came when the wait was over");
    gate.open();
    peer.echo(b"?");
}

#[test]
fn events_behind_a_stuck_handler_are_served_by_others() {
    // Nothing but the watchdog wakes threads.
    let never = Duration::from_secs(600);
    let config = lab::config()
        .thread_deadlock_check_interval(Duration::from_millis(5))
        .dynamic_threads_shrink_time(never)
        .first_bytes_timeout(never);
    for _ in 0..lab::often(30) {
        let gate = Gate::default();
        let waits = gate.clone();
        let wait = move |conn: &Connection, input: &mut Input<'_>| -> Result<(), Close> {
            let request = input.take_all();
            match request {
                b"wait" => waits.pass(),
                b"open" => waits.open(),
                _ => {}
            }
            conn.send(request);
            Ok(())
        };
        let server = Server::start(Kind::Tcp, config.clone(), Bytes::new(wait));
        let mut peers: Vec<_> = (0..64).map(|_| server.peer()).collect();
        let mut last = server.peer();
        // Known to be quick, so that many are taken at once.
        peers.iter_mut().chain([&mut last]).for_each(|peer| peer.echo(b"quick"));
        let began = Instant::now();
        peers.iter_mut().for_each(|peer| peer.send(b"wait"));
        last.echo(b"open");
        assert!(began.elapsed() < LONG / 2, "the gate gave up first");
        peers.iter_mut().for_each(|peer| assert_eq!(peer.receive(4), b"wait"));
    }
}

//! Spawned closures: each runs once, whatever the workers do at the moment.

use std::hint;
use std::io::Read;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use epoll_group::stats::Counter;
use epoll_group::{Class, Config, Handle, Runtime};
use lab::protocol::{Bytes, echo};
use lab::workers::{Gate, all_rest, only_one_worker, workers};
use lab::{Kind, LONG, Server, assert_clean, eventually};

/// Spawns a task and waits until it has run.
#[track_caller]
fn run(handle: &Handle) {
    let (ran, has_run) = mpsc::channel();
    handle.spawn(move || ran.send(()).expect("somebody waits")).expect("room in the queue");
    has_run.recv_timeout(LONG).expect("the task runs");
}

#[test]
fn a_task_pushed_while_all_workers_rest_runs() {
    for count in [1, 2, 4] {
        let runtime = workers(count);
        for _ in 0..100 {
            all_rest(&runtime);
            run(&runtime.handle());
        }
    }
}

#[test]
fn a_task_pushed_while_all_workers_are_about_to_park_runs() {
    for count in [1, 4] {
        let runtime = workers(count);
        let handle = runtime.handle();
        for round in 0..20_000 {
            run(&handle);
            // The worker is about to park. Each round meets it at another step of parking.
            for _ in 0..round % 500 {
                hint::spin_loop();
            }
        }
    }
}

#[test]
fn pushers_that_wait_for_each_task_lose_none_to_parking() {
    const PUSHERS: u64 = 4;
    const ROUNDS: u64 = 25_000;
    let runtime = workers(2);
    thread::scope(|scope| {
        for _ in 0..PUSHERS {
            let handle = runtime.handle();
            scope.spawn(move || (0..ROUNDS).for_each(|_| run(&handle)));
        }
    });
    assert_eq!(runtime.stats().get(Counter::TasksRun), PUSHERS * ROUNDS);
}

#[test]
fn a_million_tasks_pass_a_queue_of_128_each_exactly_once() {
    const PUSHERS: usize = 8;
    const EACH: usize = 125_000;
    let config = Config::default().epoll_groups(1).epoll_work_queue_capacity(128);
    let runtime = Runtime::builder().config(config).start().expect("a runtime");
    let runs: Arc<[AtomicU8]> = (0..PUSHERS * EACH).map(|_| AtomicU8::new(0)).collect();
    let done = Arc::new(AtomicUsize::new(0));
    let refused = AtomicUsize::new(0);
    thread::scope(|scope| {
        for pusher in 0..PUSHERS {
            let (runtime, runs, done, refused) = (&runtime, &runs, &done, &refused);
            scope.spawn(move || {
                let handle = runtime.handle();
                for task in pusher * EACH..(pusher + 1) * EACH {
                    let (runs, done) = (Arc::clone(runs), Arc::clone(done));
                    let code = move || {
                        runs[task].fetch_add(1, Ordering::Relaxed);
                        done.fetch_add(1, Ordering::Release);
                    };
                    let Err(error) = handle.spawn(code) else { continue };
                    assert!(error.is_full());
                    refused.fetch_add(1, Ordering::Relaxed);
                    if pusher % 2 == 0 {
                        handle.spawn_wait(error.into_inner()).expect("nobody drains");
                    } else {
                        spawn_until_accepted(&handle, error.into_inner(), refused);
                    }
                }
            });
        }
    });
    eventually(LONG, || done.load(Ordering::Acquire) == PUSHERS * EACH);
    assert!(runs.iter().all(|runs| runs.load(Ordering::Relaxed) == 1));
    let stats = runtime.stats();
    assert_eq!(stats.get(Counter::SpawnRefused), refused.load(Ordering::Relaxed) as u64);
    assert!(stats.get(Counter::SpawnRefused) > 0, "the queue was never full");
    assert_eq!((stats.queue_len, stats.overflow_len), (0, 0));
}

fn spawn_until_accepted(
    handle: &Handle,
    mut code: Box<dyn FnOnce() + Send>,
    refused: &AtomicUsize,
) {
    while let Err(error) = handle.spawn(code) {
        refused.fetch_add(1, Ordering::Relaxed);
        thread::yield_now();
        code = error.into_inner();
    }
}

#[test]
fn a_closure_that_came_back_can_be_tried_again_any_number_of_times() {
    let runtime = only_one_worker();
    let handle = runtime.handle();
    let gate = Gate::default();
    fill(&handle, &gate);
    let (ran, has_run) = mpsc::channel();
    let mut code: Box<dyn FnOnce() + Send> = Box::new(move || ran.send(()).expect("waited for"));
    for _ in 0..200_000 {
        code = handle.spawn(code).expect_err("the queue is full").into_inner();
    }
    gate.open();
    handle.spawn_wait(code).expect("there will be room");
    has_run.recv_timeout(LONG).expect("the task runs");
    assert!(has_run.recv().is_err(), "it ran once");
}

/// Blocks the only worker and fills the queue behind it.
fn fill(handle: &Handle, gate: &Gate) {
    let blocked = gate.clone();
    handle.spawn(move || blocked.pass()).expect("room");
    gate.wait_for(1);
    while handle.spawn(|| ()).is_ok() {}
}

#[test]
fn a_full_queue_says_so_and_how_long_it_is() {
    let runtime = workers(1);
    let gate = Gate::default();
    fill(&runtime.handle(), &gate);
    assert_eq!(runtime.stats().queue_len, 256);
    let error = runtime.handle().spawn(|| ()).expect_err("the queue is full");
    assert_eq!(error.to_string(), "task queue full: epoll_work_queue_capacity is 256");
    gate.open();
}

#[test]
fn connections_are_queued_beyond_the_capacity() {
    let (gate, listener) = (Gate::default(), TcpListener::bind("127.0.0.1:0").expect("a port"));
    let runtime = only_one_worker();
    let handle = runtime.handle();
    let address = listener.local_addr().expect("an address");
    // It receives nothing, so its work cannot count as long, which would have a queue of its own.
    let conn = handle.connect(address, Bytes::new(echo)).expect("a connection");
    let (mut peer, _) = listener.accept().expect("it comes");
    eventually(LONG, || runtime.stats().get(Counter::ConnectionsConnected) == 1);
    all_rest(&runtime);
    fill(&handle, &gate);
    conn.close("enough");
    let stats = runtime.stats();
    assert_eq!((stats.get(Counter::TasksOverflowed), stats.overflow_len), (1, 1), "{stats}");
    gate.open();
    assert_eq!(peer.read_to_end(&mut Vec::new()).expect("it ends"), 0);
}

#[test]
fn those_who_wait_for_room_all_get_it() {
    const WAITERS: usize = 16;
    let runtime = only_one_worker();
    let handle = runtime.handle();
    let gate = Gate::default();
    fill(&handle, &gate);
    let ran = Arc::new(AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            scope.spawn(|| {
                let ran = Arc::clone(&ran);
                let code = move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                };
                handle.spawn_wait(code).expect("nobody drains");
            });
        }
        gate.open();
    });
    eventually(LONG, || ran.load(Ordering::Relaxed) == WAITERS);
}

#[test]
fn a_worker_spawns_too_and_does_not_wait_for_room_on_itself() {
    let runtime = workers(1);
    let handle = runtime.handle();
    let (tell, told) = mpsc::channel();
    runtime
        .handle()
        .spawn(move || {
            while handle.spawn(|| ()).is_ok() {}
            let error = handle.spawn_wait(|| ()).expect_err("only this worker could make room");
            assert!(error.is_full());
            let done = tell.clone();
            handle.after(Duration::ZERO, move || done.send("timer").expect("waited for")).detach();
            tell.send("task").expect("waited for");
        })
        .expect("room");
    assert_eq!(told.recv_timeout(LONG), Ok("task"));
    assert_eq!(told.recv_timeout(LONG), Ok("timer"));
    all_rest(&runtime);
    assert_eq!(runtime.stats().get(Counter::TasksRun), 258);
}

#[test]
fn a_drained_runtime_gives_the_closure_back() {
    let runtime = workers(2);
    let handle = runtime.handle();
    let report = runtime.drain(LONG);
    assert_clean(&report);
    assert_eq!(report.refused, 0);
    let (ran, has_run) = mpsc::channel();
    let error = handle.spawn(move || ran.send(7).expect("waited for")).expect_err("drained");
    assert!(!error.is_full());
    assert_eq!(error.to_string(), "the runtime drains");
    error.into_inner()();
    assert_eq!(has_run.recv(), Ok(7));
    assert!(!handle.spawn_wait(|| ()).expect_err("drained").is_full());
}

/// A task that queues itself again until `wanted` is false.
fn again(handle: &Handle, wanted: &Arc<AtomicBool>) {
    let (next, wanted) = (handle.clone(), Arc::clone(wanted));
    let code = move || {
        if wanted.load(Ordering::Relaxed) {
            again(&next, &wanted);
        }
    };
    // Refused at the end.
    let _ = handle.spawn(code);
}

#[test]
fn peers_are_served_and_timers_fire_beside_tasks_without_end() {
    let config = lab::config().epoll_threads_per_group(1).reserve_threads_per_group(0);
    let config = config.max_threads(2).enable_tasker(false);
    let server = Server::start(Kind::Tcp, config, Bytes::new(echo));
    let handle = server.runtime.handle();
    let wanted = Arc::new(AtomicBool::new(true));
    for class in [Class::Ordinary, Class::InProgress] {
        again(&handle.with_class(class), &wanted);
    }
    let mut peer = server.peer();
    for _ in 0..100 {
        peer.echo(b"are you there?");
    }
    let (tell, told) = mpsc::channel();
    handle.after(Duration::ZERO, move || tell.send(()).expect("waited for")).detach();
    told.recv_timeout(LONG).expect("it fires");
    wanted.store(false, Ordering::Relaxed);
    let stats = server.stats();
    let (tasks, waits) = (stats.get(Counter::TasksRun), stats.get(Counter::EpollWaits));
    assert!(tasks <= 64 * (waits + 1), "{tasks} tasks and {waits} looks");
}

/// Counts the workers that are inside at once. The first `size` workers wait for each other.
struct Crowd {
    size: usize,
    state: Mutex<CrowdState>,
    changed: Condvar,
}

#[derive(Default)]
struct CrowdState {
    came: usize,
    inside: usize,
    most: usize,
    lonely: usize,
}

impl Crowd {
    fn new(size: usize) -> Arc<Self> {
        Arc::new(Self { size, state: Mutex::default(), changed: Condvar::new() })
    }

    fn enter(&self) {
        let mut state = self.state.lock().expect("no panic inside");
        state.came += 1;
        state.inside += 1;
        state.most = state.most.max(state.inside);
        if state.came == self.size {
            self.changed.notify_all();
        }
        if state.came <= self.size {
            let crowded = |state: &mut CrowdState| state.came < self.size;
            let waited = self.changed.wait_timeout_while(state, LONG, crowded);
            let (guard, timeout) = waited.expect("no panic inside");
            state = guard;
            state.lonely += usize::from(timeout.timed_out());
        }
        drop(state);
        thread::park_timeout(Duration::from_millis(2));
        self.state.lock().expect("no panic inside").inside -= 1;
    }

    /// Waits for `count` tasks; all workers must have been inside at once.
    #[track_caller]
    fn check(&self, count: usize) {
        eventually(LONG, || {
            let state = self.state.lock().expect("no panic inside");
            state.came == count && state.inside == 0
        });
        let state = self.state.lock().expect("no panic inside");
        assert_eq!((state.most, state.lonely), (self.size, 0));
    }
}

const WORKERS: usize = 8;
const PUSHES: usize = 800;

fn wide() -> Runtime {
    let config = Config::default()
        .epoll_groups(1)
        .epoll_threads_per_group(WORKERS)
        .epoll_work_queue_capacity(1024)
        .thread_deadlock_check_interval(Duration::from_secs(10))
        .enable_tasker(false);
    Runtime::builder().config(config).start().expect("a runtime")
}

fn push_all(handle: &Handle, crowd: &Arc<Crowd>) {
    for _ in 0..PUSHES {
        let crowd = Arc::clone(crowd);
        handle.spawn(move || crowd.enter()).expect("room for all");
    }
}

#[test]
fn all_workers_are_busy_however_the_wake_ups_of_a_burst_merge() {
    let runtime = wide();
    for _ in 0..5 {
        all_rest(&runtime);
        let crowd = Crowd::new(WORKERS);
        push_all(&runtime.handle(), &crowd);
        crowd.check(PUSHES);
    }
}

#[test]
fn all_workers_are_busy_when_one_of_them_pushes_the_burst() {
    let runtime = wide();
    for _ in 0..5 {
        all_rest(&runtime);
        let crowd = Crowd::new(WORKERS);
        let (handle, tasks) = (runtime.handle(), Arc::clone(&crowd));
        runtime.handle().spawn(move || push_all(&handle, &tasks)).expect("room");
        crowd.check(PUSHES);
    }
}

#[test]
fn two_tasks_that_wait_for_each_other_both_run() {
    let runtime = workers(2);
    for _ in 0..2000 {
        let crowd = Arc::new(std::sync::Barrier::new(3));
        for _ in 0..2 {
            let crowd = Arc::clone(&crowd);
            let meet = move || {
                crowd.wait();
            };
            runtime.handle().spawn(meet).expect("room");
        }
        crowd.wait();
    }
}

//! Tests that drive one worker, without its thread.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;
use crate::config::Config;
use crate::runtime::source::OVER;
use crate::runtime::watch::Woke;
use crate::runtime::{Builder, Cost, Handle, Interest, Runtime, Work};
use crate::stall;

const LONG_RUN: Duration = Duration::from_millis(5);

/// Returns a runtime without threads, and its only worker, which the test drives.
fn alone() -> (Runtime, Worker) {
    let config = Config::default()
        .epoll_groups(1)
        .epoll_threads_per_group(1)
        .max_threads(2)
        .reserve_threads_per_group(0)
        .thread_scale_thresh(100);
    let (runtime, _) = Builder::default().config(config).assemble(None).expect("descriptors");
    let group = Arc::clone(&runtime.handle.shared.groups[0]);
    let slot = group.thread_set.occupy(ThreadKind::Base);
    let worker = Worker::new(group, slot, ThreadKind::Base);
    worker.begin(false);
    (runtime, worker)
}

/// Work that calls a closure.
struct Does<F>(F, Cost);

impl<F: Fn() + Send + Sync + 'static> Work for Does<F> {
    fn run(self: Arc<Self>, context: &mut WorkerContext<'_>) {
        (self.0)();
        context.charge(&self.1);
    }

    fn class(&self) -> Class {
        Class::Ordinary
    }

    fn cost(&self) -> &Cost {
        &self.1
    }
}

fn does(code: impl Fn() + Send + Sync + 'static) -> Arc<Does<impl Fn() + Send + Sync>> {
    Arc::new(Does(code, Cost::unknown()))
}

#[test]
fn a_wake_up_is_useful_if_there_is_work_and_futile_if_there_is_none() {
    let (runtime, mut worker) = alone();
    let group = Arc::clone(&worker.group);
    let demand = group.mode.demand(worker.now);
    let counters = [Counter::WakeupsSent, Counter::WakeupsUseful, Counter::WakeupsFutile];
    let counts = || counters.map(|counter| runtime.stats().get(counter));
    // Another worker waits in epoll. The test takes its wake-up.
    assert_eq!(group.park.rest(false, demand), Rest::Wait);
    group.wake_one();
    worker.poll_epoll(None, demand);
    assert_eq!(counts(), [1, 0, 1]);
    runtime.handle.spawn(|| ()).expect("there is room");
    worker.poll_epoll(None, demand);
    assert_eq!(counts(), [2, 1, 1]);
    worker.run_tasks();
}

#[test]
fn a_handler_in_the_batch_of_a_wake_up_sends_the_next_one() {
    let (runtime, mut worker) = alone();
    let group = Arc::clone(&worker.group);
    let demand = group.mode.demand(worker.now);
    // Another worker waits in epoll. The test takes its wake-up.
    assert_eq!(group.park.rest(false, demand), Rest::Wait);
    group.wake_one();
    let (ours, mut other) = UnixStream::pair().expect("descriptors");
    let handle = runtime.handle.clone();
    let spawns = move |_: BorrowedFd<'_>, _| handle.spawn(|| ()).expect("there is room");
    let watched = runtime.handle.register(ours, Interest::READABLE, spawns).expect("watched");
    other.write_all(b"!").expect("sent");
    let mut events = [Event::EMPTY; MOST_EVENTS];
    let count = group.epoll.wait(&mut events, None).expect("events");
    assert_eq!(count, 2, "the wake-up and the source");
    worker.deliver(&events[..count], Some(Rest::Wait), demand);
    let stats = runtime.stats();
    assert_eq!(stats.get(Counter::WakeupsSent), 2, "the task of the handler wakes no worker");
    drop(watched);
    worker.run_tasks();
}

#[test]
fn a_source_that_is_queued_again_at_the_end_of_its_run_wakes_nobody_before_the_next_run() {
    let (runtime, mut worker) = alone();
    let group = Arc::clone(&worker.group);
    let (ours, mut other) = UnixStream::pair().expect("descriptors");
    let runs = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&runs);
    let code = move |_: BorrowedFd<'_>, _| {
        counts.fetch_add(1, Ordering::Relaxed);
    };
    let watched = runtime.handle.register(ours, Interest::READABLE, code).expect("watched");
    other.write_all(b"!").expect("sent");
    let mut events = [Event::EMPTY; MOST_EVENTS];
    assert_eq!(group.epoll.wait(&mut events, None).expect("events"), 1);
    let token = Token::decode(events[0].data());
    // Another worker waits in epoll.
    let demand = group.mode.demand(worker.now);
    assert_eq!(group.park.rest(false, demand), Rest::Wait);
    let sent = || runtime.stats().get(Counter::WakeupsSent);
    let pinned = group.pin(token).expect("it is there");
    assert!(pinned.source().queue_ready(events[0].readiness()));
    group.release(token);
    assert!(group.requeue_source(token));
    assert_eq!(sent(), 0, "this worker is about to look at the queue");
    worker.before_run(true, demand);
    assert_eq!(sent(), 1, "the task must not wait behind a run");
    worker.run_tasks();
    assert_eq!(runs.load(Ordering::Relaxed), 1);
    drop(watched);
    worker.run_tasks();
}

#[test]
fn work_that_the_last_handler_of_a_batch_leaves_runs_here_unless_a_task_waits() {
    let (runtime, mut worker) = alone();
    let group = Arc::clone(&worker.group);
    let (ours, mut other) = UnixStream::pair().expect("descriptors");
    let ran = Arc::new(AtomicUsize::new(0));
    let (counts, here) = (Arc::clone(&ran), Arc::clone(&group));
    let code = move |_: BorrowedFd<'_>, _| {
        let counts = Arc::clone(&counts);
        here.put_stealable(does(move || {
            counts.fetch_add(1, Ordering::Relaxed);
        }));
    };
    let watched = runtime.handle.register(ours, Interest::READABLE, code).expect("watched");
    // Another worker waits in epoll.
    let demand = group.mode.demand(worker.now);
    assert_eq!(group.park.rest(false, demand), Rest::Wait);
    group.enter(worker.number);
    let mut deliver = || {
        other.write_all(b"!").expect("sent");
        let mut events = [Event::EMPTY; MOST_EVENTS];
        // The source, and later the wake-up for the task.
        let count = group.epoll.wait(&mut events, None).expect("events");
        worker.deliver(&events[..count], Some(Rest::Wait), demand);
        ran.load(Ordering::Relaxed)
    };
    assert_eq!(deliver(), 1);
    assert_eq!(runtime.stats().get(Counter::WakeupsSent), 0);
    group.push_work(does(|| ()));
    assert_eq!(deliver(), 1, "a task was queued before it");
    worker.run_tasks();
    assert_eq!(ran.load(Ordering::Relaxed), 2);
    drop(watched);
    worker.run_tasks();
    Group::forget_current();
}

#[test]
fn a_closure_that_is_queued_beyond_the_capacity_is_counted() {
    let (runtime, mut worker) = alone();
    for _ in 0..worker.group.config().epoll_work_queue_capacity {
        worker.group.push_work(does(|| ()));
    }
    runtime.handle.spawn(|| ()).expect("no other closure waits");
    let stats = runtime.stats();
    assert_eq!((stats.get(Counter::TasksOverflowed), stats.overflow_len), (1, 1));
    worker.run_tasks();
}

#[test]
fn a_thread_that_waits_for_room_sleeps_while_tasks_without_a_place_are_taken() {
    let (runtime, worker) = alone();
    let group = &worker.group;
    let work = does(|| ());
    for _ in 0..2_000 {
        group.push_work(Arc::<Does<_>>::clone(&work));
    }
    while runtime.handle.spawn(|| ()).is_ok() {}
    let looks = AtomicUsize::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            let look = || {
                looks.fetch_add(1, Ordering::Relaxed);
                false
            };
            let task = Task::Run(Class::Ordinary, Box::new(|| ()));
            assert!(group.push_wait(task, look).is_ok());
        });
        while looks.load(Ordering::Relaxed) == 0 {
            thread::yield_now();
        }
        while let Some((task, _)) = group.pop(Accepts::Everything, PopOrder::Progress) {
            group.note_ended(&task);
            if matches!(task, Task::Run(..)) {
                break;
            }
            thread::yield_now();
        }
    });
    // One look before the wait, one after it, and one more for a spurious wake-up.
    let looks = looks.into_inner();
    assert!(looks <= 3, "{looks} looks");
    group.sweep();
}

#[test]
fn an_event_of_a_source_that_is_gone_is_counted_and_reaches_no_other() {
    let (runtime, mut worker) = alone();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let watch = |name| {
        let (ours, other) = UnixStream::pair().expect("descriptors");
        let heard = Arc::clone(&heard);
        let code = move |_: BorrowedFd<'_>, _| heard.lock().expect("no panic").push(name);
        (runtime.handle.register(ours, Interest::READABLE, code).expect("watched"), other)
    };
    let (registration, mut other) = watch("old");
    other.write_all(b"!").expect("sent");
    let mut events = [Event::EMPTY; MOST_EVENTS];
    let count = worker.group.epoll.wait(&mut events, None).expect("an event");
    assert_eq!(count, 1);
    // The event was received but not delivered. Its source ends, and another source takes its slot.
    drop(registration);
    worker.run_tasks();
    let successor = watch("new");
    assert_eq!(runtime.stats().slots_allocated - runtime.stats().slots_free, 1);
    let demand = worker.demand();
    worker.deliver(&events[..count], Some(Rest::Wait), demand);
    worker.run_tasks();
    assert_eq!(runtime.stats().get(Counter::StaleEvents), 1);
    assert!(heard.lock().expect("no panic").is_empty());
    drop(successor);
    worker.run_tasks();
}

#[test]
fn events_wake_the_watchdog_if_it_has_taken_the_permit_before() {
    let (runtime, mut worker) = alone();
    let group = Arc::clone(&worker.group);
    let demand = group.mode.demand(worker.now);
    let rest = group.park.rest(false, demand);
    assert_eq!(rest, Rest::Wait);
    worker.rise(rest);
    group.relieve(worker.slot(), demand);
    assert!(!worker.slot().state.has_permit());
    let (ours, mut other) = UnixStream::pair().expect("descriptors");
    let mut reader = ours.try_clone().expect("a descriptor");
    let watched = runtime.handle.register(ours, Interest::READABLE, |_, _| ());
    let watched = watched.expect("watched");
    thread::scope(|scope| {
        let sleep = || group.watch.sleep(Some(Duration::from_secs(5)), || true);
        let watchdog = scope.spawn(sleep);
        while !watchdog.is_finished() {
            other.write_all(b"!").expect("sent");
            let mut events = [Event::EMPTY; MOST_EVENTS];
            let count = group.epoll.wait(&mut events, None).expect("an event");
            worker.deliver(&events[..count], Some(rest), demand);
            while let Some((task, queued_at)) = worker.pop() {
                worker.run_task(task, queued_at);
            }
            reader.read_exact(&mut [0]).expect("it was sent");
            thread::yield_now();
        }
        assert_eq!(watchdog.join().expect("no panic"), Woke::Alerted);
    });
    drop(watched);
    worker.run_tasks();
}

#[test]
fn a_long_batch_is_run_without_the_permit_while_the_group_shares() {
    // Time stands still: a preempted run would count as slow, and the permit is given up before one.
    clock::simulate(Some(Instant::now()));
    let (runtime, mut worker) = alone();
    let group = Arc::clone(&worker.group);
    let calm = group.mode.demand(worker.now);
    for (demand, kept) in [(calm, true), (Demand { pollers: 2, ..calm }, false)] {
        let mut sources = Vec::new();
        for _ in 0..16 {
            let (ours, mut other) = UnixStream::pair().expect("descriptors");
            let source = runtime.handle.register(ours, Interest::READABLE, |_, _| ());
            other.write_all(b"!").expect("sent");
            sources.push((source.expect("watched"), other));
        }
        // Events of new sources give the permit up, so each source runs once before.
        worker.look();
        worker.run_tasks();
        for (_, other) in &mut sources {
            other.write_all(b"!").expect("sent");
        }
        let rest = group.park.rest(group.thread_set.rest(worker.slot()), demand);
        worker.rise(rest);
        let mut events = [Event::EMPTY; MOST_EVENTS];
        let count = group.epoll.wait(&mut events, None).expect("events");
        assert_eq!(count, sources.len());
        worker.deliver(&events[..count], Some(rest), demand);
        assert_eq!(worker.slot().state.has_permit(), kept, "each event is taken for 4 µs");
        drop(sources);
        worker.run_tasks();
    }
    clock::simulate(None);
}

#[test]
fn closures_that_take_long_are_known_to_be_slow() {
    let (runtime, mut worker) = alone();
    for _ in 0..3 {
        runtime.handle.spawn(|| thread::sleep(LONG_RUN)).expect("there is room");
        worker.run_tasks();
    }
    assert_eq!(worker.group.task_cost.pace(), Pace::Dear);
}

/// Value whose destructor takes long.
struct Remains;

impl Drop for Remains {
    fn drop(&mut self) {
        clock::simulate(Some(clock::now() + LONG_RUN));
    }
}

#[test]
fn what_nobody_times_is_not_charged_to_what_comes_next() {
    clock::simulate(Some(Instant::now()));
    let (runtime, mut worker) = alone();
    let quick = does(|| {});
    worker.group.discard(Remains);
    worker.run_tasks();
    worker.group.push_work(Arc::clone(&quick) as Arc<dyn Work>);
    worker.run_tasks();
    assert_eq!(quick.cost().pace(), Pace::Cheap);
    assert!(!worker.group.is_crowded(worker.now));
    let before = runtime.stats().get(Counter::EpollWaits);
    (0..3).for_each(|_| worker.group.discard(Remains));
    worker.run_tasks();
    clock::simulate(None);
    let looks = runtime.stats().get(Counter::EpollWaits) - before;
    assert_eq!(looks, 3, "one after each that took long");
}

#[test]
fn a_wait_that_is_announced_costs_neither_its_run_nor_a_part_of_that() {
    clock::simulate(Some(Instant::now()));
    let (runtime, mut worker) = alone();
    let announced = worker.stalls.install();
    let part = Arc::new(Cost::unknown());
    let work = {
        let part = Arc::clone(&part);
        does(move || {
            let mut lap = Lap::from(clock::now());
            stall::run(|| drop(Remains));
            part.add(lap.end());
        })
    };
    worker.group.push_work(Arc::clone(&work) as Arc<dyn Work>);
    worker.run_tasks();
    drop(announced);
    clock::simulate(None);
    assert_eq!((part.pace(), work.cost().pace()), (Pace::Cheap, Pace::Cheap));
    assert_eq!(runtime.stats().get(Counter::Stalls), 1);
}

/// Spawns a task that notes its run and spawns the next one, `times` times in all.
fn again(handle: &Handle, ran: &Arc<Mutex<Vec<char>>>, what: char, times: usize) {
    let (next, ran) = (handle.clone(), Arc::clone(ran));
    let code = move || {
        ran.lock().expect("no panic").push(what);
        if times > 1 {
            again(&next, &ran, what, times - 1);
        }
    };
    handle.spawn(code).expect("there is room");
}

/// Returns the order in which tasks run beside an endless series of tasks of one class. `.` is
/// endless, `l` is a login, `o` is ordinary, `s` has had its share.
fn ran_beside(without_end: Class, others: &[Class]) -> Vec<char> {
    let (runtime, mut worker) = alone();
    let ran = Arc::default();
    again(&runtime.handle.with_class(without_end), &ran, '.', 320);
    for class in others {
        let what = if *class == Class::Login { 'l' } else { 'o' };
        again(&runtime.handle.with_class(*class), &ran, what, 20);
    }
    for _ in 0..10 {
        let ran = Arc::clone(&ran);
        worker.group.push_spent_work(does(move || ran.lock().expect("no panic").push('s')));
    }
    worker.run_tasks();
    let ran = ran.lock().expect("no panic");
    ran[..320].to_vec()
}

#[test]
fn one_task_in_sixteen_is_a_login_one_not_urgent_and_one_in_32_has_had_its_share() {
    for without_end in [Class::Admin, Class::InProgress] {
        let ran = ran_beside(without_end, &[Class::Login, Class::Ordinary]);
        for (sixteen, index) in ran.chunks(16).zip(0..) {
            let others: String = sixteen.iter().filter(|what| **what != '.').collect();
            assert_eq!(others, ["ol", "sl"][index % 2], "{index}: {ran:?}");
        }
    }
}

#[test]
fn logins_without_end_leave_ordinary_work_its_share() {
    let ran = ran_beside(Class::Login, &[Class::Ordinary]);
    for (sixteen, index) in ran.chunks(16).zip(0..) {
        let others: String = sixteen.iter().filter(|what| **what != '.').collect();
        assert_eq!(others, ["o", "s"][index % 2], "{index}: {ran:?}");
    }
}

#[test]
fn one_task_in_32_has_had_its_share_beside_ordinary_ones_without_end() {
    let ran = ran_beside(Class::Ordinary, &[]);
    for thirty_two in ran.chunks(32) {
        let spent = thirty_two.iter().filter(|what| **what == 's').count();
        assert_eq!(spent, 1, "{ran:?}");
    }
}

#[test]
fn a_registration_that_fails_while_a_drain_ends_it_releases_its_slot_once() {
    let (runtime, mut worker) = alone();
    let group = Arc::clone(&worker.group);
    thread::scope(|scope| {
        let registers = scope.spawn(|| {
            for _ in 0..2_000 {
                let file = File::open("/proc/self/exe").expect("a regular file");
                let refused = runtime.handle.register(file, Interest::READABLE, |_, _| ());
                assert!(refused.is_err(), "epoll takes no regular file");
            }
        });
        while !registers.is_finished() {
            group.notify_all(OVER);
            worker.run_tasks();
        }
    });
    worker.run_tasks();
    let stats = runtime.stats();
    assert_eq!(stats.slots_allocated, stats.slots_free);
}

/// A handler whose new thread the system refused calls `note_left` too, and may hold a lock that
/// the destructors of timers take.
#[test]
fn a_worker_that_leaves_before_the_last_ends_nothing() {
    let (runtime, worker) = alone();
    let group = &worker.group;
    let kept = Arc::new(());
    let in_timer = Arc::clone(&kept);
    runtime.handle.after(Duration::from_secs(60), move || drop(in_timer)).detach();
    (0..2).for_each(|_| group.end.enter());
    group.stop_workers(LEAVE_NOW);
    group.note_left();
    assert_eq!(Arc::strong_count(&kept), 2);
    group.note_left();
    assert_eq!(Arc::strong_count(&kept), 1);
}

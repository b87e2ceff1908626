//! Code shared by the tests of dynamic threads: an event to wait for, and an observer that counts
//! threads all the time.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use epoll_group::stats::{Counter, Snapshot};
use epoll_group::{Config, Handle, Runtime, stall, sync};

use super::workers::threads_named;
use super::{LONG, eventually, eventually_or, often};

/// One group with `base` base threads. Threads are added only because handlers wait, and leave
/// soon.
pub fn growing(base: usize) -> Config {
    super::config()
        .epoll_threads_per_group(base)
        .dynamic_threads_shrink_time(Duration::from_millis(50))
        .enable_tasker(false)
}

/// A runtime whose threads have that name.
pub fn start(name: &str, config: Config) -> Runtime {
    super::make_room();
    Runtime::builder().config(config).name(name).start().expect("a runtime")
}

/// Way in which a handler waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// On std's locks, inside `stall::run`.
    Announced,
    /// On the crate's locks, which announce it.
    Locks,
    /// On std's locks, without an announcement.
    Blocked,
    /// On its CPU, without an announcement.
    Spinning,
}

/// An event that some handlers wait for and another one causes, once.
#[derive(Clone)]
pub struct Event(Arc<Inner>);

struct Inner {
    how: How,
    waiting: AtomicUsize,
    flag: AtomicBool,
    plain: (Mutex<bool>, Condvar),
    announced: (sync::Mutex<bool>, sync::Condvar),
}

impl Event {
    pub fn new(how: How) -> Self {
        Self(Arc::new(Inner {
            how,
            waiting: AtomicUsize::new(0),
            flag: AtomicBool::new(false),
            plain: (Mutex::new(false), Condvar::new()),
            announced: (sync::Mutex::new(false), sync::Condvar::new()),
        }))
    }

    /// Returns when the event has happened. Gives up after [`LONG`], so that a test that fails
    /// ends.
    pub fn wait(&self) {
        self.0.waiting.fetch_add(1, Ordering::SeqCst);
        match self.0.how {
            How::Announced => stall::run(|| self.wait_plainly()),
            How::Blocked => self.wait_plainly(),
            How::Locks => {
                let (happened, changed) = &self.0.announced;
                let happened = happened.lock().unwrap_or_else(PoisonError::into_inner);
                drop(changed.wait_timeout_while(happened, LONG, |happened| !*happened));
            }
            How::Spinning => {
                let began = Instant::now();
                while !self.0.flag.load(Ordering::Acquire) && began.elapsed() < LONG {
                    hint::spin_loop();
                }
            }
        }
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_plainly(&self) {
        let (happened, changed) = &self.0.plain;
        let happened = happened.lock().unwrap_or_else(PoisonError::into_inner);
        drop(changed.wait_timeout_while(happened, LONG, |happened| !*happened));
    }

    pub fn happen(&self) {
        self.0.flag.store(true, Ordering::Release);
        *self.0.plain.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.plain.1.notify_all();
        *self.0.announced.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.announced.1.notify_all();
    }

    /// Number of handlers that wait at the moment.
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::SeqCst)
    }

    /// Waits until `count` handlers wait.
    #[track_caller]
    pub fn wait_for(&self, count: usize) {
        eventually(LONG, || self.waiting() >= count);
    }
}

/// Handlers that wait for an [`Event`] and report when they have ended.
pub struct Crowd {
    told: mpsc::Receiver<()>,
    count: usize,
}

impl Crowd {
    pub fn start(handle: &Handle, event: &Event, count: usize) -> Self {
        let (tell, told) = mpsc::channel();
        for _ in 0..count {
            let (event, tell) = (event.clone(), tell.clone());
            let code = move || {
                event.wait();
                let _ = tell.send(());
            };
            handle.spawn_wait(code).expect("nobody drains");
        }
        Self { told, count }
    }

    /// Waits until all have ended.
    #[track_caller]
    pub fn end(self) {
        for number in 1..=self.count {
            let told = self.told.recv_timeout(LONG);
            assert!(told.is_ok(), "handler {number} of {} does not end: {told:?}", self.count);
        }
    }

    /// Number of handlers that have ended.
    pub fn ended(&self) -> usize {
        self.told.try_iter().count()
    }
}

/// Sizes of a crowd that waits for one more.
pub fn crowds() -> &'static [usize] {
    let all = &[1, 4, 5, 16, 64, 200];
    if often(100) < 10 { &all[..4] } else { all }
}

/// Number of threads of all kinds, without the watchdog.
pub const fn threads(stats: &Snapshot) -> u64 {
    stats.base_threads + stats.dynamic_threads + stats.reserve_threads
}

/// Numbers of threads that were added, by reason: stall, backlog, watchdog, reserve.
pub fn started(stats: &Snapshot) -> [u64; 4] {
    [
        Counter::ThreadsStartedStall,
        Counter::ThreadsStartedBacklog,
        Counter::ThreadsStartedWatchdog,
        Counter::ThreadsStartedReserve,
    ]
    .map(|counter| stats.get(counter))
}

/// Waits until both the runtime and the system report no more threads than at the start:
/// `permanent` threads and the watchdog.
#[track_caller]
pub fn falls_back(handle: &Handle, name: &str, permanent: usize) {
    let names = || threads_named(&format!("{name}-"));
    // The watchdog is one more.
    eventually_or(
        LONG,
        || threads(&handle.stats()) == permanent as u64 && names().len() == permanent + 1,
        || format!("not {permanent}: {:?}\n{}", names(), handle.stats()),
    );
    let stats = handle.stats();
    let all: u64 = started(&stats).iter().sum();
    assert_eq!(stats.get(Counter::ThreadsLeft), all, "each added thread has left:\n{stats}");
}

/// Watches a runtime all the time. Notes the highest number of threads and checks that no counter
/// falls.
pub struct Observer {
    stop: Arc<AtomicBool>,
    most: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Observer {
    pub fn watch(handle: &Handle) -> Self {
        let (stop, most) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (handle, stop_2, most_2) = (handle.clone(), Arc::clone(&stop), Arc::clone(&most));
        let thread = thread::spawn(move || {
            let mut before = handle.stats();
            while !stop_2.load(Ordering::Relaxed) {
                let stats = handle.stats();
                most_2.fetch_max(threads(&stats), Ordering::Relaxed);
                for &counter in Counter::ALL {
                    let [was, is] = [&before, &stats].map(|stats| stats.get(counter));
                    assert!(is >= was, "{} fell from {was} to {is}", counter.name());
                }
                before = stats;
                thread::park_timeout(Duration::from_micros(200));
            }
        });
        Self { stop, most, thread }
    }

    /// Highest number of threads so far.
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Ends the watch. Returns the highest number of threads.
    pub fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("no counter falls");
        self.most.load(Ordering::Relaxed)
    }
}

//! Code shared by the tests of the runtime's threads: runtimes of some workers, a gate that holds
//! handlers back, and the names of live threads.

use std::fs;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use epoll_group::Runtime;

use super::{LONG, eventually};

/// One group with `count` workers. None is added, however long a handler is held back.
pub fn workers(count: usize) -> Runtime {
    let config = epoll_group::Config::default()
        .epoll_groups(1)
        .epoll_threads_per_group(count)
        .thread_deadlock_check_interval(std::time::Duration::from_secs(10))
        .enable_tasker(false);
    Runtime::builder().config(config).start().expect("a runtime")
}

/// One worker, to which none is added however long it is blocked.
pub fn only_one_worker() -> Runtime {
    // The second thread is the reserve.
    let config = super::config().epoll_threads_per_group(1).max_threads(2);
    Runtime::builder().config(config).start().expect("a runtime")
}

/// Waits until every worker rests.
#[track_caller]
pub fn all_rest(runtime: &Runtime) {
    eventually(LONG, || {
        let stats = runtime.stats();
        stats.parked == stats.workers
    });
}

/// Takes a lock when it is dropped.
pub struct LocksAtEnd(pub Arc<Mutex<()>>);

impl Drop for LocksAtEnd {
    fn drop(&mut self) {
        drop(self.0.lock());
    }
}

/// Holds back the threads that call `pass` while it is closed. It is closed at first.
#[derive(Clone, Default)]
pub struct Gate(Arc<(Mutex<Inside>, Condvar)>);

#[derive(Default)]
struct Inside {
    now: usize,
    open: bool,
}

impl Gate {
    /// A gate that holds no thread back until it is closed.
    pub fn opened() -> Self {
        let gate = Self::default();
        gate.open();
        gate
    }

    pub fn close(&self) {
        self.lock().open = false;
    }

    /// Returns when the gate is open. Gives up after [`LONG`], so that a test that fails ends.
    pub fn pass(&self) {
        let mut inside = self.lock();
        inside.now += 1;
        self.0.1.notify_all();
        let (mut inside, _) = self
            .0
            .1
            .wait_timeout_while(inside, LONG, |inside| !inside.open)
            .unwrap_or_else(PoisonError::into_inner);
        inside.now -= 1;
    }

    /// Waits until `count` threads are held back at the same time.
    #[track_caller]
    pub fn wait_for(&self, count: usize) {
        let waited = self.0.1.wait_timeout_while(self.lock(), LONG, |inside| inside.now < count);
        let (inside, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        assert!(!timeout.timed_out(), "{} came of {count}", inside.now);
    }

    /// Number of threads that are held back at the moment.
    pub fn held(&self) -> usize {
        self.lock().now
    }

    pub fn open(&self) {
        self.lock().open = true;
        self.0.1.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sorted names of this process's threads that begin with `prefix`.
pub fn threads_named(prefix: &str) -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let comms = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    let mut names: Vec<_> = comms.map(|comm| comm.trim_end().to_owned()).collect();
    names.retain(|name| name.starts_with(prefix));
    names.sort();
    names
}

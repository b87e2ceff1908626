//! [`Calls`]: callbacks to run on a worker, each exactly once.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::cork::{Cork, Held};
use crate::runtime::{Class, Cost, Group, Work, WorkerContext};
use crate::sync::shim::lock;

/// Code that a caller gave, or work for a callback, to be run once.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Callbacks in the order in which they run. While one waits, other workers run the next ones.
///
/// If the runtime ends first, the thread that ends it runs them, because callers depend on each.
pub(crate) struct Calls {
    jobs: Mutex<VecDeque<Job>>,
    cost: Cost,
}

impl Calls {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { jobs: Mutex::default(), cost: Cost::unknown() })
    }

    /// Adds a callback. The caller then calls `hand_out` or `call_here`.
    pub(crate) fn add(&self, job: Job) {
        lock(&self.jobs).push_back(job);
    }

    /// Runs the callbacks, if there are any, on a worker of the group.
    pub(crate) fn hand_out(self: &Arc<Self>, group: &Arc<Group>) {
        if !lock(&self.jobs).is_empty() {
            group.push_work(self.task(group));
        }
    }

    /// Runs the callbacks on this worker. If one waits, other workers run the next ones.
    pub(crate) fn call_here(self: &Arc<Self>, group: &Arc<Group>) {
        let count = lock(&self.jobs).len();
        if count == 0 {
            return;
        }
        // Several callbacks share one send for each connection. A lone callback sends at once.
        let cork = (count > 1).then(Cork::on_any_thread);
        group.put_stealable(self.task(group));
        let here = Here { calls: Arc::clone(self), group: Arc::clone(group) };
        let _ = HERE.try_with(|current| current.replace(Some(here)));
        self.call(group);
        let _ = HERE.try_with(RefCell::take);
        // Another thread may have added a callback meanwhile, which the drop of the task runs. It runs without
        // the cork, because other workers could not find the sends that the cork holds back.
        let task = group.take_stealable();
        drop(cork);
        drop(task);
    }

    fn task(self: &Arc<Self>, group: &Arc<Group>) -> Arc<CallTask> {
        Arc::new(CallTask { calls: Arc::clone(self), group: Arc::clone(group), held: Cork::held() })
    }

    fn call(&self, group: &Arc<Group>) {
        loop {
            let Some(job) = lock(&self.jobs).pop_front() else { return };
            group.guard("answer", job);
        }
    }
}

/// Callbacks that this thread runs, and the group of its worker.
struct Here {
    calls: Arc<Calls>,
    group: Arc<Group>,
}

thread_local! {
    static HERE: RefCell<Option<Here>> = const { RefCell::new(None) };
}

/// Adds a job that this thread runs right after its present callback, before it sends what its cork holds
/// back. If the callback waits, another worker runs the job.
///
/// Returns false, without a call of `job`, if this thread runs no callback. The same holds if the callback's
/// runtime is not that of `group`: its workers may all wait.
pub(crate) fn call_next(group: &Group, job: impl FnOnce() -> Job) -> bool {
    let add = |here: &Here| {
        if !Arc::ptr_eq(here.group.usage(), group.usage()) {
            return false;
        }
        lock(&here.calls.jobs).push_front(job());
        // Another worker may have taken the task, and ended it before.
        if !here.group.has_stealable() {
            here.group.put_stealable(here.calls.task(&here.group));
        }
        true
    };
    HERE.try_with(|here| here.borrow().as_ref().is_some_and(add)).unwrap_or(false)
}

/// Task that runs the callbacks.
struct CallTask {
    calls: Arc<Calls>,
    group: Arc<Group>,
    /// Corked output of callbacks that ran before on the same worker.
    held: Option<Arc<Held>>,
}

impl Work for CallTask {
    fn run(self: Arc<Self>, context: &mut WorkerContext<'_>) {
        self.held.iter().for_each(|held| held.relieve());
        self.calls.call_here(&self.group);
        context.charge(&self.calls.cost);
    }

    fn class(&self) -> Class {
        Class::InProgress
    }

    fn cost(&self) -> &Cost {
        &self.calls.cost
    }
}

impl Drop for CallTask {
    fn drop(&mut self) {
        // A callback is left if the runtime has ended and this task never ran, or if it was added just now.
        self.calls.call(&self.group);
    }
}

#[cfg(all(test, feature = "internal"))]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::config::Config;
    use crate::net::{Address, Deaf, Served};
    use crate::runtime::Simulated;
    use crate::sys::clock;

    #[test]
    fn the_cost_of_callbacks_is_measured() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let calls = Calls::new();
        calls.add(Box::new(|| ()));
        calls.hand_out(runtime.group());
        assert_eq!(calls.cost.nanos(), None);
        assert!(runtime.take_task(false));
        runtime.run(0, None);
        assert!(calls.cost.nanos().is_some());
    }

    #[test]
    fn a_worker_shows_others_its_callbacks() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let queued = [0, 1, 2].map(|count| {
            let calls = Calls::new();
            (0..count).for_each(|_| calls.add(Box::new(|| ())));
            calls.call_here(runtime.group());
            // This thread is no worker, so its work is queued at once.
            let queued = runtime.queued();
            while runtime.take_task(false) {
                runtime.run(0, None);
            }
            queued
        });
        assert_eq!(queued, [0, 1, 1]);
    }

    #[test]
    fn a_callback_may_add_one_that_comes_next() {
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let other = Simulated::new(Config::default()).expect("descriptors");
        assert!(!call_next(runtime.group(), || unreachable!("no callback runs")));
        let group = Arc::clone(runtime.group());
        let calls = Calls::new();
        let called = Arc::new(Mutex::new(Vec::new()));
        let note = |what| {
            let called = Arc::clone(&called);
            move || lock(&called).push(what)
        };
        let (first, added, second) = (note("first"), note("added"), note("second"));
        calls.add(Box::new(move || {
            assert!(!call_next(other.group(), || unreachable!("it is another runtime")));
            assert!(call_next(&group, || Box::new(added)));
            first();
        }));
        calls.add(Box::new(second));
        calls.call_here(runtime.group());
        assert_eq!(*lock(&called), ["first", "added", "second"]);
        assert!(!call_next(runtime.group(), || unreachable!("no callback runs any more")));
    }

    #[test]
    fn a_worker_that_takes_over_callbacks_sends_what_the_one_before_holds_back() {
        clock::simulate(Some(clock::now()));
        let runtime = Simulated::new(Config::default()).expect("descriptors");
        let (ours, mut server) = UnixStream::pair().expect("descriptors");
        ours.set_nonblocking(true).expect("a socket");
        server.set_nonblocking(true).expect("a socket");
        let (served, address) = (Served::new(Deaf), Address::Unix("".into()));
        let conn = served.accept(runtime.group(), ours.into(), address).expect("there is room");
        while runtime.take_task(false) {
            runtime.run(0, None);
        }
        let mut received = || server.read(&mut [0; 2]).unwrap_or(0);
        let cork = Cork::on_any_thread();
        conn.send(b"a");
        let calls = Calls::new();
        calls.add(Box::new(|| ()));
        calls.hand_out(runtime.group());
        assert_eq!(received(), 0);
        assert!(runtime.take_task(false));
        runtime.run(0, None);
        assert_eq!(received(), 1);
        drop(cork);
        clock::simulate(None);
    }
}

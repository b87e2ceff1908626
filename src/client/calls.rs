//! [`Calls`]: callbacks to run on a worker, each exactly once.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::slot::Job;
use crate::net::{Cork, Held};
use crate::runtime::{Class, Cost, Group, Work, WorkerContext, guard};
use crate::sync::shim::lock;

/// Callbacks in the order in which they run. While one waits, other workers run the next ones.
///
/// If the runtime ends first, the thread that ends it runs them, because callers depend on each.
pub(super) struct Calls {
    jobs: Mutex<VecDeque<Job>>,
    cost: Cost,
}

impl Calls {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { jobs: Mutex::default(), cost: Cost::unknown() })
    }

    /// Adds a callback. The caller then calls `hand_out` or `call_here`.
    pub(super) fn add(&self, job: Job) {
        lock(&self.jobs).push_back(job);
    }

    /// Runs the callbacks, if there are any, on a worker of the group.
    pub(super) fn hand_out(self: &Arc<Self>, group: &Arc<Group>) {
        if !lock(&self.jobs).is_empty() {
            group.push_work(self.task(group));
        }
    }

    /// Runs the callbacks on this worker. If one waits, other workers run the next ones.
    pub(super) fn call_here(self: &Arc<Self>, group: &Arc<Group>) {
        let count = lock(&self.jobs).len();
        if count > 1 {
            // Requests sent by several callbacks leave in one send, and before a callback waits.
            let _cork = Cork::on_any_thread();
            group.put_stealable(self.task(group));
            self.call(group);
            drop(group.take_stealable());
        } else if count == 1 {
            self.call(group);
        }
    }

    fn task(self: &Arc<Self>, group: &Arc<Group>) -> Arc<CallTask> {
        Arc::new(CallTask { calls: Arc::clone(self), group: Arc::clone(group), held: Cork::held() })
    }

    fn call(&self, group: &Arc<Group>) {
        loop {
            let Some(job) = lock(&self.jobs).pop_front() else { return };
            guard(group, "answer", job);
        }
    }
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
        // No callback is left, unless the runtime has ended and this task never ran.
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
    fn a_worker_shows_others_its_callbacks_if_there_are_several() {
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
        assert_eq!(queued, [0, 0, 1]);
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

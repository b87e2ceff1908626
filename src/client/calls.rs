//! [`Calls`]: closures of the user that are to be called on a worker, each once whatever happens.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use super::exchange::Job;
use crate::net::{Cork, Held};
use crate::runtime::{Class, Cost, Group, Lent, Work, guard};
use crate::sync::shim::lock;

/// Closures in the order in which they are to be called. While one waits, others are called by other
/// workers.
///
/// When the runtime ends first, they are called by whoever ends it: each tells somebody something.
pub(super) struct Calls {
    jobs: Mutex<VecDeque<Job>>,
    cost: Cost,
}

impl Calls {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { jobs: Mutex::default(), cost: Cost::unknown() })
    }

    /// To be followed by one of the other two.
    pub(super) fn add(&self, job: Job) {
        lock(&self.jobs).push_back(job);
    }

    /// Has them called on a worker of this group.
    pub(super) fn hand_out(self: &Arc<Self>, group: &Arc<Group>) {
        group.push_work(self.turn(group));
    }

    /// Calls them on this worker. What stands behind one that waits goes to others.
    pub(super) fn call_here(self: &Arc<Self>, group: &Arc<Group>) {
        let count = lock(&self.jobs).len();
        if count > 1 {
            // What they send leaves together, also before one of them waits.
            let _cork = Cork::on_any_thread();
            group.set_aside(self.turn(group));
            self.call(group);
            drop(group.take_aside());
        } else if count == 1 {
            self.call(group);
        }
    }

    fn turn(self: &Arc<Self>, group: &Arc<Group>) -> Arc<Turn> {
        Arc::new(Turn { calls: Arc::clone(self), group: Arc::clone(group), held: Cork::held() })
    }

    fn call(&self, group: &Arc<Group>) {
        loop {
            let Some(job) = lock(&self.jobs).pop_front() else { return };
            guard(group, "answer", job);
        }
    }
}

/// What stands in the queue of a group for them.
struct Turn {
    calls: Arc<Calls>,
    group: Arc<Group>,
    /// What those have sent that were called before on the same worker.
    held: Option<Arc<Held>>,
}

impl Work for Turn {
    fn run(self: Arc<Self>, lent: &mut Lent<'_>) {
        self.held.iter().for_each(|held| held.flush());
        self.calls.call(&self.group);
        lent.charge(&self.calls.cost);
    }

    fn class(&self) -> Class {
        Class::InProgress
    }

    fn cost(&self) -> &Cost {
        &self.calls.cost
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Nothing is left of them, unless the runtime has ended and this was never run.
        self.calls.call(&self.group);
    }
}

//! [`Binding`]: which CPUs the threads of a runtime run on, and when that changes.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use super::placement::{BaseWorkers, CpuSet, Machine, Placement, place};
use super::threads::ThreadKind;
use crate::config::Config;
use crate::sync::shim::lock;
use crate::sys::affinity;

/// Shared by the watchdog, which looks whether the mask has changed, and the workers, which bind
/// themselves.
#[derive(Debug)]
pub(super) struct Binding {
    groups: usize,
    threads: usize,
    workers: BaseWorkers,
    /// What to make a plan for.
    machine: Source,
    /// Changes with the plan. 0 says that nobody is to be bound.
    version: AtomicUsize,
    plan: Mutex<Option<Plan>>,
}

/// Tells what the machine offers to the calling thread.
type Source = fn() -> io::Result<Machine>;

#[derive(Debug)]
struct Plan {
    /// The mask that it was made for.
    allowed: CpuSet,
    placement: Arc<Placement>,
}

impl Binding {
    /// By the mask of the calling thread.
    pub(super) fn new(config: &Config, groups: usize, machine: Option<&Machine>) -> Self {
        let workers = if config.multi_affinity_in_group {
            BaseWorkers::ShareCpus
        } else {
            BaseWorkers::OneCpuEach
        };
        let threads = config.epoll_threads_per_group;
        let plan = machine.filter(|_| config.auto_cpu_affinity).and_then(|machine| {
            let placement = Arc::new(place(machine, groups, threads, workers));
            Some(Plan { allowed: affinity::allowed().ok()?, placement })
        });
        Self {
            groups,
            threads,
            workers,
            machine: Self::source(config),
            version: AtomicUsize::new(usize::from(plan.is_some())),
            plan: Mutex::new(plan),
        }
    }

    /// What this machine offers, as the configuration wants it.
    pub(super) fn machine(config: &Config) -> io::Result<Machine> {
        Self::source(config)()
    }

    const fn source(config: &Config) -> Source {
        if config.force_all_cores { Machine::here_by_force } else { Machine::here }
    }

    /// On a thread that was never bound: makes a new plan if its mask has changed.
    pub(super) fn follow_mask(&self) -> io::Result<()> {
        if self.version.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let allowed = affinity::allowed()?;
        if lock(&self.plan).as_ref().is_some_and(|plan| plan.allowed == allowed) {
            return Ok(());
        }
        let machine = (self.machine)()?;
        let placement = Arc::new(place(&machine, self.groups, self.threads, self.workers));
        *lock(&self.plan) = Some(Plan { allowed, placement });
        // Release: pairs with the Acquire of `version`.
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// A worker that has bound itself for this version is up to date.
    pub(super) fn version(&self) -> usize {
        self.version.load(Ordering::Acquire)
    }

    /// Binds the calling thread.
    pub(super) fn bind(&self, kind: ThreadKind, group: usize, seat: usize) -> io::Result<()> {
        let placement = lock(&self.plan).as_ref().map(|plan| Arc::clone(&plan.placement));
        let Some(placement) = placement else { return Ok(()) };
        match kind {
            ThreadKind::Base => affinity::bind(placement.worker(group, seat)),
            _ => affinity::bind(placement.group(group)),
        }
    }
}

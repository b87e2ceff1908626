//! [`Binding`]: CPUs on which the threads of a runtime run. They change with the affinity mask.

use std::io;
use std::sync::{Arc, Mutex};

use super::placement::{BaseWorkers, Machine, Placement, place};
use super::worker_slot::ThreadKind;
use crate::config::Config;
use crate::sync::shim::atomic::{AtomicUsize, Ordering};
use crate::sync::shim::lock;
use crate::sys::affinity;
use crate::sys::cpu_set::CpuSet;

/// Current plan of the CPUs. Shared by the watchdog, which checks if the mask has changed, and the
/// workers, which bind themselves.
#[derive(Debug)]
pub(super) struct Binding {
    groups: usize,
    threads: usize,
    workers: BaseWorkers,
    /// Source of the machine for which a plan is made.
    machine: Source,
    /// Changes with the plan. 0: no thread is bound.
    version: AtomicUsize,
    plan: Mutex<Option<Plan>>,
}

/// Returns the machine as the calling thread may use it.
type Source = fn() -> io::Result<Machine>;

#[derive(Debug)]
struct Plan {
    /// Mask for which the plan was made.
    allowed: CpuSet,
    placement: Arc<Placement>,
}

impl Binding {
    /// Makes the plan for the mask of the calling thread.
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

    /// Returns this machine, with all its CPUs if the configuration forces that.
    pub(super) fn machine(config: &Config) -> io::Result<Machine> {
        Self::source(config)()
    }

    const fn source(config: &Config) -> Source {
        if config.force_all_cores { Machine::here_by_force } else { Machine::here }
    }

    /// Makes a new plan if the mask has changed. Called on a thread that was never bound.
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

    /// Returns the version of the plan. A worker that has bound itself for it is up to date.
    pub(super) fn version(&self) -> usize {
        self.version.load(Ordering::Acquire)
    }

    /// Binds the calling thread.
    pub(super) fn bind(&self, kind: ThreadKind, group: usize, slot: usize) -> io::Result<()> {
        let placement = lock(&self.plan).as_ref().map(|plan| Arc::clone(&plan.placement));
        let Some(placement) = placement else { return Ok(()) };
        match kind {
            ThreadKind::Base => affinity::bind(placement.worker(group, slot)),
            _ => affinity::bind(placement.group(group)),
        }
    }
}

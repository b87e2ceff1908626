//! Who runs where: which CPUs each group and each worker may use.
//!
//! ```text
//!   the machine          in order            one slice per group       one CPU per worker
//!   package 0  0 8 1 9   0 8 1 9 2 a 3 b     group 0: 0 8 1 9          0 | 8 | 1 | 9
//!              2 a 3 b   4 c 5 d 6 e 7 f     group 1: 2 a 3 b          ⋮
//!   package 1  4 c 5 d                       group 2: 4 c 5 d
//!              6 e 7 f                       group 3: 6 e 7 f
//! ```
//!
//! A [`Machine`] is what the process may use and how it belongs together; [`Machine::plan`] makes
//! a [`Placement`] of it, which says for each group and worker on which CPUs it runs. The runtime
//! does the same when it starts. Nothing is bound here, and everything but [`Machine::here`] is
//! arithmetic: the machine may as well be a recording of another one.
//!
//! ```
//! use epoll_group::placement::{BaseWorkers, Machine};
//!
//! let machine = Machine::here()?;
//! let groups = machine.automatic_groups(4, 1, 0);
//! let placement = machine.plan(groups, 4, BaseWorkers::ShareCpus)?;
//! assert!(placement.group(0).is_subset(machine.cpus()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `examples/placement.rs` prints it, for recorded machines as well.
//!
//! # The rules
//!
//! 1. *Order.* CPUs are sorted by package, NUMA node, core (within die and cluster), hardware
//!    thread. Neighbours in the order share caches.
//! 2. *Enough CPUs*, at least one for each base worker: the order is cut into as many slices as
//!    there are groups, and all of it is used. (The original gives group i the entries from
//!    i × threads on. With one group of four on a machine with 64 CPUs the other 60 would idle.)
//!    The slices are equal to within one CPU, but where they have room a cut moves by up to a
//!    quarter of a slice so that it falls between packages, else nodes, else cores. (With exactly
//!    one CPU for each base worker there is no room: then no group straddles two nodes if the
//!    number of threads divides the CPUs of each.)
//! 3. *Too few CPUs*: go round. Group i has `threads` entries from i × threads on, and behind the
//!    last entry comes the first, so that no CPU has more than one worker more than another. (The
//!    original repeats the list a whole number of times and lets the last groups float.)
//! 4. *Base workers* share their group's slice, or have one CPU of it each ([`BaseWorkers`]). Then
//!    they are spread evenly over it, so that on a slice with twice the CPUs each has a core to
//!    itself. Workers that come and go always have the whole slice.
//! 5. *Big and small cores* on one NUMA node are dealt to the groups in turn, strongest first, so
//!    that each group has some of each. A group is dealt the same number of connections as any
//!    other; one of small cores alone would serve its own slowly for ever, whereas within a group
//!    the big cores simply take more of the work. CPUs whose capacity is within an eighth of the
//!    strongest count as equal (favoured cores of one kind differ by some percent).

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::error::Error;
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::path::Path;

use crate::sys::affinity::Usable;
use crate::sys::topology::Topology;

pub use crate::sys::cpu_set::{CpuSet, ParseCpuSetError};
pub use crate::sys::topology::Cpu;

/// The CPUs that may be used, and how they belong together.
///
/// *Shape*: a plain value, taken once; it does not follow what happens to the machine. It has at
/// least one CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    cpus: CpuSet,
    parallelism: usize,
    topology: Topology,
}

impl Machine {
    /// This machine, as the calling thread may use it: its affinity mask, which tells of cpusets
    /// and containers as well, and the quota of its control group.
    ///
    /// Reads a few files of sysfs for each CPU. Where there is no sysfs, nothing is known of how
    /// the CPUs belong together, and their numbers make the order.
    ///
    /// # Errors
    ///
    /// Those of sched_getaffinity(2), where a sandbox forbids it. Nothing else depends on it: the
    /// threads then run where the kernel puts them.
    pub fn here() -> io::Result<Self> {
        Self::with(Usable::by_mask()?, Topology::read(Path::new(SYSFS)))
    }

    /// This machine with all its CPUs, whatever the calling thread's mask says: as many as a
    /// cpuset (a container's, for instance) leaves. What `force_all_cores` asks for.
    ///
    /// For a moment the calling thread runs with the wide mask.
    ///
    /// # Errors
    ///
    /// Those of sched_getaffinity(2) and sched_setaffinity(2), and `NotFound` where sysfs does not
    /// tell which CPUs there are.
    pub fn here_by_force() -> io::Result<Self> {
        let topology = Topology::read(Path::new(SYSFS));
        if topology.online().is_empty() {
            let message = format!("{SYSFS}/devices/system/cpu/online lists no CPU");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        Self::with(Usable::by_force(topology.online())?, topology)
    }

    /// Another machine, or this one in other words. `read` returns the text of a file of its sysfs,
    /// by the path below the root (`devices/system/cpu/online`), or `None`. `allowed` is the mask;
    /// `None` allows every CPU that is online. There is no quota.
    ///
    /// `None` when that leaves no CPU. Whatever the files hold, it does not panic: what makes no
    /// sense counts as missing.
    pub fn described(
        allowed: Option<CpuSet>,
        read: impl Fn(&str) -> Option<String>,
    ) -> Option<Self> {
        let topology = Topology::parse(read);
        let cpus = allowed.unwrap_or_else(|| topology.online().clone());
        Self::with(Usable { parallelism: cpus.len(), cpus }, topology).ok()
    }

    /// CPUs that are allowed but not online are left out, unless that leaves none: then what sysfs
    /// says belongs to another machine.
    fn with(usable: Usable, topology: Topology) -> io::Result<Self> {
        let Usable { cpus, parallelism } = usable;
        let online = cpus.intersection(topology.online());
        let cpus = if online.is_empty() { cpus } else { online };
        if cpus.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no CPU is allowed"));
        }
        Ok(Self { parallelism: parallelism.clamp(1, cpus.len()), cpus, topology })
    }

    /// The CPUs that may be used.
    #[must_use]
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// How many threads can run at once: the number of [`cpus`](Self::cpus), or less where the
    /// control group has a quota of CPU time, rounded down to whole CPUs, at least 1.
    ///
    /// *Source*: [`std::thread::available_parallelism`], which follows `cpu.max` (or version 1's
    /// `cpu.cfs_quota_us`) from the process's group up to the root.
    #[must_use]
    pub fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// Where a CPU sits; all zero for one that sysfs does not tell of.
    #[must_use]
    pub fn cpu(&self, cpu: usize) -> Cpu {
        self.topology.cpu(cpu)
    }

    /// How many groups a runtime makes of its own accord: [`parallelism`](Self::parallelism) by
    /// `threads`, rounded up, so that there is one base worker for each CPU. If that is less than
    /// `at_least`, there are two, three, … base workers for each CPU, as few as make it that many.
    /// Then `extra` is added. At most 128.
    #[must_use]
    pub fn automatic_groups(&self, threads: usize, at_least: usize, extra: usize) -> usize {
        automatic_groups(self.parallelism, threads, at_least, extra)
    }

    /// Places so many groups of so many base workers each, by the rules of this module.
    ///
    /// # Errors
    ///
    /// When `groups` or `threads` is outside 1..=128.
    pub fn plan(
        &self,
        groups: usize,
        threads: usize,
        workers: BaseWorkers,
    ) -> Result<Placement, PlanError> {
        for (argument, value) in [("groups", groups), ("threads", threads)] {
            if !PLANNED.contains(&value) {
                return Err(PlanError { argument, value });
            }
        }
        Ok(place(self, groups, threads, workers))
    }
}

/// Where base workers run within their group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BaseWorkers {
    /// On any CPU of the group: the scheduler may move one from a CPU that is busy with something
    /// else. The default (`multi_affinity_in_group`).
    ShareCpus,
    /// On one CPU each. Caches stay warm, and nothing helps a worker whose CPU is taken.
    OneCpuEach,
}

/// Why nothing was planned: an argument is outside of its range. It concerns that call alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanError {
    argument: &'static str,
    value: usize,
}

impl PlanError {
    /// Name of the argument.
    #[must_use]
    pub fn argument(&self) -> &'static str {
        self.argument
    }

    /// What it was.
    #[must_use]
    pub fn value(&self) -> usize {
        self.value
    }
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is outside {PLANNED:?}", self.argument, self.value)
    }
}

impl Error for PlanError {}

/// Who runs where.
///
/// *Shape*: a plain value, a set for each group and, with [`BaseWorkers::OneCpuEach`], for each
/// base worker. No set is empty, and none has a CPU that its machine had not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    groups: Vec<Group>,
    threads: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    cpus: CpuSet,
    /// Of each base worker; empty when they share.
    workers: Vec<CpuSet>,
}

impl Placement {
    /// Number of groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    /// Base workers of each group.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The CPUs of a group, from 0: of every worker of it that is no base worker, and of those as
    /// well when they share.
    ///
    /// # Panics
    ///
    /// When there is no such group.
    #[must_use]
    pub fn group(&self, group: usize) -> &CpuSet {
        &self.groups[group].cpus
    }

    /// The CPUs of a base worker of a group, both from 0.
    ///
    /// # Panics
    ///
    /// When there is no such group or worker.
    #[must_use]
    pub fn worker(&self, group: usize, thread: usize) -> &CpuSet {
        assert!(thread < self.threads, "base worker {thread} of {}", self.threads);
        let group = &self.groups[group];
        group.workers.get(thread).unwrap_or(&group.cpus)
    }
}

/// See [`Machine::automatic_groups`]. The smallest `k` for which `k × cpus` CPUs would make
/// `at_least` groups is found by division: ⌈k × cpus / threads⌉ ≥ m exactly if
/// k × cpus > (m − 1) × threads.
pub(crate) fn automatic_groups(
    cpus: usize,
    threads: usize,
    at_least: usize,
    extra: usize,
) -> usize {
    let most = *PLANNED.end();
    let (cpus, threads) = (cpus.clamp(1, MANY), threads.clamp(1, MANY));
    let at_least = at_least.clamp(1, most);
    let per_cpu = (at_least - 1) * threads / cpus + 1;
    let groups = (per_cpu * cpus).div_ceil(threads);
    groups.saturating_add(extra).min(most)
}

/// Rules 1 to 5 of this module, without looking at the ranges: whoever calls this has. A zero
/// counts as one.
pub(crate) fn place(
    machine: &Machine,
    groups: usize,
    threads: usize,
    workers: BaseWorkers,
) -> Placement {
    let (groups, threads) = (groups.max(1), threads.max(1));
    let order = order(machine, groups, threads);
    let slices: Vec<Vec<usize>> = if groups.saturating_mul(threads) <= order.len() {
        let cuts = cuts(&order, groups, threads);
        cuts.windows(2).map(|cut| cpus_of(&order[cut[0]..cut[1]])).collect()
    } else {
        let round = cpus_of(&order);
        let entry = |at: usize| round[at % round.len()];
        (0..groups)
            .map(|group| (0..threads).map(|t| entry(group * threads + t)).collect())
            .collect()
    };
    let group = |slice: &Vec<usize>| Group {
        cpus: slice.iter().copied().collect(),
        workers: match workers {
            BaseWorkers::ShareCpus => Vec::new(),
            BaseWorkers::OneCpuEach => {
                let cpu = |thread: usize| slice[thread * slice.len() / threads];
                (0..threads).map(|thread| CpuSet::from_iter([cpu(thread)])).collect()
            }
        },
    };
    Placement { groups: slices.iter().map(group).collect(), threads }
}

/// A CPU in the order, and what its neighbours are compared by.
#[derive(Clone, Copy, Debug)]
struct Entry {
    cpu: usize,
    at: Cpu,
}

fn cpus_of(entries: &[Entry]) -> Vec<usize> {
    entries.iter().map(|entry| entry.cpu).collect()
}

/// Rules 1 and 5.
fn order(machine: &Machine, groups: usize, threads: usize) -> Vec<Entry> {
    let entry = |cpu| Entry { cpu, at: machine.cpu(cpu) };
    let mut entries: Vec<Entry> = machine.cpus.iter().map(entry).collect();
    entries.sort_by_key(|Entry { cpu, at }| {
        (at.package, at.node, at.die, at.cluster, at.core, at.thread, *cpu)
    });
    let hand = (entries.len() / groups).max(threads);
    let nodes = entries.chunk_by(|a, b| a.at.node == b.at.node);
    nodes.flat_map(|node| if is_uneven(node) { deal(node, hand) } else { node.to_vec() }).collect()
}

fn is_uneven(node: &[Entry]) -> bool {
    let capacities = || node.iter().map(|entry| entry.at.capacity);
    let weakest = u64::from(capacities().min().unwrap_or(0));
    let strongest = u64::from(capacities().max().unwrap_or(0));
    weakest > 0 && weakest * 8 < strongest * 7
}

/// Deals the CPUs of a node, strongest first, to as many hands of at most `hand` as that takes,
/// and lays the hands down one behind the other. Small cores sit in packages of their own on some
/// systems, which says nothing about caches: what was dealt counts as one core.
fn deal(node: &[Entry], hand: usize) -> Vec<Entry> {
    let mut strongest_first = node.to_vec();
    strongest_first.sort_by_key(|entry| Reverse(entry.at.capacity));
    let at = Cpu { node: node[0].at.node, ..Cpu::default() };
    let hands = node.len().div_ceil(hand);
    (0..hands)
        .flat_map(|first| strongest_first.iter().skip(first).step_by(hands))
        .map(|entry| Entry { cpu: entry.cpu, at })
        .collect()
}

/// Rule 2: where one slice ends and the next begins, `groups + 1` places from 0 to the end. A slice
/// keeps at least `threads` CPUs: both of its cuts together move by less than what it has beyond.
fn cuts(order: &[Entry], groups: usize, threads: usize) -> Vec<usize> {
    let slice = order.len() / groups;
    let slack = ((slice - threads) / 2).min(slice / 4);
    let cut = |group: usize| {
        let even = group * order.len() / groups;
        if group == 0 || group == groups {
            return even;
        }
        let near = even - slack..=even + slack;
        near.max_by_key(|&at| (gap(order, at), Reverse(at.abs_diff(even)))).unwrap_or(even)
    };
    (0..=groups).map(cut).collect()
}

/// How far apart the CPUs on both sides of a cut are.
fn gap(order: &[Entry], cut: usize) -> Gap {
    let (before, after) = (order[cut - 1].at, order[cut].at);
    let core = |at: Cpu| (at.die, at.cluster, at.core);
    if before.package != after.package {
        Gap::Package
    } else if before.node != after.node {
        Gap::Node
    } else if core(before) != core(after) {
        Gap::Core
    } else {
        Gap::None
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gap {
    None,
    Core,
    Node,
    Package,
}

const SYSFS: &str = "/sys";
/// Groups, and threads of a group; the same as in `Config`.
const PLANNED: RangeInclusive<usize> = 1..=128;
/// More CPUs or threads than anybody has, few enough to multiply.
const MANY: usize = 1 << 20;

#[cfg(test)]
mod tests;

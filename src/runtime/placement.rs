//! Placement: the CPUs that each group and each worker may use.
//!
//! ```text
//!   the machine          in order            one slice per group       one CPU per worker
//!   package 0  0 8 1 9   0 8 1 9 2 a 3 b     group 0: 0 8 1 9          0 | 8 | 1 | 9
//!              2 a 3 b   4 c 5 d 6 e 7 f     group 1: 2 a 3 b          ⋮
//!   package 1  4 c 5 d                       group 2: 4 c 5 d
//!              6 e 7 f                       group 3: 6 e 7 f
//! ```
//!
//! A [`Machine`] describes the CPUs that the process may use and how they belong together.
//! [`place`] makes a [`Placement`] of it, with the CPUs of each group and worker. This module binds
//! no thread. All but [`Machine::here`] and [`Machine::here_by_force`] is arithmetic.
//!
//! The guide's page of the design has these rules in short, and `examples/placement.rs` prints the
//! result on this machine.
//!
//! # The rules
//!
//! 1. *Order.* CPUs are sorted by package, NUMA node, core (within die and cluster), hardware
//!    thread. Neighbours in the order share caches.
//! 2. *Enough CPUs*, at least one for each base worker: the order is cut into as many slices as
//!    there are groups, and all CPUs are used. (The original gives group i the entries from i ×
//!    threads on. With one group of four on a machine with 64 CPUs, the other 60 would idle.) The
//!    slices are equal to within one CPU. If they have room, a cut moves by up to a quarter of a
//!    slice, so that it falls between packages, else nodes, else cores. (With exactly one CPU for
//!    each base worker there is no room. Then no group straddles two nodes if the number of threads
//!    divides the CPUs of each.)
//! 3. *Too few CPUs*: the order is repeated. Group i has `threads` entries from i × threads on, and
//!    the first entry follows the last. So the numbers of workers of any two CPUs differ by at most
//!    one. (The original repeats the list a whole number of times and lets the last groups float.)
//! 4. *Base workers* share their group's slice, or have one CPU of it each ([`BaseWorkers`]). In
//!    the second case they are spread evenly, so that on a slice with twice the CPUs each has its
//!    own core. Dynamic workers always have the whole slice.
//! 5. *Big and small cores* on one NUMA node are dealt to the groups in turn, strongest first, so
//!    that each group has some of each. All groups get the same number of connections. A group of
//!    small cores only would always serve its connections slowly. Within a mixed group the big
//!    cores take more of the work. CPUs whose capacity is within an eighth of the strongest count
//!    as equal (favoured cores of one kind differ by some percent).

#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::io;
use std::path::Path;

use crate::sys::affinity::Usable;
use crate::sys::cpu_set::CpuSet;
use crate::sys::topology::{Cpu, Topology};

/// CPUs that may be used, and how they belong together.
///
/// *Shape*: a plain value, taken once. It does not follow later changes of the machine. It has at
/// least one CPU.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Machine {
    cpus: CpuSet,
    parallelism: usize,
    topology: Topology,
}

impl Machine {
    /// Returns this machine as the calling thread may use it: its affinity mask, which reflects
    /// cpusets and containers too, and the quota of its control group.
    ///
    /// Reads a few files of sysfs for each CPU. Without sysfs, the topology is unknown, and the
    /// order is that of the CPU numbers.
    ///
    /// # Errors
    ///
    /// Those of sched_getaffinity(2), if a sandbox forbids it. A runtime still starts then: its
    /// threads run where the kernel puts them.
    pub(super) fn here() -> io::Result<Self> {
        Self::with(Usable::by_mask()?, Topology::read(Path::new(SYSFS)))
    }

    /// Returns this machine with all its CPUs, whatever the calling thread's mask says: as many as
    /// a cpuset (of a container, for instance) leaves. The tunable `force_all_cores` selects this.
    ///
    /// For a moment the calling thread runs with the wide mask.
    ///
    /// # Errors
    ///
    /// Those of sched_getaffinity(2) and sched_setaffinity(2), and `NotFound` if sysfs does not
    /// list the CPUs.
    pub(super) fn here_by_force() -> io::Result<Self> {
        let topology = Topology::read(Path::new(SYSFS));
        if topology.online().is_empty() {
            let message = format!("{SYSFS}/devices/system/cpu/online lists no CPU");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        Self::with(Usable::by_force(topology.online())?, topology)
    }

    /// CPUs that are allowed but not online are left out. If that leaves no CPU, sysfs describes
    /// another machine, and they are kept.
    fn with(usable: Usable, topology: Topology) -> io::Result<Self> {
        let Usable { cpus, parallelism } = usable;
        let online = cpus.intersection(topology.online());
        let cpus = if online.is_empty() { cpus } else { online };
        if cpus.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no CPU is allowed"));
        }
        Ok(Self { parallelism: parallelism.clamp(1, cpus.len()), cpus, topology })
    }

    /// Returns the number of threads that can run at once. It is the number of CPUs, or less if the
    /// control group has a quota of CPU time. The quota is rounded down to whole CPUs, at least 1.
    ///
    /// *Source*: [`std::thread::available_parallelism`], which follows `cpu.max` (or version 1's
    /// `cpu.cfs_quota_us`) from the process's group up to the root.
    pub(super) fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// Returns the position of a CPU. All fields are zero if sysfs does not list it.
    fn cpu(&self, cpu: usize) -> Cpu {
        self.topology.cpu(cpu)
    }
}

/// CPUs of base workers within their group.
#[derive(Clone, Copy, Debug)]
pub(super) enum BaseWorkers {
    /// Any CPU of the group. The scheduler may move a worker from a CPU that is busy with other
    /// work. The default (`multi_affinity_in_group`).
    ShareCpus,
    /// One CPU each. Caches stay warm, but a worker whose CPU is busy cannot move.
    OneCpuEach,
}

/// CPUs of each group and worker.
///
/// *Shape*: a plain value, with a set for each group and, with [`BaseWorkers::OneCpuEach`], for
/// each base worker. No set is empty, and each CPU in it belongs to the machine.
#[derive(Debug)]
pub(super) struct Placement {
    groups: Vec<Group>,
    threads: usize,
}

#[derive(Debug)]
struct Group {
    cpus: CpuSet,
    /// CPUs of each base worker. Empty if they share.
    workers: Vec<CpuSet>,
}

impl Placement {
    /// Returns the CPUs of a group, counted from 0. All its dynamic workers run on them, and its
    /// base workers too if they share.
    ///
    /// # Panics
    ///
    /// If there is no such group.
    pub(super) fn group(&self, group: usize) -> &CpuSet {
        &self.groups[group].cpus
    }

    /// Returns the CPUs of a base worker of a group, both counted from 0.
    ///
    /// # Panics
    ///
    /// If there is no such group or worker.
    pub(super) fn worker(&self, group: usize, thread: usize) -> &CpuSet {
        assert!(thread < self.threads, "base worker {thread} of {}", self.threads);
        let group = &self.groups[group];
        group.workers.get(thread).unwrap_or(&group.cpus)
    }
}

/// Returns the default number of groups: `cpus` divided by `threads`, rounded up, so that there is
/// one base worker for each CPU. If that is less than `at_least`, there are two, three, … base
/// workers for each CPU, as few as needed. Then `extra` is added. At most 128.
///
/// The smallest `k` for which `k × cpus` CPUs would make `at_least` groups is found by division:
/// ⌈k × cpus / threads⌉ ≥ m exactly if k × cpus > (m − 1) × threads.
pub(super) fn automatic_groups(
    cpus: usize,
    threads: usize,
    at_least: usize,
    extra: usize,
) -> usize {
    let (cpus, threads) = (cpus.clamp(1, MANY), threads.clamp(1, MANY));
    let at_least = at_least.clamp(1, MOST_GROUPS);
    let per_cpu = (at_least - 1) * threads / cpus + 1;
    let groups = (per_cpu * cpus).div_ceil(threads);
    groups.saturating_add(extra).min(MOST_GROUPS)
}

/// Applies rules 1 to 5 of this module. The caller has checked the ranges. A zero counts as one.
pub(super) fn place(
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

/// A CPU in the order, and its position, by which neighbours are compared.
#[derive(Clone, Copy, Debug)]
struct Entry {
    cpu: usize,
    at: Cpu,
}

fn cpus_of(entries: &[Entry]) -> Vec<usize> {
    entries.iter().map(|entry| entry.cpu).collect()
}

/// Returns the CPUs in order, by rules 1 and 5.
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

/// Deals the CPUs of a node, strongest first, to as many hands of at most `hand` CPUs as needed.
/// The hands follow each other in the result. On some systems small cores are in packages of their
/// own, which says nothing about caches. So all dealt CPUs count as one core.
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

/// Applies rule 2: returns the `groups + 1` positions between slices, from 0 to the end. A slice
/// keeps at least `threads` CPUs, as its two cuts together move by less than its surplus.
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

/// Returns the distance of the CPUs on both sides of a cut.
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
/// Largest number of groups, as in `Config`.
const MOST_GROUPS: usize = 128;
/// Limit on CPUs and threads: more than any machine has, and few enough to multiply.
const MANY: usize = 1 << 20;

#[cfg(test)]
mod tests;

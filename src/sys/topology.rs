//! Topology of the machine's CPUs: packages, nodes and cores from sysfs.
//!
//! ```text
//! devices/system/cpu/online                          0-3,8       the CPUs that are there
//! devices/system/cpu/cpu8/cpu_capacity               1024        relative strength (ARM, hybrids)
//! devices/system/cpu/cpu8/topology/physical_package_id           socket
//!                                  die_id, cluster_id, core_id   within it, ever smaller
//!                                  thread_siblings_list          the CPUs that are one core
//! devices/system/node/online                         0-1         the NUMA nodes
//! devices/system/node/node1/cpulist                  4-7         their CPUs
//! ```
//!
//! A pure parser: its argument is a function that reads a file. Missing or malformed data is
//! unknown, and unknown is 0. Sources: the kernel's `Documentation/admin-guide/cputopology.rst` and
//! `Documentation/ABI/` (`sysfs-devices-system-cpu`, `sysfs-devices-node`).

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::cpu_set::CpuSet;

/// Place of a CPU. Unknown numbers are 0.
///
/// The numbers are the kernel's and only tell places apart: packages can be 36 and 8442. A core is
/// counted within its cluster, die and package.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cpu {
    /// Socket.
    pub(crate) package: u32,
    /// NUMA node.
    pub(crate) node: u32,
    /// Die in the package.
    pub(crate) die: u32,
    /// Cores that share a cache or tag below the last level.
    pub(crate) cluster: u32,
    /// Core.
    pub(crate) core: u32,
    /// Number of the core's hardware thread, from 0.
    pub(crate) thread: u32,
    /// Strength relative to the machine's strongest CPUs, which have 1024; 0 if all are equal or it
    /// is unknown.
    pub(crate) capacity: u32,
}

/// Topology of the machine from sysfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Topology {
    online: CpuSet,
    /// Place of each CPU of `online`, in its order.
    cpus: Vec<(usize, Cpu)>,
}

impl Topology {
    /// Reads the sysfs below `root`, which is normally `/sys`. It reads about six small files for
    /// each CPU, so it is meant for the start only.
    pub(crate) fn read(root: &Path) -> Self {
        Self::parse(|path| {
            let mut text = String::new();
            let file = File::open(root.join(path)).ok()?;
            file.take(LONGEST_FILE_BYTES).read_to_string(&mut text).ok()?;
            Some(text)
        })
    }

    /// Parses the texts that `read` returns for files, by their path below the root, or `None`.
    pub(crate) fn parse(read: impl Fn(&str) -> Option<String>) -> Self {
        let list = |path: &str| read(path).and_then(|text| CpuSet::parse(&text));
        let online = list("devices/system/cpu/online").unwrap_or_default();
        let nodes: Vec<(usize, CpuSet)> = list("devices/system/node/online")
            .unwrap_or_default()
            .iter()
            .filter_map(|node| {
                Some((node, list(&format!("devices/system/node/node{node}/cpulist"))?))
            })
            .collect();

        let describe = |cpu: usize| {
            let number = |name: &str| {
                let text = read(&format!("devices/system/cpu/cpu{cpu}/{name}"))?;
                text.trim().parse::<u32>().ok()
            };
            let node = nodes.iter().find(|(_, cpus)| cpus.contains(cpu));
            let siblings =
                list(&format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
            let thread = siblings.and_then(|set| set.iter().position(|sibling| sibling == cpu));
            Cpu {
                package: number("topology/physical_package_id").unwrap_or(0),
                node: node.and_then(|&(node, _)| u32::try_from(node).ok()).unwrap_or(0),
                die: number("topology/die_id").unwrap_or(0),
                cluster: number("topology/cluster_id").unwrap_or(0),
                core: number("topology/core_id").unwrap_or(0),
                thread: thread.and_then(|thread| u32::try_from(thread).ok()).unwrap_or(0),
                capacity: number("cpu_capacity").unwrap_or(0),
            }
        };
        let cpus = online.iter().map(|cpu| (cpu, describe(cpu))).collect();
        Self { online, cpus }
    }

    /// CPUs that are running; empty if that is unknown.
    pub(crate) fn online(&self) -> &CpuSet {
        &self.online
    }

    /// Place of a CPU; all zero if the CPU is not online.
    pub(crate) fn cpu(&self, cpu: usize) -> Cpu {
        let found = self.cpus.binary_search_by_key(&cpu, |&(number, _)| number);
        found.map(|at| self.cpus[at].1).unwrap_or_default()
    }
}

/// Bound above the longest list that the kernel can write of 8192 CPUs.
const LONGEST_FILE_BYTES: u64 = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(files: &[(&str, &str)]) -> Topology {
        Topology::parse(|path| {
            files.iter().find(|(file, _)| *file == path).map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn what_is_missing_or_rubbish_is_zero() {
        let topology = parse(&[
            ("devices/system/cpu/online", "0,4\n"),
            ("devices/system/node/online", "0-2\n"),
            ("devices/system/node/node1/cpulist", "three\n"),
            ("devices/system/node/node2/cpulist", "4-7\n"),
            ("devices/system/cpu/cpu4/topology/physical_package_id", "-1\n"),
            ("devices/system/cpu/cpu4/topology/core_id", "4294967296\n"),
            ("devices/system/cpu/cpu4/topology/cluster_id", " 7 \n"),
            ("devices/system/cpu/cpu4/topology/thread_siblings_list", "5-6\n"),
            ("devices/system/cpu/cpu4/cpu_capacity", ""),
        ]);
        assert_eq!(topology.online().to_string(), "0,4");
        assert_eq!(topology.cpu(0), Cpu::default());
        assert_eq!(topology.cpu(4), Cpu { node: 2, cluster: 7, ..Cpu::default() });
        assert_eq!(topology.cpu(5), Cpu::default(), "it is not online");
    }

    #[test]
    fn a_list_that_is_rubbish_is_empty() {
        for rubbish in ["", "x", "0-", "0-4294967295", "\u{fffd}"] {
            assert_eq!(parse(&[("devices/system/cpu/online", rubbish)]), Topology::default());
        }
    }

    #[test]
    fn a_root_without_sysfs_is_an_empty_topology() {
        assert_eq!(Topology::read(Path::new("/dev/null")), Topology::default());
    }

    #[test]
    fn this_machine_has_the_cpus_that_it_runs_on() {
        let topology = Topology::read(Path::new("/sys"));
        let allowed = super::super::affinity::allowed().expect("asking is allowed");
        assert!(topology.online().is_empty() || allowed.is_subset(topology.online()));
    }
}

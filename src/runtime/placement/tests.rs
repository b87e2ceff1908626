use std::collections::BTreeMap;

use proptest::prelude::*;

use super::BaseWorkers::{OneCpuEach, ShareCpus};
use super::*;

const I7: &str = include_str!("sysfs/core-i7-m620.txt");
const KUNPENG: &str = include_str!("sysfs/kunpeng-920.txt");
const OPTERON: &str = include_str!("sysfs/opteron-48.txt");
const POWER9: &str = include_str!("sysfs/power9-smt4.txt");
const QEMU: &str = include_str!("sysfs/qemu-ppc.txt");
const SNAPDRAGON: &str = include_str!("sysfs/snapdragon-8-gen-2.txt");
const XEON: &str = include_str!("sysfs/xeon-silver-4108.txt");
const XEON_OFFLINE: &str = include_str!("sysfs/xeon-e5-2680-offline.txt");

const RECORDED: &[&str] = &[I7, KUNPENG, OPTERON, POWER9, QEMU, SNAPDRAGON, XEON, XEON_OFFLINE];

fn machine(recorded: &str, allowed: Option<&str>) -> Machine {
    let files: BTreeMap<&str, &str> =
        recorded.lines().map(|line| line.split_once('=').expect("path=value")).collect();
    let read = |path: &str| {
        let path = path.strip_prefix("devices/system/").expect("nothing else is read");
        files.get(path).map(|text| format!("{text}\n"))
    };
    let allowed = allowed.map(|set| CpuSet::parse(set).expect("a list of CPUs"));
    described(allowed, read).expect("it has CPUs")
}

/// Returns a machine from a description. `read` returns the text of a file of its sysfs, by the
/// path below the root (`devices/system/cpu/online`), or `None`. `allowed` is the mask; `None`
/// allows each CPU that is online. There is no quota.
///
/// Returns `None` if that leaves no CPU.
fn described(allowed: Option<CpuSet>, read: impl Fn(&str) -> Option<String>) -> Option<Machine> {
    let topology = Topology::parse(read);
    let cpus = allowed.unwrap_or_else(|| topology.online().clone());
    Machine::with(Usable { parallelism: cpus.len(), cpus }, topology).ok()
}

fn groups(machine: &Machine, groups: usize, threads: usize) -> Vec<String> {
    let placement = place(machine, groups, threads, ShareCpus);
    (0..groups).map(|group| placement.group(group).to_string()).collect()
}

fn workers(machine: &Machine, groups: usize, threads: usize) -> Vec<Vec<String>> {
    let placement = place(machine, groups, threads, OneCpuEach);
    let worker = |group, thread| placement.worker(group, thread).to_string();
    (0..groups).map(|group| (0..threads).map(|thread| worker(group, thread)).collect()).collect()
}

#[test]
fn siblings_of_a_core_are_neighbours() {
    let machine = machine(I7, None);
    assert_eq!(machine.cpus.to_string(), "0-3");
    assert_eq!(machine.cpu(3), Cpu { core: 2, thread: 1, ..Cpu::default() });
    assert_eq!(groups(&machine, 2, 2), ["0,2", "1,3"]);
    assert_eq!(workers(&machine, 2, 2), [["0", "2"], ["1", "3"]]);
}

#[test]
fn one_group_has_the_whole_machine_and_its_workers_a_core_each() {
    let machine = machine(XEON, None);
    assert_eq!(groups(&machine, 1, 4), ["0-31"]);
    assert_eq!(workers(&machine, 1, 4), [["0", "4", "8", "12"]]);
    assert_eq!(workers(&machine, 1, 16)[0][..3], ["0", "1", "2"]);
}

#[test]
fn groups_on_two_sockets_stay_on_one() {
    let machine = machine(XEON, None);
    assert_eq!(groups(&machine, 2, 4), ["0-7,16-23", "8-15,24-31"]);
    let eight = groups(&machine, 8, 4);
    assert_eq!(eight[..2], ["0-1,16-17", "2-3,18-19"]);
    assert_eq!(eight[4..6], ["8-9,24-25", "10-11,26-27"]);
}

#[test]
fn a_cut_moves_to_the_edge_of_a_package_where_there_is_room() {
    // Six CPUs of one package, ten of the other. Two groups of four have room, groups of eight have
    // none.
    let machine = machine(XEON, Some("0-5,8-15,24-25"));
    assert_eq!(groups(&machine, 2, 4), ["0-5", "8-15,24-25"]);
    assert_eq!(groups(&machine, 2, 8), ["0-5,8,24", "9-15,25"]);
}

#[test]
fn a_cut_moves_to_the_edge_of_a_core_where_there_is_room() {
    let machine = machine(XEON, Some("0-6,16-22"));
    assert_eq!(groups(&machine, 2, 4), ["0-3,16-19", "4-6,20-22"]);
    assert_eq!(groups(&machine, 2, 7), ["0-3,16-18", "4-6,19-22"]);
}

#[test]
fn nodes_within_a_package_are_kept_together() {
    // Four packages of two nodes of six cores, nodes numbered with gaps.
    let opteron = machine(OPTERON, None);
    assert_eq!(opteron.cpu(47), Cpu { package: 3, node: 73, core: 5, ..opteron.cpu(47) });
    let nodes = ["0-5", "6-11", "12-17", "18-23", "24-29", "30-35", "36-41", "42-47"];
    assert_eq!(groups(&opteron, 8, 4), nodes);
    assert_eq!(groups(&opteron, 4, 4), ["0-11", "12-23", "24-35", "36-47"]);
    assert_eq!(groups(&opteron, 12, 4)[..3], ["0-3", "4-7", "8-11"]);

    // Two packages, 36 and 8442, of two nodes of eight clusters of four cores.
    let kunpeng = machine(KUNPENG, None);
    assert_eq!(groups(&kunpeng, 2, 4), ["0-63", "64-127"]);
    assert_eq!(groups(&kunpeng, 4, 4), ["0-31", "32-63", "64-95", "96-127"]);
    assert_eq!(groups(&kunpeng, 32, 4)[31], "124-127");
}

#[test]
fn cpus_that_are_offline_get_nobody() {
    let machine = machine(XEON_OFFLINE, None);
    assert_eq!(machine.cpus.to_string(), "4-20");
    // Even CPUs are in package 0, whose node is not listed. Odd CPUs are in package 1, on node 1.
    assert_eq!(machine.cpu(5), Cpu { package: 1, node: 1, core: 2, ..Cpu::default() });
    assert_eq!(groups(&machine, 2, 4), ["4,6,8,10,12,14,16,18,20", "5,7,9,11,13,15,17,19"]);
    // Seventeen CPUs for twenty workers: the last group ends where the first began.
    assert_eq!(workers(&machine, 5, 4)[4], ["19", "4", "6", "8"]);
}

#[test]
fn four_threads_of_a_core_on_sparse_numbers_stay_together() {
    let machine = machine(POWER9, None);
    assert_eq!(machine.cpus.to_string(), "0-15,88-103");
    assert_eq!(groups(&machine, 4, 4), ["0-7", "8-15", "88-95", "96-103"]);
    assert_eq!(groups(&machine, 8, 4)[4], "88-91");
    assert_eq!(machine.cpu(91).thread, 3);
}

#[test]
fn on_one_cpu_everybody_sits_there() {
    let machine = machine(QEMU, None);
    assert_eq!(groups(&machine, 3, 4), ["0", "0", "0"]);
    assert_eq!(workers(&machine, 1, 2), [["0", "0"]]);
    assert_eq!(automatic_groups(machine.parallelism(), 4, 1, 0), 1);
}

#[test]
fn big_and_small_cores_are_dealt_to_all_groups() {
    // 0-2 are small (280), 3-6 big (855), 7 is the biggest (1024). Each kind is a package of its
    // own.
    let machine = machine(SNAPDRAGON, None);
    assert_eq!(groups(&machine, 2, 4), ["1,4,6-7", "0,2-3,5"]);
    assert_eq!(workers(&machine, 2, 4), [["7", "4", "6", "1"], ["3", "5", "0", "2"]]);
    assert_eq!(groups(&machine, 1, 4), ["0-7"]);
    // Too few CPUs: the hands follow each other in the order, so its repetition deals too.
    assert_eq!(groups(&machine, 3, 4), ["1,4,6-7", "0,2-3,5", "1,4,6-7"]);
}

#[test]
fn cores_that_are_nearly_equal_are_not_dealt() {
    let favoured = |path: &str| match path {
        "devices/system/cpu/online" => Some("0-3".to_owned()),
        "devices/system/cpu/cpu3/cpu_capacity" => Some("1024".to_owned()),
        path if path.ends_with("cpu_capacity") => Some("950".to_owned()),
        _ => None,
    };
    let machine = described(None, favoured).expect("four CPUs");
    assert_eq!(groups(&machine, 2, 2), ["0-1", "2-3"]);
}

#[test]
fn without_sysfs_the_numbers_make_the_order() {
    let machine = described(CpuSet::parse("0-3,8-11"), |_| None).expect("allowed CPUs");
    assert_eq!(machine.cpu(9), Cpu::default());
    assert_eq!(groups(&machine, 2, 4), ["0-3", "8-11"]);
    assert_eq!(groups(&machine, 1, 4), ["0-3,8-11"]);
    assert_eq!(described(None, |_| None), None);
    assert_eq!(described(Some(CpuSet::default()), |_| None), None);
}

#[test]
fn a_container_uses_what_its_cpuset_has() {
    let machine = machine(XEON, Some("4-7,20-21"));
    assert_eq!(automatic_groups(machine.parallelism(), 4, 1, 0), 2);
    // 4 20 5 21 6 7, and round again.
    assert_eq!(groups(&machine, 2, 4), ["4-5,20-21", "4,6-7,20"]);
    assert_eq!(workers(&machine, 2, 4), [["4", "20", "5", "21"], ["6", "7", "4", "20"]]);
}

#[test]
fn allowed_cpus_that_are_not_online_are_left_out_unless_all_are() {
    assert_eq!(machine(I7, Some("2-5")).cpus.to_string(), "2-3");
    assert_eq!(machine(I7, Some("2-5")).parallelism(), 2);
    assert_eq!(machine(I7, Some("8-9")).cpus.to_string(), "8-9");
    assert_eq!(groups(&machine(I7, Some("8-9")), 2, 1), ["8", "9"]);
}

#[test]
fn no_group_floats_when_going_round() {
    // Ten CPUs, four groups of four: the original would let the last two float.
    let machine = machine(XEON, Some("0-4,16-20"));
    assert_eq!(groups(&machine, 4, 4), ["0-1,16-17", "2-3,18-19", "0,4,16,20", "1-2,17-18"]);
}

#[test]
fn the_number_of_groups_is_the_originals_table() {
    for (cpus, groups) in [(16, 32), (32, 32), (96, 48), (104, 52), (24, 36), (1, 32)] {
        assert_eq!(automatic_groups(cpus, 4, 32, 0), groups, "{cpus} CPUs");
    }
    for (cpus, groups) in [(1, 1), (4, 1), (5, 2), (16, 4), (64, 16), (1000, 128)] {
        assert_eq!(automatic_groups(cpus, 4, 1, 0), groups, "{cpus} CPUs");
    }
    assert_eq!(automatic_groups(16, 4, 1, 3), 7);
    assert_eq!(automatic_groups(usize::MAX, 1, usize::MAX, usize::MAX), 128);
    assert_eq!(automatic_groups(0, 0, 0, 0), 1);
}

#[test]
fn this_machine_can_be_planned_for() {
    let here = Machine::here().expect("asking is allowed");
    assert!((1..=here.cpus.len()).contains(&here.parallelism()));
    let placement = place(&here, 2, 4, OneCpuEach);
    assert!(placement.group(1).is_subset(&here.cpus));
    assert_eq!((placement.groups.len(), placement.threads), (2, 4));
}

/// A random machine: packages × nodes × cores × threads, some CPUs not allowed. They are numbered
/// as kernels do (all first threads, then all second ones).
fn any_machine() -> impl Strategy<Value = Machine> {
    let shape = (1..4_usize, 1..4_usize, 1..7_usize, 1..5_usize);
    let capacities = prop::sample::select(vec![None, Some([1024, 1024]), Some([1024, 300])]);
    let known = any::<[bool; 4]>();
    (shape, capacities, known, any::<u64>(), 0..4_u32).prop_map(
        |((packages, nodes, cores, threads), capacities, known, seed, sparse)| {
            let first_threads = packages * nodes * cores;
            let count = first_threads * threads;
            let bit = |cpu: usize| seed.rotate_left((cpu * 7 % 64) as u32) >> (cpu % 64) & 3;
            let mut allowed: CpuSet =
                (0..count).filter(|&cpu| u64::from(sparse) <= bit(cpu)).collect();
            if allowed.is_empty() {
                allowed = CpuSet::from_iter([count - 1]);
            }
            let read = |path: &str| {
                let path = path.strip_prefix("devices/system/")?;
                let number = || -> Option<usize> {
                    let digits = path.trim_start_matches(|c: char| !c.is_ascii_digit());
                    digits.split('/').next()?.parse().ok()
                };
                let core = || number().map(|cpu| cpu % first_threads);
                let file = path.rsplit('/').next()?;
                match (path, file) {
                    ("cpu/online", _) => Some(format!("0-{}", count - 1)),
                    ("node/online", _) => known[0].then(|| format!("0-{}", packages * nodes - 1)),
                    (_, "cpulist") => {
                        let of_node = |cpu: &usize| Some(cpu % first_threads / cores) == number();
                        Some((0..count).filter(of_node).collect::<CpuSet>().to_string())
                    }
                    (_, "physical_package_id") if known[1] => {
                        core().map(|core| (core / cores / nodes * 40).to_string())
                    }
                    (_, "core_id") if known[2] => {
                        core().map(|core| (core % (cores * nodes)).to_string())
                    }
                    (_, "thread_siblings_list") if known[3] => core().map(|core| {
                        let set: CpuSet = (core..count).step_by(first_threads).collect();
                        set.to_string()
                    }),
                    (_, "cpu_capacity") => {
                        core().and_then(|core| Some(capacities?[core % 2].to_string()))
                    }
                    _ => None,
                }
            };
            described(Some(allowed), read).expect("it has CPUs")
        },
    )
}

/// Number of worker (or group) sets that each CPU is in.
fn uses(machine: &Machine, sets: &[&CpuSet]) -> BTreeMap<usize, usize> {
    let mut uses: BTreeMap<usize, usize> = machine.cpus.iter().map(|cpu| (cpu, 0)).collect();
    for set in sets {
        assert!(!set.is_empty());
        for cpu in set.iter() {
            *uses.get_mut(&cpu).expect("an allowed CPU") += 1;
        }
    }
    uses
}

/// Checks the properties of each placement.
fn check(machine: &Machine, groups: usize, threads: usize) {
    let shared = place(machine, groups, threads, ShareCpus);
    let single = place(machine, groups, threads, OneCpuEach);
    let sets: Vec<_> = (0..groups).map(|group| shared.group(group)).collect();
    let of_groups = uses(machine, &sets);
    let all = || (0..groups).flat_map(|group| (0..threads).map(move |thread| (group, thread)));
    let sets: Vec<_> = all().map(|(group, thread)| single.worker(group, thread)).collect();
    let of_workers = uses(machine, &sets);
    for (group, thread) in all() {
        assert_eq!(shared.group(group), single.group(group));
        assert_eq!(shared.worker(group, thread), shared.group(group));
        assert_eq!(single.worker(group, thread).len(), 1);
        assert!(single.worker(group, thread).is_subset(single.group(group)));
    }

    let cpus = machine.cpus.len();
    if groups * threads <= cpus {
        assert!(of_groups.values().all(|&uses| uses == 1), "disjoint, and nothing left over");
        assert!(of_workers.values().all(|&uses| uses <= 1), "no two base workers on one CPU");
        let slice = cpus / groups;
        for group in 0..groups {
            let len = shared.group(group).len();
            assert!(len >= threads);
            assert!((slice - slice / 2..=slice + 1 + slice / 2).contains(&len), "nearly equal");
        }
    } else {
        let each = groups * threads / cpus;
        assert!(of_workers.values().all(|uses| (each..=each + 1).contains(uses)), "balanced");
        let len = threads.min(cpus);
        assert!((0..groups).all(|group| shared.group(group).len() == len), "nobody floats");
    }
}

#[test]
fn every_recorded_machine_is_placed_well() {
    for recorded in RECORDED {
        let machine = machine(recorded, None);
        for threads in [1, 2, 3, 4, 7, 8, 16, 128] {
            for groups in [1, 2, 3, 4, 5, 8, 13, 32, 128] {
                check(&machine, groups, threads);
            }
        }
    }
}

#[test]
fn slices_of_equal_cpus_are_equal_to_within_one() {
    for cpus in 1..=70 {
        let allowed = Some((0..cpus).collect());
        let machine = described(allowed, |_| None).expect("allowed CPUs");
        for groups in 1..=cpus {
            let placement = place(&machine, groups, 1, ShareCpus);
            let len = |group| placement.group(group).len();
            assert!((0..groups).all(|group| [0, 1].contains(&(len(group) - cpus / groups))));
        }
    }
}

proptest! {
    #[test]
    fn every_placement_is_sound(
        machine in any_machine(), groups in 1..40_usize, threads in 1..40_usize,
    ) {
        check(&machine, groups, threads);
    }

    #[test]
    fn rubbish_in_sysfs_is_unknown(
        text in prop::collection::vec("[0-9,\\-\n]{0,6}|\\PC{0,6}|0-9|-1|99999999999", 8),
        allowed in prop::collection::btree_set(0..100_usize, 0..20),
    ) {
        let pick = |path: &str| text[path.bytes().map(usize::from).sum::<usize>() % 8].clone();
        let allowed = Some(allowed.into_iter().collect());
        if let Some(machine) = described(allowed, |path| Some(pick(path))) {
            check(&machine, 3, 2);
        }
    }

    #[test]
    fn the_number_of_groups_is_what_the_originals_loop_finds(
        cpus in 1..300_usize,
        threads in 1..129_usize,
        at_least in 1..129_usize,
        extra in 0..33_usize,
    ) {
        let mut probe = cpus;
        while probe.div_ceil(threads) < at_least {
            probe += cpus;
        }
        let expected = (probe.div_ceil(threads) + extra).min(128);
        prop_assert_eq!(automatic_groups(cpus, threads, at_least, extra), expected);
    }
}

//! Which CPUs the threads of a runtime run on, as the system says. Each test is a process of its
//! own, whose mask is changed.
#![allow(unsafe_code, reason = "masks of threads are the system's own calls")]

use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, Write};
use std::mem;
use std::time::Duration;

use epoll_group::stats::Counter;
use epoll_group::{Config, Handle, Runtime};
use lab::child::{in_child, test_name};
use lab::threads::{Crowd, Event, How, falls_back, threads};
use lab::{LONG, assert_clean, eventually};

fn config() -> Config {
    lab::config()
        .dynamic_threads_shrink_time(Duration::from_millis(20))
        .thread_deadlock_check_interval(Duration::from_millis(5))
        .enable_tasker(false)
}

/// Starts a runtime and waits until its threads have set their affinity.
fn start(config: Config) -> Runtime {
    let binds = config.get("auto_cpu_affinity").as_deref() == Some("true");
    let runtime = Runtime::builder().config(config).name("af").start().expect("a runtime");
    let stats = || runtime.stats();
    eventually(LONG, || !binds || stats().get(Counter::AffinitySet) >= threads(&stats()));
    runtime
}

/// CPUs that the calling thread may run on, at most two of them.
fn two_cpus() -> Vec<usize> {
    // SAFETY: a set of no CPUs is all zero.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is live for the call, which writes no more than its size.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(result, 0, "{}", Error::last_os_error());
    // SAFETY: the set is initialised, and the CPUs are within it.
    let allowed = |cpu: &usize| unsafe { libc::CPU_ISSET(*cpu, &set) };
    (0..1024).filter(allowed).take(2).collect()
}

/// Binds one thread, or the calling one (0), as `taskset` does.
fn bind(tid: i32, cpus: &[usize]) {
    // SAFETY: a set of no CPUs is all zero.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for cpu in cpus {
        // SAFETY: the set is initialised, and the CPU is within it.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: `set` is live for the call, which only reads it.
    let result = unsafe { libc::sched_setaffinity(tid, size_of_val(&set), &raw const set) };
    let gone = Error::last_os_error().raw_os_error() == Some(libc::ESRCH);
    assert!(result == 0 || gone, "{}", Error::last_os_error());
}

/// Binds every thread of the process, as `taskset -ap` does.
fn bind_all(cpus: &[usize]) {
    for task in fs::read_dir("/proc/self/task").expect("Linux") {
        let task = task.expect("Linux").file_name();
        bind(task.to_string_lossy().parse().expect("a number"), cpus);
    }
}

/// Returns the mask of each thread whose name begins with `prefix`.
fn masks(prefix: &str) -> BTreeMap<String, String> {
    let tasks = fs::read_dir("/proc/self/task").expect("Linux");
    let of = |path: &std::path::Path| {
        let name = fs::read_to_string(path.join("comm")).ok()?.trim_end().to_owned();
        let status = fs::read_to_string(path.join("status")).ok()?;
        let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        name.starts_with(prefix).then(|| (name, mask.trim().to_owned()))
    };
    tasks.filter_map(|task| of(&task.ok()?.path())).collect()
}

/// Formats CPUs as `/proc` does.
fn list(cpus: &[usize]) -> String {
    match cpus {
        [one] => one.to_string(),
        [one, next] if one + 1 == *next => format!("{one}-{next}"),
        cpus => cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
    }
}

fn expect_all(masks: &BTreeMap<String, String>, count: usize, mask: &str) {
    assert_eq!(masks.len(), count, "{masks:?}");
    assert!(masks.values().all(|is| is == mask), "not all {mask}: {masks:?}");
}

/// Runs the test in a child, with the two CPUs that it needs.
fn with_two_cpus(code: impl FnOnce(&[usize])) {
    in_child(|| {
        let cpus = two_cpus();
        if cpus.len() < 2 {
            let text = format!("SKIPPED: {} needs two CPUs", test_name());
            writeln!(std::io::stderr(), "{text}").expect("somebody reads");
            return;
        }
        bind(0, &cpus);
        code(&cpus);
    });
}

/// Runs handlers on all threads until `condition` holds. An idle thread does not look at its mask.
#[track_caller]
fn under_load(runtime: &Runtime, condition: impl Fn() -> bool) {
    eventually(LONG, || {
        // The runtime adds no thread before all present threads are inside a handler.
        let (event, stats) = (Event::new(How::Blocked), runtime.stats());
        let all = (stats.base_threads + stats.dynamic_threads) as usize;
        let crowd = Crowd::start(&runtime.handle(), &event, all);
        event.wait_for(all);
        event.happen();
        crowd.end();
        condition()
    });
}

#[test]
fn workers_stay_on_the_cpu_that_the_process_was_given() {
    with_two_cpus(|cpus| {
        for cpu in cpus {
            bind(0, &[*cpu]);
            let runtime = start(config());
            // Added workers stay on this CPU, too.
            let event = Event::new(How::Announced);
            for _ in 0..10 {
                let event = event.clone();
                runtime.handle().spawn(move || event.wait()).expect("room");
            }
            event.wait_for(10);
            assert!(runtime.stats().dynamic_threads > 0);
            let masks = masks("af-0-");
            expect_all(&masks, masks.len(), &list(&[*cpu]));
            event.happen();
            falls_back(&runtime.handle(), "af", 5);
            assert_eq!(runtime.stats().get(Counter::AffinityFailed), 0);
        }
    });
}

#[test]
fn workers_follow_when_the_process_is_given_other_cpus() {
    with_two_cpus(|cpus| {
        bind(0, &cpus[..1]);
        let runtime = start(config());
        expect_all(&masks("af-0-"), 5, &list(&cpus[..1]));
        for given in [cpus, &cpus[1..], cpus, &cpus[..1]] {
            let set = runtime.stats().get(Counter::AffinitySet);
            bind_all(given);
            // The workers bind themselves anew. The second wait checks their masks.
            under_load(&runtime, || runtime.stats().get(Counter::AffinitySet) >= set + 4);
            under_load(&runtime, || {
                let mut masks = masks("af-0-");
                // A standby thread sets its mask only when it is called, so it is left out.
                masks.retain(|name, _| !name.contains('r'));
                masks.len() >= 4 && masks.values().all(|mask| *mask == list(given))
            });
        }
        assert_eq!(runtime.stats().get(Counter::AffinityFailed), 0);
    });
}

/// A task that queues itself again until the runtime drains.
fn again(handle: &Handle) {
    let next = handle.clone();
    let _ = handle.spawn(move || again(&next));
}

#[test]
fn workers_follow_beside_tasks_without_end() {
    with_two_cpus(|cpus| {
        let runtime = start(config());
        // Each worker has always a task to run.
        (0..64).for_each(|_| again(&runtime.handle()));
        for given in [&cpus[..1], cpus] {
            bind_all(given);
            eventually(LONG, || {
                let mut masks = masks("af-0-");
                masks.retain(|name, _| !name.contains('r'));
                masks.values().all(|mask| *mask == list(given))
            });
        }
        assert_clean(&runtime.drain(LONG));
    });
}

#[test]
fn base_workers_find_a_cpu_of_their_own_when_the_process_is_given_more() {
    with_two_cpus(|cpus| {
        bind(0, &cpus[..1]);
        let runtime = start(config().multi_affinity_in_group(false));
        expect_all(&masks("af-0-"), 5, &list(&cpus[..1]));
        bind_all(cpus);
        let singles = [list(&cpus[..1]), list(&cpus[1..])];
        under_load(&runtime, || {
            let masks = masks("af-0-");
            let base = (0..4).filter_map(|worker| masks.get(&format!("af-0-{worker}")));
            base.filter(|mask| singles.contains(mask)).count() == 4
        });
    });
}

#[test]
fn each_base_worker_has_a_cpu_of_its_own_when_it_is_told_so() {
    with_two_cpus(|cpus| {
        let runtime = start(config().multi_affinity_in_group(false));
        let masks = masks("af-0-");
        let of = |cpu: &[usize]| {
            let base = |name: &str| !name.contains(['r', 'w', 't']);
            masks.iter().filter(|(name, mask)| base(&name[5..]) && **mask == list(cpu)).count()
        };
        // Four workers, two CPUs.
        assert_eq!((of(&cpus[..1]), of(&cpus[1..])), (2, 2), "{masks:?}");
        // A thread that is no base worker may run on both.
        assert_eq!(masks["af-0-r4"], list(cpus));
        drop(runtime);
    });
}

#[test]
fn two_groups_share_the_cpus_and_the_threads_of_each_stay_together() {
    with_two_cpus(|cpus| {
        let runtime = start(config().epoll_groups(2).epoll_threads_per_group(1));
        let of = |group: usize| masks(&format!("af-{group}-"));
        let first: Vec<_> = of(0).into_values().collect();
        let second: Vec<_> = of(1).into_values().collect();
        assert!(first.iter().all(|mask| *mask == first[0]), "{first:?}");
        assert!(second.iter().all(|mask| *mask == second[0]), "{second:?}");
        let mut both = [first[0].clone(), second[0].clone()];
        both.sort();
        assert_eq!(both, [list(&cpus[..1]), list(&cpus[1..])]);
        drop(runtime);
    });
}

#[test]
fn threads_are_left_alone_when_the_runtime_is_told_so() {
    with_two_cpus(|cpus| {
        let runtime = start(config().auto_cpu_affinity(false));
        expect_all(&masks("af-0-"), 5, &list(cpus));
        bind_all(&cpus[..1]);
        let checks = runtime.stats().get(Counter::WatchdogChecks);
        under_load(&runtime, || runtime.stats().get(Counter::WatchdogChecks) > checks + 5);
        let masks = masks("af-0-");
        expect_all(&masks, masks.len(), &list(&cpus[..1]));
        assert_eq!(runtime.stats().get(Counter::AffinitySet), 0);
    });
}

#[test]
fn all_cpus_are_used_by_force() {
    with_two_cpus(|cpus| {
        bind(0, &cpus[..1]);
        let runtime = start(config().force_all_cores(true));
        for (name, mask) in masks("af-0-") {
            assert_ne!(mask, list(&cpus[..1]), "{name}");
        }
        // The thread that started the runtime keeps its own mask.
        assert_eq!(two_cpus(), cpus[..1]);
        drop(runtime);
    });
}

//! CPUs on which each worker of a runtime may run, as the system says.
//!
//! ```text
//! cargo run --example placement                         # with the defaults
//! cargo run --example placement -- --set epoll_groups=2 --set multi_affinity_in_group=off
//! ```
//!
//! Of a server that runs, `grep Cpus_allowed_list /proc/PID/task/*/status` prints the same.

use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::stats::Counter;
use lab::args::Tunables;
use lab::table;

/// Prints on which CPUs the workers of a runtime may run.
#[derive(clap::Parser)]
#[command(name = "placement")]
struct Args {
    #[command(flatten)]
    tunables: Tunables,
}

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| run(&args, out))
}

fn run(args: &Args, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let (give, started) = mpsc::channel();
    let runtime = Runtime::builder()
        .config(args.tunables.gather()?)
        .on_thread_start(move |info| {
            let _ = give.send((info.clone(), fs::read_link("/proc/thread-self")));
        })
        .start()?;
    let mut workers: Vec<_> = started.try_iter().collect();
    workers.sort_by_key(|(info, _)| (info.group, info.worker));

    // A worker binds itself behind the hook, unless `auto_cpu_affinity` is off.
    let stats = || runtime.stats();
    let asked = || stats().get(Counter::AffinitySet) + stats().get(Counter::AffinityFailed);
    let deadline = Instant::now() + Duration::from_secs(1);
    while asked() < workers.len() as u64 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }

    if stats().base_threads + stats().reserve_threads != workers.len() as u64 {
        return Err(format!("{} workers were seen: {}", workers.len(), stats()).into());
    }
    let mut table = table::plain(&["worker", "kind", "CPUs"]);
    for (info, task) in workers {
        let status = fs::read_to_string(Path::new("/proc").join(task?).join("status"))?;
        let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cpus = cpus.ok_or("the system does not say on which CPUs a thread may run")?;
        table.add_row([info.name, format!("{:?}", info.kind), cpus.trim().to_owned()]);
    }
    Ok(writeln!(out, "{}", table.trim_fmt())?)
}

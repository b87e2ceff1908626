//! CPUs on which each group and each worker would run: on this machine, and on recorded ones.
//!
//! ```text
//! cargo run --example placement                                 # here, and three recordings
//! cargo run --example placement -- --threads 8 --multi off
//! cargo run --example placement -- --recorded src/runtime/placement/sysfs/kunpeng-920.txt --groups 8
//! ```
//!
//! Nothing is bound. The program checks its output: every worker has a CPU, and only allowed ones.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use epoll_group::placement::{BaseWorkers, Cpu, Machine, Placement};
use lab::args::within;

/// Prints which group and worker of epoll-group would run on which CPUs.
#[derive(clap::Parser)]
#[command(name = "placement")]
struct Args {
    /// Epoll groups, 0 to 128; 0: one base worker for each CPU
    #[arg(long, value_name = "N", default_value = "0", value_parser = within(0..=128_usize))]
    groups: usize,
    /// Base workers of each group, 1 to 128
    #[arg(long, value_name = "N", default_value = "4", value_parser = within(1..=128_usize))]
    threads: usize,
    /// on: base workers share the CPUs of their group; off: one CPU each
    #[arg(long, value_name = "on|off", default_value = "on", value_parser = multi)]
    multi: BaseWorkers,
    /// Show, in place of this machine, the machines that these files describe, as in
    /// src/runtime/placement/sysfs
    #[arg(long, value_name = "FILE", num_args = 1..)]
    recorded: Vec<PathBuf>,
}

const RECORDED: [(&str, &str); 3] = [
    ("xeon-silver-4108", include_str!("../src/runtime/placement/sysfs/xeon-silver-4108.txt")),
    ("opteron-48", include_str!("../src/runtime/placement/sysfs/opteron-48.txt")),
    ("snapdragon-8-gen-2", include_str!("../src/runtime/placement/sysfs/snapdragon-8-gen-2.txt")),
];

/// CPUs in a row of the picture.
const ROW: usize = 16;

fn main() -> ExitCode {
    lab::args::run(|args: Args, out| Ok(out.write_all(run(&args)?.as_bytes())?))
}

fn run(args: &Args) -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    if args.recorded.is_empty() {
        report(&mut out, "this machine", &Machine::here()?, args)?;
        for (name, text) in RECORDED {
            report(&mut out, name, &recorded(text).map_err(|e| format!("{name}: {e}"))?, args)?;
        }
    }
    for path in &args.recorded {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|e| format!("--recorded {name}: {e}"))?;
        let machine = recorded(&text).map_err(|e| format!("--recorded {name}: {e}"))?;
        report(&mut out, &name, &machine, args)?;
    }
    Ok(out)
}

/// Reads `path=content` lines, paths below `/sys/devices/system`.
fn recorded(text: &str) -> Result<Machine, String> {
    let mut files = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        let (path, content) =
            line.split_once('=').ok_or_else(|| format!("line {number} is not path=content"))?;
        files.insert(format!("devices/system/{path}"), content);
    }
    Machine::described(None, |path| files.get(path).map(|&content| content.to_owned()))
        .ok_or_else(|| "cpu/online lists no CPU".to_owned())
}

fn report(out: &mut String, name: &str, machine: &Machine, args: &Args) -> Result<(), String> {
    let groups = match args.groups {
        0 => machine.automatic_groups(args.threads, 1, 0),
        groups => groups,
    };
    let placement =
        machine.plan(groups, args.threads, args.multi).map_err(|error| error.to_string())?;
    check(machine, &placement).map_err(|error| format!("{name}: {error}"))?;
    let written = write_machine(out, name, machine)
        .and_then(|()| write_picture(out, machine, &placement))
        .and_then(|()| write_table(out, &placement, args.multi));
    written.map_err(|error| error.to_string())
}

fn check(machine: &Machine, placement: &Placement) -> Result<(), String> {
    for group in 0..placement.groups() {
        for thread in 0..placement.threads() {
            for set in [placement.worker(group, thread), placement.group(group)] {
                if set.is_empty() || !set.is_subset(machine.cpus()) {
                    let allowed = machine.cpus();
                    return Err(format!(
                        "worker {thread} of group {group} is on `{set}`, allowed is {allowed}"
                    ));
                }
            }
        }
    }
    Ok(())
}

fn write_machine(out: &mut String, name: &str, machine: &Machine) -> fmt::Result {
    let count = |what: fn(Cpu) -> [u32; 5]| {
        let mut places: Vec<_> = machine.cpus().iter().map(|cpu| what(machine.cpu(cpu))).collect();
        places.sort_unstable();
        places.dedup();
        places.len()
    };
    let packages = count(|at| [at.package, 0, 0, 0, 0]);
    let nodes = count(|at| [at.node, 0, 0, 0, 0]);
    let cores = count(|at| [at.package, at.node, at.die, at.cluster, at.core]);
    let cpus = machine.cpus();
    writeln!(out, "{name}: CPUs {cpus} ({}), parallelism {}", cpus.len(), machine.parallelism())?;
    writeln!(out, "  packages {packages}, nodes {nodes}, cores {cores}\n")
}

/// A block for each node; CPUs of a core stand together, and under each CPU its group.
fn write_picture(out: &mut String, machine: &Machine, placement: &Placement) -> fmt::Result {
    let mut cpus: Vec<(Cpu, usize)> =
        machine.cpus().iter().map(|cpu| (machine.cpu(cpu), cpu)).collect();
    cpus.sort_by_key(|(at, cpu)| {
        (at.package, at.node, at.die, at.cluster, at.core, at.thread, *cpu)
    });
    let groups_of = |cpu: usize| {
        let has = |group: &usize| placement.group(*group).contains(cpu);
        let groups: Vec<_> = (0..placement.groups()).filter(has).collect();
        match groups[..] {
            [] => "-".to_owned(),
            [one] => one.to_string(),
            [one, two] => format!("{one},{two}"),
            _ => format!("x{}", groups.len()),
        }
    };
    let core = |at: Cpu| (at.die, at.cluster, at.core);
    for node in cpus.chunk_by(|(a, _), (b, _)| (a.package, a.node) == (b.package, b.node)) {
        writeln!(out, "  package {}, node {}", node[0].0.package, node[0].0.node)?;
        for row in node.chunks(ROW) {
            let (mut numbers, mut groups) = (String::new(), String::new());
            for together in row.chunk_by(|(a, _), (b, _)| core(*a) == core(*b)) {
                numbers.push_str(" |");
                groups.push_str("  ");
                for &(_, cpu) in together {
                    write!(numbers, "{cpu:>4}")?;
                    write!(groups, "{:>4}", groups_of(cpu))?;
                }
            }
            writeln!(out, "    CPU  {numbers} |\n    group{groups}")?;
        }
        let capacities: Vec<_> = node.iter().map(|(at, _)| at.capacity).collect();
        write_capacities(out, &capacities)?;
    }
    writeln!(out)
}

fn write_capacities(out: &mut String, capacities: &[u32]) -> fmt::Result {
    match (capacities.iter().min(), capacities.iter().max()) {
        (None | Some(0), _) | (_, None) => Ok(()),
        (Some(weakest), Some(strongest)) if weakest == strongest => {
            writeln!(out, "    capacity {weakest}")
        }
        (Some(weakest), Some(strongest)) => writeln!(out, "    capacity {weakest} to {strongest}"),
    }
}

fn write_table(out: &mut String, placement: &Placement, workers: BaseWorkers) -> fmt::Result {
    let groups = 0..placement.groups();
    let texts = groups.clone().map(|group| placement.group(group).to_string().len());
    let width = texts.max().unwrap_or(0).max("CPUs".len());
    writeln!(out, "  group  {:width$}  {} base workers", "CPUs", placement.threads())?;
    for group in groups {
        let base = match workers {
            BaseWorkers::OneCpuEach => {
                let cpu = |thread| placement.worker(group, thread).to_string();
                (0..placement.threads()).map(cpu).collect::<Vec<_>>().join(" | ")
            }
            _ => "on all of them".to_owned(),
        };
        writeln!(out, "  {group:<5}  {:width$}  {base}", placement.group(group))?;
    }
    writeln!(out)
}

fn multi(text: &str) -> Result<BaseWorkers, String> {
    match text {
        "on" => Ok(BaseWorkers::ShareCpus),
        "off" => Ok(BaseWorkers::OneCpuEach),
        _ => Err(format!("{text} is neither on nor off")),
    }
}

//! What the section says.

use super::{Answers, BURN, CONTENTIONS, GROUPS, Pair, SHAPES, THINK};
use crate::model::costs::Costs;
use crate::model::shapes::{Predicted, Shape};
use crate::report::{Axis, Block, Chart, Scale, Series};
use crate::table::{Table, or_dash, time};

/// `cpus`: those of this machine, and how many of them other work has taken meanwhile.
pub(super) fn blocks(
    costs: &Costs,
    pairs: &[Pair],
    answers: &Answers,
    (cpus, others): (usize, f64),
) -> Vec<Block> {
    let text = |text: &str| Block::Text(text.to_owned());
    let mut blocks = vec![
        text(INTRODUCTION),
        text("### Costs"),
        Block::Table(cost_table(costs)),
        Block::Text(format!(
            "### Held against this machine\n\nOn its {cpus} CPUs, with the load's thread among the \
             threads that are simulated. Errors are those of the model. Rows that are *fitted* are \
             what the costs come from; the others are predictions. Other work took up to {others:.2} \
             CPUs meanwhile, which the model knows nothing of{}.",
            if others > QUIET {
                ": **these errors are those of a machine that was not quiet**"
            } else {
                ""
            }
        )),
        Block::Table(pair_table(pairs)),
        Block::Text(misses(pairs)),
        Block::Text(format!(
            "### Larger machines\n\nClients are elsewhere, {} away on average, network there and back \
             and their own work (exponential); one request in flight on each connection. Burning: one \
             request in {:.0} takes {} more, and nobody knows which. `epoll-group` has a group for 4 \
             cores; in brackets, how many pollers its calm groups settle at. Requests per second, and \
             p99.",
            time(THINK as f64),
            1.0 / BURN.chance,
            time(BURN.cost as f64),
        )),
    ];
    let widest = answers.clients[answers.clients.len() - 1];
    let middle = answers.clients[answers.clients.len() / 2];
    blocks.extend([
        Block::Chart(throughput_chart(answers, "throughput", widest, false)),
        Block::Chart(throughput_chart(answers, "throughput-burning", widest, true)),
        Block::Chart(p99_chart(answers, "p99", middle, false)),
        Block::Chart(p99_chart(answers, "p99-burning", middle, true)),
    ]);
    for &clients in &answers.clients {
        for burns in [false, true] {
            let what = if burns { ", some requests burn" } else { "" };
            blocks.push(Block::Text(format!("**{clients} connections{what}**")));
            blocks.push(Block::Table(answer_table(answers, clients, burns)));
        }
    }
    blocks.push(text(EAGER));
    blocks.push(Block::Table(eager_table(answers)));
    blocks.push(Block::Text(format!(
        "What the assumed contention changes, at 104 cores and {widest} connections (each core adds \
         this part to every cost):"
    )));
    blocks.push(Block::Table(contention_table(answers)));
    blocks.push(text(ASSUMPTIONS));
    blocks
}

/// More CPUs than this for other work, and a comparison says little.
const QUIET: f64 = 0.1;

const INTRODUCTION: &str = "\
A simulation of queues, the threads that serve them and the cores that these need \
(`src/model/sim.rs`); its tests hold it against M/M/1, M/D/1, mean value analysis of a closed \
system and a birth-death process of four servers. It knows four shapes: a loop for each core \
(`limit`), groups of 4 workers that share an epoll (`epoll-group`), loops that hand over to \
workers and get the answer back (`easy-async`), and a thread for each connection and each session \
(`thread-per-session`). It is fitted to these servers on one CPU, with costs of queues and wake-ups \
that are measured apart, and two numbers that are assumed; the table says which.";

const EAGER: &str = "\
**What one poller in a calm group costs**\n\nA calm group has one poller until its batches are full. \
This is the group as it is beside one whose workers all take whatever is there, at the same \
costs: what the library could win at most, on CPUs of its own, by calling further pollers sooner. (On \
CPUs shared with the clients it would lose, see the guide.)";

const ASSUMPTIONS: &str = "\
### Assumptions, and what would contradict them

`compare --only scaling,model` on a machine with more CPUs gives the numbers to look for: there \
the load has half of the CPUs, so the server's CPUs are half of the machine.

1. *The kernel's part of a request costs the same on every core*, but for what the contention adds: \
   no bottleneck in the network card, its interrupts, connection tracking or memory. Contradicted \
   when `limit` at n CPUs has a CPU time per request clearly above (1 + 0.002 n) times that at 1 CPU, \
   in the table of `scaling`; up to (1 + 0.01 n) the table of contention above says what follows, \
   beyond it put the contention that fits in place of the one assumed.
2. *All threads that take from one epoll meet at nothing but the time in the list of costs (each event \
   of it).* Contradicted when CPU time per request of `epoll-group` on 4 CPUs (one group) exceeds \
   1.1 times that of `limit` on 4 CPUs by more than it does on 1 CPU.
3. *A calm group with full batches finds out how many pollers it needs.* On 2 CPUs that are shared \
   with the load it needs one, so this was never seen to happen. Contradicted when `epoll-group` on \
   4 CPUs of 8 or more, 1 024 connections, does less than 0.8 of the requests of `limit`.
4. *A calm group whose batches are not full has one poller*, as the library does it: with few \
   connections for each group it uses one core, and its p99 is that of one loop for 4 cores' \
   connections. Contradicted when at n CPUs and 8 n connections `epoll-group` uses more than 0.3 n \
   CPUs (column CPUs busy).
5. *Connections fall to loops and groups by chance*, one by one (`SO_REUSEPORT`). Contradicted when \
   `ss -tn` shows loops whose numbers of connections differ by clearly more or less than their root.
6. *Threads run to the end of their slice (3 ms)*, a woken one waits for a core in its turn; a core \
   that is free is found at once, and moving costs nothing. The kernel may let a woken thread \
   preempt another. This is why p99 on the CPUs shared with the load is not to be trusted.
7. *A lookout sees a stuck worker between 0.5 and 1 ms after it began; then all workers take one event \
   at a time until it is done.* The 20 ms for which a group stays open after that are left out. \
   Contradicted when with `--heavy 4:2000` on 4 CPUs and more p99 of the light ones exceeds 2 ms.
8. *The costs of a hand-over are those of one CPU*, where both ends share its caches. Between cores, \
   and more so between sockets, they are higher: `easy-async` and `thread-per-session` will do worse \
   than predicted. Contradicted when their CPU time per request does not grow from 1 CPU to all.
9. *No memory is missed.* 16 384 connections may fall out of the caches; stacks and switches between \
   thousands of threads cost more than a wake-up. `thread-per-session` is asked up to 1 024 connections.";

fn cost_table(costs: &Costs) -> Table {
    let mut table = Table::new(&["cost", "value", "from"]);
    for (name, cost) in costs.list() {
        let value = match name {
            "added by each further core" | "part that varies" => {
                format!("{:.1} %", cost.value * 100.0)
            }
            _ => time(cost.value),
        };
        table.row(vec![name.to_owned(), value, cost.source.clone()]);
    }
    table
}

fn error(model: f64, measured: f64) -> String {
    format!("{:+.0} %", (model / measured - 1.0) * 100.0)
}

fn pair_table(pairs: &[Pair]) -> Table {
    let mut table = Table::new(&[
        "server",
        "CPUs",
        "connections",
        "requests/s",
        "model",
        "error",
        "CPU/request",
        "model",
        "error",
        "p99",
        "model",
        "error",
        "",
    ]);
    for pair in pairs {
        let model = &pair.model;
        table.row(vec![
            SHAPES[pair.place].1.to_owned(),
            pair.cpus.to_string(),
            pair.connections.to_string(),
            format!("{:.0}", pair.throughput),
            format!("{:.0}", model.throughput),
            error(model.throughput, pair.throughput),
            time(pair.cpu),
            time(model.cpu),
            error(model.cpu, pair.cpu),
            time(pair.p99),
            time(model.p99),
            error(model.p99, pair.p99),
            (if pair.fitted { "fitted" } else { "" }).to_owned(),
        ]);
    }
    table
}

/// Median and largest error of what was predicted.
fn misses(pairs: &[Pair]) -> String {
    let predicted: Vec<_> = pairs.iter().filter(|pair| !pair.fitted).collect();
    let of = |error: fn(&Pair) -> f64| {
        let mut errors: Vec<_> = predicted.iter().map(|pair| (error(pair).abs(), *pair)).collect();
        errors.sort_by(|one, other| one.0.total_cmp(&other.0));
        match (errors.get(errors.len() / 2), errors.last()) {
            (Some((median, _)), Some((most, pair))) => format!(
                "{:.0} % in the median, {:.0} % at most ({} on {} CPUs, {} connections)",
                median * 100.0,
                most * 100.0,
                SHAPES[pair.place].1,
                pair.cpus,
                pair.connections
            ),
            _ => "nothing was predicted".to_owned(),
        }
    };
    format!(
        "Where it was not fitted the model misses throughput by {}, CPU time by {}, and p99 by {}. \
         What it does not know: which thread the kernel's scheduler lets preempt which, that on the way to sleep nobody waits for \
         the one who goes, and that a server and a load that alternate on a CPU keep or lose its caches. The share of server \
         and load on common CPUs decides throughput and p99 here; where the load has CPUs of its \
         own it does not.",
        of(|pair| pair.model.throughput / pair.throughput - 1.0),
        of(|pair| pair.model.cpu / pair.cpu - 1.0),
        of(|pair| pair.model.p99 / pair.p99 - 1.0),
    )
}

fn answer_table(answers: &Answers, clients: usize, burns: bool) -> Table {
    let mut heading = vec!["cores"];
    heading.extend(SHAPES.iter().map(|(_, server, _)| *server));
    let mut table = Table::new(&heading);
    for &cores in &answers.cores {
        let mut row = vec![cores.to_string()];
        row.extend(SHAPES.iter().enumerate().map(|(place, (shape, ..))| {
            let answer = answers.find(place, cores, clients, burns);
            or_dash(answer.map(|answer| cell(*shape, answer)))
        }));
        table.row(row);
    }
    table
}

fn cell(shape: Shape, answer: &Predicted) -> String {
    let text = format!("{}, {}", rate(answer.throughput), time(answer.p99));
    if shape == Shape::Groups { format!("{text} [{}]", answer.pollers) } else { text }
}

/// `123 k` or `1.23 M`.
fn rate(per_second: f64) -> String {
    if per_second < 999_500.0 {
        format!("{:.0} k", per_second / 1e3)
    } else {
        format!("{:.2} M", per_second / 1e6)
    }
}

fn contention_table(answers: &Answers) -> Table {
    let names = CONTENTIONS.map(|contention| format!("{:.1} %", contention * 100.0));
    let mut heading = vec!["server"];
    heading.extend(names.iter().map(String::as_str));
    let mut table = Table::new(&heading);
    for (place, (_, server, _)) in SHAPES.iter().enumerate() {
        let of = |contention: f64| {
            let mut all = answers.all.iter();
            all.find(|(question, _)| {
                question.place == place && question.contention == Some(contention)
            })
        };
        let cell = |contention| match of(contention) {
            Some((_, answer)) => format!("{}, {}", rate(answer.throughput), time(answer.p99)),
            None => "–".to_owned(),
        };
        let mut row = vec![(*server).to_owned()];
        row.extend(CONTENTIONS.map(cell));
        table.row(row);
    }
    table
}

/// Each group as it is, then eager.
fn eager_table(answers: &Answers) -> Table {
    let mut names = Vec::new();
    for &clients in &answers.clients {
        for what in ["", ", burning"] {
            names.push(format!("{clients}{what}: as it is"));
            names.push("all take".to_owned());
        }
    }
    let mut heading = vec!["cores"];
    heading.extend(names.iter().map(String::as_str));
    let mut table = Table::new(&heading);
    for &cores in &answers.cores {
        let mut row = vec![cores.to_string()];
        for &clients in &answers.clients {
            for burns in [false, true] {
                let as_it_is = answers.find(GROUPS, cores, clients, burns);
                for answer in [as_it_is, answers.find_eager(cores, clients, burns)] {
                    row.push(
                        answer.map_or_else(
                            || "–".to_owned(),
                            |answer| cell(Shape::EagerGroups, answer),
                        ),
                    );
                }
            }
        }
        table.row(row);
    }
    table
}

fn throughput_chart(answers: &Answers, name: &'static str, clients: usize, burns: bool) -> Chart {
    let y = Axis { label: "requests per second", scale: Scale::Linear };
    chart(answers, (name, "Throughput"), y, (clients, burns), |answer| answer.throughput)
}

fn p99_chart(answers: &Answers, name: &'static str, clients: usize, burns: bool) -> Chart {
    let y = Axis { label: "p99, µs", scale: Scale::Logarithmic };
    chart(answers, (name, "p99"), y, (clients, burns), |answer| answer.p99 / 1e3)
}

fn chart(
    answers: &Answers,
    (name, title): (&'static str, &str),
    y: Axis,
    (clients, burns): (usize, bool),
    value: fn(&Predicted) -> f64,
) -> Chart {
    let series = SHAPES.iter().enumerate().filter_map(|(place, (_, server, most))| {
        let point = |&cores: &u32| {
            let answer = answers.find(place, cores, clients, burns)?;
            Some((f64::from(cores), value(answer)))
        };
        let points = answers.cores.iter().filter_map(point).collect();
        (clients <= *most).then(|| Series { name: (*server).to_owned(), points })
    });
    let what = if burns { ", some requests burn" } else { "" };
    Chart {
        name,
        title: format!("{title}, predicted, {clients} connections{what}"),
        x: Axis { label: "cores", scale: Scale::Linear },
        y,
        series: series.collect(),
    }
}

#[cfg(test)]
pub(super) fn text_of(block: &Block) -> String {
    match block {
        Block::Text(text) => text.clone(),
        Block::Table(table) => table.to_string(),
        Block::Chart(chart) => chart.title.clone(),
    }
}

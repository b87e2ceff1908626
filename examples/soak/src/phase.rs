//! One phase: hazards at work, then a quiet time, and the checks of both.
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use lab::abuse::{Course, Tally};
use lab::faults::Script;

use crate::account::Account;
use crate::check;
use crate::child::TUNABLES;
use crate::hazard::{ECHO, Hazard, Item, PROXY, SERVERS};
use crate::load::{Road, Seat};
use crate::server::{Counts, Usage};
use crate::world::World;

/// Length and strength of a phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) time: Duration,
    pub(crate) seed: u64,
    /// Largest number of attackers of one kind.
    pub(crate) most_peers: u64,
    /// Longest time that a server is frozen or a data node is away.
    pub(crate) most_away: Duration,
}

/// Deadline by which a data node that came back is in use again.
const RECOVERED_WITHIN: Duration = Duration::from_secs(20);

/// Result of a phase.
pub(crate) struct Outcome {
    /// Requests of the load, by server.
    pub(crate) direct: Vec<Account>,
    pub(crate) relayed: Vec<Account>,
    pub(crate) churned: Vec<Account>,
    pub(crate) attacks: Vec<(Item, usize, Tally)>,
    pub(crate) usage: Vec<Usage>,
    /// Counters of the servers at the beginning and at the end.
    pub(crate) before: Vec<Counts>,
    pub(crate) after: Vec<Counts>,
    pub(crate) problems: Vec<String>,
}

/// Results of the threads of a phase.
#[derive(Default)]
struct Notes {
    relayed: Vec<Account>,
    churned: Vec<Account>,
    attacks: Vec<(Item, usize, Tally)>,
    problems: Vec<String>,
}

/// Tunables that are live, and values for them.
const CHANGES: &[(&str, [&str; 2])] = &[
    ("tasks_per_poll", ["1", "1024"]),
    ("session_budget", ["1", "1000"]),
    ("read_budget_bytes", ["4KiB", "1MiB"]),
    ("epoll_events_per_thread", ["1", "16"]),
    ("dynamic_threads", ["0", "8"]),
    ("write_high_watermark_bytes", ["300KiB", "4MiB"]),
    ("accept_budget", ["1", "500"]),
    ("enable_perf_hist", ["on", "off"]),
    ("big_buf_release_after", ["10ms", "500ms"]),
    ("thread_scale_thresh", ["0", "2"]),
    ("tasker_multiply", ["1", "3"]),
    ("max_waiting_writers", ["1", "8"]),
];

/// Runs a phase to the end of its quiet time.
pub(crate) fn run(
    world: &mut World,
    items: &[Item],
    plan: Plan,
) -> Result<Outcome, Box<dyn Error>> {
    let counts = |world: &World| -> Result<Vec<Counts>, Box<dyn Error>> {
        world.servers.iter().map(crate::server::Server::counts).collect()
    };
    let before = counts(world)?;
    for item in items {
        if let Hazard::Network(network) = item.hazard {
            world.relays[item.server].follow(network.script(plan.seed));
        }
    }
    let mut seats = std::mem::take(&mut world.direct);
    let (direct, notes) = work(world, items, plan, &mut seats)?;
    world.direct = seats;
    for relay in &world.relays {
        relay.follow(Script::clean());
        relay.cut_all();
    }
    let Notes { relayed, churned, attacks, problems } = notes;
    let mut outcome = Outcome {
        direct,
        relayed,
        churned,
        attacks,
        usage: Vec::new(),
        before,
        after: Vec::new(),
        problems,
    };
    if items.iter().any(|item| matches!(item.hazard, Hazard::Kill)) {
        let (account, problem) = recovered(world)?;
        outcome.churned[PROXY].add(&account);
        outcome.problems.extend(problem);
    }
    for server in 0..SERVERS {
        let (counts, left) = world.settle(server)?;
        outcome.after.push(counts);
        outcome.problems.extend(left);
        outcome.usage.push(world.usage(server)?);
    }
    let found = check::phase(world, items, &outcome);
    outcome.problems.extend(found);
    Ok(outcome)
}

/// Checks that the proxy answers again by itself after a data node came back. Returns the requests that
/// were made for it, and the problem if it does not answer.
fn recovered(world: &World) -> Result<(Account, Option<String>), Box<dyn Error>> {
    let mut seat = Seat::sql(world.client(PROXY, Road::Direct)?, Road::Direct);
    let (began, mut random, mut in_a_row) = (Instant::now(), Rng::with_seed(0), 0);
    let mut all = Account::default();
    // One hundred requests reach each data node and each connection that its pool has kept.
    while in_a_row < 100 {
        let account = seat.once(&mut random);
        all.add(&account);
        in_a_row = if account.failures() == 0 { in_a_row + 1 } else { 0 };
        if began.elapsed() > RECOVERED_WITHIN {
            let what = account.first.unwrap_or_default();
            let problem = format!("proxy: not whole {RECOVERED_WITHIN:?} after a kill: {what}");
            return Ok((all, Some(problem)));
        }
        if account.failures() > 0 {
            pause(Duration::from_millis(50));
        }
    }
    Ok((all, None))
}

/// Runs hazards and load at the same time.
fn work(
    world: &World,
    items: &[Item],
    plan: Plan,
    seats: &mut [Vec<Seat>],
) -> Result<(Vec<Account>, Notes), Box<dyn Error>> {
    let stop = AtomicBool::new(false);
    let mut notes = Notes::default();
    notes.relayed.resize_with(SERVERS, Account::default);
    notes.churned.resize_with(SERVERS, Account::default);
    let notes = Mutex::new(notes);
    let mut relayed =
        (0..SERVERS).map(|server| world.relayed(server)).collect::<Result<Vec<_>, _>>()?;
    let direct = thread::scope(|scope| {
        let (stop, notes) = (&stop, &notes);
        let mut asking = Vec::new();
        for (server, seats) in seats.iter_mut().enumerate() {
            for (number, seat) in seats.iter_mut().enumerate() {
                let mut random = Rng::with_seed(plan.seed ^ (server * 100 + number) as u64);
                asking.push((server, scope.spawn(move || seat.ask(&mut random, stop))));
            }
        }
        for (server, seats) in relayed.iter_mut().enumerate() {
            for (number, seat) in seats.iter_mut().enumerate() {
                let mut random = Rng::with_seed(plan.seed ^ (1000 + server * 100 + number) as u64);
                scope.spawn(move || {
                    let account = seat.ask(&mut random, stop);
                    notes.lock().expect("no panic").relayed[server].add(&account);
                });
            }
        }
        for (number, &item) in items.iter().enumerate() {
            let random = Rng::with_seed(plan.seed ^ (5000 + number) as u64);
            scope.spawn(move || {
                if let Err(error) = bring_about(world, item, plan, random, stop, notes) {
                    let name = world.servers[item.server].name;
                    let text = format!("{} for {name}: {error}", item.hazard);
                    notes.lock().expect("no panic").problems.push(text);
                }
            });
        }
        thread::sleep(plan.time);
        stop.store(true, Ordering::Relaxed);
        let mut direct = vec![Account::default(); SERVERS];
        for (server, thread) in asking {
            direct[server].add(&thread.join().expect("a seat does not panic"));
        }
        direct
    });
    drop(relayed);
    Ok((direct, notes.into_inner().expect("no panic")))
}

/// Runs one hazard until `stop` is set or the hazard is over.
fn bring_about(
    world: &World,
    item: Item,
    plan: Plan,
    mut random: Rng,
    stop: &AtomicBool,
    notes: &Mutex<Notes>,
) -> Result<(), Box<dyn Error>> {
    match item.hazard {
        // The relay follows its script.
        Hazard::Network(_) => {}
        Hazard::Abuse(abuse) => {
            let most = (abuse.peers as u64).min(plan.most_peers);
            let peers = random.u64(most / 4 + 1..=most) as usize;
            let course = Course { peers, seed: plan.seed, stop };
            let tally = abuse.run(&world.target(item.server), &course);
            notes.lock().expect("no panic").attacks.push((item, peers, tally));
        }
        Hazard::Churn => {
            let account = churn(world, item.server, &mut random, stop)?;
            notes.lock().expect("no panic").churned[item.server].add(&account);
        }
        Hazard::Freeze => {
            let server = &world.servers[item.server];
            pause(plan.time / 8);
            server.signal("STOP")?;
            pause(away(plan, &mut random));
            server.signal("CONT")?;
        }
        Hazard::Kill => {
            let node = &world.nodes[random.usize(..world.nodes.len())];
            pause(plan.time / 8);
            node.kill();
            pause(away(plan, &mut random));
            start_again(node)?;
        }
        Hazard::Reconfigure => {
            let server = &world.servers[item.server];
            // One tunable differs at a time: a runtime keeps each configuration that it has had, and
            // all combinations would be as many as it may keep.
            while !stop.load(Ordering::Relaxed) {
                let (name, values) = CHANGES[random.usize(..CHANGES.len())];
                server.ask(&format!("set {name} {}", values[usize::from(random.bool())]))?;
                pause(Duration::from_millis(10));
                server.ask(&format!("set {name} {}", usual(name)))?;
            }
        }
    }
    Ok(())
}

fn away(plan: Plan, random: &mut Rng) -> Duration {
    let most = plan.most_away.as_millis() as u64;
    Duration::from_millis(random.u64(most / 4..most))
}

fn pause(time: Duration) {
    thread::sleep(time);
}

/// Starts a node again. Its port may be taken for a moment by connections that it had open.
fn start_again(node: &crate::server::Server) -> Result<(), Box<dyn Error>> {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        match node.start_again() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => pause(Duration::from_millis(50)),
        }
    }
}

/// Returns the value of a tunable outside of changes.
fn usual(name: &str) -> String {
    let own = TUNABLES.iter().find(|(tunable, _)| *tunable == name);
    let default = || epoll_group::Config::default().get(name).unwrap_or_default();
    own.map_or_else(default, |(_, value)| (*value).to_owned())
}

/// Lets clients connect, ask a little, and leave.
fn churn(
    world: &World,
    server: usize,
    random: &mut Rng,
    stop: &AtomicBool,
) -> Result<Account, Box<dyn Error>> {
    let mut account = Account::default();
    while !stop.load(Ordering::Relaxed) {
        let mut seat = if server == ECHO {
            Seat::echo(world.servers[server].address, Road::Direct)
        } else {
            Seat::sql(world.client(server, Road::Direct)?, Road::Direct)
        };
        for _ in 0..random.u32(2..6) {
            account.add(&seat.once(random));
        }
    }
    Ok(account)
}

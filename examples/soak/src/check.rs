//! Checks of every phase and of a run.
#![forbid(unsafe_code)]

use crate::account::Account;
use crate::hazard::{ECHO, Hazard, Item, Network, SERVERS};
use crate::phase::Outcome;
use crate::slope::Slope;
use crate::world::World;

/// Growth of memory that a run may show beyond the error of the slope: bytes, or a share of the
/// memory. The larger one counts.
const GROWTH_BYTES: f64 = (4 << 20) as f64;
const GROWTH_PART: f64 = 0.05;
/// Least number of samples for a verdict on memory.
const LEAST_SAMPLES: usize = 8;

/// Returns the problems of a phase.
pub(crate) fn phase(world: &World, items: &[Item], outcome: &Outcome) -> Vec<String> {
    let mut problems = Vec::new();
    for server in 0..SERVERS {
        let name = world.servers[server].name;
        let mut add = |problem: String| problems.push(format!("{name}: {problem}"));
        accounts(items, server, outcome, &mut add);
        executed(items, server, outcome, &mut add);
        for counter in ["panics", "request_panics", "closed_panic", "relays_refused"] {
            let count = rise(outcome, server, counter);
            if count > 0 {
                add(format!("{counter} rose by {count}"));
            }
        }
        let Some(base) = world.base(server) else { continue };
        let (usage, base) = (outcome.usage[server], base.usage);
        let slack = World::slack(server);
        if usage.descriptors > base.descriptors + slack {
            add(format!("{} descriptors, at first {}", usage.descriptors, base.descriptors));
        }
        if usage.threads > base.threads {
            add(format!("{} threads, at first {}", usage.threads, base.threads));
        }
    }
    for (item, _, tally) in &outcome.attacks {
        if !tally.is_even() {
            problems.push(format!("{}: the attackers lost count, {tally:?}", item.hazard));
        }
    }
    problems
}

fn road_is(items: &[Item], server: usize, which: impl Fn(&Network) -> bool) -> bool {
    meets(items, server, |hazard| matches!(hazard, Hazard::Network(network) if which(network)))
}

fn meets(items: &[Item], server: usize, which: impl Fn(Hazard) -> bool) -> bool {
    items.iter().any(|item| item.server == server && which(item.hazard))
}

/// Checks the accounts of the clients.
fn accounts(items: &[Item], server: usize, outcome: &Outcome, add: &mut impl FnMut(String)) {
    let (direct, relayed, churned) =
        (&outcome.direct[server], &outcome.relayed[server], &outcome.churned[server]);
    let killed = meets(items, server, |hazard| matches!(hazard, Hazard::Kill));
    let corrupted = road_is(items, server, |network| network.corrupts);
    let attacked = meets(items, server, |hazard| matches!(hazard, Hazard::Abuse(_)));
    for (who, account) in [("direct", direct), ("relayed", relayed), ("churned", churned)] {
        if !account.is_even() {
            add(format!("{who}: requests without an outcome, {account:?}"));
        }
    }
    let first = |account: &Account| account.first.clone().unwrap_or_default();
    for (who, account) in [("direct", direct), ("churned", churned)] {
        if account.wrong > 0 {
            add(format!("{who}: {} wrong answers, first {}", account.wrong, first(account)));
        }
    }
    if relayed.wrong > 0 && !corrupted {
        add(format!("relayed: {} wrong answers, first {}", relayed.wrong, first(relayed)));
    }
    // Clients that were there before the attack are served, though perhaps late. New ones may be refused.
    let late = |kind: &str| attacked && ["deadline", "error 3024"].contains(&kind);
    if direct.errors.keys().any(|kind| !late(kind)) && !killed {
        add(format!("direct: {:?}, first {}", direct.errors, first(direct)));
    }
    if churned.failures() > 0 && !killed && !attacked {
        add(format!("churned: {:?}, first {}", churned.errors, first(churned)));
    }
    // Clients behind the relay wait for two seconds, not for thirty.
    let away =
        killed || attacked || meets(items, server, |hazard| matches!(hazard, Hazard::Freeze));
    let lossy = away || road_is(items, server, |network| network.loses);
    if relayed.failures() > 0 && !lossy {
        add(format!("relayed: {:?}, first {}", relayed.errors, first(relayed)));
    }
    if direct.answered == 0 {
        add("no answer".to_owned());
    }
}

/// Checks the number of executed requests: answered <= executed <= answered + refused + unknown.
fn executed(items: &[Item], server: usize, outcome: &Outcome, add: &mut impl FnMut(String)) {
    let counter = if server == ECHO { "frames_answered" } else { "requests_executed" };
    let executed = rise(outcome, server, counter);
    let mut all = Account::default();
    for account in [&outcome.direct[server], &outcome.relayed[server], &outcome.churned[server]] {
        all.add(account);
    }
    // The attackers' own counts give no bound: a request of theirs may be a ping, or half a login.
    let attacked = outcome.attacks.iter().any(|(item, ..)| item.server == server);
    if road_is(items, server, |network| network.corrupts) {
        return;
    }
    if executed < all.answered {
        add(format!("{} requests were answered, but {executed} executed", all.answered));
    }
    let most = all.answered + all.refused + all.unknown;
    if !attacked && executed > most {
        add(format!("{executed} requests were executed, but {most} asked"));
    }
}

fn rise(outcome: &Outcome, server: usize, counter: &str) -> u64 {
    outcome.after[server].get(counter) - outcome.before[server].get(counter)
}

/// Returns the growth of memory from samples of (seconds, bytes), and the problem if it is too much.
pub(crate) fn memory(samples: &[(f64, f64)]) -> Option<(Slope, Option<String>)> {
    let slope = Slope::of(samples).filter(|_| samples.len() >= LEAST_SAMPLES)?;
    let (first, last) = (samples.first()?, samples.last()?);
    let time = last.0 - first.0;
    let mean = samples.iter().map(|sample| sample.1).sum::<f64>() / samples.len() as f64;
    let limit = GROWTH_BYTES.max(GROWTH_PART * mean);
    let grown = slope.least() * time;
    let problem = (grown > limit)
        .then(|| format!("it grew by at least {grown:.0} bytes in {time:.0} s, limit {limit:.0}"));
    Some((slope, problem))
}

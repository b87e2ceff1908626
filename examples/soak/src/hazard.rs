//! [`Hazard`]: a fault or an attack, and the order in which all of them are mixed.
#![forbid(unsafe_code)]

use std::fmt;
use std::time::Duration;

use fastrand::Rng;
use lab::abuse::{self, Abuse};
use lab::faults::{Coalesce, Cut, Faults, How, Mark, Script, Stop};

/// A fault of, or an attack on, one of the servers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hazard {
    Abuse(&'static Abuse),
    Network(&'static Network),
    /// The server process is stopped for a while.
    Freeze,
    /// Clients connect, ask a little, and leave.
    Churn,
    /// Tunables change all the time.
    Reconfigure,
    /// A data node behind the proxy is killed and started again.
    Kill,
}

/// Faults of the road to a server.
#[derive(Debug)]
pub(crate) struct Network {
    name: &'static str,
    up: fn() -> Faults,
    down: fn() -> Faults,
    /// True if answers may be wrong.
    pub(crate) corrupts: bool,
    /// True if requests may get no answer, or none in time.
    pub(crate) loses: bool,
    pub(crate) share: f64,
}

/// A hazard and the server that it is for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) hazard: Hazard,
    pub(crate) server: usize,
}

/// Numbers of the servers.
pub(crate) const ECHO: usize = 0;
pub(crate) const NODE: usize = 1;
pub(crate) const PROXY: usize = 2;
pub(crate) const SERVERS: usize = 3;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn clean() -> Faults {
    Faults::default()
}

fn late() -> Faults {
    Faults { delay: ms(3), jitter: ms(10), ..clean() }
}

fn tiny() -> Faults {
    Faults { chop: Some(3), ..clean() }
}

fn lumps() -> Faults {
    Faults { coalesce: Some(Coalesce { time: ms(15), bytes: 8192 }), ..clean() }
}

fn slow() -> Faults {
    Faults { rate: Some(60_000), ..clean() }
}

fn silent() -> Faults {
    Faults { stop: Some(Stop { at: Mark::Byte(4000), pause: None }), ..clean() }
}

fn pause() -> Faults {
    Faults { stop: Some(Stop { at: Mark::Time(ms(300)), pause: Some(ms(400)) }), ..clean() }
}

fn closed() -> Faults {
    Faults { cut: Some(Cut { at: Mark::Byte(6000), how: How::Close }), chop: Some(900), ..clean() }
}

fn reset() -> Faults {
    Faults { cut: Some(Cut { at: Mark::Byte(9000), how: How::Reset }), ..clean() }
}

fn corrupt() -> Faults {
    Faults { corrupt: 2e-4, ..clean() }
}

const fn network(name: &'static str, up: fn() -> Faults, down: fn() -> Faults) -> Network {
    Network { name, up, down, corrupts: false, loses: false, share: 1.0 }
}

const fn losing(name: &'static str, up: fn() -> Faults, down: fn() -> Faults) -> Network {
    Network { loses: true, ..network(name, up, down) }
}

const NETWORKS: &[Network] = &[
    network("late", late, late),
    network("tiny pieces", tiny, tiny),
    network("lumps", lumps, lumps),
    losing("slow line", slow, slow),
    network("pauses", pause, pause),
    Network { share: 0.5, ..losing("silent up", silent, clean) },
    Network { share: 0.5, ..losing("silent down", clean, silent) },
    losing("closed up", closed, clean),
    losing("closed down", clean, closed),
    losing("reset up", reset, clean),
    losing("reset down", clean, reset),
    Network { corrupts: true, ..losing("corrupted up", corrupt, clean) },
    Network { corrupts: true, ..losing("corrupted down", clean, corrupt) },
];

/// Abuses that make sense for a server without logins, and do not ask it by chance to sleep.
const FOR_ECHO: [&str; 5] =
    ["slowloris", "silent-peers", "connection-churn", "resets-mid-frame", "fins-mid-frame"];

impl Network {
    pub(crate) fn script(&self, seed: u64) -> Script {
        Script { seed, share: self.share, up: (self.up)(), down: (self.down)() }
    }
}

/// Returns every hazard for every server that it makes sense for.
pub(crate) fn all() -> Vec<Item> {
    let mut items = Vec::new();
    for server in 0..SERVERS {
        let mut add = |hazard| items.push(Item { hazard, server });
        for abuse in abuse::ALL {
            if server != ECHO || FOR_ECHO.contains(&abuse.name) {
                add(Hazard::Abuse(abuse));
            }
        }
        for network in NETWORKS {
            // A corrupted frame could ask the echo server to sleep for an hour.
            if server != ECHO || network.name != "corrupted up" {
                add(Hazard::Network(network));
            }
        }
        [Hazard::Freeze, Hazard::Churn, Hazard::Reconfigure].into_iter().for_each(&mut add);
        if server == PROXY {
            add(Hazard::Kill);
        }
    }
    items
}

/// Mixes all hazards, in groups of these sizes. A group has at most one network fault for each server,
/// and does not reconfigure a server that it freezes.
pub(crate) fn mix(random: &mut Rng, sizes: std::ops::RangeInclusive<usize>) -> Vec<Vec<Item>> {
    let mut items = all();
    random.shuffle(&mut items);
    let mut groups = Vec::new();
    while !items.is_empty() {
        let size = random.usize(sizes.clone());
        let mut group: Vec<Item> = Vec::new();
        let mut rest = Vec::new();
        for item in items {
            if group.len() < size && group.iter().all(|other| !other.disturbs(&item)) {
                group.push(item);
            } else {
                rest.push(item);
            }
        }
        groups.push(group);
        items = rest;
    }
    groups
}

impl Item {
    /// True if one of the two would hide the other.
    fn disturbs(&self, other: &Self) -> bool {
        use Hazard::{Freeze, Network, Reconfigure};
        let pair = matches!(
            (self.hazard, other.hazard),
            (Network(_), Network(_)) | (Freeze, Reconfigure) | (Reconfigure, Freeze)
        );
        pair && self.server == other.server
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abuse(abuse) => abuse.name,
            Self::Network(network) => network.name,
            Self::Freeze => "freeze",
            Self::Churn => "churn",
            Self::Reconfigure => "reconfigure",
            Self::Kill => "kill of a data node",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(groups: &[Vec<Item>]) -> Vec<String> {
        let items = groups.iter().flatten();
        items.map(|item| format!("{} {}", item.hazard, item.server)).collect()
    }

    #[test]
    fn a_round_has_every_hazard_once_in_an_order_that_follows_from_the_seed() {
        let groups = mix(&mut Rng::with_seed(7), 2..=4);
        let mut mixed = names(&groups);
        assert_eq!(mixed, names(&mix(&mut Rng::with_seed(7), 2..=4)));
        assert_ne!(mixed, names(&mix(&mut Rng::with_seed(8), 2..=4)));
        let mut all = names(&[all()]);
        all.sort();
        mixed.sort();
        assert_eq!(mixed, all);
        assert!(groups.iter().all(|group| !group.is_empty() && group.len() <= 4));
    }

    #[test]
    fn what_the_echo_server_is_to_stand_has_names_that_there_are() {
        assert!(FOR_ECHO.iter().all(|name| abuse::named(name).is_some()));
    }

    #[test]
    fn a_road_has_one_fault_at_a_time() {
        for group in mix(&mut Rng::with_seed(7), 30..=30) {
            for server in 0..SERVERS {
                let networks = group.iter().filter(|item| {
                    item.server == server && matches!(item.hazard, Hazard::Network(_))
                });
                assert!(networks.count() <= 1);
            }
        }
    }
}

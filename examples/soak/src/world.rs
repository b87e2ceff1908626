//! [`World`]: the servers, the roads to them, and who behaves well.
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use epoll_group::Runtime;
use epoll_group::client::Client;

use crate::child::{PASSWORD, Role, USER};
use crate::hazard::{ECHO, PROXY, SERVERS};
use crate::load::{self, Road, Seat};
use crate::server::{Counts, Server, Usage};
use lab::abuse::Target;
use lab::faults::{Relay, Script};
use tempfile::TempDir;

/// Who asks each server without a detour, and through its relay.
const DIRECT: usize = 4;
const RELAYED: usize = 3;
/// What must be over after a phase is over within this time.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// Connections of the proxy to data nodes come and go with failures: two to each of three endpoints.
const TO_NODES: u64 = 6;

/// Gauges that say whether something of a phase is left.
const GAUGES: [&str; 11] = [
    "connections",
    "closing_connections",
    "unauthenticated_connections",
    "paused_connections",
    "sessions",
    "queued_requests",
    "deferred_requests",
    "waiting_writers",
    "queue_len",
    "dynamic_threads",
    "tasker_threads",
];

/// All that runs.
pub(crate) struct World {
    pub(crate) servers: Vec<Server>,
    pub(crate) relays: Vec<Relay>,
    /// Behind the proxy.
    pub(crate) nodes: Vec<Server>,
    /// By server.
    pub(crate) direct: Vec<Vec<Seat>>,
    /// Of all clients.
    pub(crate) runtime: Runtime,
    base: Vec<Base>,
    /// Goes last.
    _folder: TempDir,
}

/// How a server is when nothing happens.
pub(crate) struct Base {
    gauges: Counts,
    pub(crate) usage: Usage,
}

impl World {
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let folder = TempDir::new()?;
        let node = |name, file: &str| {
            let path = folder.path().join(file);
            Server::start(name, Role::Node { listen: "127.0.0.1:0".to_owned(), path })
        };
        // The stand-by serves the same file.
        let nodes = vec![node("n0", "n0.db")?, node("n0b", "n0.db")?, node("n1", "n1.db")?];
        let address = |node: usize| nodes[node].address.to_string();
        let endpoints = vec![vec![address(0), address(1)], vec![address(2)]];
        let servers = vec![
            Server::start("echo", Role::Echo)?,
            node("node", "node.db")?,
            Server::start("proxy", Role::Proxy(endpoints))?,
        ];
        let runtime = Runtime::builder().name("load").groups(1).threads_per_group(2).start()?;
        let (mut relays, mut direct) = (Vec::new(), Vec::new());
        for (number, server) in servers.iter().enumerate() {
            let listen = "127.0.0.1:0".parse()?;
            relays.push(Relay::start(Script::clean(), &listen, server.address.into())?);
            let seats: Vec<_> = if number == ECHO {
                (0..DIRECT).map(|_| Seat::echo(server.address, Road::Direct)).collect()
            } else {
                let client = load::client(&runtime.handle(), server.address, Road::Direct)?;
                load::fill(&client)?;
                if number != PROXY {
                    load::warm(&client)?;
                }
                (0..DIRECT).map(|_| Seat::sql(client.clone(), Road::Direct)).collect()
            };
            direct.push(seats);
        }
        let base = Vec::new();
        Ok(Self { servers, relays, nodes, direct, runtime, base, _folder: folder })
    }

    /// Where attackers go.
    pub(crate) fn target(&self, server: usize) -> Target {
        Target {
            address: self.servers[server].address,
            logins: server != ECHO,
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            small: "select 1".to_owned(),
            large: "select * from sbtest1".to_owned(),
        }
    }

    /// A client of its own.
    pub(crate) fn client(&self, server: usize, road: Road) -> Result<Client, Box<dyn Error>> {
        let address = match road {
            Road::Direct => self.servers[server].address,
            Road::Relayed => self.relays[server].tcp(),
        };
        Ok(load::client(&self.runtime.handle(), address, road)?)
    }

    /// Seats behind the relay.
    pub(crate) fn relayed(&self, server: usize) -> Result<Vec<Seat>, Box<dyn Error>> {
        if server == ECHO {
            let address = self.relays[server].tcp();
            return Ok((0..RELAYED).map(|_| Seat::echo(address, Road::Relayed)).collect());
        }
        let client = self.client(server, Road::Relayed)?;
        Ok((0..RELAYED).map(|_| Seat::sql(client.clone(), Road::Relayed)).collect())
    }

    /// Takes how it is now for how it must be after each phase.
    pub(crate) fn take_base(&mut self) -> Result<(), Box<dyn Error>> {
        let base = |server: &Server| -> Result<Base, Box<dyn Error>> {
            Ok(Base { gauges: server.counts()?, usage: server.usage()? })
        };
        self.base = self.servers.iter().map(base).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// None before it was taken.
    pub(crate) fn base(&self, server: usize) -> Option<&Base> {
        self.base.get(server)
    }

    /// More descriptors than at first that a server may have when nothing happens.
    pub(crate) const fn slack(server: usize) -> u64 {
        if server == PROXY { TO_NODES } else { 0 }
    }

    /// Waits until nothing of a phase is left: the counts then, and what is left if it stays.
    pub(crate) fn settle(&self, server: usize) -> Result<(Counts, Vec<String>), Box<dyn Error>> {
        let began = Instant::now();
        loop {
            let counts = self.servers[server].counts()?;
            let left = self.left(server, &counts);
            if left.is_empty() || began.elapsed() > SETTLED_WITHIN {
                return Ok((counts, left));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// What a server takes when it has given back what it does not need: a descriptor is closed, and
    /// a thread ends, a moment after it is not counted any more.
    pub(crate) fn usage(&self, server: usize) -> Result<Usage, Box<dyn Error>> {
        let began = Instant::now();
        loop {
            let usage = self.servers[server].usage()?;
            let more = self.base(server).is_some_and(|base| {
                usage.descriptors > base.usage.descriptors + Self::slack(server)
                    || usage.threads > base.usage.threads
            });
            if !more || began.elapsed() > SETTLED_WITHIN {
                return Ok(usage);
            }
            std::thread::sleep(LOOK);
        }
    }

    fn left(&self, server: usize, counts: &Counts) -> Vec<String> {
        let Some(base) = self.base.get(server) else { return Vec::new() };
        let mut left = Vec::new();
        for gauge in GAUGES {
            let slack = if gauge == "connections" { Self::slack(server) } else { 0 };
            let (now, at_first) = (counts.get(gauge), base.gauges.get(gauge));
            if now > at_first + slack {
                let name = self.servers[server].name;
                left.push(format!("{name}: {gauge} is {now}, at first {at_first}"));
            }
        }
        left
    }
}

const _: () = assert!(SERVERS == 3, "echo, node and proxy");

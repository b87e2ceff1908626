//! [`World`]: the servers, the roads to them, and the well-behaved load.
#![forbid(unsafe_code)]

use std::error::Error;
use std::time::{Duration, Instant};

use epoll_group::client::Client;
use epoll_group::{Config, Runtime};

use crate::child::{PASSWORD, Role, USER};
use crate::hazard::{ECHO, NODE, PROXY, SERVERS};
use crate::load::{self, Road, Seat};
use crate::server::{Counts, Server, Usage};
use lab::abuse::Target;
use lab::faults::{Relay, Script};
use tempfile::TempDir;

/// Seats of each server without a detour, and through its relay.
const DIRECT: usize = 4;
const RELAYED: usize = 3;
/// Deadline for the end of all work of a phase.
const SETTLED_WITHIN: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// Connections of the proxy to data nodes come and go with failures: two to each of three endpoints.
const TO_NODES: u64 = 6;
/// The data node keeps up to 64 idle connections to SQLite, each with the file of the database and that of
/// its log. It opens 64 only if as many results are read at the same time, so the base has fewer.
const TO_SQLITE: u64 = 2 * 64;

/// Gauges that are back at their base when nothing of a phase is left.
const GAUGES: [&str; 10] = [
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
];

/// Servers, relays and load of a run.
pub(crate) struct World {
    pub(crate) servers: Vec<Server>,
    pub(crate) relays: Vec<Relay>,
    /// Data nodes behind the proxy.
    pub(crate) nodes: Vec<Server>,
    /// Seats of each server.
    pub(crate) direct: Vec<Vec<Seat>>,
    /// Runtime of all clients.
    pub(crate) runtime: Runtime,
    base: Vec<Base>,
    /// Dropped last, because the nodes have files in it.
    _folder: TempDir,
}

/// State of an idle server.
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
        let nodes_of_proxy = vec![format!("{},{}", address(0), address(1)), address(2)];
        let servers = vec![
            Server::start("echo", Role::Echo)?,
            node("node", "node.db")?,
            Server::start("proxy", Role::Proxy { nodes: nodes_of_proxy })?,
        ];
        let runtime = Runtime::builder()
            .name("load")
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
            .start()?;
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

    /// Returns the target of attackers.
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

    /// Returns a new client.
    pub(crate) fn client(&self, server: usize, road: Road) -> Result<Client, Box<dyn Error>> {
        let address = match road {
            Road::Direct => self.servers[server].address,
            Road::Relayed => self.relays[server].tcp(),
        };
        Ok(load::client(&self.runtime.handle(), address, road)?)
    }

    /// Returns seats behind the relay.
    pub(crate) fn relayed(&self, server: usize) -> Result<Vec<Seat>, Box<dyn Error>> {
        if server == ECHO {
            let address = self.relays[server].tcp();
            return Ok((0..RELAYED).map(|_| Seat::echo(address, Road::Relayed)).collect());
        }
        let client = self.client(server, Road::Relayed)?;
        Ok((0..RELAYED).map(|_| Seat::sql(client.clone(), Road::Relayed)).collect())
    }

    /// Takes the present state as the base for the end of each phase.
    pub(crate) fn take_base(&mut self) -> Result<(), Box<dyn Error>> {
        let base = |server: &Server| -> Result<Base, Box<dyn Error>> {
            Ok(Base { gauges: server.counts()?, usage: server.usage()? })
        };
        self.base = self.servers.iter().map(base).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Returns `None` before the base was taken.
    pub(crate) fn base(&self, server: usize) -> Option<&Base> {
        self.base.get(server)
    }

    /// Descriptors that an idle server may have beyond its base.
    pub(crate) const fn slack(server: usize) -> u64 {
        match server {
            PROXY => TO_NODES,
            NODE => TO_SQLITE,
            _ => 0,
        }
    }

    /// Waits until nothing of a phase is left. Returns the counts then, and a text for each gauge that
    /// is not back at its base.
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

    /// Returns the resources of an idle server. Waits for them, because a descriptor is closed, and a
    /// thread ends, a moment after the gauges have fallen.
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
            let slack = if gauge == "connections" && server == PROXY { TO_NODES } else { 0 };
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

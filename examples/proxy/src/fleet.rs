//! [`Fleet`]: data nodes with their stand-bys and a proxy in front, in this process.
#![forbid(unsafe_code)]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use epoll_group::client::{Client, Options};
use epoll_group::net::Listener;
use epoll_group::pool::Limits;
use epoll_group::{Config, Runtime, session};

use crate::data_node::{DataNode, PASSWORD, SCHEMA, USER};
use crate::nodes::{NodeOptions, Nodes, Patience};
use crate::proxy::Proxy;
use crate::route::{Catalogue, Home};
use tempfile::TempDir;

/// The account of clients at the proxy.
pub const CLIENT: (&str, &str) = ("app", "secret");

/// Longest frame of the proxy. Data nodes take longer ones.
pub const MAX_ALLOWED_PACKET: usize = 1 << 20;

/// Data nodes and a proxy.
pub struct Fleet {
    /// `None`: was killed.
    pub primaries: Vec<Option<DataNode>>,
    _standbys: Vec<DataNode>,
    pub nodes: Arc<Nodes>,
    _closes_nodes: ClosesNodes,
    _listener: Listener,
    pub proxy: Runtime,
    pub address: String,
    /// Dropped last: the data nodes use its files.
    _folder: TempDir,
}

/// Closes the nodes when the fleet ends.
struct ClosesNodes(Arc<Nodes>);

impl Drop for ClosesNodes {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Fleet {
    /// Starts nodes, each with a stand-by over the same file, and a proxy with a few threads.
    pub fn start(nodes: usize, limits: Limits) -> Result<Self, Box<dyn Error>> {
        let patience = Patience {
            limits,
            statement: Duration::from_secs(8),
            silence: Duration::from_millis(500),
        };
        Self::start_with(nodes, patience, |endpoints| endpoints)
    }

    /// Starts a fleet whose proxy connects to the addresses that `through` returns for the
    /// endpoints of a node.
    pub fn start_with(
        nodes: usize,
        patience: Patience,
        through: impl Fn(Vec<String>) -> Vec<String>,
    ) -> Result<Self, Box<dyn Error>> {
        let folder = TempDir::new()?;
        let (mut primaries, mut standbys, mut options) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..nodes {
            let path = folder.path().join(format!("n{number}.db"));
            let primary = DataNode::start(&format!("n{number}"), &path)?;
            let standby = DataNode::start(&format!("n{number}s"), &path)?;
            options.push(NodeOptions {
                name: format!("n{number}"),
                endpoints: through(vec![primary.address.clone(), standby.address.clone()]),
                user: USER.to_owned(),
                password: PASSWORD.to_owned(),
                connections: 2,
            });
            primaries.push(Some(primary));
            standbys.push(standby);
        }
        // No client here half-closes and waits for answers, so a half-closed connection has gone.
        let config = Config::default()
            .max_allowed_packet(MAX_ALLOWED_PACKET)
            .epoll_groups(1)
            .epoll_threads_per_group(4)
            .half_close_timeout(Duration::from_millis(100))
            .dynamic_threads_shrink_time(Duration::from_secs(1));
        let proxy = Runtime::builder().name("proxy").config(config).start()?;
        let nodes = Nodes::new(&proxy.handle(), &options, patience)?;
        let tables = [
            ("sbtest1", Home::Sharded("id".to_owned())),
            ("settings", Home::Node(options.len() - 1)),
            ("countries", Home::Copies),
        ];
        let tables = tables.map(|(name, home)| (name.to_owned(), home)).into();
        // SQLite orders texts by their bytes.
        let catalogue = Catalogue { schema: SCHEMA.to_owned(), tables, texts_by_bytes: true };
        let users = [(CLIENT.0.to_owned(), CLIENT.1.to_owned())];
        let service = Proxy::new(users, Arc::clone(&nodes), catalogue);
        let listener = proxy.listen("127.0.0.1:0", session::Server::new(service))?;
        let address = listener.local_addr().to_string();
        Ok(Self {
            primaries,
            _standbys: standbys,
            _closes_nodes: ClosesNodes(Arc::clone(&nodes)),
            nodes,
            _listener: listener,
            proxy,
            address,
            _folder: folder,
        })
    }

    /// Options of a client of the proxy.
    pub fn options(&self) -> Options {
        Options::new(self.address.as_str(), CLIENT.0).password(CLIENT.1)
    }

    /// A client of the proxy, served by this runtime.
    pub fn client(&self, runtime: &Runtime) -> Result<Client, Box<dyn Error>> {
        Ok(Client::new(&runtime.handle(), self.options())?)
    }

    /// Kills the primary of a node.
    pub fn kill(&mut self, node: usize) {
        if let Some(primary) = self.primaries[node].take() {
            primary.kill();
        }
    }

    /// Sessions that clients have borrowed or hold at data nodes.
    pub fn in_use(&self) -> usize {
        let leaving = |status: &epoll_group::pool::BackendStatus<_>| {
            status.leaving.iter().map(|old| old.in_use).sum::<usize>()
        };
        self.nodes.status().iter().map(|status| status.in_use + leaving(status)).sum()
    }
}

//! [`Nodes`]: the data nodes behind the proxy, and the sessions that it has there.
//!
//! ```text
//!   pool of sessions           clients, one for each endpoint
//!   ┌──────────────┐  connect  ┌────────────────────┐  few TCP connections
//!   │ n0#0  ▒▒▒■■  │──────────▶│ n0: primary        │──────────────▶
//!   │ n1#1  ▒■     │─────┐     ├────────────────────┤
//!   └──────────────┘     └────▶│ n1: primary        │  was given up
//!                              │     stand-by       │──────────────▶
//!                              └────────────────────┘
//! ```
//!
//! A connection of the pool is a session of a data node: a number on a TCP connection of the
//! [`Client`]. A new one costs no round trip.
#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use epoll_group::client::{self, Client, Options, Session};
use epoll_group::pool::{
    Backend, BackendStatus, GetError, Limits, Manage, Observer, Pool, Pooled, Target, Version,
};
use epoll_group::{ConfigError, Handle};

use crate::failover::Probe;

/// The name of a data node. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(pub Arc<str>);

/// A session of a data node, borrowed.
pub type Lease = Pooled<Connect>;

/// Settings of a data node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    pub name: String,
    /// The primary, and its stand-bys.
    pub endpoints: Vec<String>,
    pub user: String,
    pub password: String,
    /// TCP connections to an endpoint.
    pub connections: usize,
}

/// How the proxy deals with data nodes.
#[derive(Clone, Debug)]
pub struct Patience {
    pub limits: Limits,
    /// Longest time for a session of a data node and its answer, together.
    pub statement: Duration,
    /// Longest silence of a data node. After this time the node is asked whether it lives. Without
    /// an answer within the same time it is given up.
    pub silence: Duration,
}

/// All data nodes.
pub struct Nodes {
    list: Vec<Node>,
    pool: Pool<Connect>,
    pub patience: Patience,
    pub handle: Handle,
    next: AtomicUsize,
}

/// A data node.
pub struct Node {
    pub name: Name,
    pub endpoints: Arc<[Endpoint]>,
    backend: Backend<Connect>,
    /// Set while a probe runs.
    pub is_probed: AtomicBool,
}

/// A server of a data node: the primary or a stand-by.
pub struct Endpoint {
    pub address: String,
    pub client: Client,
}

impl Nodes {
    /// Nothing is connected yet. The workers of the runtime serve the connections, and make them.
    pub fn new(
        handle: &Handle,
        nodes: &[NodeOptions],
        patience: Patience,
    ) -> Result<Arc<Self>, NodesError> {
        let endpoints = |node: &NodeOptions| -> Result<(Name, Arc<[Endpoint]>), ConfigError> {
            let endpoints = node.endpoints.iter().map(|address| {
                let options = Options::new(address.as_str(), node.user.as_str())
                    .password(node.password.as_str())
                    .connections(node.connections)
                    // The pool limits the sessions, and a probe needs one beside them.
                    .sessions_per_connection(1 << 20)
                    .request_timeout(patience.statement)
                    .session_timeout(patience.silence)
                    .connect_timeout(patience.silence)
                    .login_timeout(patience.silence)
                    .probe_interval(patience.silence)
                    .probe_timeout(patience.silence);
                let client = Client::new(handle, options)?;
                Ok(Endpoint { address: address.clone(), client })
            });
            Ok((Name(node.name.as_str().into()), endpoints.collect::<Result<_, _>>()?))
        };
        let all = nodes.iter().map(endpoints).collect::<Result<Vec<_>, _>>();
        let all = all.map_err(NodesError::Options)?;
        let watch = Watch::default();
        let pool = Pool::builder(Connect { nodes: all.clone(), silence: patience.silence })
            .observer(watch.clone())
            // The client probes its servers, so the pool does not check its sessions.
            .limits(patience.limits.clone().check_after(Duration::MAX))
            .maintained_by(handle.clone())
            .build()
            .map_err(|error| NodesError::Pool(error.to_string()))?;
        let list = all.into_iter().map(|(name, endpoints)| {
            let backend =
                pool.backend(&name).map_err(|error| NodesError::Pool(error.to_string()))?;
            Ok(Node { name, endpoints, backend, is_probed: AtomicBool::new(false) })
        });
        let list = list.collect::<Result<_, NodesError>>()?;
        let (handle, next) = (handle.clone(), AtomicUsize::new(0));
        let nodes = Arc::new(Self { list, pool, patience, handle, next });
        // The cell is set here alone.
        let _ = watch.nodes.set(Arc::downgrade(&nodes));
        Ok(nodes)
    }

    pub const fn len(&self) -> usize {
        self.list.len()
    }

    pub fn get(&self, node: usize) -> &Node {
        &self.list[node]
    }

    /// A node for a statement that any node can answer. The nodes take turns.
    pub fn any(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed) % self.list.len()
    }

    /// Calls `then` with a session of a node.
    pub fn borrow_then(
        &self,
        node: usize,
        deadline: Instant,
        then: impl FnOnce(Result<Lease, GetError>) + Send + 'static,
    ) {
        self.list[node].backend.get_then(deadline, then);
    }

    /// Starts a probe after an error that may mean the end of this version of a node. The probe
    /// fails over to a stand-by if the server is gone.
    pub fn suspect(self: &Arc<Self>, node: usize, version: Version) {
        let known = &self.list[node];
        let current = known.backend.version() == version;
        if known.endpoints.len() > 1 && current && !known.is_probed.swap(true, Ordering::AcqRel) {
            Probe::start(Arc::clone(self), node, version);
        }
    }

    /// Closes a session that was lost, and suspects its server.
    pub fn lost(self: &Arc<Self>, node: usize, lease: Lease) {
        self.suspect(node, Pooled::version(&lease));
        Pooled::discard(lease);
    }

    /// Fails over by `ahead` versions, to a stand-by that has answered.
    pub fn fail_over(&self, node: usize, from: Version, ahead: usize) {
        let name = &self.list[node].name;
        // Fails if another thread was quicker.
        let _ = (0..ahead).try_fold(from, |from, _| self.pool.fail_over(name, from));
    }

    /// Refuses the statements that wait for a session. Without it they would keep each other and the
    /// pool, because nothing calls them any more when the runtime has ended.
    pub fn close(&self) {
        self.pool.close(Instant::now());
    }

    /// How the nodes stand, in their order.
    pub fn status(&self) -> Vec<BackendStatus<Name>> {
        self.list.iter().map(|node| node.backend.status()).collect()
    }
}

impl Node {
    /// The server of the node at this version.
    pub fn endpoint(&self, version: Version) -> &Endpoint {
        endpoint(&self.endpoints, version)
    }

    /// Current version. It selects the server that is in use.
    pub fn version(&self) -> Version {
        self.backend.version()
    }

    /// Name of the node and address of its server at this version, for texts.
    pub fn at(&self, version: Version) -> At<'_> {
        At { name: &self.name, address: &self.endpoint(version).address }
    }
}

/// `n0 (127.0.0.1:33660)`
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    name: &'a Name,
    address: &'a str,
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.address)
    }
}

fn endpoint(endpoints: &[Endpoint], version: Version) -> &Endpoint {
    let at = version.0 % endpoints.len() as u64;
    &endpoints[at as usize]
}

/// Knows how to get a session of a data node.
pub struct Connect {
    nodes: Vec<(Name, Arc<[Endpoint]>)>,
    /// Longest time for a connect. A server that takes longer is probed, and the pool connects
    /// again meanwhile.
    silence: Duration,
}

impl Manage for Connect {
    type Key = Name;
    type Connection = Session;
    type Error = Box<dyn Error + Send + Sync>;

    fn connect(
        &self,
        target: &Target<'_, Name>,
        deadline: Instant,
    ) -> Result<Session, Self::Error> {
        let known = self.nodes.iter().find(|(name, _)| name == target.key);
        let (_, endpoints) = known.ok_or("there is no such node")?;
        let Endpoint { address, client } = endpoint(endpoints, target.version);
        let left = deadline.saturating_duration_since(Instant::now());
        let session = client.session_within(left.min(self.silence));
        session.map_err(|error| ConnectError { address: address.clone(), error }.into())
    }

    /// An answer that did not come whole would come in the way of the next.
    fn has_broken(&self, _: &Target<'_, Name>, session: &mut Session) -> bool {
        !session.is_idle()
    }
}

/// Starts a probe when a connect fails. A statement that gets no session starts one only at its
/// deadline.
#[derive(Clone, Debug, Default)]
struct Watch {
    nodes: Arc<OnceLock<Weak<Nodes>>>,
}

impl Observer<Name> for Watch {
    fn connect_failed(&self, target: &Target<'_, Name>, _: &(dyn Error + Send + Sync)) {
        let Some(nodes) = self.nodes.get().and_then(Weak::upgrade) else { return };
        if let Some(node) = nodes.list.iter().position(|node| node.name == *target.key) {
            nodes.suspect(node, target.version);
        }
    }
}

/// Why there is no session, and where.
#[derive(Debug)]
struct ConnectError {
    address: String,
    error: client::Error,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.address, self.error)
    }
}

impl Error for ConnectError {}

/// Why there are no nodes.
#[derive(Debug)]
pub enum NodesError {
    Options(ConfigError),
    Pool(String),
}

impl fmt::Display for NodesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(error) => error.fmt(f),
            Self::Pool(error) => f.write_str(error),
        }
    }
}

impl Error for NodesError {}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nodes").field("nodes", &self.list.len()).finish_non_exhaustive()
    }
}

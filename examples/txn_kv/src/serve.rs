//! [`Server`]: a store and its sessions, in this process.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use epoll_group::net::{Address, Listener};
use epoll_group::{Config, DrainReport, Runtime, session};

use crate::design::Design;
use crate::engine::{Disk, Engine, Memory};
use crate::service::KvService;
use crate::store::{Limits, Store};

/// Address, account and store of a server.
///
/// *Shape*: built by its setters. `Debug` hides the password.
#[derive(Clone)]
pub struct Options {
    listen: String,
    user: String,
    password: String,
    engine: Kind,
    design: Design,
    limits: Limits,
    threads: Option<usize>,
}

/// Place of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// In memory: gone with the server.
    #[default]
    Memory,
    /// In a file in this folder, which is made if it is not there.
    Disk(PathBuf),
}

impl Options {
    /// Options of a server on a free port of loopback for this user, with a store in memory and the
    /// default design.
    #[must_use]
    pub fn new(user: impl Into<String>, password: impl Into<String>) -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            user: user.into(),
            password: password.into(),
            engine: Kind::default(),
            design: Design::default(),
            limits: Limits::default(),
            threads: None,
        }
    }

    /// Sets the address, `host:port`. *Default* `127.0.0.1:0`.
    #[must_use]
    pub fn listen(mut self, address: impl Into<String>) -> Self {
        self.listen = address.into();
        self
    }

    /// Sets the place of the records. *Default* in memory.
    #[must_use]
    pub fn engine(mut self, engine: Kind) -> Self {
        self.engine = engine;
        self
    }

    /// Sets the order in which data and index are written. *Default* [`Design::Publish`].
    #[must_use]
    pub const fn design(mut self, design: Design) -> Self {
        self.design = design;
        self
    }

    /// Sets the limits. *Default* as [`Limits`] says.
    #[must_use]
    pub const fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Base workers, in one group. *Default* as the runtime has it: groups of four, for all CPUs.
    #[must_use]
    pub const fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("listen", &self.listen)
            .field("user", &self.user)
            .field("engine", &self.engine)
            .field("design", &self.design)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Disk(_) => "disk",
        })
    }
}

/// A store and its sessions, on a runtime of their own. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _listener: Listener,
    runtime: Runtime,
    /// Goes last: an engine on disk closes its file with it.
    store: Store,
}

impl Server {
    /// Opens the store and listens.
    ///
    /// # Errors
    ///
    /// The engine cannot be opened, or the address is not to be had.
    pub fn start(options: &Options) -> Result<Self, Box<dyn Error>> {
        match &options.engine {
            Kind::Memory => Self::start_on(Memory::default(), options),
            Kind::Disk(folder) => Self::start_on(Disk::open(folder)?, options),
        }
    }

    /// The same on an engine that is open already. The engine of the options then only gives the
    /// name that `status` shows.
    ///
    /// # Errors
    ///
    /// Those of [`start`](Self::start).
    pub fn start_on(engine: impl Engine, options: &Options) -> Result<Self, Box<dyn Error>> {
        let mut builder = Runtime::builder().name("txn_kv");
        if let Some(threads) = options.threads {
            let config = Config::default().epoll_groups(1).epoll_threads_per_group(threads);
            builder = builder.config(config);
        }
        let runtime = builder.start()?;
        let handle = runtime.handle();
        let store = Store::open(engine, options.design, options.limits, Some(handle))?;
        let service = KvService::new(store.clone(), &options.user, &options.password)
            .note("design", options.design)
            .note("engine", &options.engine);
        let listener = runtime.listen(options.listen.as_str(), session::Server::new(service))?;
        let &Address::Tcp(address) = listener.local_addr() else {
            return Err("only TCP is served".into());
        };
        Ok(Self { address, _listener: listener, runtime, store })
    }

    /// Address of the listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The store.
    #[must_use]
    pub const fn store(&self) -> &Store {
        &self.store
    }

    /// The runtime.
    #[must_use]
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Ends the server when all accepted requests are answered, or when the time `deadline` is
    /// over.
    pub fn drain(self, deadline: Duration) -> DrainReport {
        self.runtime.drain(deadline)
    }
}

/// Time for requests in progress to finish after the signal to end.
const DRAIN: Duration = Duration::from_secs(10);

/// Serves until `wait_for_signal` returns the name of one, then drains and says what the store has done.
///
/// # Errors
///
/// Those of [`Server::start`], of `wait_for_signal` and of `out`.
pub fn run(
    options: &Options,
    wait_for_signal: impl FnOnce() -> io::Result<&'static str>,
    out: &mut impl Write,
) -> Result<(), Box<dyn Error>> {
    let server = Server::start(options)?;
    writeln!(out, "listening on {}", server.address())?;
    out.flush()?;
    let signal = wait_for_signal()?;
    writeln!(out, "{signal}: draining")?;
    out.flush()?;
    let store = server.store().clone();
    let report = server.drain(DRAIN);
    writeln!(out, "{report}")?;
    let stats = store.stats();
    writeln!(
        out,
        "revision {}: {} transactions, {} flushes ({:.1} transactions each), {} failed",
        store.revision(),
        stats.transactions,
        stats.flushes,
        stats.per_flush(),
        stats.failed_flushes,
    )?;
    Ok(())
}

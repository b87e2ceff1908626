//! [`DataNode`]: a server of the engine of `select1` in this process, for the demonstration and tests.
//!
//! A stand-by is a second server over the same file. It shows how the proxy fails over, not how a
//! database copies its changes.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use epoll_group::net::Listener;
#[cfg(test)]
use epoll_group::stats::Snapshot;
use epoll_group::{Config, Runtime, session};

use crate::node::{Engine, Options};

/// The account of the proxy at its data nodes.
pub const USER: &str = "proxy";
pub const PASSWORD: &str = "between";
pub const SCHEMA: &str = "sbtest";

/// A data node, until it is dropped or killed.
#[derive(Debug)]
pub struct DataNode {
    _listener: Listener,
    runtime: Runtime,
    pub address: String,
}

impl DataNode {
    /// Serves the database in this file, made if there is none, on loopback.
    pub fn start(name: &str, path: &Path) -> Result<Self, Box<dyn Error>> {
        let runtime = Runtime::builder()
            .name(name)
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
            .start()?;
        let options = Options::of_one(USER, PASSWORD, SCHEMA, path.to_owned());
        let engine = Engine::open(&options, runtime.handle())?;
        engine.make_sbtest(0)?;
        let listener = runtime.listen("127.0.0.1:0", session::Server::new(engine))?;
        Ok(Self { address: listener.local_addr().to_string(), _listener: listener, runtime })
    }

    /// Ends it, whatever it does: connections are cut, transactions undone.
    pub fn kill(self) {
        let _ = self.runtime.drain(Duration::ZERO);
    }

    #[cfg(test)]
    pub fn stats(&self) -> Snapshot {
        self.runtime.stats()
    }
}

//! The configuration of a proxy: a TOML file.
//!
//! ```toml
//! listen = "127.0.0.1:33770"
//! schema = "sbtest"
//!
//! [users]
//! root = "secret"
//!
//! [tables]                # sharded tables, and the column that says where a row is
//! sbtest1 = "id"
//!
//! [runtime]               # tunables of the runtime
//! threads = 4
//!
//! [pool]                  # for each data node
//! max = 64
//!
//! [[nodes]]
//! name = "n0"
//! endpoints = ["127.0.0.1:33660", "127.0.0.1:33661"]   # the primary, its stand-bys
//! user = "root"
//! password = "secret"
//! ```
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use epoll_group::pool::Limits;
use serde::Deserialize;

use crate::nodes::{NodeOptions, Patience};
use crate::route::Catalogue;

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub listen: String,
    #[serde(default = "default_schema")]
    schema: String,
    pub users: BTreeMap<String, String>,
    tables: BTreeMap<String, String>,
    #[serde(default)]
    runtime: toml::Table,
    #[serde(default)]
    pool: Pool,
    nodes: Vec<NodeEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Pool {
    max: usize,
    min_idle: usize,
    max_waiting: usize,
    idle_seconds: u64,
    statement_ms: u64,
    silence_ms: u64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeEntry {
    name: String,
    endpoints: Vec<String>,
    user: String,
    #[serde(default)]
    password: String,
    #[serde(default = "default_connections")]
    connections: usize,
}

fn default_schema() -> String {
    "sbtest".to_owned()
}

const fn default_connections() -> usize {
    2
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            max: 256,
            min_idle: 0,
            max_waiting: 65_536,
            idle_seconds: 600,
            statement_ms: 10_000,
            silence_ms: 1_000,
        }
    }
}

impl File {
    /// Reads a file, and looks whether it makes sense.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let error = |text: String| ConfigError(format!("{}: {text}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|cause| error(cause.to_string()))?;
        Self::parse(&text).map_err(|ConfigError(cause)| error(cause))
    }

    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let file: Self = toml::from_str(text).map_err(|error| ConfigError(error.to_string()))?;
        file.check()?;
        file.runtime()?;
        Ok(file)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let wrong = |text: &str| Err(ConfigError(text.to_owned()));
        if self.nodes.is_empty() {
            return wrong("there are no [[nodes]]");
        }
        if self.users.is_empty() {
            return wrong("there are no [users]");
        }
        let mut names: Vec<_> = self.nodes.iter().map(|node| &node.name).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(ConfigError(format!("two nodes are called {}", twice[0])));
        }
        if let Some(node) = self.nodes.iter().find(|node| node.endpoints.is_empty()) {
            return Err(ConfigError(format!("node {} has no endpoints", node.name)));
        }
        if self.pool.max == 0 || self.pool.min_idle > self.pool.max {
            return wrong("[pool] max is at least 1 and at least min_idle");
        }
        if self.pool.statement_ms == 0 || self.pool.silence_ms == 0 {
            return wrong("[pool] statement_ms and silence_ms are at least 1");
        }
        Ok(())
    }

    /// The tunables of the runtime.
    pub fn runtime(&self) -> Result<epoll_group::Config, ConfigError> {
        let mut config = epoll_group::Config::default();
        for (name, value) in &self.runtime {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let set = config.set(name, &text);
            config = set.map_err(|error| ConfigError(format!("[runtime] {error}")))?;
        }
        config.validate().map_err(|error| ConfigError(format!("[runtime] {error}")))?;
        Ok(config)
    }

    pub fn catalogue(&self) -> Catalogue {
        let lower = |(table, column): (&String, &String)| {
            (table.to_ascii_lowercase(), column.to_ascii_lowercase())
        };
        let sharded = self.tables.iter().map(lower).collect();
        Catalogue { schema: self.schema.clone(), sharded }
    }

    pub fn nodes(&self) -> Vec<NodeOptions> {
        let node = |node: &NodeEntry| NodeOptions {
            name: node.name.clone(),
            endpoints: node.endpoints.clone(),
            user: node.user.clone(),
            password: node.password.clone(),
            connections: node.connections,
        };
        self.nodes.iter().map(node).collect()
    }

    pub fn patience(&self) -> Patience {
        let pool = &self.pool;
        let limits = Limits::default()
            .max(pool.max)
            .min_idle(pool.min_idle)
            .max_waiting(pool.max_waiting)
            .idle_timeout(Duration::from_secs(pool.idle_seconds))
            .unused_after(Duration::MAX);
        Patience {
            limits,
            statement: Duration::from_millis(pool.statement_ms),
            silence: Duration::from_millis(pool.silence_ms),
        }
    }
}

/// Why a file is of no use.
#[derive(Debug)]
pub struct ConfigError(String);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ConfigError {}

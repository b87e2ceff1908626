//! The configuration of a proxy: a TOML file.
//!
//! ```toml
//! listen = "127.0.0.1:33770"
//! schema = "sbtest"
//! text_order = "bytes"    # the data nodes order texts by bytes; absent: the order is unknown
//!
//! [users]
//! root = "secret"
//!
//! [tables]
//! sbtest1 = "id"                 # sharded by this column
//! settings = { node = "n0" }     # all rows are on one node
//! countries = { copies = true }  # each node has all rows; read only
//!
//! [runtime]               # tunables of the runtime
//! max_connections = 10_000
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

use epoll_group::Config;
use epoll_group::pool::Limits;
use serde::Deserialize;

use crate::nodes::{NodeOptions, Patience};
use crate::route::{Catalogue, Home};

/// The file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    pub listen: String,
    #[serde(default = "default_schema")]
    schema: String,
    pub users: BTreeMap<String, String>,
    text_order: Option<TextOrder>,
    tables: BTreeMap<String, TableEntry>,
    #[serde(default)]
    runtime: toml::Table,
    #[serde(default)]
    pool: Pool,
    nodes: Vec<NodeEntry>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TextOrder {
    Bytes,
}

/// Where the rows of a table are.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a table is sharded (\"COLUMN\"), on a node ({ node = \"NAME\" }), or on all ({ copies = true })"
)]
enum TableEntry {
    Sharded(String),
    Node(OnNode),
    Copies(Copies),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnNode {
    node: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Copies {
    copies: bool,
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

/// Most sessions, and most waiting statements, of a data node.
const MOST: u64 = 1 << 20;
const DAY_MS: u64 = 86_400_000;
/// Age at which a session of a data node is replaced.
const LONGEST_AGE: Duration = Duration::from_secs(30 * 60);
/// Least time for a new session of a data node.
const LEAST_TO_CONNECT: Duration = Duration::from_secs(3);

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
        file.catalogue()?;
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
        let is_wrong =
            |node: &&NodeEntry| node.user.is_empty() || !(1..=1024).contains(&node.connections);
        if let Some(node) = self.nodes.iter().find(is_wrong) {
            let text = format!("node {} has no user, or not 1 to 1024 connections", node.name);
            return Err(ConfigError(text));
        }
        let Pool { max, min_idle, max_waiting, idle_seconds, statement_ms, silence_ms } = self.pool;
        for (field, value, range) in [
            ("max", max as u64, 1..=MOST),
            ("min_idle", min_idle as u64, 0..=max as u64),
            ("max_waiting", max_waiting as u64, 0..=MOST),
            ("idle_seconds", idle_seconds, 0..=LONGEST_AGE.as_secs()),
            ("statement_ms", statement_ms, 1..=365 * DAY_MS),
            ("silence_ms", silence_ms, 1..=DAY_MS),
        ] {
            if !range.contains(&value) {
                let (least, most) = range.into_inner();
                let text = format!("[pool] {field} is {value}, not {least} to {most}");
                return Err(ConfigError(text));
            }
        }
        Ok(())
    }

    /// The tunables of the runtime.
    pub fn runtime(&self) -> Result<Config, ConfigError> {
        let mut config = Config::default();
        for (name, value) in &self.runtime {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let set = config.set(name, &text);
            config = set.map_err(|error| ConfigError(format!("[runtime] {error}")))?;
        }
        config.validate().map_err(|error| ConfigError(format!("[runtime] {error}")))?;
        if config.get("galaxy_protocol") != Config::default().get("galaxy_protocol") {
            let text = "[runtime] galaxy_protocol is on, but the proxy passes frames on as its nodes \
                        send them, and it speaks the other dialect with them";
            return Err(ConfigError(text.to_owned()));
        }
        Ok(config)
    }

    pub fn catalogue(&self) -> Result<Catalogue, ConfigError> {
        let mut tables = BTreeMap::new();
        for (table, entry) in &self.tables {
            let home = match entry {
                TableEntry::Sharded(column) => Home::Sharded(column.to_ascii_lowercase()),
                TableEntry::Node(OnNode { node }) => {
                    let at = self.nodes.iter().position(|known| known.name == *node);
                    let text = || format!("[tables] {table} is on node {node}, which is not there");
                    Home::Node(at.ok_or_else(|| ConfigError(text()))?)
                }
                TableEntry::Copies(Copies { copies: true }) => Home::Copies,
                TableEntry::Copies(Copies { copies: false }) => {
                    let text = format!("[tables] {table} has copies = false and no other place");
                    return Err(ConfigError(text));
                }
            };
            if tables.insert(table.to_ascii_lowercase(), home).is_some() {
                return Err(ConfigError(format!("[tables] {table} is there twice")));
            }
        }
        let texts_by_bytes = matches!(self.text_order, Some(TextOrder::Bytes));
        Ok(Catalogue { schema: self.schema.clone(), tables, texts_by_bytes })
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
        let silence = Duration::from_millis(pool.silence_ms);
        let limits = Limits::default()
            .connect_timeout(silence.max(LEAST_TO_CONNECT))
            .max_age(LONGEST_AGE)
            .max(pool.max)
            .min_idle(pool.min_idle)
            .max_waiting(pool.max_waiting)
            .idle_timeout(Duration::from_secs(pool.idle_seconds))
            .unused_after(Duration::MAX);
        Patience { limits, statement: Duration::from_millis(pool.statement_ms), silence }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(tables: &str) -> Result<Catalogue, String> {
        with_node(tables, "user = \"root\"")
    }

    fn with_node(tables: &str, node: &str) -> Result<Catalogue, String> {
        let text = format!(
            "listen = \"127.0.0.1:0\"\n{tables}\n[users]\nroot = \"\"\n[[nodes]]\nname = \"n0\"\n\
             endpoints = [\"127.0.0.1:1\"]\n{node}\n"
        );
        let file = File::parse(&text).map_err(|error| error.to_string())?;
        file.catalogue().map_err(|error| error.to_string())
    }

    #[test]
    fn the_example_is_right() {
        let doc = include_str!("config.rs").lines().map_while(|line| line.strip_prefix("//!"));
        let is_fence = |line: &&str| line.starts_with(" ```");
        let example =
            doc.skip_while(|line| !is_fence(line)).skip(1).take_while(|line| !is_fence(line));
        let file = File::parse(&example.collect::<Vec<_>>().join("\n")).expect("it is right");
        assert!(file.users.keys().eq(["root"]));
        assert!(file.catalogue().expect("it is right").texts_by_bytes);
    }

    #[test]
    fn tables_are_sharded_or_on_a_node_or_on_all() {
        let text = "text_order = \"bytes\"\n[tables]\nT = \"Id\"\nS = { node = \"n0\" }\nc = { copies = true }";
        let catalogue = parsed(text).expect("it is right");
        assert!(catalogue.texts_by_bytes);
        let homes = [("c", Home::Copies), ("s", Home::Node(0)), ("t", Home::Sharded("id".into()))];
        assert!(catalogue.tables.into_iter().eq(homes.map(|(name, home)| (name.to_owned(), home))));
        assert!(!parsed("[tables]\nt = \"id\"").expect("it is right").texts_by_bytes);
        for (wrong, reason) in [
            ("[tables]\ns = { node = \"n1\" }", "[tables] s is on node n1, which is not there"),
            ("[tables]\nc = { copies = false }", "[tables] c has copies = false"),
            ("[tables]\nt = \"id\"\nT = \"id\"", "is there twice"),
            ("[tables]\nt = { column = \"id\" }", "a table is sharded"),
            ("text_order = \"ci\"\n[tables]", "unknown variant `ci`"),
            ("[tables]\n[runtime]\ngalaxy_protocol = true", "galaxy_protocol is on"),
        ] {
            let error = parsed(wrong).expect_err(wrong);
            assert!(error.contains(reason), "{wrong}: {error}");
        }
        for (line, reason) in [
            ("max = 0", "max is 0, not 1 to 1048576"),
            ("min_idle = 257", "min_idle is 257, not 0 to 256"),
            ("max_waiting = 1_048_577", "max_waiting is 1048577, not 0 to 1048576"),
            ("idle_seconds = 1_801", "idle_seconds is 1801, not 0 to 1800"),
            ("statement_ms = 0", "statement_ms is 0, not 1 to 31536000000"),
            ("silence_ms = 86_400_001", "silence_ms is 86400001, not 1 to 86400000"),
        ] {
            let error = parsed(&format!("[tables]\n[pool]\n{line}")).expect_err(line);
            assert!(error.contains(reason), "{line}: {error}");
        }
        for node in
            ["user = \"\"", "user = \"a\"\nconnections = 0", "user = \"a\"\nconnections = 1025"]
        {
            let error = with_node("[tables]", node).expect_err(node);
            assert!(error.contains("node n0 has"), "{node}: {error}");
        }
    }
}

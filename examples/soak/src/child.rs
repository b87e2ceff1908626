//! The servers of a run, each in a process of its own.
//!
//! A child prints `listening on ADDR` and then takes commands, a line each, on its standard input. Each
//! answer ends with an empty line. The child ends with its standard input.
//!
//! ```text
//! stats            prints all counters and gauges, each in a line of a name and a value
//! set NAME VALUE   changes a tunable
//! trim             drops the caches of idle database connections, returns freed memory to the system,
//!                  and prints the allocated bytes
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::Subcommand;
use epoll_group::pool::Limits;
use epoll_group::{Config, Handle, Runtime, session};

use crate::protocol::Echo;
use proxy::nodes::{NodeOptions, Nodes, Patience};
use proxy::proxy::Proxy;
use proxy::route::{Catalogue, Home};
use select1::{Engine, Options};

/// The account of all clients, on all servers.
pub(crate) const USER: &str = "app";
pub(crate) const PASSWORD: &str = "secret";
const SCHEMA: &str = "sbtest";
const DRAIN: Duration = Duration::from_secs(2);

/// Limits and times so small that a run reaches them.
pub(crate) const TUNABLES: &[(&str, &str)] = &[
    ("epoll_groups", "1"),
    ("epoll_threads_per_group", "4"),
    ("max_threads", "48"),
    ("dynamic_threads_shrink_time", "300ms"),
    ("tcp_listen_queue", "1024"),
    ("max_connections", "3000"),
    ("max_silent_connections", "300"),
    ("max_unauthenticated_connections", "400"),
    ("first_bytes_timeout", "1s"),
    ("login_timeout", "1s"),
    ("login_failure_delay", "10ms"),
    ("net_write_timeout", "1s"),
    ("half_close_timeout", "200ms"),
    ("linger_timeout", "200ms"),
    ("big_buf_release_after", "500ms"),
    ("request_timeout", "20s"),
    ("max_sessions_per_connection", "256"),
    ("max_sessions", "4000"),
    ("max_queued_bytes_per_connection", "4MiB"),
    ("max_queued_bytes", "32MiB"),
    ("max_buffered_bytes", "96MiB"),
    ("max_allowed_packet", "4MiB"),
    ("max_waiting_writers", "8"),
    ("request_cache_bytes", "1MiB"),
];

/// Kind of server.
#[derive(Clone, Debug, PartialEq, Eq, Subcommand)]
pub(crate) enum Role {
    Echo,
    /// Data node over the database in this file.
    Node {
        listen: String,
        path: PathBuf,
    },
    /// Proxy before these nodes, each a list of endpoints with commas between them.
    Proxy {
        #[arg(required = true)]
        nodes: Vec<String>,
    },
}

impl Role {
    /// Returns the arguments that make a process take this role.
    pub(crate) fn words(&self) -> Vec<String> {
        match self {
            Self::Echo => vec!["echo".to_owned()],
            Self::Node { listen, path } => {
                vec!["node".to_owned(), listen.clone(), path.display().to_string()]
            }
            Self::Proxy { nodes } => {
                ["proxy"].map(str::to_owned).into_iter().chain(nodes.clone()).collect()
            }
        }
    }
}

/// Serves until the standard input ends.
pub(crate) fn serve(role: &Role) -> Result<(), Box<dyn Error>> {
    let mut config = Config::default();
    for (name, value) in TUNABLES {
        config = config.set(name, value)?;
    }
    let runtime = Runtime::builder().name("soak").config(config).start()?;
    let handle = runtime.handle();
    let mut engine = None;
    let (listener, requests) = match role {
        Role::Echo => {
            let echo = Echo::default();
            (runtime.listen("127.0.0.1:0", echo.clone())?, Some(echo))
        }
        Role::Node { listen, path } => {
            let own = Arc::new(Engine::open(&engine_options(path.clone()), handle.clone())?);
            own.make_sbtest(0)?;
            engine = Some(Arc::clone(&own));
            (runtime.listen(listen.as_str(), session::Server::shared(own))?, None)
        }
        Role::Proxy { nodes } => {
            let service = proxy(&handle, nodes)?;
            (runtime.listen("127.0.0.1:0", session::Server::new(service))?, None)
        }
    };
    let mut out = io::stdout();
    writeln!(out, "listening on {}", listener.local_addr())?;
    for line in io::stdin().lines() {
        let line = line?;
        let mut words = line.split(' ');
        match (words.next(), words.next(), words.next()) {
            (Some("stats"), None, None) => {
                write!(out, "{}", handle.stats().to_lines())?;
                if let Some(echo) = &requests {
                    writeln!(out, "frames_answered {}", echo.answered())?;
                }
            }
            (Some("set"), Some(name), Some(value)) => set(&handle, name, value)?,
            (Some("trim"), None, None) => {
                if let Some(engine) = &engine {
                    engine.release_memory();
                }
                trim();
                writeln!(out, "allocated_bytes {}", allocated())?;
            }
            _ => return Err(format!("there is no command {line:?}").into()),
        }
        writeln!(out)?;
    }
    let _ = runtime.drain(DRAIN);
    Ok(())
}

fn engine_options(path: PathBuf) -> Options {
    Options::of_one(USER, PASSWORD, SCHEMA, path)
}

fn proxy(handle: &Handle, nodes: &[String]) -> Result<Proxy, Box<dyn Error>> {
    let patience = Patience {
        limits: Limits::default().max(32).unused_after(Duration::MAX),
        statement: Duration::from_secs(8),
        silence: Duration::from_secs(2),
    };
    let node = |(number, endpoints): (usize, &String)| NodeOptions {
        name: format!("n{number}"),
        endpoints: endpoints.split(',').map(str::to_owned).collect(),
        user: USER.to_owned(),
        password: PASSWORD.to_owned(),
        connections: 2,
    };
    let nodes: Vec<_> = nodes.iter().enumerate().map(node).collect();
    let nodes = Nodes::new(handle, &nodes, patience)?;
    let tables = BTreeMap::from([("sbtest1".to_owned(), Home::Sharded("id".to_owned()))]);
    let catalogue = Catalogue { schema: SCHEMA.to_owned(), tables, texts_by_bytes: true };
    Ok(Proxy::new([(USER.to_owned(), PASSWORD.to_owned())], Arc::clone(&nodes), catalogue))
}

fn set(handle: &Handle, name: &str, value: &str) -> Result<(), Box<dyn Error>> {
    let mut wrong = None;
    handle.reconfigure(|config| {
        config.clone().set(name, value).unwrap_or_else(|error| {
            wrong = Some(error);
            config
        })
    })?;
    wrong.map_or(Ok(()), |error| Err(error.into()))
}

/// Returns freed memory to the system, so that resident memory is held memory.
fn trim() {
    #[cfg(target_env = "gnu")]
    {
        #![expect(unsafe_code, reason = "std has no function for it")]
        // SAFETY: takes no pointer, and may be called at any time from any thread.
        unsafe { libc::malloc_trim(0) };
    }
}

/// Bytes that the allocator has given out; 0 if it has no such count.
fn allocated() -> usize {
    #[cfg(target_env = "gnu")]
    {
        #![expect(unsafe_code, reason = "std has no function for it")]
        // SAFETY: takes no pointer, and may be called at any time from any thread.
        let info = unsafe { libc::mallinfo2() };
        info.uordblks + info.hblkhd
    }
    #[cfg(not(target_env = "gnu"))]
    0
}

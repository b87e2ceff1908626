//! The data node: a service that runs SQL and execution plans in SQLite.
//!
//! `engine.rs` is the service, and the file to read first; `statements.rs` says what it does for each
//! kind of statement, `run.rs` runs one in SQLite, `rest.rs` gives its rows, `transactions.rs` lends
//! connections, `branches.rs` keeps what is prepared. `dialect.rs` reads MySQL's SQL, `columns.rs`
//! describes results as MySQL does, and `columns/domain.rs` has the values of BIT, ENUM and SET.
//!
//! BIT, ENUM and SET take and return values as MySQL's strict mode does. Members are compared and
//! sorted as text, so `e = 1` does not find the first member of an ENUM. CHECK and upserts see
//! values as written. INSERT IGNORE refuses wrong ones. A column of integers refuses a fraction,
//! which MySQL would round. A column that `create table … as select` makes has no such check.
//!
//! [`Node`] is a server in this process that runs this service.

mod arguments;
mod branches;
mod columns;
mod cursor;
mod database;
mod dialect;
mod engine;
mod errors;
mod functions;
mod hint;
mod interrupt;
mod lists;
mod operator;
mod plan;
mod pool;
mod prepared;
mod rest;
mod run;
mod sbtest;
mod sequence;
mod settings;
mod state;
mod statements;
mod transactions;
mod variables;
mod write_lock;

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use epoll_group::net::{Address, Listener};
use epoll_group::{DrainReport, Runtime, session};
use tempfile::TempDir;

pub use database::{AccountOptions, Schema};
pub use engine::{Engine, Options};

/// A server on loopback over a temporary database, in this process. It ends when it is dropped.
#[derive(Debug)]
pub struct Node {
    address: SocketAddr,
    _listener: Listener,
    runtime: Runtime,
    /// Goes last.
    _folder: TempDir,
}

impl Node {
    /// Serves `schema` with a table `sbtest1` of so many rows, to the only user.
    ///
    /// # Errors
    /// There is no room, or no loopback.
    pub fn start(
        runtime: Runtime,
        (user, password): (&str, &str),
        schema: &str,
        rows: u32,
    ) -> Result<Self, Box<dyn Error>> {
        let account = AccountOptions::new(user, password);
        Self::start_with(runtime, vec![account], &[schema], rows)
    }

    /// Serves these schemas to these accounts. The first schema has the table `sbtest1`.
    ///
    /// # Errors
    /// Those of [`start`](Self::start) and of [`Engine::open`].
    pub fn start_with(
        runtime: Runtime,
        accounts: Vec<AccountOptions>,
        schemas: &[&str],
        rows: u32,
    ) -> Result<Self, Box<dyn Error>> {
        let folder = TempDir::new()?;
        let schema = |name: &&str| {
            let path = folder.path().join(format!("{name}.db"));
            Schema { name: (*name).to_owned(), path }
        };
        let options = Options { accounts, schemas: schemas.iter().map(schema).collect() };
        let engine = Engine::open(&options, runtime.handle())?;
        engine.make_sbtest(rows)?;
        let listener = runtime.listen("127.0.0.1:0", session::Server::new(engine))?;
        let &Address::Tcp(address) = listener.local_addr() else {
            return Err("the loopback has no address".into());
        };
        Ok(Self { address, _listener: listener, runtime, _folder: folder })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Ends the server when its requests have ended, or after this time.
    pub fn drain(self, deadline: Duration) -> DrainReport {
        self.runtime.drain(deadline)
    }
}

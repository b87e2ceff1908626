//! The sharding proxy before four servers of statements, all in one process.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use baselines::statements::Account;
use baselines::thread_per_session;
use epoll_group::net::Listener;
use epoll_group::pool::Limits;
use epoll_group::session::{Server as Sessions, Service};
use epoll_group::{Config, Runtime};
use lab::helper::announce;
use lab::sessions::{PASSWORD, USER};
use proxy::nodes::{NodeOptions, Nodes, Patience};
use proxy::proxy::Proxy;
use proxy::route::{Catalogue, Home};
use select1::{Engine as DataNode, Options};

use crate::engine::Sqlite;
use crate::server::{Database, SCHEMA, SqlServer, any};

/// Number of data nodes.
pub const NODES: i64 = 4;
/// Time for a statement, and for a node that says nothing. No node fails here.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves a table of this many rows until the input ends.
///
/// # Errors
/// A node or the proxy does not start.
pub fn serve(server: SqlServer, folder: &Path, rows: u32) -> Result<(), Box<dyn Error>> {
    let (mut running, mut nodes) = (Vec::new(), Vec::new());
    for number in 0..NODES {
        let path = folder.join(format!("n{number}.db"));
        let engine = Sqlite::open_shard(&path, rows, (number, NODES))?;
        let runtime = || {
            // Four nodes and the proxy share the machine.
            let config = Config::default().epoll_groups(1).epoll_threads_per_group(2);
            Runtime::builder().name("node").config(config).start()
        };
        let address = match server {
            SqlServer::ProxyOldSqlite => {
                let account = Account::new(USER, PASSWORD);
                thread_per_session::start(any(), account, engine)?.to_string()
            }
            SqlServer::ProxyNewSqlite => listen(runtime()?, Database::new(engine), &mut running)?,
            _ => {
                let options = Options::of_one(USER, PASSWORD, SCHEMA, path);
                let runtime = runtime()?;
                let engine = DataNode::open(&options, runtime.handle())?;
                listen(runtime, engine, &mut running)?
            }
        };
        nodes.push(NodeOptions {
            name: format!("n{number}"),
            endpoints: vec![address],
            user: USER.to_owned(),
            password: PASSWORD.to_owned(),
            connections: 2,
        });
    }
    // Connects to the nodes wait, and add threads. They leave before the windows begin, as they do by default
    // after ten seconds.
    let config = Config::default().dynamic_threads_shrink_time(Duration::from_millis(20));
    let runtime = Runtime::builder().name("proxy").config(config).start()?;
    let patience = Patience {
        limits: Limits::default().max(256).unused_after(Duration::MAX),
        statement: PATIENCE,
        silence: PATIENCE,
    };
    let nodes = Nodes::new(&runtime.handle(), &nodes, patience)?;
    let tables = [("sbtest1".to_owned(), Home::Sharded("id".to_owned()))].into();
    // SQLite orders texts by their bytes.
    let catalogue = Catalogue { schema: SCHEMA.to_owned(), tables, texts_by_bytes: true };
    let service = Proxy::new([(USER.to_owned(), PASSWORD.to_owned())], nodes, catalogue);
    let listener = runtime.listen("127.0.0.1:0", Sessions::new(service))?;
    announce(&listener.local_addr().to_string())?;
    let _ = runtime.drain(PATIENCE);
    Ok(())
}

/// Returns the address. The listener ends before its runtime.
fn listen(
    runtime: Runtime,
    service: impl Service,
    running: &mut Vec<(Listener, Runtime)>,
) -> Result<String, Box<dyn Error>> {
    let listener = runtime.listen("127.0.0.1:0", Sessions::new(service))?;
    let address = listener.local_addr().to_string();
    running.push((listener, runtime));
    Ok(address)
}

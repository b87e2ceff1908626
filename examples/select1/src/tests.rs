//! Over TCP, with the client that checks the order of every reply's frames.

mod branches;
mod conversations;
mod domains;
mod locks;
mod operators;
mod plans;
mod regressions;
mod schemas;
mod sources;
mod statements;
mod transactions;

use std::fmt::Write;
use std::net::SocketAddr;

use epoll_group::stats::Snapshot;
use epoll_group::{Config, Runtime};

use lab::xrpc::datum::Datum;
use lab::xrpc::reply::{Failure, Reply};
use lab::xrpc::{Client, request};
use select1::node::{AccountOptions, Node};

/// A server with a table of a hundred rows.
pub(crate) struct Server(Node);

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_with(Config::default())
    }

    pub(crate) fn start_with(config: Config) -> Self {
        Self::start_both(config, "test")
    }

    /// Starts a server whose database has this name.
    pub(crate) fn start_as(schema: &str) -> Self {
        Self::start_both(Config::default(), schema)
    }

    fn start_both(config: Config, schema: &str) -> Self {
        Self(Node::start(runtime(config), ("root", "secret"), schema, 100).expect("it serves"))
    }

    /// Starts a server with these accounts and schemas, the first of which has the table.
    pub(crate) fn start_for(accounts: Vec<AccountOptions>, schemas: &[&str]) -> Self {
        let runtime = runtime(Config::default());
        Self(Node::start_with(runtime, accounts, schemas, 100).expect("it serves"))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    pub(crate) fn stats(&self) -> Snapshot {
        self.0.runtime().stats()
    }

    /// A connection with session 2 open.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::logged_in(self.address(), "root", "secret");
        client.new_session(2).good();
        client
    }
}

fn runtime(config: Config) -> Runtime {
    Runtime::builder().config(config.epoll_groups(2)).start().expect("it starts")
}

/// Returns the result of a statement of session 2: cells as text, with `|` between them and `;`
/// behind rows.
pub(crate) fn rows(client: &mut Client, sql: &str) -> String {
    text(&client.execute(2, sql).good())
}

pub(crate) fn text(reply: &Reply) -> String {
    let mut text = String::new();
    for row in &reply.rows {
        for (at, cell) in row.iter().enumerate() {
            let separator = if at == 0 { "" } else { "|" };
            let cell = match cell {
                Datum::Null => "NULL".to_owned(),
                Datum::Signed(number) => number.to_string(),
                Datum::Unsigned(number) => format!("{number}u"),
                Datum::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Datum::Double(number) => format!("{number:?}d"),
                Datum::Float(number) => format!("{number:?}f"),
                Datum::Decimal(number) => format!("{number}m"),
                other => format!("{other:?}"),
            };
            write!(text, "{separator}{cell}").expect("a String takes everything");
        }
        text.push(';');
    }
    text
}

/// The error that a statement of session 2 ends with.
pub(crate) fn failure(client: &mut Client, sql: &str) -> Failure {
    let reply = client.execute(2, sql);
    reply.error.unwrap_or_else(|| panic!("{sql} gives no error"))
}

/// A change, and how many rows it has changed.
pub(crate) fn change(client: &mut Client, sql: &str) -> u64 {
    let reply = client.run(2, request::update(sql)).good();
    reply.affected.unwrap_or_else(|| panic!("{sql} says nothing of rows"))
}

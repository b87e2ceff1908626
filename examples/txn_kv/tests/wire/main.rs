//! The store behind sessions, over real sockets.
#![cfg(not(feature = "model"))]

mod contended;
mod engine;
mod errors;
mod life;
mod load;
mod program;
mod reads;
mod sessions;
mod statements;

use std::fmt::Write;

use epoll_group::client::{Answer, Client, Options, Request, Session, Summary};
use epoll_group::codec::error::Scope;
use epoll_group::codec::proto::generic::ErrorReply;
use epoll_group::codec::value::Value;
use epoll_group::{Config, Runtime};
use lab::LONG;
use txn_kv::client::Kv;
use txn_kv::serve::{self, Server};
use txn_kv::{Key, KeyRange};

use engine::Scripted;

const USER: &str = "root";
const PASSWORD: &str = "secret";

/// A server, its engine, and a client of it with one connection, on a runtime of its own.
struct Both {
    client: Client,
    /// Runtime of the client.
    runtime: Runtime,
    engine: Scripted,
    server: Server,
}

impl Both {
    fn start() -> Self {
        Self::start_with(|options| options)
    }

    fn start_with(change: impl FnOnce(serve::Options) -> serve::Options) -> Self {
        let engine = Scripted::default();
        let options = change(serve::Options::new(USER, PASSWORD).threads(2));
        let server = Server::start_on(engine.clone(), &options).expect("it serves");
        let runtime = Runtime::builder()
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
            .start()
            .expect("started");
        let client = connect(&runtime, &server);
        Self { client, runtime, engine, server }
    }

    /// Another client, with a connection of its own.
    fn another_client(&self) -> Client {
        connect(&self.runtime, &self.server)
    }

    #[track_caller]
    fn session(&self) -> Session {
        self.client.session().expect("a session")
    }

    #[track_caller]
    fn kv(&self) -> Kv {
        Kv::new(self.session())
    }
}

fn connect(runtime: &Runtime, server: &Server) -> Client {
    let options = Options::new(server.address().to_string(), USER)
        .password(PASSWORD)
        .connections(1)
        .request_timeout(LONG);
    Client::new(&runtime.handle(), options).expect("good options")
}

fn one(key: &[u8]) -> KeyRange {
    KeyRange::One(key.into())
}

fn span(from: &[u8], to: &[u8]) -> KeyRange {
    KeyRange::Span(from.into(), Some(to.into()))
}

fn from(from: &[u8]) -> KeyRange {
    KeyRange::Span(Key::from(from), None)
}

/// Returns the rows of a statement, with `|` between cells and `;` behind each row, and the
/// summary.
#[track_caller]
fn whole(session: &mut Session, request: impl Into<Request>) -> (String, Summary) {
    let mut answer = session.execute(request).expect("an answer");
    let rows = text(&mut answer);
    (rows, answer.finish().expect("an end"))
}

#[track_caller]
fn text(answer: &mut Answer) -> String {
    let mut text = String::new();
    while let Some(row) = answer.next_row().expect("a row") {
        for (at, value) in row.values().enumerate() {
            let separator = if at == 0 { "" } else { "|" };
            let cell = match value.expect("a value") {
                Value::Bytes(bytes) => bytes.escape_ascii().to_string(),
                Value::Unsigned(number) => number.to_string(),
                other => panic!("{other:?}"),
            };
            write!(text, "{separator}{cell}").expect("a String takes everything");
        }
        text.push(';');
    }
    text
}

/// Returns rows, revision, changes and branch as one text.
#[track_caller]
fn told(session: &mut Session, request: impl Into<Request>) -> String {
    let (rows, summary) = whole(session, request);
    let revision = summary.insert_id.unwrap_or(0);
    let branch = String::from_utf8(summary.info).expect("a word");
    format!("{rows} @{revision} {} {branch}", summary.affected).trim().to_owned()
}

/// Returns the error that a request ends with. The session survives it.
#[track_caller]
fn failure(session: &mut Session, request: impl Into<Request>) -> ErrorReply {
    let error = session.run(request).expect_err("an error");
    let error = error.server_error().unwrap_or_else(|| panic!("not the server's: {error}"));
    assert!(error.scope() == Scope::Request && session.is_alive(), "{error}");
    error.clone()
}

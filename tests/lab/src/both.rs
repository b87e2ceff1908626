//! A client and a server with an engine, each on a runtime of its own.

use epoll_group::client::{Answer, Client, Error, Options, Session};
use epoll_group::codec::value::Value;
use epoll_group::{Config, Runtime};

use super::LONG;
use super::engine::{Fixture, PASSWORD, config};

pub struct Both {
    pub client: Client,
    pub server: Fixture,
    /// Runtime of the client.
    pub runtime: Runtime,
}

pub fn options(address: impl ToString) -> Options {
    let options = Options::new(address.to_string(), "root").password(PASSWORD);
    // To print the backtrace of a panic may take seconds on a busy machine.
    options.request_timeout(LONG).session_timeout(LONG)
}

impl Both {
    pub fn start() -> Self {
        Self::start_with(|options| options)
    }

    pub fn start_with(change: impl FnOnce(Options) -> Options) -> Self {
        Self::start_on(super::config(), change)
    }

    /// Starts both, with `own` as the configuration of the client's runtime.
    pub fn start_on(own: Config, change: impl FnOnce(Options) -> Options) -> Self {
        let server = Fixture::start(config());
        let runtime = Runtime::builder().config(own).start().expect("started");
        let options = change(options(server.addr()));
        let client = Client::new(&runtime.handle(), options).expect("good options");
        Self { client, server, runtime }
    }

    #[track_caller]
    pub fn session(&self) -> Session {
        self.client.session().expect("a session")
    }
}

/// The text in the only cell of an answer.
#[track_caller]
pub fn one(answer: Result<Answer, Error>) -> String {
    try_one(answer.expect("an answer")).expect("a row")
}

/// The same, of an answer that may end in an error.
pub fn try_one(mut answer: Answer) -> Result<String, Error> {
    let text = match answer.next_row()? {
        None => panic!("no row"),
        Some(row) => match row.get(0)? {
            Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Value::Signed(number) => number.to_string(),
            other => format!("{other:?}"),
        },
    };
    assert!(answer.next_row()?.is_none(), "one row");
    Ok(text)
}

//! The server: a small data node with the default configuration.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;

use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::row::Column;
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Row, Server, Service, SessionError,
    SessionId,
};
use epoll_group::stats::{Counter, Snapshot};
use epoll_group::{Config, Runtime};

use lab::abuse::Target;
use lab::helper::{obey, say};

const USER: &str = "root";
const PASSWORD: &str = "a password";

/// Statements: `one`, `echo TEXT`, `source ROWS BYTES`.
struct Node {
    password: StoredPassword,
}

impl Service for Node {
    type Session = ();

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check((login.user == USER.as_bytes()).then_some(&self.password))?;
        Ok(Account::new(USER))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::default()))
    }

    fn execute(
        &self,
        (): &mut (),
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let Request::Sql(sql) = request else {
            return Err(SessionError::unsupported("this node executes only text"));
        };
        let text = String::from_utf8_lossy(sql.text);
        let (word, rest) = text.split_once(' ').unwrap_or((&text, ""));
        match word {
            "one" => one(reply, "1"),
            "echo" => one(reply, rest),
            "source" => {
                let mut numbers = rest.split(' ').map(|word| word.parse().unwrap_or(0));
                let mut number = || numbers.next().unwrap_or(0_usize);
                source(reply, number(), number())
            }
            _ => Err(SessionError::new(1064, b"42000", "no such statement")),
        }
    }
}

fn one(reply: &mut Reply<'_>, text: &str) -> Result<(), SessionError> {
    reply.columns(&[Column::text("text", 45, 255)])?;
    reply.row(|row| row.text(text))
}

fn source(reply: &mut Reply<'_>, rows: usize, bytes: usize) -> Result<(), SessionError> {
    reply.columns(&[Column::signed("id"), Column::text("pad", 45, 255)])?;
    let (mut next, pad) = (0, "x".repeat(bytes));
    reply.source(move |row: &mut Row<'_>| {
        if next == rows {
            return Ok(false);
        }
        row.int(next as i64);
        row.text(&pad);
        next += 1;
        Ok(true)
    });
    Ok(())
}

/// The server as a target, with its login, for bystanders and attackers.
pub(crate) fn target(address: SocketAddr) -> Target {
    Target {
        address,
        logins: true,
        user: USER.into(),
        password: PASSWORD.into(),
        small: String::new(),
        large: "source 100000 1000".into(),
    }
}

/// Runs the data node. Prints its address first, and its counters after each order from standard input.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    lab::load::raise_descriptor_limit()?;
    let runtime = Runtime::builder().config(Config::default()).start()?;
    let node = Node { password: StoredPassword::of(PASSWORD.as_bytes()) };
    let listener = runtime.listen("127.0.0.1:0", Server::new(node))?;
    say(&listener.local_addr().to_string())?;
    obey(|_| Ok(serde_json::to_string(&counts(&runtime.stats()))?))
}

fn counts(stats: &Snapshot) -> BTreeMap<&'static str, u64> {
    let gauges = [
        ("connections", stats.connections),
        ("sessions", stats.sessions),
        ("buffered_bytes", stats.buffered_bytes),
    ];
    Counter::ALL.iter().map(|&counter| (counter.name(), stats.get(counter))).chain(gauges).collect()
}

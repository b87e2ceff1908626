//! Servers as processes: how they are started, and what runs in them.
//!
//! The process of a server says its address, serves until its input ends, and then says how many frames
//! it has answered if it knows. No server outlives the program that has started it.

#![expect(single_use_lifetimes, reason = "`impl Trait` takes no other on stable")]

use std::env;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use baselines::statements::{Account, Answer, Engine, Outcome};
use baselines::{Kind, Setting, Spec, thread_per_client, thread_per_session};
use clap::ValueEnum;
use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::row::Column;
use epoll_group::codec::value::Value;
use epoll_group::session::{
    AuthError, Cancel, Login, Peer, Reply, Request, Server as Sessions, Service, SessionError,
    SessionId,
};
use epoll_group::{Runtime, session};
use lab::cpu;
use lab::helper::{Helper, announce, say};
use lab::load::raise_descriptor_limit;
use lab::sessions::{PASSWORD, USER};

use crate::engine::{Constant, Sqlite};
use crate::proxies::Proxy;
use crate::sharding;
use crate::tls::TlsServer;

/// Any server of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Server {
    /// Echoes frames.
    Echo(Spec),
    /// Runs statements, over a table with this many rows.
    Sql(SqlServer, u32),
    /// Passes bytes to a server behind.
    Proxy(Proxy, SocketAddr),
    /// Echoes bytes over TLS, with the certificate in this folder.
    Tls(TlsServer, PathBuf),
}

/// A server that runs statements.
///
/// *New* is the library. *Old* has a thread for each session, behind a reader for each connection. *Jdbc*
/// has a thread for each connection, which has one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SqlServer {
    NewConstant,
    NewSqlite,
    OldConstant,
    OldSqlite,
    JdbcConstant,
    JdbcSqlite,
    /// The example of a whole data node.
    Select1,
    /// The sharding proxy before four servers, each with a quarter of the rows.
    ProxyNewSqlite,
    ProxyOldSqlite,
    ProxySelect1,
}

pub const SCHEMA: &str = "sbtest";
/// Time limit of a drain. The load has closed its connections by then, so there is nothing to wait
/// for.
const DRAIN: Duration = Duration::from_secs(5);

impl Server {
    /// Starts the process. Returns the address of the server too, and the process that serves, which may
    /// be a child of the first.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&self) -> Result<(Helper, SocketAddr, u32), Box<dyn Error>> {
        let binary = match self {
            Self::Echo(Spec { binary: Some(binary), .. }) => binary.clone(),
            _ => env::current_exe()?,
        };
        let mut command = Command::new(binary);
        match self {
            Self::Echo(spec) => command.arg("serve").arg(spec.without_binary().to_string()),
            Self::Sql(server, rows) => {
                let name = server.to_possible_value().expect("no server is hidden");
                command.args(["serve-sql", name.get_name(), &rows.to_string()])
            }
            Self::Proxy(proxy, to) => {
                let name = proxy.to_possible_value().expect("no proxy is hidden");
                command.args(["serve-proxy", name.get_name(), &to.to_string()])
            }
            Self::Tls(server, folder) => {
                let name = server.to_possible_value().expect("no server is hidden");
                command.args(["serve-tls", name.get_name()]).arg(folder)
            }
        };
        let (helper, line) = Helper::start(&mut command)?;
        let (address, pid) = match line.split_once(' ') {
            Some((address, pid)) => (address, pid.parse()?),
            None => (&*line, helper.pid()),
        };
        let address = address.parse()?;
        Ok((helper, address, pid))
    }

    /// True if it says at its end how many requests it has answered.
    pub fn counts_answers(&self) -> bool {
        matches!(self, Self::Echo(spec) if spec.kind == Kind::EpollGroup)
    }
}

/// Echoes frames until the input ends.
pub fn echo(spec: &Spec) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    if let Some(cpus) = spec.setting(Setting::Cpus) {
        cpu::bind_to_first(cpus)?;
    }
    let server = baselines::Server::start(spec, any())?;
    announce(&server.address().to_string())?;
    if let Some(answered) = server.drain(DRAIN) {
        say(&format!("answered {answered}"))?;
    }
    Ok(())
}

/// Runs statements until the input ends.
pub fn sql(server: SqlServer, rows: u32) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    let folder = tempfile::tempdir()?;
    let sqlite = || Sqlite::open(&folder.path().join("bench.db"), rows);
    let account = || Account::new(USER, PASSWORD);
    let until_told = |address: io::Result<SocketAddr>| Ok(announce(&address?.to_string())?);
    match server {
        SqlServer::NewConstant => library(Constant),
        SqlServer::NewSqlite => library(sqlite()?),
        SqlServer::OldConstant => until_told(thread_per_session::start(any(), account(), Constant)),
        SqlServer::OldSqlite => until_told(thread_per_session::start(any(), account(), sqlite()?)),
        SqlServer::JdbcConstant => until_told(thread_per_client::start(any(), account(), Constant)),
        SqlServer::JdbcSqlite => until_told(thread_per_client::start(any(), account(), sqlite()?)),
        SqlServer::Select1 => {
            let runtime = Runtime::builder().name("select1").start()?;
            let node = select1::Node::start(runtime, (USER, PASSWORD), SCHEMA, rows)?;
            announce(&node.address().to_string())?;
            let _ = node.drain(DRAIN);
            Ok(())
        }
        SqlServer::ProxyNewSqlite | SqlServer::ProxyOldSqlite | SqlServer::ProxySelect1 => {
            sharding::serve(server, folder.path(), rows)
        }
    }
}

pub fn any() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

fn library(engine: impl Engine) -> Result<(), Box<dyn Error>> {
    let runtime = Runtime::builder().name("new").start()?;
    let listener = runtime.listen("127.0.0.1:0", Sessions::new(Database::new(engine)))?;
    announce(&listener.local_addr().to_string())?;
    let _ = runtime.drain(DRAIN);
    Ok(())
}

/// An engine behind the library's sessions.
pub struct Database<E> {
    password: StoredPassword,
    engine: E,
}

impl<E> Database<E> {
    pub fn new(engine: E) -> Self {
        Self { password: StoredPassword::of(PASSWORD.as_bytes()), engine }
    }
}

impl<E: Engine> Service for Database<E> {
    type Session = E::Session;

    fn authenticate(&self, login: &Login<'_>) -> Result<session::Account, AuthError> {
        login.check((login.user == USER.as_bytes()).then_some(&self.password))?;
        Ok(session::Account::new(USER))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<(E::Session, Cancel), SessionError> {
        Ok((E::Session::default(), Cancel::default()))
    }

    fn execute(
        &self,
        session: &mut E::Session,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match request {
            Request::Sql(sql) if sql.args.is_empty() => {
                let outcome = self.engine.execute(session, sql.text, &mut Rows(reply))?;
                if let Outcome::Changed(rows) = outcome {
                    reply.ending().affected = rows;
                }
                Ok(())
            }
            _ => Err(SessionError::unsupported("Not support for polarx rpc.")),
        }
    }

    fn in_transaction(&self, session: &E::Session) -> bool {
        E::holds_lock(session)
    }
}

/// A reply of the library, as engines see it.
struct Rows<'a, 'r>(&'a mut Reply<'r>);

impl Answer for Rows<'_, '_> {
    fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError> {
        self.0.columns(columns)
    }

    fn row<'v>(
        &mut self,
        values: impl Iterator<Item = Result<Value<'v>, SessionError>>,
    ) -> Result<(), SessionError> {
        self.0.try_row(|cells| {
            for value in values {
                cells.value(value?);
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use epoll_group::net::Address;
    use lab::sessions::{Load, Question, Shape, parts};

    use super::*;

    const WINDOW: Duration = Duration::from_millis(50);
    const ROWS: u32 = 100;

    fn serve(engine: impl Engine) -> SocketAddr {
        thread_per_session::start(any(), Account::new(USER, PASSWORD), engine).unwrap()
    }

    fn serve_clients(engine: impl Engine) -> SocketAddr {
        thread_per_client::start(any(), Account::new(USER, PASSWORD), engine).unwrap()
    }

    fn shape(question: Question) -> Shape {
        Shape { connections: 2, sessions: 16, question, rows: ROWS, threads: 2 }
    }

    fn sqlite(folder: &tempfile::TempDir) -> Sqlite {
        Sqlite::open(&folder.path().join("test.db"), ROWS).unwrap()
    }

    fn is_answered(address: SocketAddr, shape: &Shape) {
        let mut load = Load::connect(address, shape).unwrap();
        for window in 0..2 {
            let report = load.run_for(WINDOW).unwrap();
            assert_eq!((report.errors, &report.first_error), (0, &None), "window {window}");
            // Each session asks once at least.
            assert!(report.requests >= 16, "window {window}: {} answers", report.requests);
            assert!(report.client_cpu > Duration::ZERO);
        }
    }

    #[test]
    fn every_session_of_every_connection_is_answered_by_each_engine() {
        let folder = tempfile::tempdir().unwrap();
        for address in [serve(Constant), serve(sqlite(&folder))] {
            is_answered(address, &shape(Question::SelectOne));
            is_answered(address, &shape(Question::Text));
        }
    }

    #[test]
    fn a_thread_for_each_client_answers_its_one_session() {
        let folder = tempfile::tempdir().unwrap();
        for address in [serve_clients(Constant), serve_clients(sqlite(&folder))] {
            for question in [Question::SelectOne, Question::Text] {
                is_answered(address, &Shape { connections: 16, ..shape(question) });
            }
        }
    }

    #[test]
    fn the_library_answers_before_the_same_engines() {
        let runtime = Runtime::builder().name("new").start().unwrap();
        let folder = tempfile::tempdir().unwrap();
        for listener in [
            runtime.listen("127.0.0.1:0", Sessions::new(Database::new(sqlite(&folder)))).unwrap(),
            runtime.listen("127.0.0.1:0", Sessions::new(Database::new(Constant))).unwrap(),
        ] {
            let &Address::Tcp(address) = listener.local_addr() else { panic!("{listener:?}") };
            is_answered(address, &shape(Question::SelectOne));
            is_answered(address, &shape(Question::Text));
        }
    }

    #[test]
    fn a_client_with_a_thread_has_no_second_session() {
        let address = serve_clients(Constant);
        let error = Load::connect(address, &shape(Question::SelectOne)).unwrap_err();
        assert!(error.to_string().contains("One session a connection."), "{error}");
    }

    #[test]
    fn an_error_of_the_server_is_reported_with_its_text() {
        let mut load = Load::connect(serve(Constant), &shape(Question::Plan)).unwrap();
        let report = load.run_for(WINDOW).unwrap();
        assert_eq!((report.requests, report.errors), (0, 2));
        assert!(report.first_error.unwrap().contains("Not support for polarx rpc."));
    }

    #[test]
    fn a_wrong_password_opens_no_session() {
        let account = Account::new(USER, "another");
        let address = thread_per_session::start(any(), account, Constant).unwrap();
        let error = Load::connect(address, &shape(Question::SelectOne)).unwrap_err();
        assert!(error.to_string().contains("Invalid user or password"), "{error}");
    }

    #[test]
    fn parts_differ_by_one_at_most() {
        let parts: Vec<_> = parts(0..10, 4).collect();
        assert_eq!(parts, [0..2, 2..5, 5..7, 7..10]);
    }
}

//! The servers before an engine of ours, until standard input ends: one for each architecture.

#![expect(single_use_lifetimes, reason = "`impl Trait` takes no other on stable")]

use std::error::Error;
use std::io::Write;

use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::column::Column;
use epoll_group::codec::value::Value;
use epoll_group::session::{
    AuthError, Cancel, Login, Peer, Reply, Request, Server, Service, SessionError, SessionId,
};
use epoll_group::{Runtime, session};

use super::args::ServeSql;
use super::engine::{Constant, Sqlite, Temporary};
use super::load::raise_descriptor_limit;
use super::serve::{DRAIN, announce_until_told};
use super::server::{Architecture, EngineName};
use super::statements::{Account, Answer, Engine, Outcome};
use super::{thread_per_client, thread_per_session};

pub(crate) fn run(args: &ServeSql, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    raise_descriptor_limit()?;
    match args.engine {
        EngineName::Constant => serve(args, Constant, out),
        EngineName::Sqlite => {
            let temporary = Temporary::new();
            let database = args.database.as_deref().unwrap_or_else(|| temporary.path());
            serve(args, Sqlite::open(database, args.rows)?, out)
        }
    }
}

fn serve(args: &ServeSql, engine: impl Engine, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let account = Account::new(&args.user, &args.password);
    let address = match args.architecture {
        Architecture::Old => thread_per_session::start(args.listen, account, engine)?,
        Architecture::Jdbc => thread_per_client::start(args.listen, account, engine)?,
        Architecture::New => {
            let runtime = Runtime::builder().name("new").start()?;
            let database = Database::new(&args.user, &args.password, engine);
            let listener = runtime.listen(args.listen, Server::new(database))?;
            announce_until_told(&listener.local_addr().to_string(), out)?;
            let report = runtime.drain(DRAIN);
            writeln!(out, "{report}")?;
            return Ok(());
        }
    };
    announce_until_told(&address.to_string(), out)
}

/// An engine before the library's sessions.
pub(crate) struct Database<E> {
    user: Vec<u8>,
    password: StoredPassword,
    engine: E,
}

impl<E> Database<E> {
    pub(crate) fn new(user: &str, password: &str, engine: E) -> Self {
        Self { user: user.into(), password: StoredPassword::of(password.as_bytes()), engine }
    }
}

impl<E: Engine> Service for Database<E> {
    type Session = ();

    fn authenticate(&self, login: &Login<'_>) -> Result<session::Account, AuthError> {
        login.check((login.user() == self.user).then_some(&self.password))?;
        Ok(session::Account::new("bench"))
    }

    fn open(&self, _: &Peer, _: SessionId) -> Result<((), Cancel), SessionError> {
        Ok(((), Cancel::none()))
    }

    fn execute(
        &self,
        (): &mut (),
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match request {
            Request::Sql(sql) if sql.args().is_empty() => {
                if let Outcome::Changed(rows) = self.engine.execute(sql.text(), reply)? {
                    reply.affected(rows);
                }
                Ok(())
            }
            _ => Err(SessionError::unsupported("Not support for polarx rpc.")),
        }
    }
}

impl Answer for Reply<'_> {
    fn columns(&mut self, columns: &[Column<'_>]) -> Result<(), SessionError> {
        Reply::columns(self, columns)
    }

    fn row<'v>(
        &mut self,
        values: impl Iterator<Item = Result<Value<'v>, SessionError>>,
    ) -> Result<(), SessionError> {
        self.try_row(|cells| {
            for value in values {
                cells.value(value?);
            }
            Ok(())
        })
    }
}

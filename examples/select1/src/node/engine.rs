//! [`Engine`]: the service. It runs the statements of sessions on SQLite.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epoll_group::Handle;
use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Savepoint, Service, SessionError,
    SessionId, Sql,
};

use crate::node::branches::Branches;
use crate::node::database::{AccountOptions, Database, Schema, User, once};
use crate::node::errors::{not_utf8, unsupported};
use crate::node::operator::Operator;
use crate::node::pool::Lent;
use crate::node::rest::Sources;
use crate::node::state::{EngineSession, Warning};
use crate::node::variables::{Globals, Locals};
use crate::node::{arguments, dialect, hint, sbtest};

/// Everything that sessions share.
pub struct Engine {
    users: HashMap<Vec<u8>, Arc<User>>,
    databases: Vec<Arc<Database>>,
    pub branches: Branches,
    pub sources: Arc<Sources>,
    pub globals: Arc<Globals>,
    pub operator: Operator,
    /// The last timestamp that was given.
    last_timestamp: AtomicU64,
}

/// Accounts and databases of a server.
#[derive(Debug)]
pub struct Options {
    pub accounts: Vec<AccountOptions>,
    pub schemas: Vec<Schema>,
}

impl Options {
    /// One account with one database, in this file.
    pub fn of_one(user: &str, password: &str, schema: &str, path: PathBuf) -> Self {
        Self {
            accounts: vec![AccountOptions::new(user, password)],
            schemas: vec![Schema { name: schema.to_owned(), path }],
        }
    }
}

impl Engine {
    /// # Errors
    /// A file that SQLite cannot open; an account or a schema that is named twice; an account of an
    /// unknown schema.
    pub fn open(options: &Options, handle: Handle) -> Result<Self, Box<dyn Error>> {
        once("schema", options.schemas.iter().map(|schema| &*schema.name))?;
        let mut databases: Vec<Arc<Database>> = Vec::new();
        for schema in &options.schemas {
            let database = Database::open(schema)?;
            if let Some(other) = databases.iter().find(|other| other.file == database.file) {
                let (one, two) = (&other.schema, &database.schema);
                return Err(format!("schemas {one} and {two} are one file").into());
            }
            databases.push(Arc::new(database));
        }
        let mut users = HashMap::new();
        for account in &options.accounts {
            let user = Arc::new(User::new(account, &databases)?);
            if users.insert(account.user.clone().into_bytes(), user).is_some() {
                return Err(format!("account {} is named twice", account.user).into());
            }
        }
        Ok(Self {
            users,
            databases,
            branches: Branches::default(),
            sources: Arc::default(),
            globals: Arc::new(Globals::new()),
            operator: Operator::new(handle),
            last_timestamp: AtomicU64::new(0),
        })
    }

    /// Makes the table of sysbench with so many rows in the first database, unless it is there.
    pub fn make_sbtest(&self, rows: u32) -> Result<(), Box<dyn Error>> {
        let first = self.databases.first().ok_or("there is no schema")?;
        let db = first.pool.lend().map_err(|error| error.to_string())?;
        Ok(sbtest::make(&db, rows)?)
    }

    fn sql(
        &self,
        session: &mut EngineSession,
        sql: Sql<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        if let Some(schema) = sql.schema {
            let database = self
                .database(session, schema)
                .map_err(|error| SessionError::fatal(error.code, &error.state, error.message))?;
            session.change_database(database)?;
        }
        let text = std::str::from_utf8(sql.text).map_err(|_| not_utf8())?;
        let text = hint::apply(sql.hint, text)?;
        let arguments = arguments::read(sql.args)?;
        let (text, arguments) = dialect::splice_names(text, arguments)?;
        let database = &session.database;
        let prepared = database.statements.read(&text, &database.schema)?;
        self.statement(session, &prepared, &arguments, reply)
    }

    /// The database of this name, if the session may use it; an empty name means the session's own.
    pub fn database(
        &self,
        session: &EngineSession,
        name: &[u8],
    ) -> Result<Arc<Database>, SessionError> {
        if name.is_empty() {
            return Ok(Arc::clone(&session.database));
        }
        session.user.database(name, &self.databases).map(Arc::clone)
    }

    /// Idle connections forget what they can make again.
    pub fn release_memory(&self) {
        self.databases.iter().for_each(|database| database.pool.release_memory());
    }

    /// The number of connections to files that are lent.
    pub fn lent(&self) -> usize {
        self.databases.iter().map(|database| database.pool.lent()).sum()
    }

    fn savepoint(
        &self,
        session: &mut EngineSession,
        savepoint: Savepoint<'_>,
    ) -> Result<(), SessionError> {
        let name = std::str::from_utf8(savepoint.name).map_err(|_| not_utf8())?;
        match savepoint.action {
            Operation::Set => self.set_savepoint(session, name),
            Operation::Release => self.release_savepoint(session, name),
            Operation::Rollback => self.roll_back_to(session, name),
        }
    }

    /// A connection for one statement outside of a transaction.
    pub fn borrow(&self, session: &EngineSession) -> Result<Lent, SessionError> {
        session.database.lend_to(session)
    }

    /// Returns the time that a session waits for the right to write.
    pub fn lock_wait_timeout(&self, session: &EngineSession) -> Duration {
        let seconds = session.locals.get("innodb_lock_wait_timeout");
        Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(50))
    }
}

impl Service for Engine {
    type Session = EngineSession;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        let user = self.users.get(login.user);
        login.check(user.map(|user| &user.password))?;
        let user = user.ok_or(AuthError::Denied)?;
        if !login.schema.is_empty() {
            let database = user.database(login.schema, &self.databases);
            database.map_err(|_| AuthError::Schema)?;
        }
        Ok(Account::new(&user.name))
    }

    fn open(&self, peer: &Peer, id: SessionId) -> Result<(EngineSession, Cancel), SessionError> {
        let counted = (!id.is_auto_commit()).then(|| self.operator.count_session());
        let user = self.users.get(peer.account.name().as_bytes());
        let user = Arc::clone(user.expect("only a known user has logged in"));
        let session = EngineSession::new(id.number, user, Locals::new(&self.globals), counted);
        let interrupt = Arc::clone(session.interrupt());
        Ok((session, Cancel::new(move |_| interrupt.cancel())))
    }

    fn execute(
        &self,
        session: &mut EngineSession,
        request: Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        session.interrupt().begin();
        session.note_end_of_source();
        let done = match request {
            Request::Sql(sql) => self.sql(session, sql, reply),
            Request::Plan(plan) => self.plan(session, &plan, reply),
            Request::Savepoint(savepoint) => self.savepoint(session, savepoint),
            _ => Err(unsupported("this request")),
        };
        session.look_at_transaction();
        if let Err(error) = &done {
            session.failed(error);
        }
        done
    }

    fn in_transaction(&self, session: &EngineSession) -> bool {
        session.transaction.is_some()
    }

    fn cancelled(&self, session: &mut EngineSession) {
        session.interrupt().clear();
    }

    fn timestamp(&self, _: &Peer, count: u32) -> Result<u64, SessionError> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX) << COUNTER_BITS;
        let count = u64::from(count.max(1));
        let first = |last: u64| now.max(last + 1);
        let next = |last: u64| Some(first(last) + count - 1);
        // Relaxed: each call gets a timestamp of its own, in any order of the threads' other work.
        let last = self.last_timestamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        Ok(first(last.unwrap_or_else(|last| last)))
    }
}

/// Bits of the counter below the milliseconds of a timestamp.
const COUNTER_BITS: u32 = 22;

impl EngineSession {
    /// Sends a note, such as that a table is missing or exists already.
    pub fn note(&mut self, reply: &mut Reply<'_>, code: u32, text: String) {
        self.warn(reply, Warning { level: Level::Note, code, text });
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("databases", &self.databases.len()).finish_non_exhaustive()
    }
}

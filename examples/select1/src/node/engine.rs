//! [`Engine`]: the service. It runs the statements of sessions on SQLite.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epoll_group::Handle;
use epoll_group::codec::auth::StoredPassword;
use epoll_group::codec::proto::notice::Level;
use epoll_group::session::{
    Account, AuthError, Cancel, Login, Peer, Reply, Request, Savepoint, SavepointAction, Service,
    SessionError, SessionId, Sql,
};

use crate::node::dialect::Cache;
use crate::node::errors::{not_utf8, unknown_database, unsupported};
use crate::node::operator::Operator;
use crate::node::pool::{Lent, Pool};
use crate::node::rest::Sources;
use crate::node::state::{EngineSession, Warning};
use crate::node::variables::Globals;
use crate::node::write_lock::WriteLock;
use crate::node::{arguments, dialect, hint, sbtest};

/// Everything that sessions share.
pub struct Engine {
    users: HashMap<Vec<u8>, StoredPassword>,
    /// Name of the database.
    pub schema: Arc<str>,
    pub pool: Arc<Pool>,
    pub writing: Arc<WriteLock>,
    pub sources: Arc<Sources>,
    pub globals: Globals,
    pub operator: Operator,
    statements: Cache,
    /// The last timestamp that was given.
    last_timestamp: AtomicU64,
}

/// Account, file and name of a database.
#[derive(Debug)]
pub struct Options {
    pub user: String,
    pub password: String,
    pub path: PathBuf,
    pub schema: String,
}

impl Engine {
    pub fn open(options: &Options, handle: Handle) -> rusqlite::Result<Self> {
        let password = StoredPassword::of(options.password.as_bytes());
        Ok(Self {
            users: HashMap::from([(options.user.clone().into_bytes(), password)]),
            schema: options.schema.as_str().into(),
            pool: Pool::open(options.path.clone())?,
            writing: Arc::default(),
            sources: Arc::default(),
            globals: Globals::new(),
            operator: Operator::new(handle),
            statements: Cache::new(),
            last_timestamp: AtomicU64::new(0),
        })
    }

    /// Makes the table of sysbench with so many rows, unless it is there.
    pub fn make_sbtest(&self, rows: u32) -> Result<(), Box<dyn Error>> {
        let db = self.pool.lend().map_err(|error| error.to_string())?;
        Ok(sbtest::make(&db, rows)?)
    }

    fn sql(
        &self,
        session: &mut EngineSession,
        sql: Sql<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        if let Some(schema) = sql.schema() {
            self.change_schema(schema).map_err(|error| {
                SessionError::fatal(error.code(), error.state(), error.message())
            })?;
        }
        let text = std::str::from_utf8(sql.text()).map_err(|_| not_utf8())?;
        let text = hint::apply(sql.hint(), text)?;
        let arguments = arguments::read(sql.args())?;
        let (text, arguments) = dialect::splice_names(text, arguments)?;
        let prepared = self.statements.read(&text, &self.schema)?;
        self.statement(session, &prepared, &arguments, reply)
    }

    /// There is one database, so nothing changes.
    pub fn change_schema(&self, name: &[u8]) -> Result<(), SessionError> {
        if name.is_empty() || name.eq_ignore_ascii_case(self.schema.as_bytes()) {
            return Ok(());
        }
        Err(unknown_database(&String::from_utf8_lossy(name)))
    }

    fn savepoint(
        &self,
        session: &mut EngineSession,
        savepoint: Savepoint<'_>,
    ) -> Result<(), SessionError> {
        let name = std::str::from_utf8(savepoint.name()).map_err(|_| not_utf8())?;
        match savepoint.action() {
            SavepointAction::Set => self.set_savepoint(session, name),
            SavepointAction::Release => self.release_savepoint(session, name),
            SavepointAction::RollBack => self.roll_back_to(session, name),
            _ => Err(unsupported("this savepoint operation")),
        }
    }

    /// A connection for one statement outside of a transaction.
    pub fn borrow(&self, session: &EngineSession) -> Result<Lent, SessionError> {
        let mut db = self.pool.lend()?;
        db.run_for(session);
        Ok(db)
    }

    /// Returns the time that a session waits for the right to write.
    pub fn lock_wait_timeout(&self, session: &EngineSession) -> Duration {
        let seconds = session.locals.get(&self.globals, "innodb_lock_wait_timeout");
        Duration::from_secs(seconds.and_then(|text| text.parse().ok()).unwrap_or(50))
    }
}

impl Service for Engine {
    type Session = EngineSession;

    fn authenticate(&self, login: &Login<'_>) -> Result<Account, AuthError> {
        login.check(self.users.get(login.user()))?;
        let name = std::str::from_utf8(login.user()).map_err(|_| AuthError::denied())?;
        self.change_schema(login.schema()).map_err(|_| AuthError::schema())?;
        Ok(Account::new(name))
    }

    fn open(&self, peer: &Peer, id: SessionId) -> Result<(EngineSession, Cancel), SessionError> {
        let counted = (!id.is_auto_commit()).then(|| self.operator.count_session());
        let user = peer.account().name();
        let session = EngineSession::new(id.number(), user, &self.schema, counted);
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
    /// A note about something that was there, or was not.
    pub fn note(&mut self, reply: &mut Reply<'_>, code: u32, text: String) {
        self.warn(reply, Warning { level: Level::Note, code, text });
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("schema", &self.schema).finish_non_exhaustive()
    }
}

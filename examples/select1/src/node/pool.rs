//! [`Pool`]: connections to SQLite, lent for one statement or for a transaction.

use std::cell::{RefCell, RefMut};
use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use epoll_group::session::SessionError;
use rusqlite::config::DbConfig;
use rusqlite::hooks::Action;
use rusqlite::limits::Limit;
use rusqlite::{Connection, OpenFlags};

use crate::node::columns::Tables;
use crate::node::functions::{self, Caller, Facts};
use crate::node::plan;
use crate::node::state::EngineSession;

/// Connections to one database.
#[derive(Debug)]
pub struct Pool {
    path: PathBuf,
    idle: Mutex<Vec<Db>>,
    open: AtomicUsize,
    /// Number of changes of tables.
    generation: AtomicU64,
}

/// One connection.
pub struct Db {
    connection: Connection,
    /// Interrupts the running statement soon.
    stop: Arc<AtomicBool>,
    /// Session for which it runs.
    caller: Caller,
    /// Cache of its plans.
    plans: RefCell<plan::Cache>,
    /// Cache of the columns of tables.
    tables: RefCell<Tables>,
    /// Generation of the pool when it was last used.
    generation: u64,
}

/// A connection that goes back to its transaction, or to the pool.
#[derive(Debug)]
pub struct Lent {
    /// Present until it goes back.
    db: Option<Db>,
    pool: Arc<Pool>,
    /// The session that it runs for.
    session: Option<Arc<Facts>>,
    /// The place in its transaction; `None` if it goes back to the pool.
    home: Option<Arc<Home>>,
}

/// The connection of a transaction, while no statement uses it.
///
/// *Shape*: shared by the transaction and the statement that has taken the connection. If the
/// transaction ends first, the connection goes back to the pool with the last of them.
#[derive(Debug, Default)]
pub struct Home(Mutex<Option<Lent>>);

/// Idle connections that are kept. To close more would free no descriptor: SQLite keeps a file's
/// descriptors while other connections to the file are open, because a close would release the
/// locks of those.
pub const MOST_IDLE: usize = 64;
/// Connections that may be open: one for each transaction, and one for each statement until its last
/// row is sent.
const MOST_OPEN: usize = 1024;
/// Statements that a connection keeps compiled.
const STATEMENTS: usize = 128;
/// SQLite looks whether to stop after so many steps of its machine: some tens of microseconds.
const STEPS: i32 = 4096;
/// Most bytes of a value and of a row, as many as a packet of MySQL may have.
pub const LONGEST_VALUE: usize = 64 << 20;
/// Longest wait for a lock of SQLite, which only other processes hold.
const BUSY: Duration = Duration::from_millis(200);

impl Pool {
    /// Opens the database, and makes it if there is none.
    pub fn open(path: PathBuf) -> rusqlite::Result<Arc<Self>> {
        let pool = Self {
            path,
            idle: Mutex::default(),
            open: AtomicUsize::new(1),
            generation: AtomicU64::new(0),
        };
        let first = pool.connect()?;
        pool.idle.lock().unwrap_or_else(PoisonError::into_inner).push(first);
        Ok(Arc::new(pool))
    }

    fn connect(&self) -> rusqlite::Result<Db> {
        // SQLite needs no mutex, because only the borrower uses a connection.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.execute_batch(
            "pragma journal_mode = wal; pragma synchronous = normal; \
             pragma mmap_size = 268435456; pragma trusted_schema = off;",
        )?;
        // Text in double quotes is a name and never a string.
        for quirk in [DbConfig::SQLITE_DBCONFIG_DQS_DML, DbConfig::SQLITE_DBCONFIG_DQS_DDL] {
            connection.set_db_config(quirk, false)?;
        }
        connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE as i32)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        connection.progress_handler(STEPS, Some(move || seen.load(Ordering::Relaxed)))?;
        let caller = functions::install(&connection)?;
        Ok(Db {
            connection,
            stop,
            caller,
            plans: RefCell::default(),
            tables: RefCell::default(),
            generation: self.generation(),
        })
    }

    /// Lends a connection.
    pub fn lend(self: &Arc<Self>) -> Result<Lent, SessionError> {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut db = match idle {
            Some(db) => db,
            None => self.connect_one_more()?,
        };
        let generation = self.generation();
        if db.generation != generation {
            db.forget_tables();
            db.generation = generation;
        }
        Ok(Lent { db: Some(db), pool: Arc::clone(self), session: None, home: None })
    }

    /// Number of connections that are open and not idle.
    pub fn lent(&self) -> usize {
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.open.load(Ordering::Relaxed).saturating_sub(idle)
    }

    /// Idle connections forget pages, statements and plans; each is made again when it is needed.
    pub fn release_memory(&self) {
        for db in &mut *self.idle.lock().unwrap_or_else(PoisonError::into_inner) {
            db.connection.flush_prepared_statement_cache();
            *db.plans.get_mut() = plan::Cache::default();
            db.tables.get_mut().clear();
            // A failure leaves the memory in use.
            let _ = db.connection.release_memory();
        }
    }

    fn connect_one_more(&self) -> Result<Db, SessionError> {
        if self.open.fetch_add(1, Ordering::Relaxed) >= MOST_OPEN {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return Err(SessionError::new(1040, b"08004", "Too many connections"));
        }
        self.connect().map_err(|error| {
            self.open.fetch_sub(1, Ordering::Relaxed);
            crate::node::errors::of_sqlite(&error, "")
        })
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Makes caches outdated.
    pub fn tables_changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }
}

impl Db {
    /// Drops the cached columns and the compiled statements, which are outdated. SQLite compiles
    /// again by itself, but only after it has described the old columns of a result.
    fn forget_tables(&mut self) {
        self.tables.get_mut().clear();
        self.connection.flush_prepared_statement_cache();
        let look = self.connection.query_row("select count(*) from sqlite_master", [], |_| Ok(()));
        // The query makes SQLite read the changed schema. If it fails, the next statement fails
        // with the same error.
        drop(look);
    }
}

impl Lent {
    /// Runs for this session from now on, and stops when it is cancelled.
    pub fn run_for(&mut self, session: &EngineSession) {
        self.db().caller.become_one(&session.facts);
        session.interrupt().stop_by(&self.db().stop);
        self.session = Some(Arc::clone(&session.facts));
    }

    /// Returns a flag that is set when a statement inserts a row. It replaces an earlier flag.
    pub fn watch_inserts(&mut self) -> rusqlite::Result<Arc<AtomicBool>> {
        let inserted = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&inserted);
        let db = self.db.as_mut().expect("it is there until it is dropped");
        let note = move |action, _: &str, _: &str, _| {
            // Relaxed: the same thread reads it.
            flag.fetch_or(action == Action::SQLITE_INSERT, Ordering::Relaxed);
        };
        db.connection.update_hook(Some(note))?;
        Ok(inserted)
    }

    /// Returns this to `home` on drop.
    pub fn go_back_to(&mut self, home: &Arc<Home>) {
        self.home = Some(Arc::clone(home));
    }

    /// Number of changes of tables that the connection knew of when it was lent.
    pub fn generation(&self) -> u64 {
        self.db().generation
    }

    /// Returns the cache of plans, for one plan at a time.
    pub fn plans(&self) -> RefMut<'_, plan::Cache> {
        self.db().plans.borrow_mut()
    }

    /// Returns the cache of the columns of tables.
    pub fn tables(&self) -> RefMut<'_, Tables> {
        self.db().tables.borrow_mut()
    }

    fn db(&self) -> &Db {
        self.db.as_ref().expect("it is there until it is dropped")
    }
}

impl Home {
    fn place(&self) -> MutexGuard<'_, Option<Lent>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take(&self) -> Option<Lent> {
        self.place().take()
    }

    fn put(&self, db: Lent) {
        let before = self.place().replace(db);
        debug_assert!(before.is_none(), "a transaction has one connection");
    }

    /// Calls `code` with the connection, if it is there.
    pub fn with<T>(&self, code: impl FnOnce(&Lent) -> T) -> Option<T> {
        self.place().as_ref().map(code)
    }
}

impl Deref for Lent {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db().connection
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(db) = self.db.take() else { return };
        if let Some(session) = self.session.take() {
            // Otherwise a cancel of that session would stop the next borrower.
            session.interrupt.let_go(&db.stop);
        }
        db.caller.forget();
        db.stop.store(false, Ordering::Relaxed);
        if let Some(home) = self.home.take() {
            let pool = Arc::clone(&self.pool);
            home.put(Self { db: Some(db), pool, session: None, home: None });
            return;
        }
        // The next borrower must not find an open transaction.
        let clean =
            db.connection.is_autocommit() || db.connection.execute_batch("rollback").is_ok();
        let mut idle = self.pool.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if clean && idle.len() < MOST_IDLE {
            idle.push(db);
            return;
        }
        drop(idle);
        drop(db);
        self.pool.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("stop", &self.stop).finish_non_exhaustive()
    }
}

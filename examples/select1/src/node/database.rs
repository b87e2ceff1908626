//! [`Database`]: a file of SQLite under the name that clients know. [`User`]: an account and the
//! databases that it may use.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, fs};

use epoll_group::codec::auth::StoredPassword;
use epoll_group::session::SessionError;

use crate::node::dialect::Cache;
use crate::node::errors::{denied_database, of_sqlite, unknown_database};
use crate::node::pool::{Lent, Pool};
use crate::node::state::EngineSession;
use crate::node::write_lock::WriteLock;

/// A database, shared by its sessions.
pub struct Database {
    /// Name for clients.
    pub schema: Arc<str>,
    /// Device and number of the file. Two databases in one would not know of each other's writers.
    pub file: (u64, u64),
    pub pool: Arc<Pool>,
    pub writing: Arc<WriteLock>,
    /// Cache of parsed statements. They depend on `schema`, which may stand in front of a table's
    /// name.
    pub statements: Cache,
}

/// A database of the server: its name for clients, and its file, which is made if there is none.
#[derive(Clone, Debug)]
pub struct Schema {
    pub name: String,
    pub path: PathBuf,
}

/// An account of the server.
#[derive(Clone, Debug)]
pub struct AccountOptions {
    pub user: String,
    pub password: String,
    /// Names of its databases; its sessions begin in the first one. If empty, it may use all
    /// databases.
    pub schemas: Vec<String>,
}

impl AccountOptions {
    /// An account that may use all databases.
    pub fn new(user: &str, password: &str) -> Self {
        Self { user: user.to_owned(), password: password.to_owned(), schemas: Vec::new() }
    }
}

/// An account and the databases that it may use. There is at least one.
pub struct User {
    pub name: String,
    pub password: StoredPassword,
    databases: Vec<Arc<Database>>,
}

impl Database {
    /// # Errors
    /// SQLite cannot open the file, or the path names none, as `:memory:` does.
    pub fn open(schema: &Schema) -> Result<Self, String> {
        let Schema { name, path } = schema;
        let of_schema = |error: &dyn fmt::Display| format!("schema {name}: {error}");
        let pool = Pool::open(path.clone()).map_err(|error| of_schema(&error))?;
        let file = fs::metadata(path)
            .map_err(|error| of_schema(&format_args!("{}: {error}", path.display())))?;
        Ok(Self {
            schema: name.as_str().into(),
            file: (file.dev(), file.ino()),
            pool,
            writing: Arc::default(),
            statements: Cache::new(),
        })
    }

    /// Lends a connection that runs for a session.
    pub fn lend_to(&self, session: &EngineSession) -> Result<Lent, SessionError> {
        let mut db = self.pool.lend()?;
        db.run_for(session);
        Ok(db)
    }

    /// Returns SQLite's error for the client.
    pub fn error(&self, error: &rusqlite::Error) -> SessionError {
        of_sqlite(error, &self.schema)
    }

    fn is(&self, name: &[u8]) -> bool {
        name.eq_ignore_ascii_case(self.schema.as_bytes())
    }
}

impl User {
    /// # Errors
    /// The account names a database that is not among `all`, or there is none.
    pub fn new(options: &AccountOptions, all: &[Arc<Database>]) -> Result<Self, String> {
        let AccountOptions { user, password, schemas } = options;
        let find = |name: &String| {
            let found = all.iter().find(|database| database.is(name.as_bytes()));
            found.cloned().ok_or_else(|| format!("account {user}: unknown schema {name}"))
        };
        let databases: Vec<Arc<Database>> = match &schemas[..] {
            [] => all.to_vec(),
            names => names.iter().map(find).collect::<Result<_, _>>()?,
        };
        once(&format!("account {user}: schema"), databases.iter().map(|one| &*one.schema))?;
        if databases.is_empty() {
            return Err("there is no schema".to_owned());
        }
        let password = StoredPassword::of(password.as_bytes());
        Ok(Self { name: user.clone(), password, databases })
    }

    /// The databases of the user, the first of which a session begins in.
    pub fn databases(&self) -> &[Arc<Database>] {
        &self.databases
    }

    /// The database of this name among `all`, if the user may use it.
    pub fn database(
        &self,
        name: &[u8],
        all: &[Arc<Database>],
    ) -> Result<&Arc<Database>, SessionError> {
        if let Some(database) = self.databases.iter().find(|database| database.is(name)) {
            return Ok(database);
        }
        let text = String::from_utf8_lossy(name);
        Err(match all.iter().any(|database| database.is(name)) {
            true => denied_database(&self.name, &text),
            false => unknown_database(&text),
        })
    }
}

/// # Errors
/// A name stands there twice.
pub fn once(what: &str, mut names: impl Iterator<Item = impl AsRef<str>>) -> Result<(), String> {
    let mut seen = HashSet::new();
    let again = names.find(|name| !seen.insert(name.as_ref().to_ascii_lowercase()));
    again.map_or(Ok(()), |name| Err(format!("{what} {} is named twice", name.as_ref())))
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Database").field("schema", &self.schema).finish_non_exhaustive()
    }
}

impl fmt::Debug for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

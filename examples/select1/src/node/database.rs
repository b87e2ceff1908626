//! [`Database`]: a file of SQLite under the name that clients know, and who may use it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use epoll_group::codec::auth::StoredPassword;
use epoll_group::session::SessionError;

use crate::node::dialect::Cache;
use crate::node::errors::{denied_database, unknown_database};
use crate::node::pool::Pool;
use crate::node::write_lock::WriteLock;

/// What the sessions in one database share.
pub struct Database {
    /// Name for clients.
    pub schema: Arc<str>,
    pub pool: Arc<Pool>,
    pub writing: Arc<WriteLock>,
    /// Statements depend on the name, because it may stand in front of those of tables.
    pub statements: Cache,
}

/// A database of the server: its name for clients, and its file, which is made if there is none.
#[derive(Clone, Debug)]
pub struct Schema {
    pub name: String,
    pub path: PathBuf,
}

/// An account of the server.
#[derive(Clone, Debug, Default)]
pub struct AccountOptions {
    pub user: String,
    pub password: String,
    /// Names of its databases, the first of which its sessions begin in. If empty, all are.
    pub schemas: Vec<String>,
}

/// A user and the databases that he may use. There is at least one.
pub struct User {
    pub name: String,
    pub password: StoredPassword,
    databases: Vec<Arc<Database>>,
}

impl Database {
    pub fn open(schema: &Schema) -> rusqlite::Result<Self> {
        Ok(Self {
            schema: schema.name.as_str().into(),
            pool: Pool::open(schema.path.clone())?,
            writing: Arc::default(),
            statements: Cache::new(),
        })
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
        let databases = match &schemas[..] {
            [] => all.to_vec(),
            names => names.iter().map(find).collect::<Result<_, _>>()?,
        };
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

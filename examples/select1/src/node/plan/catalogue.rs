//! Tables and indexes as the database has them.
//!
//! Read with names as bound values; what comes back is what goes, quoted, into statements.

use epoll_group::session::SessionError;
use rusqlite::{Connection, OptionalExtension};

use super::{refuse, sqlite};
use crate::node::columns::{Description, rowid_name, table_columns};

/// A table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) name: String,
    pub(super) columns: Vec<TableColumn>,
    /// Name for the number of a row; `None` if rows have no number beside their primary key.
    rowid: Option<&'static str>,
}

/// A column of a table.
#[derive(Debug)]
pub(super) struct TableColumn {
    /// Description for the client.
    pub(super) description: Description,
    /// Its place in the primary key, from 1; 0 if it is not there.
    primary: u32,
}

/// An index, the primary key being one.
#[derive(Debug)]
pub(super) struct Index {
    /// `None` for the primary key.
    pub(super) name: Option<String>,
    pub(super) is_unique: bool,
    pub(super) parts: Vec<Part>,
    /// Columns that decide the order of entries with the same parts.
    pub(super) rest: Vec<String>,
}

/// A column of an index.
#[derive(Debug)]
pub(super) struct Part {
    /// Index of the column in the table.
    pub(super) column: usize,
    pub(super) collation: Option<String>,
    pub(super) is_descending: bool,
}

/// The name that stands for the primary key.
const PRIMARY: &str = "primary";

impl Table {
    /// The table of this name, whatever its case. Views and what SQLite keeps for itself are none.
    /// Its columns are told to be of `schema`.
    pub(super) fn find(db: &Connection, schema: &str, name: &str) -> Result<Self, SessionError> {
        const FIND: &str = "select name from main.sqlite_master where type = 'table'
            and name = ?1 collate nocase and name not like 'sqlite\\_%' escape '\\'";
        const PRIMARY: &str = "select pk from pragma_table_info(?1, 'main') order by cid";
        let found = db.query_row(FIND, [name], |row| row.get(0)).optional().map_err(sqlite)?;
        let name: String = found.ok_or_else(|| refuse(format_args!("no table '{name}'")))?;
        let descriptions = table_columns(db, schema, &name).map_err(sqlite)?;
        let mut statement = db.prepare(PRIMARY).map_err(sqlite)?;
        let places = statement.query_map([&name], |row| row.get(0)).map_err(sqlite)?;
        let places = places.collect::<Result<Vec<u32>, _>>().map_err(sqlite)?;
        let columns = descriptions.into_iter().zip(places);
        let columns: Vec<_> =
            columns.map(|(description, primary)| TableColumn { description, primary }).collect();
        let without_rowid = "select wr from pragma_table_list(?1) where schema = 'main'";
        let without_rowid: bool =
            db.query_row(without_rowid, [&name], |row| row.get(0)).map_err(sqlite)?;
        let rowid = rowid_name(columns.iter().map(TableColumn::name));
        Ok(Self { name, rowid: rowid.filter(|_| !without_rowid), columns })
    }

    /// Returns the index of the column of this name.
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name().eq_ignore_ascii_case(name))
    }

    /// The index of this name.
    pub(super) fn index(&self, db: &Connection, name: &str) -> Result<Index, SessionError> {
        const FIND: &str = "select name, \"unique\", partial from pragma_index_list(?1, 'main')
            where name = ?2 collate nocase and origin != 'pk'";
        const PARTS: &str = "select name, coll, \"desc\" from pragma_index_xinfo(?1, 'main')
            where key order by seqno";
        if name.eq_ignore_ascii_case(PRIMARY) {
            return Ok(self.primary());
        }
        let none = || refuse(format_args!("no index '{name}' on table '{}'", self.name));
        let found: Option<(String, bool, bool)> = db
            .query_row(FIND, [&self.name, name], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
            .optional()
            .map_err(sqlite)?;
        let (name, is_unique, is_partial) = found.ok_or_else(none)?;
        let unusable = || refuse(format_args!("index '{name}' has expressions or leaves out rows"));
        if is_partial {
            return Err(unusable());
        }
        let mut statement = db.prepare(PARTS).map_err(sqlite)?;
        let mut rows = statement.query([&name]).map_err(sqlite)?;
        let mut parts = Vec::new();
        while let Some(row) = rows.next().map_err(sqlite)? {
            let column: Option<String> = row.get(0).map_err(sqlite)?;
            let column = column.and_then(|column| self.position(&column)).ok_or_else(unusable)?;
            parts.push(Part {
                column,
                collation: row.get(1).map_err(sqlite)?,
                is_descending: row.get(2).map_err(sqlite)?,
            });
        }
        let primary = self.primary();
        let key = primary.parts.iter().filter_map(|part| self.columns.get(part.column));
        let rest = key.map(|column| column.name().to_owned()).chain(primary.rest).collect();
        Ok(Index { name: Some(name.clone()), is_unique, parts, rest })
    }

    fn primary(&self) -> Index {
        let mut key: Vec<_> =
            self.columns.iter().enumerate().filter(|(_, column)| column.primary > 0).collect();
        key.sort_by_key(|(_, column)| column.primary);
        let parts: Vec<_> = key
            .into_iter()
            .map(|(column, _)| Part { column, collation: None, is_descending: false })
            .collect();
        let rest = self.rowid.filter(|_| parts.is_empty()).map(str::to_owned);
        Index { name: None, is_unique: true, parts, rest: rest.into_iter().collect() }
    }
}

impl TableColumn {
    pub(super) fn name(&self) -> &str {
        &self.description.name
    }
}

/// The version of the catalogue: another one after each change of a table.
pub(super) fn version(db: &Connection) -> Result<i64, SessionError> {
    let mut statement = db.prepare_cached("pragma main.schema_version").map_err(sqlite)?;
    statement.query_row([], |row| row.get(0)).map_err(sqlite)
}

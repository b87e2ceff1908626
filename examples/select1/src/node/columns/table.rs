//! Columns of tables, read from SQLite's catalogue.

use std::collections::HashMap;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Statement, params};

use super::{Description, Domain, Facts, Type};

/// Cache of the columns of tables, one for each connection; emptied when tables change.
///
/// *Shape*: at most 256 tables, each with all of its columns.
#[derive(Debug, Default)]
pub struct Tables(HashMap<String, Vec<Description>>);

/// Most tables in the cache. Beyond that number all are forgotten.
const MOST_TABLES: usize = 256;

impl Tables {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The columns of a table.
    fn of(
        &mut self,
        db: &Connection,
        schema: &str,
        table: &str,
    ) -> rusqlite::Result<&[Description]> {
        if !self.0.contains_key(table) {
            if self.0.len() >= MOST_TABLES {
                self.0.clear();
            }
            self.0.insert(table.to_owned(), table_columns(db, schema, table)?);
        }
        Ok(self.0.get(table).map_or(&[], Vec::as_slice))
    }

    /// The number and the name of the column that numbers the rows of a table by itself.
    pub fn numbered(
        &mut self,
        db: &Connection,
        schema: &str,
        table: &str,
    ) -> rusqlite::Result<Option<(usize, &str)>> {
        let mut columns = self.of(db, schema, table)?.iter().enumerate();
        let found = columns.find(|(_, column)| column.facts.auto_increment);
        Ok(found.map(|(number, column)| (number, column.original_name.as_str())))
    }

    /// A column of a table, by its own name.
    fn column(
        &mut self,
        db: &Connection,
        schema: &str,
        table: &str,
        name: &str,
    ) -> rusqlite::Result<Description> {
        let mut known = self.of(db, schema, table)?.iter();
        let known = known.find(|column| column.original_name == name);
        // The rowid has a name and no declaration.
        Ok(known.cloned().unwrap_or_else(|| Description {
            original_name: name.to_owned(),
            table: table.to_owned(),
            schema: schema.to_owned(),
            ..Description::expression("", Some(Type::BIGINT))
        }))
    }

    /// The columns of what `statement` selects. Those of expressions have no type yet.
    pub fn describe(
        &mut self,
        db: &Connection,
        statement: &Statement<'_>,
        schema: &str,
    ) -> rusqlite::Result<Vec<Description>> {
        let columns = statement.columns_with_metadata().map(|column| {
            let (Some(table), Some(origin)) = (column.table_name(), column.origin_name()) else {
                return Ok(Description::expression(column.name(), None));
            };
            let known = self.column(db, schema, table, origin)?;
            // A table has values in their stored form. A change returns values before they get it.
            let domain = known.domain.filter(|_| !statement.readonly());
            Ok(Description { name: column.name().to_owned(), domain, ..known })
        });
        columns.collect()
    }
}

impl Facts {
    /// Reads the facts of one column.
    fn of(db: &Connection, table: &str, column: &str) -> rusqlite::Result<Self> {
        // SQLite knows no such facts of the columns of views and table functions.
        let Ok(metadata) = db.column_metadata(Some("main"), table, column) else {
            return Ok(Self::default());
        };
        let (_, _, not_null, primary_key, auto_increment) = metadata;
        let mut facts = Self {
            not_null: not_null || primary_key,
            primary_key,
            auto_increment,
            ..Self::default()
        };
        // The first column of an index tells that there is one.
        let mut keys = db.prepare_cached(
            "select list.\"unique\" from pragma_index_list(?1) list, pragma_index_info(list.name) \
             info where list.origin <> 'pk' and info.seqno = 0 and info.name = ?2 \
             order by list.\"unique\" desc",
        )?;
        let unique: Option<bool> =
            keys.query_row(params![table, column], |row| row.get(0)).optional()?;
        facts.unique_key = unique == Some(true);
        facts.multiple_key = unique == Some(false);
        Ok(facts)
    }
}

/// Returns a name of the row number that none of these columns has.
pub fn rowid_name(columns: impl Iterator<Item = impl AsRef<str>> + Clone) -> Option<&'static str> {
    let is_free =
        |name: &&str| !columns.clone().any(|column| column.as_ref().eq_ignore_ascii_case(name));
    ["_rowid_", "rowid", "oid"].into_iter().find(is_free)
}

/// All columns of a table, in order; none if there is no such table.
pub fn table_columns(
    db: &Connection,
    schema: &str,
    table: &str,
) -> rusqlite::Result<Vec<Description>> {
    let mut columns = db.prepare_cached("select name, type from pragma_table_info(?1)")?;
    let columns = columns.query_map([table], |row| {
        let (name, declared): (String, String) = (row.get(0)?, row.get(1)?);
        let facts = Facts::of(db, table, &name)?;
        Ok(Description {
            original_name: name.clone(),
            name,
            table: table.to_owned(),
            schema: schema.to_owned(),
            kind: Some(Type::declared(&declared)),
            domain: Domain::declared(&declared).map(Arc::new),
            facts,
        })
    })?;
    columns.collect()
}

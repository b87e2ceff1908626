//! What SQLite knows of the columns of tables.

use rusqlite::{Connection, OptionalExtension, Statement, params};

use super::{Description, Facts, Type};

impl Description {
    /// The columns of what `statement` selects. Those of expressions have no type yet.
    pub(crate) fn of_statement(
        db: &Connection,
        statement: &Statement<'_>,
        schema: &str,
    ) -> rusqlite::Result<Vec<Self>> {
        let declared = statement.columns();
        let columns = statement.columns_with_metadata().zip(declared);
        let columns = columns.map(|(column, declared)| {
            let (Some(table), Some(origin)) = (column.table_name(), column.origin_name()) else {
                return Ok(Self::expression(column.name(), None));
            };
            Ok(Self {
                name: column.name().to_owned(),
                original_name: origin.to_owned(),
                table: table.to_owned(),
                schema: schema.to_owned(),
                // The rowid has a name and no declaration.
                kind: Some(declared.decl_type().map_or(Type::BIGINT, Type::declared)),
                facts: Facts::of(db, table, origin)?,
            })
        });
        columns.collect()
    }
}

impl Facts {
    /// Of one column. `db` finds it once for each table: see [`table_columns`].
    fn of(db: &Connection, table: &str, column: &str) -> rusqlite::Result<Self> {
        // Nothing is known of columns of tables that are computed.
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

/// All columns of a table, in order; none if there is no such table.
pub(crate) fn table_columns(
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
            facts,
        })
    })?;
    columns.collect()
}

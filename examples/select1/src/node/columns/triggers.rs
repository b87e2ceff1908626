//! Triggers that bring the values of BIT, ENUM and SET columns into their stored form.
//!
//! A table with such columns has a trigger for inserts and one for updates, which run behind each statement
//! that writes. They are made anew when a table is altered: SQLite drops no column that a trigger names.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use rusqlite::functions::FunctionFlags;
use rusqlite::{Connection, Error, Result};

use super::domain::Domain;
use super::rowid_name;
use crate::node::dialect::{literal, quoted};

/// Types that a connection keeps decoded, at most.
const MOST_KNOWN: usize = 8;
/// Pattern of the names of these triggers, for LIKE.
const NAMES: &str = "values of %";

/// Makes the function of the triggers known: the stored form of a value by type and name of its column.
pub fn install(db: &Connection) -> Result<()> {
    // The pool trusts no schema, so a trigger may call innocuous functions only.
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    // The last types. SQLite keeps auxiliary data for one run of a trigger only, which is one row.
    let known = Mutex::new(VecDeque::<(String, Domain)>::new());
    db.create_scalar_function("stored_value", 3, flags, move |context| {
        let declared = context.get_raw(0).as_str()?;
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        let place = match known.iter().position(|(text, _)| text == declared) {
            Some(place) => place,
            None => {
                let none = || Error::UserFunctionError("no type with a domain".into());
                let domain = Domain::declared(declared).ok_or_else(none)?;
                known.truncate(MOST_KNOWN - 1);
                known.push_front((declared.to_owned(), domain));
                0
            }
        };
        let (_, domain) = &known[place];
        let stored = domain.store(context.get_raw(1).as_str()?, context.get_raw(2));
        stored.map_err(|text| Error::UserFunctionError(text.into()))
    })
}

/// Drops the triggers of a table.
pub fn remove(db: &Connection, table: &str) -> Result<()> {
    let mut triggers = db.prepare(
        "select name from sqlite_master where type = 'trigger' and name like ?1 \
         and tbl_name = ?2 collate nocase",
    )?;
    let names =
        triggers.query_map([NAMES, table], |row| row.get(0))?.collect::<Result<Vec<String>>>()?;
    names.iter().try_for_each(|name| db.execute_batch(&format!("drop trigger {}", quoted(name))))
}

/// Makes the triggers of all tables that lack them.
pub fn make(db: &Connection) -> Result<()> {
    let mut columns = db.prepare(
        "select m.name, c.name, c.type from sqlite_master m, pragma_table_info(m.name) c \
         where m.type = 'table' and c.type like '% blob(%' and not exists \
         (select 1 from sqlite_master t where t.type = 'trigger' and t.name like ?1 \
         and t.tbl_name = m.name)",
    )?;
    let mut tables = BTreeMap::<String, Vec<(String, String)>>::new();
    let mut rows = columns.query([NAMES])?;
    while let Some(row) = rows.next()? {
        let (column, declared): (String, String) = (row.get(1)?, row.get(2)?);
        if Domain::declared(&declared).is_some() {
            tables.entry(row.get(0)?).or_default().push((column, declared));
        }
    }
    drop(rows);
    let mut all = db.prepare("select name from pragma_table_info(?1)")?;
    for (table, columns) in &tables {
        let all = all.query_map([table], |row| row.get(0))?.collect::<Result<Vec<String>>>()?;
        let Some(rowid) = rowid_name(all.iter()) else {
            let text = format!(
                "table '{table}' with a BIT, ENUM or SET column has columns '_rowid_', 'rowid' and \
                 'oid', so its rows have no number"
            );
            return Err(Error::UserFunctionError(text.into()));
        };
        db.execute_batch(&definition(table, rowid, columns))?;
    }
    Ok(())
}

/// The triggers of a table with these columns and declared types.
fn definition(table: &str, rowid: &str, columns: &[(String, String)]) -> String {
    let stored = |row: &str, (column, declared): &(String, String)| {
        let [declared, name] = [declared, column].map(|text| literal(text));
        format!("stored_value({declared}, {name}, {row}{})", quoted(column))
    };
    let join = |separator: &str, write: &dyn Fn(&(String, String)) -> String| {
        columns.iter().map(write).collect::<Vec<_>>().join(separator)
    };
    // The collation of the column would ignore case.
    let differs = |row: &str| {
        join(" or ", &|column| {
            let name = quoted(&column.0);
            format!("{row}{name} collate binary is not {}", stored(row, column))
        })
    };
    let names = join(", ", &|column| quoted(&column.0));
    let values = join(", ", &|column| format!("{} = {}", quoted(&column.0), stored("", column)));
    let (new, old, quoted_table) = (differs("new."), differs(""), quoted(table));
    let duplicate = literal(&format!("Duplicate entry for a key of '{table}'"));
    let trigger = |verb: &str, event: &str| {
        let name = quoted(&format!("values of {table} on {verb}"));
        // `insert ignore` passes over an update that would repeat a key.
        format!(
            "create trigger {name} after {event} on {quoted_table} when {new} begin \
             update {quoted_table} set {values} where {rowid} = new.{rowid}; \
             select raise(abort, {duplicate}) from {quoted_table} \
             where {rowid} = new.{rowid} and ({old}); end;"
        )
    };
    trigger("insert", "insert") + &trigger("update", &format!("update of {names}"))
}

//! Statements for the shapes of plans, and what is known of their results.
//!
//! A known shape costs one look-up in the cache. SQLite prepares a statement again by itself when
//! tables have changed. This module only has to notice that it did:
//!
//! 1. the first row is fetched, so that the statement has its snapshot,
//! 2. if it is new, gives no row, or SQLite had to prepare it again, the version of the catalogue is
//!    looked at,
//! 3. and if that has changed, everything is forgotten, and the plan begins again.

use std::collections::HashMap;
use std::sync::Arc;

use epoll_group::codec::message::ScalarValue;
use epoll_group::session::SessionError;
use rusqlite::types::{Null, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Statement, StatementStatus, ToSql};

use super::catalogue::{self, Index, Table};
use super::keys::{self, KeyColumn};
use super::shape::{Asked, Wanted, Way};
use super::types::type_of;
use super::value::name_of;
use super::{refuse, sqlite};
use crate::node::arguments::widen;
use crate::node::columns::Description;
use crate::node::cursor::{Compiled, Cursor};
use crate::node::dialect::quoted;
use crate::node::pool::Lent;

/// Cache of the statements for shapes of plans.
///
/// *Shape*: one for each connection of the database, whose statements it knows; up to 512 shapes.
#[derive(Debug, Default)]
pub struct Cache {
    shapes: HashMap<Box<[u8]>, Arc<Access>>,
    /// That of the catalogue when the shapes were looked at.
    version: i64,
}

/// Most shapes in the cache. Beyond that number all are forgotten.
const MOST_SHAPES: usize = 512;

/// Most bytes of a shape in the cache. Longer ones are looked at anew each time.
const LONGEST_SHAPE: usize = 4096;

/// Number of times that a plan begins again because tables change.
const TRIES: usize = 8;

/// Statement and columns for a shape.
#[derive(Debug)]
pub(super) struct Access {
    sql: String,
    /// For each part of a key, whether it is bytes and no text.
    binary: Vec<bool>,
    pub(super) fields: Vec<Description>,
}

impl Cache {
    /// The statements for the shapes that are known.
    #[cfg(test)]
    pub(super) fn statements(&self) -> Vec<&str> {
        self.shapes.values().map(|access| access.sql.as_str()).collect()
    }

    /// True if tables have changed since the last look. The cache is emptied then.
    fn has_changed(&mut self, db: &Connection) -> Result<bool, SessionError> {
        let version = catalogue::version(db)?;
        let has_changed = version != self.version;
        if has_changed {
            self.shapes.clear();
            self.version = version;
        }
        Ok(has_changed)
    }

    fn access(&mut self, db: &Connection, asked: &Asked<'_>) -> Result<Arc<Access>, SessionError> {
        if let Some(access) = self.shapes.get(asked.key()) {
            return Ok(Arc::clone(access));
        }
        self.has_changed(db)?;
        let access = Arc::new(Access::new(db, asked)?);
        if asked.key().len() <= LONGEST_SHAPE {
            if self.shapes.len() >= MOST_SHAPES {
                self.shapes.clear();
            }
            self.shapes.insert(asked.key().into(), Arc::clone(&access));
        }
        Ok(access)
    }
}

/// Runs the statement for what is asked, up to its second row.
pub(super) fn open(mut db: Lent, asked: &Asked<'_>) -> Result<(Arc<Access>, Cursor), SessionError> {
    for _ in 0..TRIES {
        let access = db.plans().access(&db, asked)?;
        let (mut cursor, is_new) = match Cursor::open(db, |db| compile(db, &access, asked)) {
            Ok(opened) => opened,
            Err(failed) => {
                let error;
                (db, error) = *failed;
                if db.plans().has_changed(&db)? {
                    continue;
                }
                return Err(error);
            }
        };
        let first = cursor.look_ahead().map(|_| ()).map_err(sqlite);
        let is_same = !is_new && cursor.compiled_again() == Some(0);
        if !is_same && cursor.db().plans().has_changed(cursor.db())? {
            db = cursor.into_db();
            continue;
        }
        first?;
        cursor.look_ahead().map_err(sqlite)?;
        return Ok((access, cursor));
    }
    Err(refuse("the tables keep changing"))
}

/// Compiles and binds. Returns true if the connection did not have the statement.
fn compile<'db>(
    db: &'db Lent,
    access: &Access,
    asked: &Asked<'_>,
) -> Result<(Compiled<'db>, bool), SessionError> {
    let mut statement = db.prepare_cached(&access.sql).map_err(sqlite)?;
    let is_new = statement.get_status(StatementStatus::Run) == 0;
    bind(&mut statement, access, asked)?;
    Ok((Compiled::Kept(statement), is_new))
}

impl Access {
    fn new(db: &Connection, asked: &Asked<'_>) -> Result<Self, SessionError> {
        let table = Table::find(db, &asked.schema.to_lowercase(), asked.table)?;
        let index = table.index(db, asked.index)?;
        let columns = columns(&table, asked)?;
        let first = key(&table, &index, asked, asked.first, 1)?;
        let mut last = key(&table, &index, asked, asked.last, 1 + first.len())?;
        if let ([KeyColumn { value: Some(_), .. }, ..], [column, ..]) = (&first[..], &mut last[..])
        {
            // A row at or behind a first value has no NULL in this column. Then both bounds can be
            // bounds of a search.
            column.not_null = true;
        }
        let condition = match asked.way {
            Way::Get => keys::equal(&first),
            Way::Scan => "1".to_owned(),
            Way::Range => format!("{} and {}", keys::from(&first), keys::to(&last)),
        };
        let is_one = asked.way == Way::Get
            && index.is_unique
            && first.len() == index.parts.len()
            && first.iter().all(|part| part.value.is_some());
        let name = |at: &usize| Some(format!("t.{}", quoted(table.columns.get(*at)?.name())));
        let list = columns.iter().filter_map(name).collect::<Vec<_>>().join(", ");
        let by = index.name.as_ref().map(|name| format!(" indexed by {}", quoted(name)));
        let order = if is_one { String::new() } else { order(&table, &index, asked.is_back) };
        let sql = format!(
            "select {list} from main.{} as t{} where {condition}{order}",
            quoted(&table.name),
            by.unwrap_or_default(),
        );
        let parts = [asked.first, asked.last].map(|parts| parts.len());
        let is_binary = |count: usize| {
            let parts = index.parts.iter().take(count);
            parts.map(|part| {
                table.columns.get(part.column).is_some_and(|c| type_of(&c.description).is_binary())
            })
        };
        let binary = parts.into_iter().flat_map(is_binary).collect();
        let fields = columns
            .iter()
            .filter_map(|at| Some(table.columns.get(*at)?.description.clone()))
            .collect();
        Ok(Self { sql, binary, fields })
    }
}

/// Returns the columns of the table that are asked for.
fn columns(table: &Table, asked: &Asked<'_>) -> Result<Vec<usize>, SessionError> {
    let Some(wanted) = asked.wanted() else { return Ok((0..table.columns.len()).collect()) };
    let none = |what: &dyn std::fmt::Display| {
        refuse(format_args!("TABLE_PROJECT: no column {what} in table '{}'", table.name))
    };
    let one = |wanted: Result<Wanted<'_>, SessionError>| match wanted? {
        Wanted::Number(number) => usize::try_from(number)
            .ok()
            .filter(|at| *at < table.columns.len())
            .ok_or_else(|| none(&number)),
        Wanted::Name(name) => table.position(name).ok_or_else(|| none(&format!("'{name}'"))),
    };
    let columns = wanted.map(one).collect::<Result<Vec<_>, _>>()?;
    if columns.is_empty() {
        return Err(refuse("TABLE_PROJECT without columns"));
    }
    Ok(columns)
}

/// A key on the first columns of the index; its values are bound as `number` and what follows.
fn key<'a>(
    table: &Table,
    index: &Index,
    asked: &Asked<'a>,
    parts: &'a [epoll_group::codec::proto::plan::KeyExpr],
    number: usize,
) -> Result<Vec<KeyColumn>, SessionError> {
    let node = asked.way.name();
    let mut key = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let name = asked.name(&part.field)?;
        let expected = index.parts.get(at);
        let column = expected.and_then(|part| table.columns.get(part.column));
        let column = column.filter(|column| column.name().eq_ignore_ascii_case(name));
        let (Some(expected), Some(column)) = (expected, column) else {
            let index = asked.index;
            return Err(refuse(format_args!(
                "{node}: '{name}' is not column {at} of index '{index}'"
            )));
        };
        if expected.is_descending && asked.way == Way::Range {
            return Err(refuse(format_args!("{node} over a descending index")));
        }
        let mut text = format!("t.{}", quoted(column.name()));
        if let Some(collation) = &expected.collation {
            text = format!("{text} collate {}", quoted(collation));
        }
        let value = if asked.is_null(part)? { None } else { Some(number + at) };
        key.push(KeyColumn { name: text, not_null: column.description.facts.not_null, value });
    }
    Ok(key)
}

fn order(table: &Table, index: &Index, is_back: bool) -> String {
    let mut order = Vec::new();
    for part in &index.parts {
        let Some(column) = table.columns.get(part.column) else { continue };
        let collation = part.collation.as_ref().map(|name| format!(" collate {}", quoted(name)));
        let is_descending = part.is_descending != is_back;
        order.push((
            format!("t.{}{}", quoted(column.name()), collation.unwrap_or_default()),
            is_descending,
        ));
    }
    for name in &index.rest {
        order.push((format!("t.{}", quoted(name)), is_back));
    }
    let part = |(name, is_descending): (String, bool)| {
        if is_descending { format!("{name} desc") } else { name }
    };
    if order.is_empty() {
        return String::new();
    }
    format!(" order by {}", order.into_iter().map(part).collect::<Vec<_>>().join(", "))
}

fn bind(
    statement: &mut Statement<'_>,
    access: &Access,
    asked: &Asked<'_>,
) -> Result<(), SessionError> {
    // A condition that cannot hold does without the values behind it.
    let count = statement.parameter_count();
    let parts = asked.first.iter().chain(asked.last).take(count);
    for ((at, part), binary) in parts.enumerate().zip(&access.binary) {
        let value = match asked.value(part)? {
            // The statement does without.
            ScalarValue::Null => continue,
            other => Bound::of(other, *binary, asked.way)?,
        };
        statement.raw_bind_parameter(at + 1, value).map_err(sqlite)?;
    }
    Ok(())
}

/// A value of a key.
struct Bound<'a>(ValueRef<'a>);

impl<'a> Bound<'a> {
    fn of(value: ScalarValue<'a>, binary: bool, way: Way) -> Result<Self, SessionError> {
        Ok(Self(match value {
            ScalarValue::Signed(value) => ValueRef::Integer(value),
            // SQLite has no integers for the largest ones.
            ScalarValue::Unsigned(value) => match i64::try_from(value) {
                Ok(value) => ValueRef::Integer(value),
                Err(_) => ValueRef::Real(value as f64),
            },
            ScalarValue::Bool(value) => ValueRef::Integer(value.into()),
            ScalarValue::Double(value) => ValueRef::Real(value),
            ScalarValue::Float(value) => ValueRef::Real(widen(value)),
            ScalarValue::String(text, _) if binary || std::str::from_utf8(text).is_err() => {
                ValueRef::Blob(text)
            }
            ScalarValue::String(text, _) => ValueRef::Text(text),
            other => {
                let (node, name) = (way.name(), name_of(&other));
                return Err(refuse(format_args!("{node}: {name} in a key")));
            }
        }))
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            ValueRef::Null => ToSqlOutput::from(Null),
            value => ToSqlOutput::Borrowed(value),
        })
    }
}

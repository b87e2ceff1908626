//! Statements about the rows of one table.

use std::sync::Arc;

use epoll_group::session::SessionError;
use sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, Insert, ObjectName, OnInsert, Query,
    Select, SetExpr, TableFactor, TableObject, TableWithJoins, Update,
};

use super::keys::{Id, Ids, KeyColumn};
use super::read::{Facts, path};
use super::{Effect, Home, Rows, Statement, spread};
use crate::refuse::{unknown_database, unroutable};

/// Table of a statement.
enum Found<'a> {
    Sharded(Table<'a>),
    Whole(Whole<'a>),
}

/// A table with all its rows on this node; `None`: on each node.
struct Whole<'a> {
    name: &'a str,
    node: Option<usize>,
}

/// A sharded table in a statement.
struct Table<'a> {
    name: &'a str,
    column: &'a str,
    alias: Option<&'a str>,
}

impl<'a> Found<'a> {
    fn named(name: &ObjectName, facts: &Facts<'a>) -> Result<Self, SessionError> {
        let parts = path(name).unwrap_or_default();
        let (schema, table) = match &parts[..] {
            [table] => (None, table),
            [schema, table] => (Some(schema), table),
            _ => return Err(unroutable(name, "this is no name of a table")),
        };
        let catalogue = facts.catalogue;
        if let Some(schema) = schema
            && !schema.eq_ignore_ascii_case(&catalogue.schema)
        {
            return Err(unknown_database(schema.as_bytes()));
        }
        let Some((name, home)) = catalogue.tables.get_key_value(table.as_str()) else {
            let tables: Vec<_> = catalogue.tables.keys().map(String::as_str).collect();
            let why = format!("it knows {} only", tables.join(", "));
            return Err(unroutable(format_args!("the table {name}"), why));
        };
        Ok(match home {
            Home::Sharded(column) => Self::Sharded(Table { name, column, alias: None }),
            Home::Node(node) => Self::Whole(Whole { name, node: Some(*node) }),
            Home::Copies => Self::Whole(Whole { name, node: None }),
        })
    }

    /// The only table there.
    fn only(from: &'a [TableWithJoins], facts: &Facts<'a>) -> Result<Self, SessionError> {
        let [table] = from else {
            return Err(unroutable("several tables", "their rows may be on several nodes"));
        };
        if !table.joins.is_empty() {
            return Err(unroutable("a join", "its rows may be on several nodes"));
        }
        let TableFactor::Table { name, alias, args: None, sample: None, .. } = &table.relation
        else {
            return Err(unroutable(&table.relation, "this is no table"));
        };
        let alias = alias.as_ref().map(|alias| alias.name.value.as_str());
        Ok(match Self::named(name, facts)? {
            Self::Sharded(table) => Self::Sharded(Table { alias, ..table }),
            whole => whole,
        })
    }
}

impl Whole<'_> {
    fn statement(&self, effect: Effect) -> Result<Statement, SessionError> {
        if self.node.is_none() && effect == Effect::Write {
            let what = format_args!("a change or a lock of rows of {}", self.name);
            let why = "each data node has a copy of them, and the proxy only reads those";
            return Err(unroutable(what, why));
        }
        Ok(Statement::At(self.node, effect))
    }
}

impl Table<'_> {
    fn key<'b>(&'b self, facts: &'b Facts<'_>) -> KeyColumn<'b> {
        let (schema, marks) = (facts.catalogue.schema.as_str(), &facts.marks);
        KeyColumn { column: self.column, schema, table: self.name, alias: self.alias, marks }
    }

    /// A change of rows with these ids.
    fn change(&self, ids: Ids) -> Statement {
        let merge = Err("it changes rows on one data node only".to_owned());
        let table = self.name.to_owned();
        Statement::Rows(Rows { table, ids: Some(ids), effect: Effect::Write, merge })
    }

    /// Why a statement without an id of this table goes nowhere.
    fn needs_id(&self) -> String {
        format!("the rows of {} are spread by {}, which it does not say", self.name, self.column)
    }
}

pub(super) fn select(
    query: &Query,
    select: &Select,
    facts: &Facts<'_>,
) -> Result<Statement, SessionError> {
    let effect = if query.locks.is_empty() { Effect::Read } else { Effect::Write };
    let table = match Found::only(&select.from, facts)? {
        Found::Sharded(table) => table,
        Found::Whole(table) => return table.statement(effect),
    };
    let key = table.key(facts);
    let ids = select.selection.as_ref().and_then(|condition| key.ids(condition));
    let merge = if effect == Effect::Write {
        Err("a lock is on one data node only".to_owned())
    } else if ids.as_ref().is_some_and(|ids| ids.len() <= 1) {
        Err("its rows are on one data node".to_owned())
    } else {
        spread::merge(query, select, &key, facts)
    };
    let merge = merge.map(Arc::new);
    Ok(Statement::Rows(Rows { table: table.name.to_owned(), ids, effect, merge }))
}

pub(super) fn insert(insert: &Insert, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(unroutable("the insert", "it names no table"));
    };
    let found = Found::named(name, facts)?;
    if facts.queries > 0 || insert.overwrite || insert.partitioned.is_some() {
        return Err(unroutable("an insert of a query", "its rows are on several nodes"));
    }
    let table = match found {
        Found::Sharded(table) => table,
        Found::Whole(table) => return table.statement(Effect::Write),
    };
    let key = table.key(facts);
    if let Some(on) = &insert.on {
        let OnInsert::DuplicateKeyUpdate(assignments) = on else {
            return Err(unroutable(
                "the insert",
                "it has a conflict clause that MySQL does not know",
            ));
        };
        keeps_place(assignments, &key)?;
    }
    let missing = || unroutable("the insert", table.needs_id());
    let value = |expr: &Expr| match key.value(expr) {
        Some(Some(id)) => Ok(id),
        Some(None) => Err(missing()),
        None => Err(unroutable(
            format_args!("the row with {} {expr}", table.column),
            "only numbers and arguments say where a row belongs",
        )),
    };
    let ids: Vec<Id> = match &insert.source {
        Some(query) => {
            let SetExpr::Values(values) = &*query.body else {
                return Err(unroutable("an insert of a query", "its rows are on several nodes"));
            };
            let named = |column: &ObjectName| {
                path(column)
                    .is_some_and(|path| path.last().is_some_and(|name| name == table.column))
            };
            let mut places = (0..insert.columns.len()).filter(|at| named(&insert.columns[*at]));
            let at = places.next().ok_or_else(missing)?;
            if places.next().is_some() {
                return Err(unroutable(
                    "the insert",
                    format_args!("it names {} twice", table.column),
                ));
            }
            let rows = values.rows.iter().map(|row| {
                value(row.content.get(at).ok_or_else(|| {
                    unroutable("the insert", "a row has fewer values than there are columns")
                })?)
            });
            rows.collect::<Result<_, _>>()?
        }
        None => {
            let mut ids = Vec::new();
            for Assignment { target, value: expr } in &insert.assignments {
                if sets(target, &key) {
                    ids.push(value(expr)?);
                }
            }
            ids
        }
    };
    if ids.is_empty() {
        return Err(missing());
    }
    Ok(table.change(Ids::all(ids)))
}

fn sets(target: &AssignmentTarget, key: &KeyColumn<'_>) -> bool {
    let is = |name: &ObjectName| {
        path(name).is_none_or(|path| path.last().is_none_or(|name| name == key.column))
    };
    match target {
        AssignmentTarget::ColumnName(name) => is(name),
        AssignmentTarget::Tuple(names) => names.iter().any(is),
    }
}

/// A row with another id would be on the wrong node.
fn keeps_place(assignments: &[Assignment], key: &KeyColumn<'_>) -> Result<(), SessionError> {
    if assignments.iter().any(|assignment| sets(&assignment.target, key)) {
        let what = format_args!("a change of {}", key.column).to_string();
        return Err(unroutable(what, "the row would belong on another node"));
    }
    Ok(())
}

pub(super) fn update(update: &Update, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    let found = Found::only(std::slice::from_ref(&update.table), facts)?;
    if facts.queries > 0 || update.from.is_some() {
        return Err(unroutable("a query in a change", "its rows may be on several nodes"));
    }
    let table = match found {
        Found::Sharded(table) => table,
        Found::Whole(table) => return table.statement(Effect::Write),
    };
    let key = table.key(facts);
    keeps_place(&update.assignments, &key)?;
    let ids = update.selection.as_ref().and_then(|condition| key.ids(condition));
    let ids = ids.ok_or_else(|| unroutable("the update", table.needs_id()))?;
    Ok(table.change(ids))
}

pub(super) fn delete(delete: &Delete, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    if !delete.tables.is_empty() || delete.using.is_some() || facts.queries > 0 {
        return Err(unroutable("a delete from several tables", "they may be on several nodes"));
    }
    let table = match Found::only(from, facts)? {
        Found::Sharded(table) => table,
        Found::Whole(table) => return table.statement(Effect::Write),
    };
    let ids = delete.selection.as_ref().and_then(|condition| table.key(facts).ids(condition));
    let ids = ids.ok_or_else(|| unroutable("the delete", table.needs_id()))?;
    Ok(table.change(ids))
}

/// A definition of a table.
pub(super) fn define(name: &ObjectName, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    node(name, facts).map(Statement::Define)
}

/// A question about the columns of a table.
pub(super) fn show(name: &ObjectName, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    Ok(Statement::At(node(name, facts)?, Effect::Read))
}

/// The only node that has the table; `None`: each has it.
fn node(name: &ObjectName, facts: &Facts<'_>) -> Result<Option<usize>, SessionError> {
    Ok(match Found::named(name, facts)? {
        Found::Sharded(_) => None,
        Found::Whole(table) => table.node,
    })
}

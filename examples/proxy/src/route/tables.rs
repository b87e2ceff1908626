//! Statements about the rows of a sharded table.

use epoll_group::session::SessionError;
use sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, Function, FunctionArguments,
    GroupByExpr, Insert, ObjectName, OnInsert, Query, Select, SelectItem, SetExpr, TableFactor,
    TableObject, TableWithJoins, Update,
};

use super::keys::{Id, Ids, KeyColumn};
use super::read::{Facts, path};
use super::{Effect, Merge, Rows, Statement};
use crate::refuse::{unknown_database, unroutable};

/// A sharded table in a statement.
struct Table<'a> {
    name: &'a str,
    column: &'a str,
    alias: Option<&'a str>,
}

impl<'a> Table<'a> {
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
        let known = catalogue.sharded.get_key_value(table.as_str());
        let Some((name, column)) = known else {
            let tables: Vec<_> = catalogue.sharded.keys().map(String::as_str).collect();
            let why = format!("it knows {} only", tables.join(", "));
            return Err(unroutable(format_args!("the table {name}"), why));
        };
        Ok(Self { name, column, alias: None })
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
        Ok(Self { alias, ..Self::named(name, facts)? })
    }

    fn key<'b>(&'b self, facts: &'b Facts<'_>) -> KeyColumn<'b> {
        let (schema, marks) = (facts.catalogue.schema.as_str(), &facts.marks);
        KeyColumn { column: self.column, schema, table: self.name, alias: self.alias, marks }
    }

    fn rows(&self, ids: Option<Ids>, effect: Effect) -> Rows {
        Rows { table: self.name.to_owned(), ids, effect, merge: Vec::new() }
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
    let table = Table::only(&select.from, facts)?;
    let ids = select.selection.as_ref().and_then(|condition| table.key(facts).ids(condition));
    let merge = merge(query, select);
    if ids.is_none() && merge.is_none() {
        let what = "the select";
        let why = table.needs_id();
        return Err(unroutable(
            what,
            format_args!("{why}; and only count, min, max and sum of all rows can be merged"),
        ));
    }
    let effect = if query.locks.is_empty() { Effect::Read } else { Effect::Write };
    let merge = if effect == Effect::Read { merge.unwrap_or_default() } else { Vec::new() };
    if ids.is_none() && merge.is_empty() {
        return Err(unroutable("a lock of all rows", table.needs_id()));
    }
    Ok(Statement::Rows(Rows { merge, ..table.rows(ids, effect) }))
}

/// How answers of several nodes become one, if they do.
fn merge(query: &Query, select: &Select) -> Option<Vec<Merge>> {
    let grouped = match &select.group_by {
        GroupByExpr::Expressions(by, with) => !by.is_empty() || !with.is_empty(),
        GroupByExpr::All(_) => true,
    };
    let plain = !grouped
        && select.distinct.is_none()
        && select.having.is_none()
        && select.qualify.is_none()
        && select.named_window.is_empty()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none();
    if !plain {
        return None;
    }
    select.projection.iter().map(merge_item).collect()
}

fn merge_item(item: &SelectItem) -> Option<Merge> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return None;
    };
    let Expr::Function(function) = expr else { return None };
    let Function {
        name, args: FunctionArguments::List(arguments), over: None, filter: None, ..
    } = function
    else {
        return None;
    };
    let name = path(name)?;
    let [name] = &name[..] else { return None };
    let [_] = &arguments.args[..] else { return None };
    let plain = arguments.duplicate_treatment.is_none() && arguments.clauses.is_empty();
    match (name.as_str(), plain) {
        ("count" | "sum", true) => Some(Merge::Sum),
        ("min", _) => Some(Merge::Min),
        ("max", _) => Some(Merge::Max),
        _ => None,
    }
}

pub(super) fn insert(insert: &Insert, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    let TableObject::TableName(name) = &insert.table else {
        return Err(unroutable("the insert", "it names no table"));
    };
    let table = Table::named(name, facts)?;
    if facts.queries > 0 || insert.overwrite || insert.partitioned.is_some() {
        return Err(unroutable("an insert of a query", "its rows are on several nodes"));
    }
    let key = table.key(facts);
    if let Some(on) = &insert.on {
        let OnInsert::DuplicateKeyUpdate(assignments) = on else {
            return Err(unroutable("the insert", "of a conflict that MySQL does not know"));
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
            let at = insert.columns.iter().position(named).ok_or_else(missing)?;
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
    Ok(Statement::Rows(table.rows(Some(Ids::all(ids)), Effect::Write)))
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
    let table = Table::only(std::slice::from_ref(&update.table), facts)?;
    if facts.queries > 0 || update.from.is_some() {
        return Err(unroutable("a query in a change", "its rows may be on several nodes"));
    }
    let key = table.key(facts);
    keeps_place(&update.assignments, &key)?;
    let ids = update.selection.as_ref().and_then(|condition| key.ids(condition));
    let ids = ids.ok_or_else(|| unroutable("the update", table.needs_id()))?;
    Ok(Statement::Rows(table.rows(Some(ids), Effect::Write)))
}

pub(super) fn delete(delete: &Delete, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
    if !delete.tables.is_empty() || delete.using.is_some() || facts.queries > 0 {
        return Err(unroutable("a delete from several tables", "they may be on several nodes"));
    }
    let table = Table::only(from, facts)?;
    let ids = delete.selection.as_ref().and_then(|condition| table.key(facts).ids(condition));
    let ids = ids.ok_or_else(|| unroutable("the delete", table.needs_id()))?;
    Ok(Statement::Rows(table.rows(Some(ids), Effect::Write)))
}

/// A definition of a sharded table.
pub(super) fn define(name: &ObjectName, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    Table::named(name, facts).map(|_| Statement::Everywhere)
}

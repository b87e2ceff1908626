//! Plans against a database in memory.

mod aggregates;
mod filters;
mod golden;
mod names;
mod nulls;
mod ranges;
mod reads;

use std::sync::Arc;

use epoll_group::codec::proto::generic::Severity;
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, GetExpr, IndexInfo, TableInfo};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::row::Column;
use epoll_group::codec::value::Value;
use epoll_group::session::SessionError;

use super::{Cache, PlanRequest};
use crate::node::pool::{Lent, Pool};

/// A result in a form that can be looked at.
#[derive(Debug, Default, PartialEq)]
struct Rows {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

fn shown(value: &Value<'_>) -> String {
    match value {
        Value::Null => "NULL".to_owned(),
        Value::Signed(value) => value.to_string(),
        Value::Unsigned(value) => format!("{value}u"),
        Value::Double(value) => format!("{value:?}"),
        Value::Decimal(value) => format!("{value}m"),
        Value::Bytes(bytes) => format!("'{}'", bytes.escape_ascii()),
        Value::Date(value) => value.to_string(),
        Value::DateTime(value) => value.to_string(),
        Value::Time(value) => value.to_string(),
        other => format!("{other:?}"),
    }
}

fn database(sql: &str) -> Arc<Pool> {
    let db = Pool::open(":memory:".into()).expect("memory");
    connection(&db).execute_batch(sql).expect("tables");
    db
}

/// The only connection.
fn connection(db: &Arc<Pool>) -> Lent {
    db.lend().expect("memory")
}

/// Runs a plan with these parameters.
fn run(db: &Arc<Pool>, plan: AnyPlan, parameters: Vec<Scalar>) -> Result<Rows, SessionError> {
    run_message(db, &ExecPlan { parameters, ..ExecPlan::default() }, &plan)
}

fn run_message(db: &Arc<Pool>, message: &ExecPlan, plan: &AnyPlan) -> Result<Rows, SessionError> {
    let mut source = PlanRequest::read(message, plan)?.run(connection(db))?;
    let label = |column: &Column<'_>| {
        let name = String::from_utf8_lossy(column.name.unwrap_or_default()).into_owned();
        format!("{name} {:?}", column.field_type)
    };
    let columns = source.columns().iter().map(label).collect();
    let mut rows = Rows { columns, rows: Vec::new() };
    loop {
        let mut row = Vec::new();
        if !source.next_row(&mut |value| row.push(shown(&value)))? {
            return Ok(rows);
        }
        assert_eq!(row.len(), rows.columns.len());
        rows.rows.push(row);
    }
}

/// The rows of a plan, with a comma between cells.
fn rows(db: &Arc<Pool>, plan: AnyPlan) -> Vec<String> {
    let rows = run(db, plan, Vec::new()).unwrap_or_else(|error| panic!("{error}")).rows;
    rows.iter().map(|row| row.join(",")).collect()
}

/// The text with which a plan is refused.
fn refusal(db: &Arc<Pool>, plan: AnyPlan, parameters: Vec<Scalar>) -> String {
    let error = run(db, plan, parameters).expect_err("it is refused");
    let text = String::from_utf8_lossy(&error.message).into_owned();
    assert_eq!((error.code, error.severity), (8001, Severity::Error), "{text}");
    text.strip_prefix("Executor error: ").unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn table(name: &str) -> TableInfo {
    TableInfo::new(Scalar::string(name, Some(45)), Some(Scalar::string("d", Some(45))))
}

fn index(name: &str) -> Option<IndexInfo> {
    Some(IndexInfo { name: Scalar::string(name, None), use_parts: None })
}

fn key(parts: &[(&str, Scalar)]) -> GetExpr {
    GetExpr::new(parts.iter().map(|(name, value)| (Scalar::string(*name, None), value.clone())))
}

fn scan(name: &str) -> AnyPlan {
    AnyPlan::table_scan(table(name), None)
}

fn text(value: &str) -> Scalar {
    Scalar::string(value, None)
}

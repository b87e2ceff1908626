//! Execution plans: which rows they read.

use epoll_group::codec::message::{Node, PlanError, ScalarValue};
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, GetPlan, TableInfo};
use epoll_group::session::SessionError;

use super::keys::{Scalars, node_of, number_of};
use super::{Catalogue, Home};
use crate::refuse::{unknown_database, unroutable, wrong_arguments};

impl Scalars for ExecPlan {
    fn scalar(&self, at: usize) -> Result<ScalarValue<'_>, SessionError> {
        let missing = || wrong_arguments(format_args!("there is no parameter {at}"));
        Ok(self.parameters.get(at).ok_or_else(missing)?.value()?)
    }
}

/// The node, out of `nodes`, that has the rows of a plan; `None` if each node can answer it.
pub fn of_plan(
    plan: &AnyPlan,
    message: &ExecPlan,
    catalogue: &Catalogue,
    nodes: usize,
) -> Result<Option<usize>, SessionError> {
    let mut at = plan;
    loop {
        match at.node()? {
            Node::Get(get) => {
                return match home(&get.table_info, message, catalogue)? {
                    Home::Sharded(column) => of_get(get, message, column, nodes),
                    whole => Ok(node_of_whole(whole)),
                };
            }
            Node::TableScan(scan) => return of_scan(&scan.table_info, message, catalogue),
            Node::RangeScan(scan) => {
                let missing = || unroutable("the plan", "it names no table");
                let table = scan.table_info.as_ref().ok_or_else(missing)?;
                return of_scan(table, message, catalogue);
            }
            node => match node.input() {
                Some(input) => at = input,
                None => return Err(unroutable("the plan", "it has a node that is not known")),
            },
        }
    }
}

/// A scan reads all rows, so it is for tables that are not sharded.
fn of_scan(
    table: &TableInfo,
    message: &ExecPlan,
    catalogue: &Catalogue,
) -> Result<Option<usize>, SessionError> {
    match home(table, message, catalogue)? {
        Home::Sharded(_) => Err(unroutable("a plan that scans", "its rows are on several nodes")),
        whole => Ok(node_of_whole(whole)),
    }
}

/// The node of a table that is not sharded; `None`: any.
const fn node_of_whole(home: &Home) -> Option<usize> {
    match home {
        Home::Node(node) => Some(*node),
        Home::Copies | Home::Sharded(_) => None,
    }
}

fn of_get(
    get: &GetPlan,
    message: &ExecPlan,
    column: &str,
    nodes: usize,
) -> Result<Option<usize>, SessionError> {
    let mut found = None;
    for key in &get.keys {
        let [part] = &key.keys[..] else {
            return Err(unroutable("the plan", format_args!("its key is not {column} alone")));
        };
        if !message.name(&part.field)?.eq_ignore_ascii_case(column.as_bytes()) {
            return Err(unroutable("the plan", format_args!("its key is not {column}")));
        }
        let Some(number) = number_of(message.resolve(&part.value)?.value()?)? else { continue };
        let node = node_of(number, nodes);
        if found.is_some_and(|found| found != node) {
            return Err(unroutable("the plan", "its keys are on several nodes"));
        }
        found = Some(node);
    }
    Ok(found)
}

/// Where the rows of the table of a plan are.
fn home<'a>(
    table: &TableInfo,
    message: &ExecPlan,
    catalogue: &'a Catalogue,
) -> Result<&'a Home, SessionError> {
    if let Some(schema) = &table.schema_name {
        let schema = message.name(schema)?;
        if !schema.eq_ignore_ascii_case(catalogue.schema.as_bytes()) {
            return Err(unknown_database(schema));
        }
    }
    let name = message.name(&table.name).map_err(|error: PlanError| SessionError::from(error))?;
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let known = catalogue.tables.get(&name);
    known.ok_or_else(|| unroutable(format_args!("the table {name}"), "it is not known"))
}

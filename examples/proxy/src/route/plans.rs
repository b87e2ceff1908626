//! Execution plans: which rows they read.

use epoll_group::codec::message::{Node, PlanError, ScalarValue};
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, GetPlan, TableInfo};
use epoll_group::session::SessionError;

use super::Catalogue;
use super::keys::{Scalars, node_of, number_of};
use crate::refuse::{unknown_database, unroutable, wrong_arguments};

impl Scalars for ExecPlan {
    fn scalar(&self, at: usize) -> Result<ScalarValue<'_>, SessionError> {
        let missing = || wrong_arguments(format_args!("there is no parameter {at}"));
        Ok(self.parameters.get(at).ok_or_else(missing)?.value()?)
    }
}

/// The node, of so many, that has the rows of a plan; `None` when there can be none.
pub fn of_plan(
    plan: &AnyPlan,
    message: &ExecPlan,
    catalogue: &Catalogue,
    nodes: usize,
) -> Result<Option<usize>, SessionError> {
    let mut at = plan;
    loop {
        match at.node()? {
            Node::Get(get) => return of_get(get, message, catalogue, nodes),
            Node::TableScan(_) | Node::RangeScan(_) => {
                return Err(unroutable("a plan that scans", "its rows are on several nodes"));
            }
            node => match node.input() {
                Some(input) => at = input,
                None => return Err(unroutable("the plan", "it has a node that is not known")),
            },
        }
    }
}

fn of_get(
    get: &GetPlan,
    message: &ExecPlan,
    catalogue: &Catalogue,
    nodes: usize,
) -> Result<Option<usize>, SessionError> {
    let column = column_of(&get.table_info, message, catalogue)?;
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

/// The sharding column of the table of a plan.
fn column_of<'a>(
    table: &TableInfo,
    message: &ExecPlan,
    catalogue: &'a Catalogue,
) -> Result<&'a str, SessionError> {
    if let Some(schema) = &table.schema_name {
        let schema = message.name(schema)?;
        if !schema.eq_ignore_ascii_case(catalogue.schema.as_bytes()) {
            return Err(unknown_database(schema));
        }
    }
    let name = message.name(&table.name).map_err(|error: PlanError| SessionError::from(error))?;
    let name = String::from_utf8_lossy(name).to_ascii_lowercase();
    let known = catalogue.sharded.get(&name).map(String::as_str);
    known.ok_or_else(|| unroutable(format_args!("the table {name}"), "it is not known"))
}

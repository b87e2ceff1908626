//! The nodes above a table, and the rows that pass through them.

use std::mem;
use std::sync::Arc;

use epoll_group::codec::message::Node;
use epoll_group::codec::proto::plan::{ExecPlan, Project, TableProject};
use epoll_group::codec::row::Column;
use epoll_group::codec::value::Value;
use epoll_group::session::{Row, RowSource, SessionError};

use super::access::Access;
use super::aggregate::Aggregate;
use super::expr::Expr;
use super::shape::{self, Wanted};
use super::types::type_of;
use super::value::Val;
use super::{refuse, sqlite};
use crate::node::columns::Description;
use crate::node::cursor::Cursor;
use crate::node::rest::Rows;

/// Rows of a plan.
pub struct PlanRows {
    cursor: Cursor,
    access: Arc<Access>,
    /// Absent if the rows of the table are those of the plan.
    pipeline: Option<Pipeline>,
}

/// The nodes above a table, the lowest first.
struct Pipeline {
    stages: Vec<Stage>,
    /// Columns of the rows that leave.
    fields: Vec<Description>,
    /// Set when the aggregates have given their results.
    is_over: bool,
}

enum Stage {
    /// Some columns.
    Pick(Vec<usize>),
    /// Expressions.
    Compute(Vec<Expr>),
    /// Rows for which it holds.
    Filter(Expr),
    /// All rows become one.
    Aggregate(Expr, Box<Aggregate>),
}

impl PlanRows {
    /// `above` are the nodes above the table, the highest first.
    pub(super) fn new(
        message: &ExecPlan,
        access: Arc<Access>,
        cursor: Cursor,
        above: &[Node<'_>],
    ) -> Result<Self, SessionError> {
        let pipeline =
            if above.is_empty() { None } else { Some(Pipeline::new(message, &access, above)?) };
        Ok(Self { cursor, access, pipeline })
    }

    pub fn columns(&self) -> Vec<Column<'_>> {
        let fields = self.pipeline.as_ref().map_or(&self.access.fields, |above| &above.fields);
        fields.iter().map(Description::column).collect()
    }

    /// Gives the cells of the next row to `cell`. Returns false if there is none.
    pub(super) fn next_row(
        &mut self,
        cell: &mut dyn FnMut(Value<'_>),
    ) -> Result<bool, SessionError> {
        let fields = &self.access.fields;
        while self.cursor.advance().map_err(sqlite)? {
            let written = self.cursor.with_row(|row| {
                let read = |(at, field): (usize, &Description)| {
                    type_of(field).read(row.get_ref(at).map_err(sqlite)?)
                };
                let cells = fields.iter().enumerate().map(read);
                let Some(above) = &mut self.pipeline else {
                    return fields
                        .iter()
                        .zip(cells)
                        .try_for_each(|(field, value)| type_of(field).write(&value?, cell))
                        .map(|()| true);
                };
                let row = cells.collect::<Result<Vec<_>, SessionError>>()?;
                feed(&mut above.stages, &row, &above.fields, cell)
            });
            if written.transpose()? == Some(true) {
                return Ok(true);
            }
        }
        self.pipeline.as_mut().map_or(Ok(false), |above| above.end(cell))
    }
}

impl RowSource for PlanRows {
    fn next(&mut self, row: &mut Row<'_>) -> Result<bool, SessionError> {
        self.next_row(&mut |value| row.value(value))
    }
}

impl Rows for PlanRows {
    fn most(&self) -> Option<usize> {
        // No stage makes two rows of one, and an aggregate makes one of none.
        self.cursor.is_over().then(|| self.cursor.rows_ahead().max(1))
    }
}

impl Pipeline {
    fn new(message: &ExecPlan, access: &Access, above: &[Node<'_>]) -> Result<Self, SessionError> {
        let mut fields = access.fields.clone();
        let mut stages = Vec::with_capacity(above.len());
        for node in above.iter().rev() {
            let (stage, output) = match *node {
                Node::Filter(filter) => {
                    (Stage::Filter(Expr::new(message, &filter.expr, &fields)?), fields)
                }
                Node::TableProject(project) => pick(message, project, &fields)?,
                Node::Project(project) => compute(message, project, &fields)?,
                Node::Aggregate(node) => {
                    let over = Expr::new(message, &node.expr, &fields)?;
                    let aggregate = Aggregate::new(node.r#type, &over.ty)?;
                    let output = vec![aggregate.field(shape::text(message, &node.field)?)];
                    (Stage::Aggregate(over, Box::new(aggregate)), output)
                }
                _ => return Err(refuse("a node that cannot stand above a table")),
            };
            stages.push(stage);
            fields = output;
        }
        Ok(Self { stages, fields, is_over: false })
    }

    /// Gives the row that the aggregates make of all rows, if there are any. Only the result of the
    /// highest one leaves.
    fn end(&mut self, cell: &mut dyn FnMut(Value<'_>)) -> Result<bool, SessionError> {
        let mut written = false;
        if mem::replace(&mut self.is_over, true) {
            return Ok(written);
        }
        let mut stages = &mut self.stages[..];
        while let Some((stage, rest)) = stages.split_first_mut() {
            if let Stage::Aggregate(_, aggregate) = stage {
                written = feed(rest, &[aggregate.result()?], &self.fields, cell)?;
            }
            stages = rest;
        }
        Ok(written)
    }
}

/// One row through these stages. Returns true if it leaves.
fn feed(
    stages: &mut [Stage],
    row: &[Val<'_>],
    fields: &[Description],
    cell: &mut dyn FnMut(Value<'_>),
) -> Result<bool, SessionError> {
    let Some((stage, rest)) = stages.split_first_mut() else {
        return put_row(fields, row, cell).map(|()| true);
    };
    match stage {
        Stage::Filter(expr) => match expr.eval(row)?.truth() {
            Some(true) => feed(rest, row, fields, cell),
            _ => Ok(false),
        },
        Stage::Pick(columns) => {
            let pick = |at: &usize| row.get(*at).map_or(Val::Null, Val::borrow);
            feed(rest, &columns.iter().map(pick).collect::<Vec<_>>(), fields, cell)
        }
        Stage::Compute(exprs) => {
            let values = exprs.iter().map(|expr| expr.eval(row));
            feed(rest, &values.collect::<Result<Vec<_>, _>>()?, fields, cell)
        }
        Stage::Aggregate(expr, aggregate) => {
            aggregate.add(&expr.eval(row)?)?;
            Ok(false)
        }
    }
}

fn put_row(
    fields: &[Description],
    row: &[Val<'_>],
    cell: &mut dyn FnMut(Value<'_>),
) -> Result<(), SessionError> {
    fields.iter().zip(row).try_for_each(|(field, value)| type_of(field).write(value, cell))
}

fn pick(
    message: &ExecPlan,
    project: &TableProject,
    fields: &[Description],
) -> Result<(Stage, Vec<Description>), SessionError> {
    let find = |field| {
        let wanted = shape::wanted(message, field)?;
        let at = match wanted {
            Wanted::Number(number) => usize::try_from(number).ok(),
            Wanted::Name(name) => fields.iter().position(|f| f.name.eq_ignore_ascii_case(name)),
        };
        let found = at.and_then(|at| Some((at, fields.get(at)?.clone())));
        found.ok_or_else(|| refuse(format_args!("TABLE_PROJECT: no column {wanted:?}")))
    };
    let found = project.fields.iter().map(find).collect::<Result<Vec<_>, _>>()?;
    if found.is_empty() {
        return Err(refuse("TABLE_PROJECT without columns"));
    }
    let (columns, fields) = found.into_iter().unzip();
    Ok((Stage::Pick(columns), fields))
}

fn compute(
    message: &ExecPlan,
    project: &Project,
    fields: &[Description],
) -> Result<(Stage, Vec<Description>), SessionError> {
    let (names, exprs) = (&project.fields, &project.exprs);
    // Without any names columns keep theirs; with some, each expression has one.
    if exprs.is_empty() || !(names.is_empty() || names.len() == exprs.len()) {
        let (names, exprs) = (names.len(), exprs.len());
        return Err(refuse(format_args!("PROJECT of {exprs} expressions under {names} names")));
    }
    let mut output = Vec::with_capacity(exprs.len());
    let mut stage = Vec::with_capacity(exprs.len());
    for (at, expr) in exprs.iter().enumerate() {
        let expr = Expr::new(message, expr, fields)?;
        let name = names.get(at).map(|name| shape::text(message, name)).transpose()?;
        let column = match &expr.node {
            super::expr::Node::Column(at) => fields.get(*at),
            _ => None,
        };
        output.push(match (column, name) {
            (Some(field), Some(name)) => Description { name: name.to_owned(), ..field.clone() },
            (Some(field), None) => field.clone(),
            (None, name) => {
                let label = name.map_or_else(|| format!("expr{at}"), str::to_owned);
                Description::expression(label, Some(expr.ty))
            }
        });
        stage.push(expr);
    }
    Ok((Stage::Compute(stage), output))
}

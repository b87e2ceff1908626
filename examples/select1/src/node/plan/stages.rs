//! Rows through what stands above a table.

use epoll_group::codec::message::Node;
use epoll_group::codec::proto::plan::{ExecPlan, Project, TableProject};
use epoll_group::codec::value::Value;
use epoll_group::session::SessionError;

use super::access::{Access, Cursor};
use super::aggregate::Aggregate;
use super::expr::Expr;
use super::shape::{self, Wanted};
use super::types::type_of;
use super::value::Val;
use super::{Sink, refuse, sqlite};
use crate::node::columns::Description;

/// Number of rows between two checks for a cancel.
const ROWS_A_LOOK: u32 = 256;

/// Sends the rows of a table as they are.
pub(super) fn send(
    access: &Access,
    mut rows: Cursor<'_>,
    sink: &mut impl Sink,
) -> Result<(), SessionError> {
    put_columns(&access.fields, sink)?;
    while let Some(row) = rows.next()? {
        sink.row(|cell| {
            for (at, field) in access.fields.iter().enumerate() {
                let ty = type_of(field);
                ty.write(&ty.read(row.get_ref(at).map_err(sqlite)?), cell)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The nodes above a table, the lowest first.
pub(super) struct Pipeline<'a> {
    stages: Vec<Stage<'a>>,
    /// Columns of the rows that leave.
    fields: Vec<Description>,
}

enum Stage<'a> {
    /// Some columns.
    Pick(Vec<usize>),
    /// Expressions.
    Compute(Vec<Expr<'a>>),
    /// Rows for which it holds.
    Filter(Expr<'a>),
    /// All rows become one.
    Aggregate(Expr<'a>, Box<Aggregate>),
}

impl<'a> Pipeline<'a> {
    /// `above` are the nodes, the highest first.
    pub(super) fn new(
        message: &'a ExecPlan,
        access: &Access,
        above: &[Node<'a>],
    ) -> Result<Self, SessionError> {
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
                _ => return Err(refuse("a node above a table that is none")),
            };
            stages.push(stage);
            fields = output;
        }
        Ok(Self { stages, fields })
    }

    /// Sends what comes out.
    pub(super) fn send(
        mut self,
        access: &Access,
        mut rows: Cursor<'_>,
        sink: &mut impl Sink,
    ) -> Result<(), SessionError> {
        put_columns(&self.fields, sink)?;
        let mut count = 0_u32;
        while let Some(row) = rows.next()? {
            count = count.wrapping_add(1);
            if count.is_multiple_of(ROWS_A_LOOK) && sink.is_cancelled() {
                return Err(SessionError::interrupted());
            }
            let read = |(at, field): (usize, &Description)| {
                Ok(type_of(field).read(row.get_ref(at).map_err(sqlite)?))
            };
            let row = access.fields.iter().enumerate().map(read);
            let row = row.collect::<Result<Vec<_>, SessionError>>()?;
            feed(&mut self.stages, &row, &self.fields, sink)?;
        }
        let mut stages = &mut self.stages[..];
        while let Some((stage, rest)) = stages.split_first_mut() {
            if let Stage::Aggregate(_, aggregate) = stage {
                feed(rest, &[aggregate.result()?], &self.fields, sink)?;
            }
            stages = rest;
        }
        Ok(())
    }
}

/// One row through these stages.
fn feed(
    stages: &mut [Stage<'_>],
    row: &[Val<'_>],
    fields: &[Description],
    sink: &mut impl Sink,
) -> Result<(), SessionError> {
    let Some((stage, rest)) = stages.split_first_mut() else {
        return sink.row(|cell| put_row(fields, row, cell));
    };
    match stage {
        Stage::Filter(expr) => {
            if expr.eval(row)?.truth() == Some(true) {
                feed(rest, row, fields, sink)?;
            }
            Ok(())
        }
        Stage::Pick(columns) => {
            let pick = |at: &usize| row.get(*at).map_or(Val::Null, Val::borrow);
            feed(rest, &columns.iter().map(pick).collect::<Vec<_>>(), fields, sink)
        }
        Stage::Compute(exprs) => {
            let values = exprs.iter().map(|expr| expr.eval(row));
            feed(rest, &values.collect::<Result<Vec<_>, _>>()?, fields, sink)
        }
        Stage::Aggregate(expr, aggregate) => aggregate.add(&expr.eval(row)?),
    }
}

fn put_columns(fields: &[Description], sink: &mut impl Sink) -> Result<(), SessionError> {
    sink.columns(&fields.iter().map(Description::column).collect::<Vec<_>>())
}

fn put_row(
    fields: &[Description],
    row: &[Val<'_>],
    cell: &mut dyn FnMut(Value<'_>),
) -> Result<(), SessionError> {
    fields.iter().zip(row).try_for_each(|(field, value)| type_of(field).write(value, cell))
}

fn pick<'a>(
    message: &ExecPlan,
    project: &TableProject,
    fields: &[Description],
) -> Result<(Stage<'a>, Vec<Description>), SessionError> {
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

fn compute<'a>(
    message: &'a ExecPlan,
    project: &'a Project,
    fields: &[Description],
) -> Result<(Stage<'a>, Vec<Description>), SessionError> {
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

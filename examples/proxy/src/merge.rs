//! Answers of several data nodes as one: counts, sums, and the least and greatest of values.
#![forbid(unsafe_code)]

use std::cmp::Ordering;
use std::fmt;

use epoll_group::client::{self, Answer};
use epoll_group::codec::proto::resultset::ColumnMetaData;
use epoll_group::codec::row::Column;
use epoll_group::codec::value::{Date, DateTime, Decimal, Time, Value};
use epoll_group::session::{Reply, SessionError};

use crate::refuse::{of_node, unroutable};
use crate::route::Merge;

/// Answer of one node: a row, or nothing.
#[derive(Debug)]
pub struct Part {
    columns: Vec<ColumnMetaData>,
    row: Option<Vec<Cell>>,
    affected: u64,
}

/// Answer to the client.
#[derive(Debug)]
pub struct Merged {
    columns: Vec<ColumnMetaData>,
    row: Option<Vec<Cell>>,
    affected: u64,
}

/// A value that can be merged.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Cell {
    Null,
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    Float(f32),
    Decimal(Decimal),
    Date(Date),
    DateTime(DateTime),
    Time(Time),
}

impl Part {
    /// Reads an answer that has one row, or none. It is small, and so there as a whole.
    pub fn read(mut answer: Answer, node: impl fmt::Display) -> Result<Self, SessionError> {
        let node = &node;
        let failed = |error: client::Error| of_node(node, &error);
        let columns = answer.columns().map_err(failed)?.to_vec();
        let mut row = None;
        while let Some(next) = answer.next_row().map_err(failed)? {
            if row.is_some() {
                return Err(unroutable("the select", "a node answered with several rows"));
            }
            let cells = next.values().map(|value| Cell::of(value.map_err(failed)?));
            row = Some(cells.collect::<Result<_, SessionError>>()?);
        }
        let affected = answer.summary().affected;
        Ok(Self { columns, row, affected })
    }
}

impl Merged {
    /// One row of those of all nodes.
    pub fn of(parts: Vec<Part>, merge: &[Merge]) -> Result<Self, SessionError> {
        let affected = parts.iter().map(|part| part.affected).sum();
        let mut parts = parts.into_iter();
        let first = parts.next();
        let Some(Part { mut columns, row, .. }) = first else {
            return Ok(Self { columns: Vec::new(), row: None, affected });
        };
        let Some(mut row) = row else { return Ok(Self { columns, row: None, affected }) };
        for part in parts {
            let other = part.row.unwrap_or_default();
            if other.len() != row.len() || row.len() != merge.len() {
                return Err(unroutable("the select", "the nodes answered with other columns"));
            }
            for (at, (cell, other)) in row.iter_mut().zip(other).enumerate() {
                // The type of a column may be known only where there are rows.
                if *cell == Cell::Null && other != Cell::Null {
                    columns[at] = part.columns[at].clone();
                }
                *cell = cell.with(other, merge[at])?;
            }
        }
        Ok(Self { columns, row: Some(row), affected })
    }

    pub fn write(&self, reply: &mut Reply<'_>) -> Result<(), SessionError> {
        if self.columns.is_empty() {
            reply.affected(self.affected);
            return Ok(());
        }
        let columns: Vec<_> = self.columns.iter().map(Column::from_message).collect();
        reply.columns(&columns)?;
        if let Some(row) = &self.row {
            reply.row(|to| row.iter().for_each(|cell| to.value(cell.value())))?;
        }
        Ok(())
    }
}

impl Cell {
    fn of(value: Value<'_>) -> Result<Self, SessionError> {
        Ok(match value {
            Value::Null => Self::Null,
            Value::Signed(number) => Self::Signed(number),
            Value::Unsigned(number) => Self::Unsigned(number),
            Value::Double(number) => Self::Double(number),
            Value::Float(number) => Self::Float(number),
            Value::Decimal(number) => Self::Decimal(number),
            Value::Date(date) => Self::Date(date),
            Value::DateTime(time) => Self::DateTime(time),
            Value::Time(time) => Self::Time(time),
            _ => {
                let why = "which is the least depends on its collation";
                return Err(unroutable("min and max of texts", why));
            }
        })
    }

    const fn value(&self) -> Value<'static> {
        match *self {
            Self::Null => Value::Null,
            Self::Signed(number) => Value::Signed(number),
            Self::Unsigned(number) => Value::Unsigned(number),
            Self::Double(number) => Value::Double(number),
            Self::Float(number) => Value::Float(number),
            Self::Decimal(number) => Value::Decimal(number),
            Self::Date(date) => Value::Date(date),
            Self::DateTime(time) => Value::DateTime(time),
            Self::Time(time) => Value::Time(time),
        }
    }

    fn with(self, other: Self, merge: Merge) -> Result<Self, SessionError> {
        match (self, other) {
            (Self::Null, known) | (known, Self::Null) => Ok(known),
            (one, other) => match merge {
                Merge::Sum => one.plus(other),
                Merge::Min => Ok(if one.compared(other)?.is_le() { one } else { other }),
                Merge::Max => Ok(if one.compared(other)?.is_ge() { one } else { other }),
            },
        }
    }

    fn plus(self, other: Self) -> Result<Self, SessionError> {
        let sum = match (self, other) {
            (Self::Signed(one), Self::Signed(other)) => one.checked_add(other).map(Self::Signed),
            (Self::Unsigned(one), Self::Unsigned(other)) => {
                one.checked_add(other).map(Self::Unsigned)
            }
            (Self::Double(one), Self::Double(other)) => Some(Self::Double(one + other)),
            (Self::Float(one), Self::Float(other)) => Some(Self::Float(one + other)),
            (Self::Decimal(one), Self::Decimal(other)) => add(one, other).map(Self::Decimal),
            _ => return Err(different()),
        };
        let out =
            || SessionError::new(1690, b"22003", "the sum over all data nodes is out of range");
        sum.ok_or_else(out)
    }

    fn compared(self, other: Self) -> Result<Ordering, SessionError> {
        let order = match (self, other) {
            (Self::Signed(one), Self::Signed(other)) => Some(one.cmp(&other)),
            (Self::Unsigned(one), Self::Unsigned(other)) => Some(one.cmp(&other)),
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(&other),
            (Self::Float(one), Self::Float(other)) => one.partial_cmp(&other),
            (Self::Decimal(one), Self::Decimal(other)) => {
                let scale = one.scale().max(other.scale());
                scaled(one, scale).zip(scaled(other, scale)).map(|(one, other)| one.cmp(&other))
            }
            (Self::Date(one), Self::Date(other)) => one.partial_cmp(&other),
            (Self::DateTime(one), Self::DateTime(other)) => one.partial_cmp(&other),
            (Self::Time(one), Self::Time(other)) => one.partial_cmp(&other),
            _ => None,
        };
        order.ok_or_else(different)
    }
}

fn different() -> SessionError {
    unroutable("the select", "the nodes answered with values of different types")
}

/// The coefficient with so many digits behind the point.
fn scaled(number: Decimal, scale: u8) -> Option<i128> {
    let more = 10_i128.checked_pow((scale - number.scale()).into())?;
    number.coefficient()?.checked_mul(more)
}

fn add(one: Decimal, other: Decimal) -> Option<Decimal> {
    let scale = one.scale().max(other.scale());
    let sum = scaled(one, scale)?.checked_add(scaled(other, scale)?)?;
    Decimal::from_coefficient(sum, scale).ok()
}

//! [`Cell`]: a value that the proxy compares with others, or adds to them.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt::Display;

use epoll_group::codec::encoder::RowWriter;
use epoll_group::codec::proto::resultset::{ColumnMetaData, FieldType};
use epoll_group::codec::row::{self, Column};
use epoll_group::codec::value::{Date, DateTime, Decimal, Time, Value};
use epoll_group::session::SessionError;

use crate::refuse::unroutable;

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Null,
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    Float(f32),
    Decimal(Decimal),
    Date(Date),
    DateTime(DateTime),
    Time(Time),
    Bytes(Vec<u8>),
}

/// Digits behind the point that a decimal average has beyond those of the sum, as in MySQL.
const MORE_DIGITS: u8 = 4;

/// Checks that values of this column can be compared. Texts can if `texts_by_bytes`.
pub fn check_order(column: &ColumnMetaData, texts_by_bytes: bool) -> Result<(), SessionError> {
    let name = name(column);
    let is_binary = column.collation == Some(Column::BINARY);
    match column.r#type {
        FieldType::Bytes if column.content_type.is_some() => {
            let why = "JSON and GEOMETRY have an order of their own";
            Err(unroutable(format_args!("an order by `{name}`"), why))
        }
        FieldType::Enum | FieldType::Set => {
            let why = "the order of its members is known to the data nodes only";
            Err(unroutable(format_args!("an order by `{name}`"), why))
        }
        FieldType::Bit if column.length.is_none_or(|bits| bits > 63) => {
            let why = "a data node may order 64 bits as a signed number";
            Err(unroutable(format_args!("an order by `{name}`"), why))
        }
        FieldType::Bytes if !is_binary && !texts_by_bytes => {
            let why = "which text comes first depends on its collation: text_order is not set, or \
                       character_set_results was changed";
            Err(unroutable(format_args!("an order by the text `{name}`"), why))
        }
        _ => Ok(()),
    }
}

impl Cell {
    /// Reads a cell of a column.
    pub fn read(
        cell: row::Cell<'_>,
        column: &ColumnMetaData,
        node: impl Display,
    ) -> Result<Self, SessionError> {
        let value = cell.value(column.r#type, column.original_type).map_err(|error| {
            let name = name(column);
            let text = format!("data node {node} sent a bad value of `{name}`: {error}");
            SessionError::new(2027, b"HY000", text)
        })?;
        Ok(match value {
            Value::Null => Self::Null,
            Value::Signed(number) => Self::Signed(number),
            Value::Unsigned(number) | Value::Bit(number) => Self::Unsigned(number),
            Value::Double(number) => Self::Double(number),
            Value::Float(number) => Self::Float(number),
            Value::Decimal(number) => Self::Decimal(number),
            Value::Date(date) => Self::Date(date),
            Value::DateTime(time) => Self::DateTime(time),
            Value::Time(time) => Self::Time(time),
            Value::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            _ => return Err(unroutable("the select", "values of this type cannot be merged")),
        })
    }

    pub fn write(&self, to: &mut RowWriter<'_>) {
        to.value(&match self {
            Self::Null => Value::Null,
            Self::Signed(number) => Value::Signed(*number),
            Self::Unsigned(number) => Value::Unsigned(*number),
            Self::Double(number) => Value::Double(*number),
            Self::Float(number) => Value::Float(*number),
            Self::Decimal(number) => Value::Decimal(*number),
            Self::Date(date) => Value::Date(*date),
            Self::DateTime(time) => Value::DateTime(*time),
            Self::Time(time) => Value::Time(*time),
            Self::Bytes(bytes) => Value::Bytes(bytes),
        });
    }

    /// The order of an ORDER BY: NULL comes first.
    pub fn compared(&self, other: &Self) -> Result<Ordering, SessionError> {
        let order = match (self, other) {
            (Self::Null, Self::Null) => Some(Ordering::Equal),
            (Self::Null, _) => Some(Ordering::Less),
            (_, Self::Null) => Some(Ordering::Greater),
            (Self::Signed(one), Self::Signed(other)) => Some(one.cmp(other)),
            (Self::Unsigned(one), Self::Unsigned(other)) => Some(one.cmp(other)),
            (Self::Double(one), Self::Double(other)) => one.partial_cmp(other),
            (Self::Float(one), Self::Float(other)) => one.partial_cmp(other),
            (Self::Decimal(one), Self::Decimal(other)) => {
                let scale = one.scale().max(other.scale());
                let scaled = scaled(*one, scale).zip(scaled(*other, scale));
                let (one, other) = scaled.ok_or_else(|| out_of_range("order of decimals"))?;
                Some(one.cmp(&other))
            }
            (Self::Date(one), Self::Date(other)) => one.partial_cmp(other),
            (Self::DateTime(one), Self::DateTime(other)) => one.partial_cmp(other),
            (Self::Time(one), Self::Time(other)) => one.partial_cmp(other),
            (Self::Bytes(one), Self::Bytes(other)) => Some(one.cmp(other)),
            _ => None,
        };
        order.ok_or_else(different)
    }

    /// The sum. NULL is nothing.
    pub fn plus(self, other: Self) -> Result<Self, SessionError> {
        let sum = match (self, other) {
            (Self::Null, known) | (known, Self::Null) => Some(known),
            (Self::Signed(one), Self::Signed(other)) => one.checked_add(other).map(Self::Signed),
            (Self::Unsigned(one), Self::Unsigned(other)) => {
                one.checked_add(other).map(Self::Unsigned)
            }
            (Self::Double(one), Self::Double(other)) => Some(Self::Double(one + other)),
            (Self::Float(one), Self::Float(other)) => Some(Self::Float(one + other)),
            (Self::Decimal(one), Self::Decimal(other)) => add(one, other).map(Self::Decimal),
            _ => return Err(different()),
        };
        sum.ok_or_else(|| out_of_range("sum"))
    }

    /// The least (`Less`) or greatest (`Greater`) of two values. NULL is nothing.
    pub fn chosen(self, other: Self, wanted: Ordering) -> Result<Self, SessionError> {
        match (&self, &other) {
            (_, Self::Null) => Ok(self),
            (Self::Null, _) => Ok(other),
            _ => Ok(if other.compared(&self)? == wanted { other } else { self }),
        }
    }

    /// The average of values with this sum, as a value of this column.
    pub fn average(&self, count: &Self, column: &ColumnMetaData) -> Result<Self, SessionError> {
        let count = match *count {
            Self::Signed(count) => i128::from(count),
            Self::Unsigned(count) => i128::from(count),
            _ => return Err(different()),
        };
        if count == 0 || *self == Self::Null {
            return Ok(Self::Null);
        }
        if column.r#type == FieldType::Double {
            let sum = match *self {
                Self::Signed(sum) => sum as f64,
                Self::Unsigned(sum) => sum as f64,
                Self::Double(sum) => sum,
                Self::Float(sum) => sum.into(),
                Self::Decimal(sum) => sum.to_f64(),
                _ => return Err(different()),
            };
            return Ok(Self::Double(sum / count as f64));
        }
        let whole = |sum| Decimal::from_coefficient(sum, 0).map_err(|_| different());
        let sum = match *self {
            Self::Signed(sum) => whole(sum.into())?,
            Self::Unsigned(sum) => whole(sum.into())?,
            Self::Decimal(sum) => sum,
            _ => return Err(different()),
        };
        let digits = column.fractional_digits.and_then(|digits| u8::try_from(digits).ok());
        let scale = digits.unwrap_or_else(|| sum.scale() + MORE_DIGITS).max(sum.scale());
        let quotient = scaled(sum, scale).map(|sum| rounded(sum, count));
        let average = quotient.and_then(|number| Decimal::from_coefficient(number, scale).ok());
        average.map(Self::Decimal).ok_or_else(|| out_of_range("average"))
    }
}

fn name(column: &ColumnMetaData) -> Cow<'_, str> {
    String::from_utf8_lossy(column.name.as_deref().unwrap_or_default())
}

pub fn different() -> SessionError {
    unroutable("the select", "the data nodes answered with values of different types")
}

fn out_of_range(what: &str) -> SessionError {
    let text = format!("the {what} over the data nodes is out of range");
    SessionError::new(1690, b"22003", text)
}

/// The coefficient with `scale` digits behind the point.
fn scaled(number: Decimal, scale: u8) -> Option<i128> {
    let more = 10_i128.checked_pow((scale - number.scale()).into())?;
    number.coefficient()?.checked_mul(more)
}

/// The quotient. Halves are rounded away from zero.
fn rounded(number: i128, count: i128) -> i128 {
    let rest = number % count;
    let up = rest.unsigned_abs() >= count.unsigned_abs().div_ceil(2);
    number / count + if up { number.signum() } else { 0 }
}

fn add(one: Decimal, other: Decimal) -> Option<Decimal> {
    let scale = one.scale().max(other.scale());
    let sum = scaled(one, scale)?.checked_add(scaled(other, scale)?)?;
    Decimal::from_coefficient(sum, scale).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(coefficient: i128, scale: u8) -> Cell {
        Cell::Decimal(Decimal::from_coefficient(coefficient, scale).expect("it fits"))
    }

    #[test]
    fn averages_are_rounded_as_in_mysql() {
        let column = |digits| ColumnMetaData {
            r#type: FieldType::Decimal,
            fractional_digits: digits,
            ..ColumnMetaData::default()
        };
        let average = |sum: Cell, count, digits| sum.average(&Cell::Signed(count), &column(digits));
        for (sum, count, digits, expected) in [
            (decimal(20, 0), 3, Some(4), decimal(66_667, 4)),
            (decimal(-20, 0), 3, Some(4), decimal(-66_667, 4)),
            (decimal(1, 0), 8, Some(2), decimal(13, 2)),
            (decimal(-1, 0), 8, Some(2), decimal(-13, 2)),
            (decimal(1, 0), 3, None, decimal(3_333, 4)),
            (Cell::Signed(5), 2, Some(4), decimal(25_000, 4)),
            (Cell::Null, 2, Some(4), Cell::Null),
            (decimal(5, 0), 0, Some(4), Cell::Null),
        ] {
            assert_eq!(average(sum.clone(), count, digits), Ok(expected), "{sum:?} / {count}");
        }
        assert_eq!(average(decimal(i128::MAX, 0), 2, Some(4)).expect_err("too much").code, 1690);
    }

    #[test]
    fn what_the_data_nodes_may_order_in_another_way_is_refused() {
        let column = |kind, length| ColumnMetaData { r#type: kind, length, ..Default::default() };
        for (kind, length, is_ordered) in [
            (FieldType::Bit, Some(63), true),
            (FieldType::Bit, Some(64), false),
            (FieldType::Bit, None, false),
            (FieldType::Enum, Some(4), false),
            (FieldType::Set, Some(4), false),
            (FieldType::Sint, Some(20), true),
        ] {
            let checked = check_order(&column(kind, length), true);
            assert_eq!(checked.is_ok(), is_ordered, "{kind:?} {length:?}");
        }
    }

    #[test]
    fn sums_beyond_the_type_are_refused() {
        let sum = Cell::Signed(i64::MAX).plus(Cell::Signed(1));
        assert_eq!(sum.expect_err("too much").code, 1690);
        let sum = Cell::Signed(1).plus(Cell::Double(1.0));
        assert_eq!(sum.expect_err("other types").code, 1235);
        assert_eq!(Cell::Null.plus(Cell::Signed(1)), Ok(Cell::Signed(1)));
    }
}

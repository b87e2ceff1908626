//! Values of SQLite in columns of a type.

use std::borrow::Cow;

use epoll_group::codec::value::{Date, Decimal, Set, Value};
use epoll_group::session::{Row, SessionError};
use rusqlite::types::ValueRef;

use super::{Description, Type, names};

impl Type {
    /// The type of an expression, by a value of it; none while that is NULL.
    pub fn of_value(value: ValueRef<'_>) -> Option<Self> {
        Some(match value {
            ValueRef::Null => return None,
            ValueRef::Integer(_) => Self::BIGINT,
            ValueRef::Real(_) => Self::Double,
            ValueRef::Text(text) => Self::VarChar(length(text)),
            ValueRef::Blob(bytes) => Self::VarBinary(length(bytes)),
        })
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

impl Description {
    /// Writes a value into its column.
    ///
    /// # Errors
    ///
    /// The value is none of the column's type.
    #[inline]
    pub fn write(&self, row: &mut Row<'_>, value: ValueRef<'_>) -> Result<(), SessionError> {
        match (self.kind.unwrap_or(Type::Null), value) {
            (_, ValueRef::Null) => row.null(),
            (Type::Signed(_), ValueRef::Integer(value)) => row.int(value),
            (Type::Double, ValueRef::Real(value)) => row.value(Value::Double(value)),
            (
                Type::Char(_) | Type::VarChar(_) | Type::Text(..) | Type::Json,
                ValueRef::Text(bytes) | ValueRef::Blob(bytes),
            ) => row.text(bytes),
            (kind, value) => {
                let stored = self.domain.as_ref().and_then(|domain| domain.store("", value).ok());
                let value = stored.as_ref().map_or(value, ValueRef::from);
                if write_converted(kind, row, value).is_none() {
                    let name = &self.name;
                    let text = format!("a value of column '{name}' is none of its type, {kind:?}");
                    return Err(SessionError::new(1366, b"HY000", text));
                }
            }
        }
        Ok(())
    }
}

/// Converts a value that has another type than its column.
fn write_converted(kind: Type, row: &mut Row<'_>, value: ValueRef<'_>) -> Option<()> {
    match kind {
        Type::Signed(_) => row.int(as_integer(value)?),
        Type::Unsigned(_) | Type::Year => row.uint(as_integer(value)?.try_into().ok()?),
        Type::Double => row.value(Value::Double(as_number(value)?)),
        Type::Float => row.value(Value::Float(as_number(value)? as f32)),
        Type::Decimal { scale, .. } => row.value(Value::Decimal(as_decimal(value, scale)?)),
        Type::Date => row.value(Value::Date(temporal(value)?)),
        Type::DateTime(_) | Type::Timestamp(_) => row.value(Value::DateTime(match value {
            ValueRef::Text(text) if text.len() == 10 => temporal::<Date>(value)?.midnight(),
            _ => temporal(value)?,
        })),
        Type::Time(_) => row.value(Value::Time(temporal(value)?)),
        Type::Char(_)
        | Type::VarChar(_)
        | Type::Text(..)
        | Type::Json
        | Type::Binary(_)
        | Type::VarBinary(_)
        | Type::Blob(..)
        | Type::Null => row.text(as_text(value)),
        Type::Bit(_) => row.value(Value::Bit(as_integer(value)?.cast_unsigned())),
        Type::Enum(_) => row.value(Value::Enum(&as_text(value))),
        Type::Set(_) => {
            let set = as_text(value);
            row.value(Value::Set(Set::new(names(&set), &mut Vec::new())));
        }
    }
    Some(())
}

pub(super) fn as_integer(value: ValueRef<'_>) -> Option<i64> {
    match value {
        ValueRef::Integer(value) => Some(value),
        // Such a number is one of i64, too.
        ValueRef::Real(value) if value.fract() == 0.0 && value.abs() < 9e15 => Some(value as i64),
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        _ => None,
    }
}

fn as_text(value: ValueRef<'_>) -> Cow<'_, [u8]> {
    match value {
        ValueRef::Null => unreachable!("NULL is written before"),
        ValueRef::Integer(value) => Cow::Owned(value.to_string().into_bytes()),
        ValueRef::Real(value) => Cow::Owned(value.to_string().into_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Cow::Borrowed(bytes),
    }
}

fn as_number(value: ValueRef<'_>) -> Option<f64> {
    match value {
        // An integer beyond 2^53 may have no exact f64.
        ValueRef::Integer(value) => {
            Some(value as f64).filter(|&number| number as i128 == i128::from(value))
        }
        ValueRef::Real(value) => Some(value),
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        _ => None,
    }
}

fn as_decimal(value: ValueRef<'_>, scale: u8) -> Option<Decimal> {
    match value {
        ValueRef::Integer(value) => {
            let unit = 10_i128.checked_pow(scale.into())?;
            Decimal::from_coefficient(i128::from(value).checked_mul(unit)?, scale).ok()
        }
        ValueRef::Real(value) => format!("{value:.*}", usize::from(scale)).parse().ok(),
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        _ => None,
    }
}

fn temporal<T: std::str::FromStr>(value: ValueRef<'_>) -> Option<T> {
    match value {
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
        _ => None,
    }
}

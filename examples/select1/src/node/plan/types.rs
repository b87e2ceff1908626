//! Reading, computing and writing of cells and expressions by type.

use std::borrow::Cow;
use std::str::FromStr;

use epoll_group::codec::proto::resultset::OriginalType;
use epoll_group::codec::value::{Date, DateTime, Set, Time, Value};
use epoll_group::session::SessionError;
use rusqlite::types::ValueRef;

use super::exact::{Exact, MAX_SCALE};
use super::refuse;
use super::value::{Num, Val, leading_number};
use crate::node::columns::{Description, Type, names};

/// Most digits of a DECIMAL.
const MAX_DIGITS: u8 = 65;

/// The type of a column, between two nodes.
pub(super) fn type_of(field: &Description) -> Type {
    field.kind.unwrap_or(Type::Null)
}

impl Type {
    pub(super) const BIGINT_UNSIGNED: Self = Self::Unsigned(OriginalType::MysqlTypeLonglong);

    /// A DECIMAL, of no more digits than there can be.
    pub(super) fn exact(digits: u8, scale: u8) -> Self {
        let scale = scale.min(MAX_SCALE);
        Self::Decimal { digits: digits.clamp(scale.max(1), MAX_DIGITS), scale }
    }

    /// Digits of a number that is exact.
    pub(super) const fn digits(&self) -> u8 {
        use OriginalType as O;
        match self {
            Self::Signed(O::MysqlTypeTiny) | Self::Unsigned(O::MysqlTypeTiny) => 3,
            Self::Signed(O::MysqlTypeShort) | Self::Unsigned(O::MysqlTypeShort) => 5,
            Self::Signed(O::MysqlTypeInt24) => 7,
            Self::Unsigned(O::MysqlTypeInt24) => 8,
            Self::Signed(O::MysqlTypeLong) | Self::Unsigned(O::MysqlTypeLong) => 10,
            Self::Signed(_) => 19,
            Self::Unsigned(_) => 20,
            Self::Year => 4,
            Self::Bit(_) => 20,
            Self::Decimal { digits, .. } => *digits,
            _ => 0,
        }
    }

    /// Digits behind the point.
    pub(super) const fn scale(&self) -> u8 {
        match self {
            Self::Decimal { scale, .. } => *scale,
            _ => 0,
        }
    }

    pub(super) const fn is_unsigned(&self) -> bool {
        matches!(self, Self::Unsigned(_) | Self::Year | Self::Bit(_))
    }

    pub(super) const fn is_integer(&self) -> bool {
        self.is_unsigned() || matches!(self, Self::Signed(_))
    }

    /// Bytes and no text.
    pub(super) const fn is_binary(&self) -> bool {
        matches!(self, Self::Binary(_) | Self::VarBinary(_) | Self::Blob(..))
    }

    /// A text, or bytes.
    pub(super) const fn is_textual(&self) -> bool {
        self.is_binary()
            || matches!(self, Self::Char(_) | Self::VarChar(_) | Self::Text(..) | Self::Json)
            || matches!(self, Self::Enum(_) | Self::Set(_))
    }

    /// A date or a time: no number, and not compared as text.
    pub(super) const fn is_temporal(&self) -> bool {
        matches!(self, Self::Date | Self::DateTime(_) | Self::Timestamp(_) | Self::Time(_))
    }

    /// True if arithmetic with it is done in floating point.
    pub(super) const fn is_inexact(&self) -> bool {
        matches!(self, Self::Double | Self::Float) || self.is_textual()
    }

    /// A cell of the table, which may hold whatever SQLite lets it, as a value of the type.
    ///
    /// # Errors
    /// A DECIMAL has more digits than can be computed with.
    pub(super) fn read<'r>(&self, cell: ValueRef<'r>) -> Result<Val<'r>, SessionError> {
        Ok(match (self, cell) {
            (_, ValueRef::Null) | (Self::Null, _) => Val::Null,
            (Self::Signed(_), ValueRef::Integer(value)) => Val::Int(value),
            (Self::Signed(_), other) => {
                Val::Int(clamp(number(other).to_integer(), i64::MIN, i64::MAX))
            }
            (Self::Bit(_), ValueRef::Integer(bits)) => Val::Uint(bits.cast_unsigned()),
            (Self::Unsigned(_) | Self::Year | Self::Bit(_), other) => {
                Val::Uint(clamp(number(other).to_integer(), u64::MIN, u64::MAX))
            }
            (Self::Float, other) => Val::Double(f64::from(number(other).to_f64() as f32)),
            (Self::Double, other) => Val::Double(number(other).to_f64()),
            (Self::Decimal { scale, .. }, other) => {
                let number = number(other);
                let exact = number.to_exact();
                let exact = exact.or_else(|| Exact::from_f64(number.to_f64(), *scale));
                let exact = exact.and_then(|exact| exact.rescale(*scale));
                Val::Exact(exact.ok_or_else(too_large)?)
            }
            (_, ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => Val::Text(Cow::Borrowed(bytes)),
            (_, ValueRef::Integer(value)) => Val::Text(Cow::Owned(value.to_string().into_bytes())),
            (_, ValueRef::Real(value)) => Val::Text(Cow::Owned(value.to_string().into_bytes())),
        })
    }

    /// Writes a value of the type as a cell of the reply.
    pub(super) fn write(
        &self,
        value: &Val<'_>,
        cell: &mut dyn FnMut(Value<'_>),
    ) -> Result<(), SessionError> {
        if value.is_null() {
            cell(Value::Null);
            return Ok(());
        }
        let number = || value.number().unwrap_or(Num::Int(0));
        let text = || value.text().unwrap_or_default();
        match self {
            Self::Null => cell(Value::Null),
            Self::Signed(_) => {
                cell(Value::Signed(clamp(number().to_integer(), i64::MIN, i64::MAX)));
            }
            Self::Unsigned(_) | Self::Year => {
                cell(Value::Unsigned(clamp(number().to_integer(), u64::MIN, u64::MAX)));
            }
            Self::Bit(_) => cell(Value::Bit(clamp(number().to_integer(), u64::MIN, u64::MAX))),
            Self::Enum(_) => cell(Value::Enum(&text())),
            Self::Set(_) => cell(Value::Set(Set::new(names(&text()), &mut Vec::new()))),
            Self::Float => cell(Value::Float(number().to_f64() as f32)),
            Self::Double => cell(Value::Double(number().to_f64())),
            Self::Decimal { scale, .. } => {
                let exact = number().to_exact().and_then(|exact| exact.rescale(*scale));
                let decimal = exact.and_then(Exact::to_decimal);
                cell(Value::Decimal(decimal.ok_or_else(too_large)?));
            }
            Self::Date => cell(Value::Date(instant(&text(), "DATE")?.date())),
            Self::DateTime(_) | Self::Timestamp(_) => {
                cell(Value::DateTime(instant(&text(), "DATETIME")?));
            }
            Self::Time(_) => {
                cell(Value::Time(parse(&text()).ok_or_else(|| no(&text(), "TIME"))?));
            }
            _ => cell(Value::Bytes(&text())),
        }
        Ok(())
    }

    /// Returns the number by which a value of the type, or a text in its place, is compared as a
    /// point in time.
    pub(super) fn moment(&self, value: &Val<'_>) -> Result<Option<i128>, SessionError> {
        let Some(text) = value.text() else { return Ok(None) };
        if let Self::Time(_) = self {
            let time: Time = parse(&text).ok_or_else(|| no(&text, "TIME"))?;
            return Ok(Some(time.to_packed().into()));
        }
        Ok(Some(instant(&text, "DATETIME")?.to_packed().into()))
    }
}

fn too_large() -> SessionError {
    refuse("DECIMAL is out of range")
}

fn instant(text: &[u8], kind: &str) -> Result<DateTime, SessionError> {
    let date = || parse::<Date>(text).map(Date::midnight);
    parse(text).or_else(date).ok_or_else(|| no(text, kind))
}

fn parse<T: FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn no(text: &[u8], kind: &str) -> SessionError {
    refuse(format_args!("'{}' is no {kind}", text.escape_ascii()))
}

fn number(cell: ValueRef<'_>) -> Num {
    match cell {
        ValueRef::Null => Num::Int(0),
        ValueRef::Integer(value) => Num::Int(value),
        ValueRef::Real(value) => Num::Double(value),
        ValueRef::Text(text) | ValueRef::Blob(text) => {
            // Exactly, if the whole text is a number: an unsigned integer or a decimal may stand as
            // text.
            let exact = std::str::from_utf8(text).ok().and_then(Exact::parse);
            exact.map_or_else(|| Num::Double(leading_number(text)), Num::Exact)
        }
    }
}

fn clamp<T: TryFrom<i128> + Into<i128> + Copy>(value: i128, least: T, most: T) -> T {
    T::try_from(value).unwrap_or_else(|_| if value < least.into() { least } else { most })
}

//! Types of columns and expressions: what MySQL would call them, and how cells of them are read and
//! written.

use std::borrow::Cow;
use std::str::FromStr;

use epoll_group::codec::column::Column;
use epoll_group::codec::message::resultset::OriginalType;
use epoll_group::codec::temporal::{Date, DateTime, Time};
use epoll_group::codec::value::{Set, Value};
use epoll_group::session::SessionError;
use rusqlite::types::ValueRef;

use super::exact::{Exact, MAX_SCALE};
use super::refuse;
use super::value::{Num, Val, leading_number};

/// What values are, beside NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing but NULL.
    Null,
    Signed,
    Unsigned,
    Bit,
    Float,
    Double,
    Exact,
    Text,
    Date,
    DateTime,
    Time,
    Enum,
    Set,
}

/// A type.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub(super) kind: Kind,
    /// Digits of a number that is exact.
    pub(super) digits: u8,
    /// Of them behind the point.
    pub(super) scale: u8,
    /// Metadata without names.
    pub(super) column: Column<'static>,
}

/// `utf8mb4_general_ci`, and the most bytes of a character in it.
const COLLATION: u64 = 45;
const CHAR_BYTES: u32 = 4;

/// Most digits of a DECIMAL.
const MAX_DIGITS: u8 = 65;

impl Type {
    const fn of(kind: Kind, column: Column<'static>) -> Self {
        Self { kind, digits: 0, scale: 0, column }
    }

    const fn with_digits(self, digits: u8) -> Self {
        Self { digits, ..self }
    }

    pub(super) fn signed() -> Self {
        Self::of(Kind::Signed, Column::signed("")).with_digits(19)
    }

    pub(super) fn unsigned() -> Self {
        Self::of(Kind::Unsigned, Column::unsigned("")).with_digits(20)
    }

    /// What comparisons are.
    pub(super) fn truth() -> Self {
        Self::of(Kind::Signed, Column::signed("").length(1)).with_digits(1)
    }

    pub(super) fn double() -> Self {
        Self::of(Kind::Double, Column::double(""))
    }

    pub(super) fn null() -> Self {
        Self::of(Kind::Null, Column::null(""))
    }

    pub(super) fn exact(digits: u8, scale: u8) -> Self {
        let scale = scale.min(MAX_SCALE);
        let digits = digits.clamp(scale.max(1), MAX_DIGITS);
        let column = Column::decimal("", digits.into(), scale.into());
        Self { kind: Kind::Exact, digits, scale, column }
    }

    pub(super) fn text(characters: u32) -> Self {
        let length = characters.saturating_mul(CHAR_BYTES);
        Self::of(Kind::Text, Column::text("", COLLATION, length))
    }

    pub(super) fn binary(length: u32) -> Self {
        Self::of(Kind::Text, Column::binary("", length))
    }

    /// As a column was declared; what MySQL does not know goes by the words that SQLite looks for.
    pub(super) fn declared(declaration: &str) -> Self {
        let lower = declaration.to_ascii_lowercase();
        let name: &str = lower.split(|c: char| c == '(' || c.is_whitespace()).next().unwrap_or("");
        let argument = |at: usize| -> Option<u32> {
            let (_, rest) = lower.split_once('(')?;
            rest.split_once(')')?.0.split(',').nth(at)?.trim().parse().ok()
        };
        let first = |or: u32| argument(0).unwrap_or(or);
        let fraction = || argument(0).unwrap_or(0).min(6);
        let int =
            |original, signed: u8, unsigned: u8| Self::integer(original, &lower, signed, unsigned);
        match name {
            "tinyint" => int(OriginalType::MysqlTypeTiny, 3, 3),
            "bool" | "boolean" => int(OriginalType::MysqlTypeTiny, 1, 1),
            "smallint" => int(OriginalType::MysqlTypeShort, 5, 5),
            "mediumint" => int(OriginalType::MysqlTypeInt24, 7, 8),
            "int" => int(OriginalType::MysqlTypeLong, 10, 10),
            "bigint" | "integer" => int(OriginalType::MysqlTypeLonglong, 19, 20),
            "year" => Self::of(Kind::Unsigned, Column::year("")).with_digits(4),
            "bit" => Self::of(Kind::Bit, Column::bit("", first(1))).with_digits(20),
            "float" => Self::of(Kind::Float, Column::float("")),
            "double" | "real" => Self::double(),
            "decimal" | "dec" | "numeric" | "fixed" => {
                let small = |value: u32| u8::try_from(value).unwrap_or(MAX_DIGITS);
                Self::exact(small(first(10)), small(argument(1).unwrap_or(0)))
            }
            "date" => Self::of(Kind::Date, Column::date("")),
            "datetime" => Self::of(Kind::DateTime, Column::datetime("", fraction())),
            "timestamp" => Self::of(Kind::DateTime, Column::timestamp("", fraction())),
            "time" => Self::of(Kind::Time, Column::time("", fraction())),
            "char" | "character" | "nchar" => {
                let length = first(1).saturating_mul(CHAR_BYTES);
                Self::of(Kind::Text, Column::char("", COLLATION, length))
            }
            "varchar" | "nvarchar" => Self::text(first(255)),
            "binary" | "varbinary" => Self::binary(first(1)),
            "tinytext" => Self::long_text(255),
            "text" => Self::long_text(65_535),
            "mediumtext" => Self::long_text((1 << 24) - 1),
            "longtext" => Self::long_text(u32::MAX),
            "tinyblob" => Self::of(Kind::Text, Column::blob("").length(255)),
            "blob" => Self::of(Kind::Text, Column::blob("")),
            "mediumblob" => Self::of(Kind::Text, Column::blob("").length((1 << 24) - 1)),
            "longblob" => Self::of(Kind::Text, Column::blob("").length(u32::MAX)),
            "json" => Self::of(Kind::Text, Column::json("")),
            "enum" => Self::of(Kind::Enum, Column::enumeration("", COLLATION, 255 * CHAR_BYTES)),
            "set" => Self::of(Kind::Set, Column::set("", COLLATION, 255 * CHAR_BYTES)),
            _ if lower.contains("int") => int(OriginalType::MysqlTypeLonglong, 19, 20),
            _ if ["real", "floa", "doub"].iter().any(|word| lower.contains(word)) => Self::double(),
            _ => Self::long_text(65_535),
        }
    }

    fn integer(original: OriginalType, declared: &str, signed: u8, unsigned: u8) -> Self {
        let zerofill = declared.contains("zerofill");
        if zerofill || declared.contains("unsigned") {
            let column = Column::uint("", original);
            let column = if zerofill { column.zerofill() } else { column };
            return Self::of(Kind::Unsigned, column).with_digits(unsigned);
        }
        Self::of(Kind::Signed, Column::int("", original)).with_digits(signed)
    }

    fn long_text(bytes: u32) -> Self {
        let mut column = Column::text("", COLLATION, bytes);
        column.original_type = OriginalType::MysqlTypeBlob;
        Self::of(Kind::Text, column)
    }

    /// Whether keys of it are bytes and no text.
    pub(super) fn is_binary(&self) -> bool {
        self.kind == Kind::Text && self.column.collation == Some(Column::BINARY)
    }

    /// A date or a time: no number, and not compared as text.
    pub(super) const fn is_temporal(&self) -> bool {
        matches!(self.kind, Kind::Date | Kind::DateTime | Kind::Time)
    }

    /// Whether arithmetic with it is done in floating point.
    pub(super) const fn is_inexact(&self) -> bool {
        matches!(self.kind, Kind::Double | Kind::Float | Kind::Text | Kind::Enum | Kind::Set)
    }

    pub(super) const fn is_textual(&self) -> bool {
        matches!(self.kind, Kind::Text | Kind::Enum | Kind::Set)
    }

    /// A cell of the table, which may hold whatever SQLite lets it, as a value of the type.
    pub(super) fn read<'r>(&self, cell: ValueRef<'r>) -> Val<'r> {
        match self.kind {
            _ if cell == ValueRef::Null => Val::Null,
            Kind::Null => Val::Null,
            Kind::Signed => match cell {
                ValueRef::Integer(value) => Val::Int(value),
                other => Val::Int(clamp(number(other).to_integer(), i64::MIN, i64::MAX)),
            },
            Kind::Unsigned | Kind::Bit => match cell {
                other => Val::Uint(clamp(number(other).to_integer(), u64::MIN, u64::MAX)),
            },
            Kind::Float => Val::Double(f64::from(number(cell).to_f64() as f32)),
            Kind::Double => Val::Double(number(cell).to_f64()),
            Kind::Exact => {
                let number = number(cell);
                let exact = number.to_exact();
                let exact = exact.or_else(|| Exact::from_f64(number.to_f64(), self.scale));
                exact.and_then(|exact| exact.rescale(self.scale)).map_or(Val::Null, Val::Exact)
            }
            _ => Val::Text(match cell {
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Cow::Borrowed(bytes),
                ValueRef::Integer(value) => Cow::Owned(value.to_string().into_bytes()),
                ValueRef::Real(value) => Cow::Owned(value.to_string().into_bytes()),
                ValueRef::Null => return Val::Null,
            }),
        }
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
        match self.kind {
            Kind::Null => cell(Value::Null),
            Kind::Signed => {
                cell(Value::Signed(clamp(number().to_integer(), i64::MIN, i64::MAX)));
            }
            Kind::Unsigned => {
                cell(Value::Unsigned(clamp(number().to_integer(), u64::MIN, u64::MAX)));
            }
            Kind::Bit => cell(Value::Bit(clamp(number().to_integer(), u64::MIN, u64::MAX))),
            Kind::Float => cell(Value::Float(number().to_f64() as f32)),
            Kind::Double => cell(Value::Double(number().to_f64())),
            Kind::Exact => {
                let exact = number().to_exact().and_then(|exact| exact.rescale(self.scale));
                let decimal = exact.and_then(Exact::to_decimal);
                cell(Value::Decimal(decimal.ok_or_else(|| refuse("DECIMAL is out of range"))?));
            }
            Kind::Text => cell(Value::Bytes(&text())),
            Kind::Enum => cell(Value::Enum(&text())),
            Kind::Set => {
                let text = text();
                let members = text.split(|byte| *byte == b',').filter(|name| !name.is_empty());
                cell(Value::Set(Set::new(members, &mut Vec::new())));
            }
            Kind::Date => cell(Value::Date(instant(&text(), "DATE")?.date())),
            Kind::DateTime => cell(Value::DateTime(instant(&text(), "DATETIME")?)),
            Kind::Time => cell(Value::Time(parse(&text()).ok_or_else(|| no(&text(), "TIME"))?)),
        }
        Ok(())
    }

    /// What a value of the type, or a text in its place, is worth when points in time are compared.
    pub(super) fn moment(&self, value: &Val<'_>) -> Result<Option<i128>, SessionError> {
        let Some(text) = value.text() else { return Ok(None) };
        if self.kind == Kind::Time {
            let time: Time = parse(&text).ok_or_else(|| no(&text, "TIME"))?;
            return Ok(Some(time.to_packed().into()));
        }
        Ok(Some(instant(&text, "DATETIME")?.to_packed().into()))
    }
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
            // Exactly, if it is all of it: an unsigned integer or a decimal may stand as text.
            let exact = std::str::from_utf8(text).ok().and_then(Exact::parse);
            exact.map_or_else(|| Num::Double(leading_number(text)), Num::Exact)
        }
    }
}

fn clamp<T: TryFrom<i128> + Into<i128> + Copy>(value: i128, least: T, most: T) -> T {
    T::try_from(value).unwrap_or_else(|_| if value < least.into() { least } else { most })
}

//! Columns that describe an expression of each type, as the database does.

use super::Column;
use crate::codec::proto::resultset::{FieldType, OriginalType};

/// Flag bits of MySQL.
const UNSIGNED: u32 = 1 << 5;
const BLOB: u32 = 1 << 4;
const BINARY: u32 = 1 << 7;
const ENUM: u32 = 1 << 8;
const SET: u32 = 1 << 11;

/// `fractional_digits` of a FLOAT or DOUBLE without a fixed number of them.
const NOT_FIXED: u32 = 31;

impl<'a> Column<'a> {
    /// BIGINT.
    #[must_use]
    pub fn signed(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::int(name, OriginalType::MysqlTypeLonglong)
    }

    /// BIGINT UNSIGNED.
    #[must_use]
    pub fn unsigned(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::uint(name, OriginalType::MysqlTypeLonglong)
    }

    /// A signed integer of this type: TINY, SHORT, INT24, LONG, LONGLONG.
    #[must_use]
    pub fn int(name: &'a (impl AsRef<[u8]> + ?Sized), original_type: OriginalType) -> Self {
        let length = match original_type {
            OriginalType::MysqlTypeTiny => 4,
            OriginalType::MysqlTypeShort => 6,
            OriginalType::MysqlTypeInt24 => 9,
            OriginalType::MysqlTypeLong => 11,
            _ => 20,
        };
        Self::named(name, FieldType::Sint, original_type, BINARY).length(length)
    }

    /// An unsigned integer of this type.
    #[must_use]
    pub fn uint(name: &'a (impl AsRef<[u8]> + ?Sized), original_type: OriginalType) -> Self {
        let length = match original_type {
            OriginalType::MysqlTypeTiny => 3,
            OriginalType::MysqlTypeShort => 5,
            OriginalType::MysqlTypeInt24 => 8,
            OriginalType::MysqlTypeLong => 10,
            _ => 20,
        };
        Self::named(name, FieldType::Uint, original_type, BINARY | UNSIGNED).length(length)
    }

    /// YEAR.
    #[must_use]
    pub fn year(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let flags = BINARY | UNSIGNED;
        Self::named(name, FieldType::Uint, OriginalType::MysqlTypeYear, flags).length(4)
    }

    /// BIT of `bits` bits, 1 to 64.
    #[must_use]
    pub fn bit(name: &'a (impl AsRef<[u8]> + ?Sized), bits: u32) -> Self {
        Self::named(name, FieldType::Bit, OriginalType::MysqlTypeBit, UNSIGNED).length(bits)
    }

    /// FLOAT.
    #[must_use]
    pub fn float(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let column = Self::named(name, FieldType::Float, OriginalType::MysqlTypeFloat, BINARY);
        column.length(12).digits(NOT_FIXED)
    }

    /// DOUBLE.
    #[must_use]
    pub fn double(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let column = Self::named(name, FieldType::Double, OriginalType::MysqlTypeDouble, BINARY);
        column.length(22).digits(NOT_FIXED)
    }

    /// DECIMAL of `digits`, of which `scale` are behind the point.
    #[must_use]
    pub fn decimal(name: &'a (impl AsRef<[u8]> + ?Sized), digits: u32, scale: u32) -> Self {
        let original = OriginalType::MysqlTypeNewdecimal;
        // The sign, and the point if there is one.
        let length = digits.saturating_add(if scale == 0 { 1 } else { 2 });
        Self::named(name, FieldType::Decimal, original, BINARY).length(length).digits(scale)
    }

    /// DATE.
    #[must_use]
    pub fn date(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let column = Self::named(name, FieldType::Datetime, OriginalType::MysqlTypeDate, BINARY);
        column.length(10).digits(0)
    }

    /// DATETIME with `digits` fractional digits, 0 to 6.
    #[must_use]
    pub fn datetime(name: &'a (impl AsRef<[u8]> + ?Sized), digits: u32) -> Self {
        let original = OriginalType::MysqlTypeDatetime;
        let column = Self::named(name, FieldType::Datetime, original, BINARY);
        column.length(with_fraction(19, digits)).digits(digits)
    }

    /// TIMESTAMP with `digits` fractional digits, 0 to 6.
    #[must_use]
    pub fn timestamp(name: &'a (impl AsRef<[u8]> + ?Sized), digits: u32) -> Self {
        let original = OriginalType::MysqlTypeTimestamp;
        let column = Self::named(name, FieldType::Datetime, original, BINARY);
        column.special().length(with_fraction(19, digits)).digits(digits)
    }

    /// TIME with `digits` fractional digits, 0 to 6.
    #[must_use]
    pub fn time(name: &'a (impl AsRef<[u8]> + ?Sized), digits: u32) -> Self {
        let column = Self::named(name, FieldType::Time, OriginalType::MysqlTypeTime, BINARY);
        column.length(with_fraction(10, digits)).digits(digits)
    }

    /// VARCHAR or TEXT in this collation, of up to `length` bytes.
    #[must_use]
    pub fn text(name: &'a (impl AsRef<[u8]> + ?Sized), collation: u64, length: u32) -> Self {
        let column = Self::named(name, FieldType::Bytes, OriginalType::MysqlTypeVarString, 0);
        Self { collation: Some(collation), ..column.length(length) }
    }

    /// VARBINARY of up to `length` bytes.
    #[must_use]
    pub fn binary(name: &'a (impl AsRef<[u8]> + ?Sized), length: u32) -> Self {
        let original = OriginalType::MysqlTypeVarString;
        Self::named(name, FieldType::Bytes, original, BINARY).length(length)
    }

    /// BLOB.
    #[must_use]
    pub fn blob(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let original = OriginalType::MysqlTypeBlob;
        Self::named(name, FieldType::Bytes, original, BINARY | BLOB).length(65_535)
    }

    /// CHAR in this collation, of `length` bytes.
    #[must_use]
    pub fn char(name: &'a (impl AsRef<[u8]> + ?Sized), collation: u64, length: u32) -> Self {
        let column = Self::named(name, FieldType::Bytes, OriginalType::MysqlTypeString, 0);
        Self { collation: Some(collation), ..column.special().length(length) }
    }

    /// ENUM in this collation, of up to `length` bytes.
    #[must_use]
    pub fn enumeration(name: &'a (impl AsRef<[u8]> + ?Sized), collation: u64, length: u32) -> Self {
        let column = Self::named(name, FieldType::Enum, OriginalType::MysqlTypeEnum, ENUM);
        Self { collation: Some(collation), ..column.special().length(length) }
    }

    /// SET in this collation, of up to `length` bytes.
    #[must_use]
    pub fn set(name: &'a (impl AsRef<[u8]> + ?Sized), collation: u64, length: u32) -> Self {
        let column = Self::named(name, FieldType::Set, OriginalType::MysqlTypeSet, SET);
        Self { collation: Some(collation), ..column.special().length(length) }
    }

    /// JSON.
    #[must_use]
    pub fn json(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let original = OriginalType::MysqlTypeJson;
        let column = Self::named(name, FieldType::Bytes, original, BINARY | BLOB);
        Self { content_type: Some(Self::JSON), ..column.length(u32::MAX) }
    }

    /// GEOMETRY.
    #[must_use]
    pub fn geometry(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        let original = OriginalType::MysqlTypeGeometry;
        let column = Self::named(name, FieldType::Bytes, original, BINARY | BLOB);
        Self { content_type: Some(Self::GEOMETRY), ..column }
    }

    /// The literal NULL.
    #[must_use]
    pub fn null(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::named(name, FieldType::Bytes, OriginalType::MysqlTypeNull, BINARY)
    }

    fn named(
        name: &'a (impl AsRef<[u8]> + ?Sized),
        field_type: FieldType,
        original_type: OriginalType,
        original_flags: u32,
    ) -> Self {
        Self {
            name: Some(name.as_ref()),
            original_name: Some(b""),
            table: Some(b""),
            original_table: Some(b""),
            schema: Some(b""),
            catalog: Some(b"def"),
            collation: Some(Self::BINARY),
            original_flags: Some(original_flags),
            ..Self::of(field_type, original_type)
        }
    }

    const fn digits(self, digits: u32) -> Self {
        Self { fractional_digits: Some(digits), ..self }
    }

    const fn special(self) -> Self {
        self.flag(Self::FLAG_SPECIAL, 0)
    }
}

/// Display length with the point and the digits behind it.
const fn with_fraction(length: u32, digits: u32) -> u32 {
    match digits {
        0 => length,
        _ => length.saturating_add(1).saturating_add(digits),
    }
}

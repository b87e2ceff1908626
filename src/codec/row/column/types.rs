//! Columns that describe an expression of each type, as the database does.

use super::Column;
use crate::codec::proto::resultset::{FieldType, OriginalType};

/// Type of a column in the database, for [`Column::new`].
///
/// Lengths count bytes of the result's character set. Collations are MySQL's numbers; 63 is
/// [`Column::BINARY`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ColumnType {
    /// A signed integer of this type: TINY, SHORT, INT24, LONG, LONGLONG.
    Int(OriginalType),
    /// An unsigned integer of this type.
    Uint(OriginalType),
    /// YEAR.
    Year,
    /// BIT.
    Bit {
        /// Number of bits, 1 to 64.
        bits: u32,
    },
    /// FLOAT.
    Float,
    /// DOUBLE.
    Double,
    /// DECIMAL.
    Decimal {
        /// Number of digits.
        digits: u32,
        /// Number of those digits that are behind the point.
        scale: u32,
    },
    /// DATE.
    Date,
    /// DATETIME.
    DateTime {
        /// Number of fractional digits, 0 to 6.
        digits: u32,
    },
    /// TIMESTAMP.
    Timestamp {
        /// Number of fractional digits, 0 to 6.
        digits: u32,
    },
    /// TIME.
    Time {
        /// Number of fractional digits, 0 to 6.
        digits: u32,
    },
    /// VARCHAR or TEXT.
    Text {
        /// Collation of the values.
        collation: u64,
        /// Greatest length.
        length: u32,
    },
    /// VARBINARY.
    Binary {
        /// Greatest length.
        length: u32,
    },
    /// BLOB.
    Blob {
        /// Greatest length, 65 535 for the usual BLOB.
        length: u32,
    },
    /// CHAR.
    Char {
        /// Collation of the values.
        collation: u64,
        /// Length.
        length: u32,
    },
    /// ENUM.
    Enum {
        /// Collation of the names.
        collation: u64,
        /// Greatest length.
        length: u32,
    },
    /// SET.
    Set {
        /// Collation of the names.
        collation: u64,
        /// Greatest length.
        length: u32,
    },
    /// JSON.
    Json,
    /// GEOMETRY.
    Geometry,
    /// The literal NULL.
    Null,
}

impl<'a> Column<'a> {
    /// Creates a column of this type.
    #[must_use]
    pub fn new(name: &'a (impl AsRef<[u8]> + ?Sized), column_type: ColumnType) -> Self {
        let (field_type, original_type, original_flags) = column_type.types();
        Self {
            field_type,
            original_type,
            name: Some(name.as_ref()),
            original_name: Some(b""),
            table: Some(b""),
            original_table: Some(b""),
            schema: Some(b""),
            catalog: Some(b"def"),
            collation: Some(column_type.collation()),
            fractional_digits: column_type.fractional_digits(),
            length: column_type.length(),
            flags: column_type.flags(),
            content_type: column_type.content_type(),
            original_flags: Some(original_flags),
        }
    }

    /// BIGINT.
    #[must_use]
    pub fn signed(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::new(name, ColumnType::Int(OriginalType::MysqlTypeLonglong))
    }

    /// BIGINT UNSIGNED.
    #[must_use]
    pub fn unsigned(name: &'a (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::new(name, ColumnType::Uint(OriginalType::MysqlTypeLonglong))
    }

    /// VARCHAR or TEXT in this collation, of up to `length` bytes.
    #[must_use]
    pub fn text(name: &'a (impl AsRef<[u8]> + ?Sized), collation: u64, length: u32) -> Self {
        Self::new(name, ColumnType::Text { collation, length })
    }
}

impl ColumnType {
    /// Encoding of the values, type in the database, and flags of MySQL.
    const fn types(self) -> (FieldType, OriginalType, u32) {
        match self {
            Self::Int(original) => (FieldType::Sint, original, BINARY),
            Self::Uint(original) => (FieldType::Uint, original, BINARY | UNSIGNED),
            Self::Year => (FieldType::Uint, OriginalType::MysqlTypeYear, BINARY | UNSIGNED),
            Self::Bit { .. } => (FieldType::Bit, OriginalType::MysqlTypeBit, UNSIGNED),
            Self::Float => (FieldType::Float, OriginalType::MysqlTypeFloat, BINARY),
            Self::Double => (FieldType::Double, OriginalType::MysqlTypeDouble, BINARY),
            Self::Decimal { .. } => (FieldType::Decimal, OriginalType::MysqlTypeNewdecimal, BINARY),
            Self::Date => (FieldType::Datetime, OriginalType::MysqlTypeDate, BINARY),
            Self::DateTime { .. } => (FieldType::Datetime, OriginalType::MysqlTypeDatetime, BINARY),
            Self::Timestamp { .. } => {
                (FieldType::Datetime, OriginalType::MysqlTypeTimestamp, BINARY)
            }
            Self::Time { .. } => (FieldType::Time, OriginalType::MysqlTypeTime, BINARY),
            Self::Text { .. } => (FieldType::Bytes, OriginalType::MysqlTypeVarString, 0),
            Self::Binary { .. } => (FieldType::Bytes, OriginalType::MysqlTypeVarString, BINARY),
            Self::Blob { .. } => (FieldType::Bytes, OriginalType::MysqlTypeBlob, BINARY | BLOB),
            Self::Char { .. } => (FieldType::Bytes, OriginalType::MysqlTypeString, 0),
            Self::Enum { .. } => (FieldType::Enum, OriginalType::MysqlTypeEnum, ENUM),
            Self::Set { .. } => (FieldType::Set, OriginalType::MysqlTypeSet, SET),
            Self::Json => (FieldType::Bytes, OriginalType::MysqlTypeJson, BINARY | BLOB),
            Self::Geometry => (FieldType::Bytes, OriginalType::MysqlTypeGeometry, BINARY | BLOB),
            Self::Null => (FieldType::Bytes, OriginalType::MysqlTypeNull, BINARY),
        }
    }

    /// Display length.
    const fn length(self) -> Option<u32> {
        Some(match self {
            Self::Int(original) => match original {
                OriginalType::MysqlTypeTiny => 4,
                OriginalType::MysqlTypeShort => 6,
                OriginalType::MysqlTypeInt24 => 9,
                OriginalType::MysqlTypeLong => 11,
                _ => 20,
            },
            Self::Uint(original) => match original {
                OriginalType::MysqlTypeTiny => 3,
                OriginalType::MysqlTypeShort => 5,
                OriginalType::MysqlTypeInt24 => 8,
                OriginalType::MysqlTypeLong => 10,
                _ => 20,
            },
            Self::Year => 4,
            Self::Bit { bits } => bits,
            Self::Float => 12,
            Self::Double => 22,
            // The sign, and the point if there is one.
            Self::Decimal { digits, scale } => {
                digits.saturating_add(if scale == 0 { 1 } else { 2 })
            }
            Self::Date => 10,
            Self::DateTime { digits } | Self::Timestamp { digits } => with_fraction(19, digits),
            Self::Time { digits } => with_fraction(10, digits),
            Self::Text { length, .. }
            | Self::Binary { length }
            | Self::Blob { length }
            | Self::Char { length, .. }
            | Self::Enum { length, .. }
            | Self::Set { length, .. } => length,
            Self::Json => u32::MAX,
            Self::Geometry | Self::Null => return None,
        })
    }

    /// Digits behind the point.
    const fn fractional_digits(self) -> Option<u32> {
        match self {
            Self::Float | Self::Double => Some(NOT_FIXED),
            Self::Decimal { scale, .. } => Some(scale),
            Self::Date => Some(0),
            Self::DateTime { digits } | Self::Timestamp { digits } | Self::Time { digits } => {
                Some(digits)
            }
            _ => None,
        }
    }

    const fn collation(self) -> u64 {
        match self {
            Self::Text { collation, .. }
            | Self::Char { collation, .. }
            | Self::Enum { collation, .. }
            | Self::Set { collation, .. } => collation,
            _ => Column::BINARY,
        }
    }

    /// Flags of this protocol.
    const fn flags(self) -> Option<u32> {
        match self {
            Self::Timestamp { .. } | Self::Char { .. } | Self::Enum { .. } | Self::Set { .. } => {
                Some(Column::FLAG_SPECIAL)
            }
            _ => None,
        }
    }

    const fn content_type(self) -> Option<u32> {
        match self {
            Self::Geometry => Some(Column::GEOMETRY),
            Self::Json => Some(Column::JSON),
            _ => None,
        }
    }
}

/// Flag bits of MySQL.
const UNSIGNED: u32 = 1 << 5;
const BLOB: u32 = 1 << 4;
const BINARY: u32 = 1 << 7;
const ENUM: u32 = 1 << 8;
const SET: u32 = 1 << 11;

/// `fractional_digits` of a FLOAT or DOUBLE without a fixed number of them.
const NOT_FIXED: u32 = 31;

/// Display length with the point and the digits behind it.
const fn with_fraction(length: u32, digits: u32) -> u32 {
    match digits {
        0 => length,
        _ => length.saturating_add(1).saturating_add(digits),
    }
}

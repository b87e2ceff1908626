use super::block::Member;
use crate::codec::proto::resultset::{FieldType, OriginalType};
use crate::codec::value::{
    Date, DateTime, Decimal, Set, Time, Value, ValueError, read_bytes, read_varint,
};
use crate::codec::wire::{MAX_VARINT_BYTES, Reader, put_varint, unzigzag, zigzag};

/// Encoding of the values of one column of a chunk, derived from its metadata.
///
/// *Shape*: one byte, `Copy`. There is one for each variant of [`Value`] but NULL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BlockKind {
    /// TINYINT to BIGINT.
    Signed,
    /// TINYINT UNSIGNED to BIGINT UNSIGNED, and YEAR.
    Unsigned,
    /// BIT.
    Bit,
    /// FLOAT.
    Float,
    /// DOUBLE.
    Double,
    /// DECIMAL.
    Decimal,
    /// DATE.
    Date,
    /// DATETIME and TIMESTAMP.
    DateTime,
    /// TIME.
    Time,
    /// CHAR, VARCHAR, TEXT, BINARY, BLOB, JSON.
    Bytes,
    /// ENUM.
    Enum,
    /// SET.
    Set,
}

impl BlockKind {
    /// All kinds.
    pub const ALL: &[Self] = &[
        Self::Signed,
        Self::Unsigned,
        Self::Bit,
        Self::Float,
        Self::Double,
        Self::Decimal,
        Self::Date,
        Self::DateTime,
        Self::Time,
        Self::Bytes,
        Self::Enum,
        Self::Set,
    ];

    /// Returns the kind of a column with these types in its metadata.
    ///
    /// `None`: a DATETIME that is neither a date nor a point in time.
    ///
    /// ```
    /// use epoll_group::codec::chunk::BlockKind;
    /// use epoll_group::codec::row::{Column, ColumnType};
    ///
    /// let column = Column::new("born", ColumnType::Date);
    /// let kind = BlockKind::of_types(column.field_type, column.original_type);
    /// assert_eq!(kind, Some(BlockKind::Date));
    /// ```
    #[must_use]
    pub const fn of_types(field_type: FieldType, original_type: OriginalType) -> Option<Self> {
        Some(match field_type {
            FieldType::Sint => Self::Signed,
            FieldType::Uint => Self::Unsigned,
            FieldType::Double => Self::Double,
            FieldType::Float => Self::Float,
            FieldType::Bytes => Self::Bytes,
            FieldType::Time => Self::Time,
            FieldType::Set => Self::Set,
            FieldType::Enum => Self::Enum,
            FieldType::Bit => Self::Bit,
            FieldType::Decimal => Self::Decimal,
            FieldType::Datetime => match original_type {
                OriginalType::MysqlTypeDate | OriginalType::MysqlTypeNewdate => Self::Date,
                OriginalType::MysqlTypeDatetime
                | OriginalType::MysqlTypeDatetime2
                | OriginalType::MysqlTypeTimestamp
                | OriginalType::MysqlTypeTimestamp2 => Self::DateTime,
                _ => return None,
            },
        })
    }

    /// Returns the kind of columns that hold `value`; `None` for NULL, which any column holds.
    pub(super) const fn of(value: &Value<'_>) -> Option<Self> {
        Some(match value {
            Value::Null => return None,
            Value::Signed(_) => Self::Signed,
            Value::Unsigned(_) => Self::Unsigned,
            Value::Bit(_) => Self::Bit,
            Value::Float(_) => Self::Float,
            Value::Double(_) => Self::Double,
            Value::Decimal(_) => Self::Decimal,
            Value::Date(_) => Self::Date,
            Value::DateTime(_) => Self::DateTime,
            Value::Time(_) => Self::Time,
            Value::Bytes(_) => Self::Bytes,
            Value::Enum(_) => Self::Enum,
            Value::Set(_) => Self::Set,
        })
    }

    /// Member of a column to which values of this kind are written.
    pub(super) const fn member(self) -> Member {
        match self {
            Self::Decimal | Self::Bytes | Self::Enum | Self::Set => Member::Variable,
            _ => Member::Fixed,
        }
    }

    /// Least number of bytes of one value, and the greatest if there is a bound.
    pub(super) const fn size(self) -> (usize, Option<usize>) {
        match self {
            Self::Float => (4, Some(4)),
            Self::Double => (8, Some(8)),
            Self::Decimal => (3, None),
            Self::Set => (2, None),
            // The length is 1 at least; the end byte follows.
            Self::Bytes | Self::Enum => (2, None),
            _ => (1, Some(MAX_VARINT_BYTES)),
        }
    }

    /// Reads one value.
    #[inline]
    pub(super) fn read<'a>(self, reader: &mut Reader<'a>) -> Result<Value<'a>, ValueError> {
        Ok(match self {
            Self::Signed => Value::Signed(unzigzag(read_varint(reader)?)),
            Self::Unsigned => Value::Unsigned(read_varint(reader)?),
            Self::Bit => Value::Bit(read_varint(reader)?),
            Self::Float => {
                Value::Float(f32::from_bits(reader.fixed32().map_err(ValueError::Wire)?))
            }
            Self::Double => {
                Value::Double(f64::from_bits(reader.fixed64().map_err(ValueError::Wire)?))
            }
            Self::Decimal => Value::Decimal(Decimal::from_packed(read_bytes(reader)?)?),
            Self::Date => Value::Date(Date::from_packed(read_varint(reader)?)?),
            Self::DateTime => Value::DateTime(DateTime::from_packed(read_varint(reader)?)?),
            Self::Time => Value::Time(Time::from_packed(read_varint(reader)?.cast_signed())?),
            Self::Bytes => Value::Bytes(terminated(read_bytes(reader)?)?),
            Self::Enum => Value::Enum(terminated(read_bytes(reader)?)?),
            Self::Set => match read_bytes(reader)? {
                // One byte is the empty set; no bytes at all are invalid.
                [] => return Err(ValueError::Unterminated),
                members => Value::Set(Set::from_cell(members)?),
            },
        })
    }
}

/// Appends `value` in the format of a chunk; NULL has no bytes.
pub(super) fn put(value: &Value<'_>, out: &mut Vec<u8>) {
    match value {
        Value::Null => {}
        Value::Signed(value) => put_varint(out, zigzag(*value)),
        Value::Unsigned(value) | Value::Bit(value) => put_varint(out, *value),
        Value::Float(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Double(value) => out.extend_from_slice(&value.to_le_bytes()),
        Value::Decimal(value) => put_bytes(value.as_packed(), out),
        Value::Date(value) => put_varint(out, value.to_packed()),
        Value::DateTime(value) => put_varint(out, value.to_packed()),
        Value::Time(value) => put_varint(out, value.to_packed().cast_unsigned()),
        Value::Bytes(bytes) | Value::Enum(bytes) => {
            put_varint(out, (bytes.len() as u64).saturating_add(1));
            out.extend_from_slice(bytes);
            out.push(0);
        }
        Value::Set(set) if set.is_empty() => put_bytes(&[0], out),
        Value::Set(set) => put_bytes(set.as_wire(), out),
    }
}

fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn terminated(bytes: &[u8]) -> Result<&[u8], ValueError> {
    match bytes.split_last() {
        Some((0, text)) => Ok(text),
        _ => Err(ValueError::Unterminated),
    }
}

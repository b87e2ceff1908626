//! Conversion of the bytes of a cell to its value.

use std::fmt;

use crate::codec::proto::resultset::{FieldType, OriginalType};
use crate::codec::value::{
    Date, DateTime, Decimal, Set, Sign, Time, Value, ValueError, read_varint, within,
};
use crate::codec::wire::{Reader, unzigzag};

/// One cell of a row, as its bytes.
///
/// *Shape*: a borrowed slice. Each reader returns `None` for NULL. The caller must know the type of
/// the column: bytes of another type are misread without notice, or are an error.
///
/// # Errors
///
/// A reader returns a [`ValueError`] if the bytes are no value of its type. It ends the request.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cell<'a> {
    bytes: &'a [u8],
}

impl<'a> Cell<'a> {
    /// A cell of these bytes.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// Bytes on the wire.
    #[must_use]
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Returns true if the cell is NULL.
    #[must_use]
    pub const fn is_null(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads the value by the types of the column's metadata: `DATETIME` is a [`Value::Date`] when
    /// the original type is one of a date.
    pub fn value(
        self,
        field_type: FieldType,
        original_type: OriginalType,
    ) -> Result<Value<'a>, ValueError> {
        let is_date =
            matches!(original_type, OriginalType::MysqlTypeDate | OriginalType::MysqlTypeNewdate);
        let value = match field_type {
            FieldType::Sint => self.signed()?.map(Value::Signed),
            FieldType::Uint => self.unsigned()?.map(Value::Unsigned),
            FieldType::Bit => self.unsigned()?.map(Value::Bit),
            FieldType::Float => self.float()?.map(Value::Float),
            FieldType::Double => self.double()?.map(Value::Double),
            FieldType::Decimal => self.decimal()?.map(Value::Decimal),
            FieldType::Datetime if is_date => self.date()?.map(Value::Date),
            FieldType::Datetime => self.datetime()?.map(Value::DateTime),
            FieldType::Time => self.time()?.map(Value::Time),
            FieldType::Bytes => self.bytes()?.map(Value::Bytes),
            FieldType::Enum => self.bytes()?.map(Value::Enum),
            FieldType::Set => self.set()?.map(Value::Set),
        };
        Ok(value.unwrap_or(Value::Null))
    }

    /// A signed integer.
    #[inline]
    pub fn signed(self) -> Result<Option<i64>, ValueError> {
        self.read(|reader| read_varint(reader).map(unzigzag))
    }

    /// An unsigned integer, a year, or the bits of a BIT column, the first bit being the highest.
    #[inline]
    pub fn unsigned(self) -> Result<Option<u64>, ValueError> {
        self.read(read_varint)
    }

    /// A FLOAT.
    pub fn float(self) -> Result<Option<f32>, ValueError> {
        self.read(|reader| reader.fixed32().map(f32::from_bits).map_err(ValueError::Wire))
    }

    /// A DOUBLE.
    pub fn double(self) -> Result<Option<f64>, ValueError> {
        self.read(|reader| reader.fixed64().map(f64::from_bits).map_err(ValueError::Wire))
    }

    /// A DECIMAL.
    pub fn decimal(self) -> Result<Option<Decimal>, ValueError> {
        if self.is_null() { Ok(None) } else { Decimal::from_packed(self.bytes).map(Some) }
    }

    /// A DATE. Parts behind the day are accepted when they are zero: another time than midnight is
    /// an error.
    pub fn date(self) -> Result<Option<Date>, ValueError> {
        // The packed form checks the time of a date.
        self.datetime()?.map(|at| Date::from_packed(at.to_packed())).transpose()
    }

    /// A DATETIME or TIMESTAMP.
    #[inline]
    pub fn datetime(self) -> Result<Option<DateTime>, ValueError> {
        self.read(|reader| {
            let (year, month) = (read_varint(reader)?, read_varint(reader)?);
            let date = Date::from_parts(year, month, read_varint(reader)?)?;
            let [hour, minute, second, microsecond] = clock(reader)?;
            DateTime::from_parts(date, hour, minute, second, microsecond)
        })
    }

    /// A TIME.
    #[inline]
    pub fn time(self) -> Result<Option<Time>, ValueError> {
        self.read(|reader| {
            let sign = reader.byte().map_err(ValueError::Wire)?;
            let sign = match within("sign", sign.into(), 1)? {
                0 => Sign::Plus,
                _ => Sign::Minus,
            };
            let [hour, minute, second, microsecond] = clock(reader)?;
            Time::from_parts(sign, hour, minute, second, microsecond)
        })
    }

    /// The bytes of a string, a blob, an ENUM, JSON or a geometry, without the zero behind them.
    #[inline]
    pub const fn bytes(self) -> Result<Option<&'a [u8]>, ValueError> {
        match self.bytes.split_last() {
            None => Ok(None),
            Some((0, bytes)) => Ok(Some(bytes)),
            Some(_) => Err(ValueError::Unterminated),
        }
    }

    /// A string that is UTF-8.
    pub fn text(self) -> Result<Option<&'a str>, ValueError> {
        let text = self.bytes()?.map(str::from_utf8).transpose();
        text.map_err(|_| ValueError::NotUtf8)
    }

    /// Returns the value of a `SET` column, or `None` for NULL.
    pub fn set(self) -> Result<Option<Set<'a>>, ValueError> {
        if self.is_null() { Ok(None) } else { Set::from_cell(self.bytes).map(Some) }
    }

    /// Applies `read` to all bytes of the cell, unless it is NULL.
    #[inline]
    fn read<T>(
        self,
        read: impl FnOnce(&mut Reader<'a>) -> Result<T, ValueError>,
    ) -> Result<Option<T>, ValueError> {
        if self.is_null() {
            return Ok(None);
        }
        let mut reader = Reader::new(self.bytes);
        let value = read(&mut reader)?;
        match reader.rest().len() {
            0 => Ok(Some(value)),
            bytes => Err(ValueError::Trailing { bytes }),
        }
    }
}

impl fmt::Debug for Cell<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_null() {
            return f.write_str("NULL");
        }
        self.bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads hour, minute, second and microsecond; trailing parts may be absent.
#[inline]
fn clock(reader: &mut Reader<'_>) -> Result<[u64; 4], ValueError> {
    let mut parts = [0; 4];
    for part in &mut parts {
        if reader.is_empty() {
            break;
        }
        *part = read_varint(reader)?;
    }
    Ok(parts)
}

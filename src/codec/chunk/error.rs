use std::error::Error;
use std::fmt;

use super::kind::BlockKind;
use crate::codec::error::{Scope, WireError};
use crate::codec::value::ValueError;

/// Reason why bytes are no chunk, or differ from the metadata. It is the peer's fault. The rest of
/// the result cannot be read, and its request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkError {
    /// The message is malformed.
    Wire {
        /// Number of the column in the frame, if the fault is in one.
        column: Option<u32>,
        /// Fault of the bytes.
        error: WireError,
    },
    /// A field of the message has another wire type than it must have.
    WireType {
        /// Number of the column in the frame, if the field is in one.
        column: Option<u32>,
        /// Number of the field in its message.
        field: u32,
    },
    /// The row count is missing.
    NoRowCount,
    /// The row count is above 2³² − 1.
    RowCountTooLarge {
        /// Row count of the chunk.
        rows: u64,
    },
    /// A column has no values, not even of length 0, or has them twice, fixed and variable.
    NoValues {
        /// Number of the column in the frame.
        column: u32,
    },
    /// Rows without columns.
    NoColumns {
        /// Number of rows announced.
        rows: u32,
    },
    /// The bitmap does not have one bit a row.
    BitmapLength {
        /// Number of the column.
        column: u32,
        /// Bytes of the bitmap.
        bytes: usize,
        /// Rows of the chunk.
        rows: u32,
    },
    /// The number of values does not fit the number of bytes.
    ValueCount {
        /// Number of the column.
        column: u32,
        /// Bytes of the values.
        bytes: usize,
        /// Rows that are not NULL.
        values: u32,
    },
    /// A value is invalid for its kind.
    Value {
        /// Number of the column.
        column: u32,
        /// Number of the row.
        row: u32,
        /// Fault of the value.
        error: ValueError,
    },
    /// Bytes follow the last value.
    Trailing {
        /// Number of the column.
        column: u32,
        /// Number of bytes.
        bytes: usize,
    },
    /// The frames have more columns than the metadata.
    TooManyColumns {
        /// Columns of the frames so far.
        columns: usize,
        /// Columns of the metadata.
        expected: usize,
    },
    /// Frames that belong together differ in the row count.
    RowCountDiffers {
        /// Row count of this frame.
        rows: u32,
        /// Row count of the frames before it.
        expected: u32,
    },
    /// The frames of one chunk are larger than the reader's limit. A limit of ours.
    TooLarge {
        /// Bytes of the bodies so far.
        bytes: usize,
        /// Largest number of bytes that the reader accepts.
        limit: usize,
    },
}

impl ChunkError {
    /// Scope of the error: the request of the result. The frames behind it can be read.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }

    /// The same error, found in this column.
    pub(super) fn in_column(self, column: u32) -> Self {
        let column = Some(column);
        match self {
            Self::Wire { error, .. } => Self::Wire { column, error },
            Self::WireType { field, .. } => Self::WireType { column, field },
            other => other,
        }
    }
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wire { column: Some(column), error } => write!(f, "column {column}: {error}"),
            Self::Wire { column: None, error } => error.fmt(f),
            Self::WireType { column: Some(column), field } => {
                write!(f, "field {field} of column {column} has another wire type")
            }
            Self::WireType { column: None, field } => {
                write!(f, "field {field} of the chunk has another wire type")
            }
            Self::NoRowCount => f.write_str("chunk without a row count"),
            Self::RowCountTooLarge { rows } => write!(f, "row count {rows} exceeds {}", u32::MAX),
            Self::NoValues { column } => {
                write!(f, "column {column} has no values, or two sets of them")
            }
            Self::NoColumns { rows } => write!(f, "{rows} rows without columns"),
            Self::BitmapLength { column, bytes, rows } => {
                write!(f, "bitmap of column {column} has {bytes} bytes for {rows} rows")
            }
            Self::ValueCount { column, bytes, values } => {
                write!(f, "column {column} has {bytes} bytes for {values} values")
            }
            Self::Value { column, row, error } => write!(f, "column {column}, row {row}: {error}"),
            Self::Trailing { column, bytes } => {
                write!(f, "column {column} has {bytes} bytes behind the last value")
            }
            Self::TooManyColumns { columns, expected } => {
                write!(f, "{columns} columns exceed {expected}")
            }
            Self::RowCountDiffers { rows, expected } => {
                write!(f, "{rows} rows after frames of {expected}")
            }
            Self::TooLarge { bytes, limit } => write!(f, "chunk of {bytes} bytes exceeds {limit}"),
        }
    }
}

impl Error for ChunkError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Wire { error, .. } => Some(error),
            Self::Value { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Reason why rows or columns cannot be written into a chunk. It is the caller's mistake, or a
/// limit of the peer. Earlier content is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkWriteError {
    /// A value of another kind than its column.
    Kind {
        /// Number of the column.
        column: usize,
        /// Kind of the column.
        expected: BlockKind,
        /// Kind of the value.
        found: BlockKind,
    },
    /// A row with another number of values than there are columns.
    RowWidth {
        /// Values of the row.
        values: usize,
        /// Number of columns.
        columns: usize,
    },
    /// A chunk counts rows in 32 bits, and has no room for one more.
    TooManyRows,
    /// One column makes a larger frame than allowed.
    TooLarge {
        /// Number of the column.
        column: usize,
        /// Bytes of the body with this column alone.
        bytes: usize,
        /// Largest number of bytes allowed.
        limit: usize,
    },
}

impl ChunkWriteError {
    /// Scope of the error: the request. Nothing of the chunk reaches the peer.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }
}

impl fmt::Display for ChunkWriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind { column, expected, found } => {
                write!(f, "value of kind {found:?} in column {column} of kind {expected:?}")
            }
            Self::RowWidth { values, columns } => write!(f, "{values} values in {columns} columns"),
            Self::TooManyRows => f.write_str("rows exceed 32 bits"),
            Self::TooLarge { column, bytes, limit } => {
                write!(f, "column {column} of {bytes} bytes exceeds {limit}")
            }
        }
    }
}

impl Error for ChunkWriteError {}

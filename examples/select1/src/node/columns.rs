//! Columns of results as MySQL describes them, from what SQLite knows of them.
//!
//! SQLite keeps the type of a column as the text of its definition and lets each value have a type of
//! its own. In this protocol a column has one type for all rows, so it is decided before the first
//! row, and values are converted to it, or refused when that would change them.

mod declared;
mod domain;
mod table;
pub mod triggers;
mod value;

use std::sync::Arc;

use epoll_group::codec::proto::resultset::OriginalType;
use epoll_group::codec::row::{Column, ColumnType};

pub use declared::{OUT_OF_RANGE, range};
pub use domain::{Domain, TOO_LONG, TRUNCATED, from_hex, names, written};
pub use table::{Tables, rowid_name, table_columns};

/// utf8mb4_general_ci: the collation of all texts here.
pub const TEXT_COLLATION: u64 = 45;
/// Bytes of a character, at most.
const BYTES_PER_CHARACTER: u32 = 4;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// The label.
    pub name: String,
    /// Name in the table; empty for an expression.
    pub original_name: String,
    pub table: String,
    pub schema: String,
    /// None for an expression, until there is a value.
    pub kind: Option<Type>,
    /// Gives values their stored form. In a result present only for a change that returns values
    /// (hint `returning`), because triggers store them later.
    pub domain: Option<Arc<Domain>>,
    pub facts: Facts,
}

/// Properties of a column in the definition of its table, beside the type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub not_null: bool,
    pub primary_key: bool,
    pub unique_key: bool,
    pub multiple_key: bool,
    pub auto_increment: bool,
}

/// The type of a column in MySQL. Lengths of `Char` and `VarChar` are in characters, those of
/// `Binary` and `VarBinary` in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Signed(OriginalType),
    Unsigned(OriginalType),
    Year,
    Float,
    Double,
    Decimal {
        digits: u8,
        scale: u8,
    },
    Date,
    /// With this many fractional digits, like the next two.
    DateTime(u8),
    Timestamp(u8),
    Time(u8),
    Char(u32),
    VarChar(u32),
    /// A TEXT of so many bytes.
    Text(OriginalType, u32),
    Binary(u32),
    VarBinary(u32),
    /// A BLOB of so many bytes.
    Blob(OriginalType, u32),
    Json,
    /// A BIT of this many bits.
    Bit(u32),
    /// An ENUM, with the length of its longest member in characters.
    Enum(u32),
    /// A SET, with the length of all its members and commas in characters.
    Set(u32),
    /// Nothing but NULL.
    Null,
}

impl Type {
    /// Type of an expression whose value is an integer.
    pub const BIGINT: Self = Self::Signed(OriginalType::MysqlTypeLonglong);
    /// Type of a text without any information.
    pub const STRING: Self = Self::VarChar(5);
}

impl Description {
    /// An expression.
    pub fn expression(name: impl Into<String>, kind: Option<Type>) -> Self {
        Self {
            name: name.into(),
            original_name: String::new(),
            table: String::new(),
            schema: String::new(),
            kind,
            domain: None,
            facts: Facts::default(),
        }
    }

    /// Returns the column for the reply.
    pub fn column(&self) -> Column<'_> {
        let Self { name, facts, .. } = self;
        let collation = TEXT_COLLATION;
        let new = |kind| Column::new(name, kind);
        let mut column = match self.kind.unwrap_or(Type::Null) {
            Type::Signed(kind) => new(ColumnType::Int(kind)),
            Type::Unsigned(kind) => new(ColumnType::Uint(kind)),
            Type::Year => new(ColumnType::Year),
            Type::Float => new(ColumnType::Float),
            Type::Double => new(ColumnType::Double),
            Type::Decimal { digits, scale } => {
                new(ColumnType::Decimal { digits: digits.into(), scale: scale.into() })
            }
            Type::Date => new(ColumnType::Date),
            Type::DateTime(digits) => new(ColumnType::DateTime { digits: digits.into() }),
            Type::Timestamp(digits) => new(ColumnType::Timestamp { digits: digits.into() }),
            Type::Time(digits) => new(ColumnType::Time { digits: digits.into() }),
            Type::Char(length) => new(ColumnType::Char { collation, length: in_bytes(length) }),
            Type::VarChar(length) => new(ColumnType::Text { collation, length: in_bytes(length) }),
            Type::Text(kind, length) => {
                let mut column = new(ColumnType::Blob { length });
                (column.original_type, column.collation) = (kind, Some(TEXT_COLLATION));
                // No longer binary.
                column.original_flags = column.original_flags.map(|flags| flags & !(1 << 7));
                column
            }
            Type::Binary(length) => {
                let mut column = new(ColumnType::Char { collation: Column::BINARY, length });
                column.original_flags = column.original_flags.map(|flags| flags | 1 << 7);
                column
            }
            Type::VarBinary(length) => new(ColumnType::Binary { length }),
            Type::Blob(kind, length) => {
                let mut column = new(ColumnType::Blob { length });
                column.original_type = kind;
                column
            }
            Type::Json => new(ColumnType::Json),
            Type::Bit(bits) => new(ColumnType::Bit { bits }),
            Type::Enum(length) => new(ColumnType::Enum { collation, length: in_bytes(length) }),
            Type::Set(length) => new(ColumnType::Set { collation, length: in_bytes(length) }),
            Type::Null => new(ColumnType::Null),
        };
        if !self.table.is_empty() {
            column.original_name = Some(self.original_name.as_bytes());
            column.table = Some(self.table.as_bytes());
            column.original_table = Some(self.table.as_bytes());
            column.schema = Some(self.schema.as_bytes());
        }
        if facts.not_null {
            column = column.not_null();
        }
        if facts.primary_key {
            column = column.primary_key();
        }
        if facts.unique_key {
            column = column.unique_key();
        }
        if facts.multiple_key {
            column = column.multiple_key();
        }
        if facts.auto_increment {
            column = column.auto_increment();
        }
        column
    }
}

const fn in_bytes(characters: u32) -> u32 {
    characters.saturating_mul(BYTES_PER_CHARACTER)
}

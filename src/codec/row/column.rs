//! Metadata of a column: the type of its values, and its names.

use crate::codec::proto::resultset::{ColumnMetaData, FieldType, OriginalType};

mod types;

pub use types::ColumnType;

/// Metadata of one column of a result.
///
/// *Shape*: borrows its names. It is made anew for each result, or kept by a server that caches
/// metadata.
///
/// A constructor makes the column as the database itself would describe an expression of that type:
/// a label, no table, catalog `def`. [`new`](Self::new) takes any type; the others are for the most
/// frequent ones. Methods and fields change the rest. The fields are those of the wire: `None` is
/// left out there.
///
/// ```
/// use epoll_group::codec::row::{Column, ColumnType};
///
/// let mut id = Column::signed("id").not_null().primary_key();
/// id.table = Some(b"t");
/// let name = Column::text("name", 45, 255 * 4);
/// let price = Column::new("price", ColumnType::Decimal { digits: 10, scale: 2 });
/// # let _ = (id, name, price);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Column<'a> {
    /// Encoding of its values.
    pub field_type: FieldType,
    /// Its type in the database.
    pub original_type: OriginalType,
    /// Label.
    pub name: Option<&'a [u8]>,
    /// Name of the column.
    pub original_name: Option<&'a [u8]>,
    /// Alias of its table.
    pub table: Option<&'a [u8]>,
    /// Name of its table.
    pub original_table: Option<&'a [u8]>,
    /// Schema of its table.
    pub schema: Option<&'a [u8]>,
    /// Catalog of its table: `def`.
    pub catalog: Option<&'a [u8]>,
    /// MySQL collation number of the values; 63 is binary.
    pub collation: Option<u64>,
    /// Digits behind the point.
    pub fractional_digits: Option<u32>,
    /// Display length. The length of strings counts bytes of the result's character set.
    pub length: Option<u32>,
    /// Flag bits of this protocol.
    pub flags: Option<u32>,
    /// [`GEOMETRY`](Self::GEOMETRY), [`JSON`](Self::JSON), or 3 for XML.
    pub content_type: Option<u32>,
    /// Flag bits of MySQL; the older dialect does not carry them.
    pub original_flags: Option<u32>,
}

impl<'a> Column<'a> {
    /// [`flags`](Self::flags): zerofill of an integer, unsigned of a float or decimal, fixed length of
    /// a string, timestamp of a date-time.
    pub const FLAG_SPECIAL: u32 = 0x0001;
    /// [`flags`](Self::flags): NOT NULL.
    pub const FLAG_NOT_NULL: u32 = 0x0010;
    /// [`flags`](Self::flags): part of the primary key.
    pub const FLAG_PRIMARY_KEY: u32 = 0x0020;
    /// [`flags`](Self::flags): part of a unique key.
    pub const FLAG_UNIQUE_KEY: u32 = 0x0040;
    /// [`flags`](Self::flags): part of another key.
    pub const FLAG_MULTIPLE_KEY: u32 = 0x0080;
    /// [`flags`](Self::flags): numbered by the database.
    pub const FLAG_AUTO_INCREMENT: u32 = 0x0100;
    /// [`content_type`](Self::content_type) of a geometry.
    pub const GEOMETRY: u32 = 1;
    /// [`content_type`](Self::content_type) of JSON.
    pub const JSON: u32 = 2;
    /// [`collation`](Self::collation) of bytes that are no text.
    pub const BINARY: u64 = 63;

    /// Column of a `ColumnMetaData` message.
    #[must_use]
    pub fn from_message(message: &'a ColumnMetaData) -> Self {
        Self {
            field_type: message.r#type,
            original_type: message.original_type,
            name: message.name.as_deref(),
            original_name: message.original_name.as_deref(),
            table: message.table.as_deref(),
            original_table: message.original_table.as_deref(),
            schema: message.schema.as_deref(),
            catalog: message.catalog.as_deref(),
            collation: message.collation,
            fractional_digits: message.fractional_digits,
            length: message.length,
            flags: message.flags,
            content_type: message.content_type,
            original_flags: message.original_flags,
        }
    }

    /// The column without its names: compact metadata on the wire.
    pub(in crate::codec) const fn compact(self) -> Self {
        Self {
            name: None,
            original_name: None,
            table: None,
            original_table: None,
            schema: None,
            catalog: None,
            ..self
        }
    }

    /// The display length.
    #[must_use]
    pub const fn length(self, length: u32) -> Self {
        Self { length: Some(length), ..self }
    }

    /// Marks the column as never NULL.
    #[must_use]
    pub const fn not_null(self) -> Self {
        self.flag(Self::FLAG_NOT_NULL, 1)
    }

    /// Marks the column as part of the primary key.
    #[must_use]
    pub const fn primary_key(self) -> Self {
        self.flag(Self::FLAG_PRIMARY_KEY, 1 << 1)
    }

    /// Marks the column as part of a unique key.
    #[must_use]
    pub const fn unique_key(self) -> Self {
        self.flag(Self::FLAG_UNIQUE_KEY, 1 << 2)
    }

    /// Marks the column as part of a key that is neither primary nor unique.
    #[must_use]
    pub const fn multiple_key(self) -> Self {
        self.flag(Self::FLAG_MULTIPLE_KEY, 1 << 3)
    }

    /// Marks the column as numbered by the database.
    #[must_use]
    pub const fn auto_increment(self) -> Self {
        self.flag(Self::FLAG_AUTO_INCREMENT, 1 << 9)
    }

    /// Sets a flag of this protocol and the MySQL flag with the same meaning.
    const fn flag(self, flag: u32, original: u32) -> Self {
        let flags = match self.flags {
            Some(flags) => flags | flag,
            None => flag,
        };
        let original_flags = match self.original_flags {
            Some(flags) => flags | original,
            None => original,
        };
        Self { flags: Some(flags), original_flags: Some(original_flags), ..self }
    }
}

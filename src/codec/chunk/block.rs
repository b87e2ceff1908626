use super::bitmap;
use super::error::ChunkError;
use super::kind::BlockKind;
use crate::codec::value::Value;
use crate::codec::wire::Reader;

/// One column of a chunk in the bytes of its frame.
///
/// *Shape*: two borrowed slices, `Copy`. Their meaning depends on the row count and the
/// [`BlockKind`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Block<'a> {
    /// One bit a row, the highest of the first byte first; 1 is NULL. `None` without NULLs.
    pub nulls: Option<&'a [u8]>,
    /// The values of the rows that are not NULL, one behind the other.
    pub values: &'a [u8],
    /// Member of the column that holds the values.
    pub member: Member,
}

/// The two members of a column that can hold values. They are read alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::exhaustive_enums, reason = "the message has these two")]
pub enum Member {
    /// `fixed_size_column`: numbers and times.
    Fixed,
    /// `variable_size_column`: texts, decimals, sets.
    Variable,
}

impl<'a> Block<'a> {
    /// Creates a column without a check.
    pub(super) const fn new(nulls: Option<&'a [u8]>, values: &'a [u8], member: Member) -> Self {
        Self { nulls, values, member }
    }

    /// Number of NULLs among the first `rows`.
    #[must_use]
    pub fn null_count(&self, rows: u32) -> u32 {
        let marked = bitmap::marked(self.nulls.unwrap_or_default(), index(rows));
        // The number is at most that of the rows.
        u32::try_from(marked).unwrap_or(rows)
    }

    /// Returns the values of `rows` rows, NULLs among them, after a check of the lengths. The
    /// iterator copies nothing. Behind the last row it checks that no bytes are left. After an
    /// error it is at its end.
    ///
    /// # Errors
    ///
    /// [`ChunkError::BitmapLength`], [`ChunkError::ValueCount`]: the lengths do not fit. Of the
    /// iterator: [`ChunkError::Value`], [`ChunkError::Trailing`]. The result ends. The errors name
    /// `column`.
    pub fn values(
        &self,
        kind: BlockKind,
        rows: u32,
        column: u32,
    ) -> Result<impl Iterator<Item = Result<Value<'a>, ChunkError>> + use<'a>, ChunkError> {
        self.cursor(kind, rows, column)
    }

    /// Returns the iterator of [`values`](Self::values), as a type with a name.
    pub(super) fn cursor(
        &self,
        kind: BlockKind,
        rows: u32,
        column: u32,
    ) -> Result<BlockValues<'a>, ChunkError> {
        if let Some(nulls) = self.nulls
            && nulls.len() != bitmap::bytes(index(rows))
        {
            return Err(ChunkError::BitmapLength { column, bytes: nulls.len(), rows });
        }
        let values = rows.saturating_sub(self.null_count(rows));
        let (least, most) = kind.size();
        let fits = index(values).checked_mul(least).is_some_and(|least| least <= self.values.len())
            && most.is_none_or(|most| index(values).saturating_mul(most) >= self.values.len());
        if !fits {
            return Err(ChunkError::ValueCount { column, bytes: self.values.len(), values });
        }
        Ok(BlockValues {
            kind,
            nulls: self.nulls.unwrap_or_default(),
            values: Reader::new(self.values),
            column,
            row: 0,
            rows,
        })
    }
}

/// Cursor over the values of one column, row by row.
///
/// *Shape*: moves forward only and copies nothing. Behind the last row it checks that no bytes are
/// left. After an error it is at its end.
#[derive(Clone, Debug)]
pub(super) struct BlockValues<'a> {
    kind: BlockKind,
    nulls: &'a [u8],
    values: Reader<'a>,
    column: u32,
    row: u32,
    rows: u32,
}

impl<'a> BlockValues<'a> {
    /// Returns the value of the next row; `Ok(None)` behind the last.
    ///
    /// # Errors
    ///
    /// [`ChunkError::Value`]: the bytes are no value of this kind. [`ChunkError::Trailing`]: bytes
    /// follow the last value. Either ends the result.
    #[inline]
    pub(super) fn next_value(&mut self) -> Result<Option<Value<'a>>, ChunkError> {
        let row = self.row;
        if row >= self.rows {
            return self.end();
        }
        self.row = row.saturating_add(1);
        if bitmap::is_marked(self.nulls, index(row)) {
            return Ok(Some(Value::Null));
        }
        match self.kind.read(&mut self.values) {
            Ok(value) => Ok(Some(value)),
            Err(error) => {
                self.stop();
                Err(ChunkError::Value { column: self.column, row, error })
            }
        }
    }

    fn end(&mut self) -> Result<Option<Value<'a>>, ChunkError> {
        let bytes = self.values.rest().len();
        self.stop();
        if bytes == 0 { Ok(None) } else { Err(ChunkError::Trailing { column: self.column, bytes }) }
    }

    const fn stop(&mut self) {
        self.row = self.rows;
        self.values = Reader::new(&[]);
    }
}

impl<'a> Iterator for BlockValues<'a> {
    type Item = Result<Value<'a>, ChunkError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_value().transpose()
    }
}

/// A row number as an index in memory.
pub(super) fn index(row: u32) -> usize {
    // A 16-bit `usize` saturates, and no row has that index.
    usize::try_from(row).unwrap_or(usize::MAX)
}

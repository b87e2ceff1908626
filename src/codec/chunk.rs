//! Results by column: many rows in one frame, the values of each column together.
//!
//! ```text
//! chunk frame, body  ┌───────────┬──────────┬──────────┬───
//!                    │ row count │ column 0 │ column 1 │ …      at most ten columns a frame
//!                    └───────────┴──────────┴──────────┴───
//! column             ┌────────────────────┬─────────────────────────────┐
//!                    │ bitmap of NULLs    │ values, fixed or variable   │
//!                    │ only if there are  │ of the rows that are not    │
//!                    └────────────────────┴─────────────────────────────┘ NULL
//!
//! row                0 1 2 3 4 5 6 7   8 9
//! bitmap             0 1 0 0 1 0 0 0 │ 1 0 0 0 0 0 0 0      = 48 80: rows 1, 4 and 8 are NULL
//! ```
//!
//! One value, by [`BlockKind`]:
//!
//! | column | bytes |
//! | --- | --- |
//! | integers, signed | zigzag varint |
//! | integers without sign, YEAR, BIT | varint |
//! | FLOAT, DOUBLE | 4 or 8 bytes, little-endian |
//! | DATE, DATETIME, TIMESTAMP, TIME | varint of the packed form |
//! | DECIMAL, SET | varint length, cell as in a row |
//! | ENUM and all types of bytes | varint length + 1, bytes, `00` |
//!
//! Values stand in one of two members of a column, which are decoded alike. By custom, numbers and
//! times use the fixed one and other types the variable one.
//!
//! A result with more columns comes as several frames of the same row count, which the reader joins
//! until all columns are there. A chunk may be cut into frames at any column.
//!
//! # Reading
//!
//! [`ChunkFrame`] is one frame, checked and borrowed. [`ChunkJoiner`] makes a [`Chunk`] out of one
//! or several frames. Its rows and columns are read without a copy. A length or a count is compared
//! with the bytes that are there before it is used. No allocation depends on a count of the peer.
//!
//! # Writing
//!
//! [`ChunkWriter`] accepts rows, reports when a chunk is full, and writes it to an
//! [`Encoder`](crate::codec::encoder::Encoder).
//!
//! ```
//! use epoll_group::codec::chunk::{BlockKind, ChunkFrame, ChunkJoiner, ChunkWriter};
//! use epoll_group::codec::encoder::{Encoder, OutBuffer};
//! use epoll_group::codec::frame::Decoder;
//! use epoll_group::codec::limits::Limits;
//! use epoll_group::codec::value::Value;
//!
//! let kinds = [BlockKind::Signed, BlockKind::Bytes];
//! let mut writer = ChunkWriter::new(&kinds);
//! writer.row(&[Value::Signed(1), Value::Bytes(b"a")])?;
//! writer.row(&[Value::Null, Value::Bytes(b"")])?;
//! writer.row(&[Value::Signed(-2), Value::Null])?;
//! assert!(!writer.is_full());
//!
//! let mut buffer = OutBuffer::default();
//! writer.write_to(&mut Encoder::new(&mut buffer, 2))?;
//!
//! let mut decoder = Decoder::new(Limits::default());
//! decoder.feed(&buffer.to_vec());
//! let mut joiner = ChunkJoiner::new(&kinds, 1 << 20);
//! while let Some(frame) = decoder.next_frame()? {
//!     assert_eq!(frame.body()[..2], [8, 3]);
//!     let Some(chunk) = joiner.push(ChunkFrame::parse(frame.body())?)? else { continue };
//!     let mut rows = chunk.rows();
//!     assert_eq!(rows.next_row()?, Some(&[Value::Signed(1), Value::Bytes(b"a")][..]));
//!     let names: Result<Vec<_>, _> = chunk.values(1).collect();
//!     assert_eq!(names?, [Value::Bytes(b"a"), Value::Bytes(b""), Value::Null]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bitmap;
mod block;
mod body;
mod column;
mod error;
mod frame;
mod joiner;
mod kind;
mod writer;

pub use block::{Block, Member};
pub use error::{ChunkError, ChunkWriteError};
pub use frame::ChunkFrame;
pub use joiner::{Chunk, ChunkJoiner, ChunkRows};
pub use kind::BlockKind;
pub use writer::{ChunkRow, ChunkWriter};

#[cfg(test)]
mod tests;

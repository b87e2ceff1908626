//! Frames: the header, its two forms, and the decoder that cuts a stream of bytes into frames.
//!
//! # Header
//!
//! ```text
//!  byte   0                               8              12  13
//!         ├───────────────────────────────┼───────────────┼───┼──────────────┄
//!         │ session, u64 little-endian    │ length, u32 LE│ k │ body
//!         └───────────────────────────────┴───────────────┴───┴──────────────┄
//!                                           counts k + body
//! ```
//!
//! On the wire the length counts the kind byte and the body, so the smallest legal length is 1.
//! [`Header`] carries the size of the body instead. "Length minus one" is computed only there, after
//! zero has been refused.
//!
//! ```
//! use epoll_group::codec::frame::{Dialect, Header};
//!
//! let bytes = Header::new(2, 110, 0).encode();
//! assert_eq!(bytes, [2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 110]);
//!
//! let limit = 64 << 20;
//! assert_eq!(Dialect::Legacy.parse(&bytes, limit)?, Some(Header::new(2, 110, 0)));
//! assert_eq!(Dialect::Legacy.parse(&bytes[..12], limit)?, None); // more bytes needed
//! # Ok::<(), epoll_group::codec::frame::HeaderError>(())
//! ```
//!
//! # Dialects
//!
//! The header has two forms.
//!
//! ```text
//!  legacy   │ session, 8 │ length, 4 │ kind │ body …
//!  galaxy   │ session, 8 │ version │ length, 4 │ kind │ body …
//! ```
//!
//! Both peers must agree on the dialect of a connection beforehand; the bytes do not tell it.
//!
//! # Decoder
//!
//! Bytes in any pieces become whole frames.
//!
//! ```
//! use epoll_group::codec::frame::Decoder;
//! use epoll_group::codec::limits::Limits;
//! use epoll_group::codec::message::ClientMessage;
//!
//! let bytes = b"\x02\0\0\0\0\0\0\0\x10\0\0\0\x65\x0a\x08select 1\x40\x80\x50\x48\x01";
//! let limits = Limits::default();
//! let mut decoder = Decoder::new(limits);
//! for piece in bytes.chunks(7) {
//!     decoder.feed(piece);
//!     while let Some(frame) = decoder.next_frame()? {
//!         match frame.client_message(&limits)? {
//!             ClientMessage::ExecSql(sql) => assert_eq!(sql.stmt.as_deref(), Some(&b"select 1"[..])),
//!             other => unreachable!("{other:?}"),
//!         }
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod decoder;
mod dialect;
mod header;

pub use decoder::{Decoder, Frame};
pub use dialect::Dialect;
pub use header::{HEADER_BYTES, Header, HeaderError};

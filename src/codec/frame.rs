//! Frames: the header, its two forms, and the decoder that cuts a stream of bytes into frames.

mod decoder;
mod dialect;
mod header;

pub use decoder::{Decoder, Frame};
pub use dialect::Dialect;
pub use header::{HEADER_BYTES, Header, HeaderError};

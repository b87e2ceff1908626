//! Errors in the body of a frame, and their scope.
//!
//! Errors in a header are described in [`header`](crate::codec::frame).

mod reply;

use std::error::Error;
use std::fmt;

#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub(crate) use reply::INTERRUPTED_STATE;
pub use reply::{GENERAL_STATE, code};

/// Part of the traffic that ends with an error: the question a server or a proxy asks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// The request alone; its session continues.
    Request,
    /// The session; the other sessions of the connection continue.
    Session,
    /// The connection and all its sessions.
    Connection,
}

/// Reason why a body is not the message that its kind names.
///
/// *Shape*: a small `Copy` value. Offsets count bytes from the start of the body; fields are named
/// by their number in the `.proto` file of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MessageError {
    /// The body is malformed.
    Wire {
        /// Offset of the malformed part.
        offset: u32,
        /// Its fault.
        error: WireError,
    },
    /// A known field has the wire type of another kind of field.
    WireType {
        /// The message that has the field.
        message: &'static str,
        /// Its number.
        field: u32,
        /// The wire type that is there.
        found: u8,
    },
    /// A required field is absent, or its value is none of those that the `.proto` file lists.
    Missing {
        /// The message that lacks the field.
        message: &'static str,
        /// Its number.
        field: u32,
        /// Its value, if it is there but not listed.
        value: Option<i32>,
    },
    /// Messages lie deeper inside one another than [`Limits::depth`](crate::codec::limits::Limits::depth).
    Depth {
        /// Greatest depth accepted.
        limit: u32,
    },
    /// A list has more elements than the [`Limits`](crate::codec::limits::Limits) say.
    Elements {
        /// The message that has the list.
        message: &'static str,
        /// Number of its field.
        field: u32,
        /// Largest number of elements accepted; one more is there.
        limit: u32,
    },
    /// A text is longer than [`Limits::text_bytes`](crate::codec::limits::Limits::text_bytes).
    Text {
        /// The message that has the text.
        message: &'static str,
        /// Number of its field.
        field: u32,
        /// Its length.
        bytes: u64,
        /// Greatest length accepted.
        limit: u32,
    },
    /// The message would take more memory than
    /// [`Limits::overhead_bytes`](crate::codec::limits::Limits::overhead_bytes) allows for its body.
    Memory {
        /// Memory it would take, as far as it was counted.
        bytes: u64,
        /// Most memory accepted.
        limit: u64,
    },
}

impl MessageError {
    /// Scope of the error. If the body is malformed, the connection ends, because nothing from such
    /// a peer can be relied on. If the body is well-formed but beyond a limit of ours, only the
    /// request ends.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        match self {
            Self::Wire { .. } | Self::WireType { .. } | Self::Missing { .. } => Scope::Connection,
            Self::Depth { .. }
            | Self::Elements { .. }
            | Self::Text { .. }
            | Self::Memory { .. } => Scope::Request,
        }
    }
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Wire { offset, error } => write!(f, "{error}, at byte {offset}"),
            Self::WireType { message, field, found } => {
                write!(f, "field {field} of {message} has wire type {found}")
            }
            Self::Missing { message, field, value: None } => {
                write!(f, "{message} lacks field {field}")
            }
            Self::Missing { message, field, value: Some(value) } => {
                write!(f, "field {field} of {message} has the unknown value {value}")
            }
            Self::Depth { limit } => write!(f, "messages nest deeper than {limit}"),
            Self::Elements { message, field, limit } => {
                write!(f, "field {field} of {message} has more than {limit} elements")
            }
            Self::Text { message, field, bytes, limit } => {
                write!(f, "field {field} of {message} has {bytes} bytes, which exceeds {limit}")
            }
            Self::Memory { bytes, limit } => {
                write!(f, "message would take {bytes} bytes, which exceeds {limit}")
            }
        }
    }
}

impl Error for MessageError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Wire { error, .. } => Some(error),
            _ => None,
        }
    }
}

/// Reason why bytes are not the expected primitive of protobuf. It is the peer's fault. The caller
/// knows the origin of the bytes and decides whether the request or the connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The bytes end inside a value.
    Truncated,
    /// A varint of more than ten bytes, or of more than 64 bits.
    VarintTooLong,
    /// No field begins with these bytes: the wire type does not exist, the number of the field is 0
    /// or above 2²⁹ − 1, or no such group is open.
    Tag,
    /// Groups in an unknown field nest deeper than [`Limits::depth`](crate::codec::limits::Limits::depth).
    TooDeep,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Truncated => "bytes end inside a value",
            Self::VarintTooLong => "varint exceeds 64 bits",
            Self::Tag => "no field begins with these bytes",
            Self::TooDeep => "groups nest too deep",
        })
    }
}

impl Error for WireError {}

/// Reason why a frame was not written. Nothing of it is in the output; the request fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The frame would be longer than 64 MiB, or than the length field can express.
    TooLong {
        /// Length on the wire: body and kind byte, or the part of it that was tried.
        length: usize,
        /// Largest length.
        limit: u32,
    },
}

impl EncodeError {
    /// Scope of the error: the request. Nothing of the frame reaches the peer.
    #[must_use]
    pub const fn scope(&self) -> Scope {
        Scope::Request
    }
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::TooLong { length, limit } = self;
        write!(f, "length {length} exceeds {limit}")
    }
}

impl Error for EncodeError {}

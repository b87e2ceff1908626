//! Messages of the protocol, generated from the `.proto` files in `tests/proto/files` of the repository.
//!
//! Each type follows its file: a struct per message, with a public field per field, and an enum per
//! enum. Types inside a message are beside it here. `ColumnMetaDataCompatible` is not public:
//! [`ServerMessage`](crate::codec::message::ServerMessage) converts it to and from
//! `ColumnMetaData`. An absent field has the default value of its type; where the protocol says
//! another value, the documentation of the field tells it. All messages implement
//! [`prost::Message`].
//!
//! An unlisted value of an enum is an unknown field, as everywhere in protobuf: it is skipped. If a
//! message inside a message comes twice, the last one counts, so that a peer cannot evade a limit
//! by pieces. Input of a peer goes through [`message`](crate::codec::message), which checks it; a
//! required field that [`prost::Message::decode`] does not find has the default value of its type.
//! The files say `string` where the protocol does, but the types hold `Vec<u8>` there. Text is in
//! the character set of the database, and neither existing peer checks it.
//!
//! Methods that are written by hand are described in [`message`](crate::codec::message).

use prost::DecodeError;
use prost::bytes::{Buf, BufMut};
use prost::encoding::{DecodeContext, WireType};

/// Value of a field that is a number on the wire and an enum here.
pub(in crate::codec) trait Enumeration: Copy {
    fn number(self) -> i32;

    /// Returns `None` for an unlisted number.
    fn from_number(number: i32) -> Option<Self>;
}

/// Encoding of the types of fields: that of prost, and one for enums.
mod encoding {
    pub(super) use prost::encoding::{
        bool, bytes, double, float, int32, int64, message, sint64, skip_field, uint32, uint64,
    };

    pub(super) mod enumeration {
        use super::super::{Buf, BufMut, DecodeContext, DecodeError, Enumeration, WireType};

        #[inline]
        pub(in super::super) fn encode<E: Enumeration>(
            number: u32,
            value: &E,
            buf: &mut impl BufMut,
        ) {
            super::int32::encode(number, &value.number(), buf);
        }

        #[inline]
        pub(in super::super) fn encoded_len<E: Enumeration>(number: u32, value: &E) -> usize {
            super::int32::encoded_len(number, &value.number())
        }

        pub(in super::super) fn read<E: Enumeration>(
            wire_type: WireType,
            buf: &mut impl Buf,
            context: DecodeContext,
        ) -> Result<Option<E>, DecodeError> {
            let mut number = 0;
            super::int32::merge(wire_type, &mut number, buf, context)?;
            Ok(E::from_number(number))
        }
    }
}

/// Declares a message and its encoding. Each field has its number, its type in the protocol, its
/// label, its name and its type here. Fields are listed in the order of their numbers.
macro_rules! message {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $(
                $(#[$field_meta:meta])*
                $number:literal $kind:ident $label:ident $field:ident: $ty:ty,
            )*
        }
    ) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$field_meta])* $vis $field: $ty,)*
        }

        impl ::prost::Message for $name {
            #[allow(unused_variables, reason = "a message may have no fields")]
            fn encode_raw(&self, buf: &mut impl ::prost::bytes::BufMut) {
                $(encode!($kind $label $number, self.$field, buf);)*
            }

            fn merge_field(
                &mut self,
                number: u32,
                wire_type: ::prost::encoding::WireType,
                buf: &mut impl ::prost::bytes::Buf,
                context: ::prost::encoding::DecodeContext,
            ) -> Result<(), ::prost::DecodeError> {
                match number {
                    $($number => merge!($kind $label self.$field, wire_type, buf, context),)*
                    _ => super::encoding::skip_field(wire_type, number, buf, context),
                }
            }

            #[inline]
            fn encoded_len(&self) -> usize {
                0 $(+ encoded_len!($kind $label $number, self.$field))*
            }

            fn clear(&mut self) {
                *self = Self::default();
            }
        }
    };
}

macro_rules! encode {
    ($kind:ident required $number:literal, $field:expr, $buf:ident) => {
        super::encoding::$kind::encode($number, &$field, $buf)
    };
    ($kind:ident optional $number:literal, $field:expr, $buf:ident) => {
        if let Some(value) = &$field {
            super::encoding::$kind::encode($number, value, $buf);
        }
    };
    ($kind:ident repeated $number:literal, $field:expr, $buf:ident) => {
        super::encoding::$kind::encode_repeated($number, &$field, $buf)
    };
}

macro_rules! encoded_len {
    ($kind:ident required $number:literal, $field:expr) => {
        super::encoding::$kind::encoded_len($number, &$field)
    };
    ($kind:ident optional $number:literal, $field:expr) => {
        match &$field {
            Some(value) => super::encoding::$kind::encoded_len($number, value),
            None => 0,
        }
    };
    ($kind:ident repeated $number:literal, $field:expr) => {
        super::encoding::$kind::encoded_len_repeated($number, &$field)
    };
}

macro_rules! merge {
    (enumeration $label:ident $field:expr, $wire_type:ident, $buf:ident, $context:ident) => {{
        if let Some(value) = super::encoding::enumeration::read($wire_type, $buf, $context)? {
            $field = value!($label value);
        }
        Ok(())
    }};
    // A later message replaces an earlier one of the same field.
    (message required $field:expr, $wire_type:ident, $buf:ident, $context:ident) => {{
        $field = Default::default();
        super::encoding::message::merge($wire_type, &mut $field, $buf, $context)
    }};
    (message optional $field:expr, $wire_type:ident, $buf:ident, $context:ident) => {{
        let value = $field.insert(Default::default());
        super::encoding::message::merge($wire_type, value, $buf, $context)
    }};
    ($kind:ident required $field:expr, $wire_type:ident, $buf:ident, $context:ident) => {
        super::encoding::$kind::merge($wire_type, &mut $field, $buf, $context)
    };
    ($kind:ident optional $field:expr, $wire_type:ident, $buf:ident, $context:ident) => {{
        let value = $field.get_or_insert_with(Default::default);
        super::encoding::$kind::merge($wire_type, value, $buf, $context)
    }};
    ($kind:ident repeated $field:expr, $wire_type:ident, $buf:ident, $context:ident) => {
        super::encoding::$kind::merge_repeated($wire_type, &mut $field, $buf, $context)
    };
}

macro_rules! value {
    (required $value:ident) => {
        $value
    };
    (optional $value:ident) => {
        Some($value)
    };
}

/// Declares an enum of the protocol. Its first value is the default.
macro_rules! enumeration {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $(#[$first_meta:meta])* $first:ident = $first_number:literal,
            $($(#[$value_meta:meta])* $value:ident = $number:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i32)]
        pub enum $name {
            $(#[$first_meta])* #[default] $first = $first_number,
            $($(#[$value_meta])* $value = $number,)*
        }

        impl super::Enumeration for $name {
            fn number(self) -> i32 {
                self as i32
            }

            fn from_number(number: i32) -> Option<Self> {
                match number {
                    $first_number => Some(Self::$first),
                    $($number => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}

/// Gives the values of an enum their names in the protocol.
macro_rules! names {
    ($name:ident $($value:ident $text:literal)*) => {
        impl $name {
            /// Name of the value in the protocol.
            #[must_use]
            pub const fn protocol_name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }

            /// Value with this name in the protocol.
            #[must_use]
            pub fn from_protocol_name(name: &str) -> Option<Self> {
                match name {
                    $($text => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}

// Generated: a module for each file.
#[rustfmt::skip]
#[allow(missing_docs, clippy::exhaustive_enums, clippy::exhaustive_structs, reason = "generated")]
#[allow(clippy::arithmetic_side_effects, reason = "adds lengths of what is in memory")]
mod messages;
#[rustfmt::skip]
pub(super) mod schema;

/// Messages about the connection and no session.
#[doc(inline)]
pub use messages::connection;
/// Expectations: conditions for the requests of a block. The older server line only.
#[doc(inline)]
pub use messages::expect;
/// Transfer of tablespace files.
#[doc(inline)]
pub use messages::file;
/// Answers that any request can get.
#[doc(inline)]
pub use messages::generic;
/// Notices: messages of a server beside the results.
#[doc(inline)]
pub use messages::notice;
/// Execution plans: reads without a statement to parse.
#[doc(inline)]
pub use messages::plan;
/// Results: metadata, rows, chunks, ends.
#[doc(inline)]
pub use messages::resultset;
/// Login; start and end of sessions.
#[doc(inline)]
pub use messages::session;
/// Statements in text form and the flow control of their results.
#[doc(inline)]
pub use messages::sql;
/// Timestamps and savepoints of distributed transactions.
#[doc(inline)]
pub use messages::tso;
/// Values with their type: statement arguments, plan literals, capabilities.
#[doc(inline)]
pub use messages::value;

impl resultset::ColumnMetaDataCompatible {
    /// The column in the older dialect, which has no place for the flags of MySQL.
    pub(in crate::codec) fn of(newer: resultset::ColumnMetaData) -> Self {
        Self {
            r#type: newer.r#type,
            name: newer.name,
            original_name: newer.original_name,
            table: newer.table,
            original_table: newer.original_table,
            schema: newer.schema,
            catalog: newer.catalog,
            collation: newer.collation,
            fractional_digits: newer.fractional_digits,
            length: newer.length,
            flags: newer.flags,
            content_type: newer.content_type,
            original_type: newer.original_type,
        }
    }

    /// The same column in today's dialect.
    pub(in crate::codec) fn into_newer(self) -> resultset::ColumnMetaData {
        resultset::ColumnMetaData {
            r#type: self.r#type,
            original_type: self.original_type,
            name: self.name,
            original_name: self.original_name,
            table: self.table,
            original_table: self.original_table,
            schema: self.schema,
            catalog: self.catalog,
            collation: self.collation,
            fractional_digits: self.fractional_digits,
            length: self.length,
            flags: self.flags,
            content_type: self.content_type,
            original_flags: None,
        }
    }
}

//! Notices: information beside the rows of a result.
//!
//! Each statement has a notice with a number. That notice always has one shape: two constants and
//! the number. Other notices are rare, and are written as messages.
//!
//! ```text
//!  08 03  10 02  1a len  08 param  12 len  08 02  18 number
//!  type   scope  payload param     value   V_UINT
//! ```

use super::Encoder;
use crate::codec::error::EncodeError;
use crate::codec::message::{Notice, ServerKind, ServerMessage};
use crate::codec::proto::notice::{Parameter, Scope};
use crate::codec::wire::{Word, varint_bytes};

impl Encoder<'_> {
    /// Writes the number of rows that the statement changed; 0 for a query. Every successful
    /// statement has this notice.
    pub fn rows_affected(&mut self, rows: u64) {
        self.state(Parameter::RowsAffected, rows);
    }

    /// Writes any notice: a warning, or text for people about the statement, for example
    /// `Records: 3  Duplicates: 0  Warnings: 0`. Texts are in the character set of the result.
    pub fn notice(&mut self, notice: &Notice) -> Result<(), EncodeError> {
        self.message(&ServerMessage::Notice(notice.to_frame()))
    }

    /// Writes a number about the statement, for example its first generated id
    /// ([`Parameter::GeneratedInsertId`]), or about the state of the server, which has global scope.
    #[inline]
    pub fn state(&mut self, parameter: Parameter, value: u64) {
        let number = varint_bytes(value);
        // All lengths are below 128: the number has ten bytes at most.
        let scalar = number.saturating_add(3) as u128;
        let payload = number.saturating_add(7) as u128;
        let scope = match parameter {
            Parameter::ExtraServerState => Scope::Global,
            _ => Scope::Local,
        };
        let (scope, parameter) = (scope as i32 as u128, parameter as i32 as u128);
        let shape = const {
            Word::constant([0x08, 3, 0x10, 0, 0x1a, 0, 0x08, 0, 0x12, 0, 0x08, V_UINT, 0x18])
        };
        let holes = scope << 24 | payload << 40 | parameter << 56 | scalar << 72;
        let body_bytes = number.saturating_add(shape.len());
        self.buffer.put(self.header.word(ServerKind::Notice.number(), body_bytes));
        self.buffer.put(shape.with(holes));
        self.buffer.put(Word::varint(value));
    }
}

const V_UINT: u8 = 2;

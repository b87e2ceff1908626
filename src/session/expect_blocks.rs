//! [`ExpectBlocks`]: expect blocks of a session, which the older dialect has.

use super::error::SessionError;
use crate::codec::error::{GENERAL_STATE, code};
use crate::codec::proto::expect;

/// Expect blocks of a session, from the outermost in.
///
/// In a block that expects no error, the first failing request makes the later requests of the
/// block fail. Closing such a block returns an error as well.
#[derive(Debug, Default)]
pub(super) struct ExpectBlocks(Vec<Block>);

#[derive(Clone, Copy, Debug)]
struct Block {
    no_error: bool,
    /// Set when the condition of the block was violated.
    failed: bool,
}

/// Deepest nesting of blocks.
const DEEPEST: usize = 16;

impl ExpectBlocks {
    /// Opens a block. A block with unknown conditions is opened too, but as failed.
    pub(super) fn open(&mut self, message: &expect::Open) -> Result<(), SessionError> {
        if self.0.len() >= DEEPEST {
            let text = format!("expect blocks {} exceed {DEEPEST}", self.0.len() + 1);
            return Err(error(code::EXPECT_BAD_CONDITION, &text));
        }
        let around = self.0.last().copied();
        let inherited = around.is_some_and(|block| block.no_error);
        let bad = message.unknown().map(|condition| {
            let text = format!("Unknown condition key: {}", condition.condition_key);
            error(code::EXPECT_BAD_CONDITION, &text)
        });
        let failed =
            bad.is_some() || message.inherits() && around.is_some_and(|block| block.failed);
        self.0.push(Block { no_error: message.expects_no_error(inherited), failed });
        bad.map_or(Ok(()), Err)
    }

    /// Closes the innermost block.
    pub(super) fn close(&mut self) -> Result<(), SessionError> {
        match self.0.pop() {
            None => Err(error(code::EXPECT_NOT_OPEN, "Expect block currently not open")),
            Some(block) if block.failed => Err(failed()),
            Some(_) => Ok(()),
        }
    }

    /// Returns an error if a request may not run now.
    pub(super) fn check(&self) -> Result<(), SessionError> {
        if self.0.iter().any(|block| block.failed) { Err(failed()) } else { Ok(()) }
    }

    /// Notes the end of a request.
    pub(super) fn note(&mut self, is_error: bool) {
        if is_error && let Some(block) = self.0.last_mut() {
            block.failed |= block.no_error;
        }
    }
}

fn failed() -> SessionError {
    error(code::EXPECT_FAILED, "Expectation failed: no_error")
}

fn error(code: u32, text: &str) -> SessionError {
    SessionError::new(code, GENERAL_STATE, text)
}

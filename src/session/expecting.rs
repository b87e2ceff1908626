//! [`Expecting`]: blocks in which a client expects its requests to succeed, of the older dialect.

use super::error::SessionError;
use crate::codec::expect::Change;
use crate::codec::message::expect;
use crate::codec::reply::{GENERAL_STATE, code};

/// The expect blocks of a session, from the outermost in.
///
/// In a block that expects no error the first request that fails makes those behind it fail, too, until
/// the block is closed; closing it says so.
#[derive(Debug, Default)]
pub(super) struct Expecting(Vec<Block>);

#[derive(Clone, Copy, Debug)]
struct Block {
    no_error: bool,
    /// What it expects does not hold any more.
    failed: bool,
}

/// Blocks may stand inside one another as deep as this.
const DEEPEST: usize = 16;

impl Expecting {
    /// A block begins. One whose conditions make no sense is there, too, and has failed.
    pub(super) fn open(&mut self, message: &expect::Open) -> Result<(), SessionError> {
        if self.0.len() >= DEEPEST {
            let text = format!("expect blocks {} exceed {DEEPEST}", self.0.len() + 1);
            return Err(error(code::EXPECT_BAD_CONDITION, &text));
        }
        let around = self.0.last().copied();
        let inherited = around.is_some_and(|block| block.no_error);
        let bad = message.changes().find_map(|change| match change {
            Change::Unknown(condition) => {
                let text = format!("Unknown condition key: {}", condition.condition_key);
                Some(error(code::EXPECT_BAD_CONDITION, &text))
            }
            _ => None,
        });
        let failed =
            bad.is_some() || message.inherits() && around.is_some_and(|block| block.failed);
        self.0.push(Block { no_error: message.expects_no_error(inherited), failed });
        bad.map_or(Ok(()), Err)
    }

    /// The innermost block ends.
    pub(super) fn close(&mut self) -> Result<(), SessionError> {
        match self.0.pop() {
            None => Err(error(code::EXPECT_NOT_OPEN, "Expect block currently not open")),
            Some(block) if block.failed => Err(failed()),
            Some(_) => Ok(()),
        }
    }

    /// Whether a request may run.
    pub(super) fn check(&self) -> Result<(), SessionError> {
        if self.0.iter().any(|block| block.failed) { Err(failed()) } else { Ok(()) }
    }

    /// A request has ended.
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

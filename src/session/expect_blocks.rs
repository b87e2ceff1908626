//! [`ExpectBlocks`]: expect blocks of a session, which the older dialect has.

use super::error::SessionError;
use crate::codec::error::{GENERAL_STATE, code};
use crate::codec::proto::expect::{Condition, ConditionOperation, CtxOperation, Open};

/// Expect blocks of a session, from the outermost in.
///
/// In a block that expects no error, the first failing request makes the later requests of the
/// block fail. Closing such a block returns an error as well, which counts in the block around it.
#[derive(Debug, Default)]
pub(super) struct ExpectBlocks {
    open: Vec<Block>,
    /// Number of open blocks deeper than [`DEEPEST`]. They count as failed.
    too_deep: usize,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    no_error: bool,
    /// Set when the condition of the block was violated.
    failed: bool,
}

/// Number of the condition "no error so far", the only condition that clients use.
const NO_ERROR: u32 = 1;

/// Deepest nesting of blocks.
const DEEPEST: usize = 16;

impl ExpectBlocks {
    /// Opens a block. A block with unknown conditions is opened too, but as failed.
    pub(super) fn open(&mut self, message: &Open) -> Result<(), SessionError> {
        if self.open.len() >= DEEPEST {
            self.too_deep += 1;
            let depth = DEEPEST + self.too_deep;
            let text = format!("expect blocks {depth} exceed {DEEPEST}");
            return Err(error(code::EXPECT_BAD_CONDITION, &text));
        }
        let around = self.open.last().copied();
        let inherited = around.is_some_and(|block| block.no_error);
        let bad = unknown(message).map(|condition| {
            let text = format!("Unknown condition key: {}", condition.condition_key);
            error(code::EXPECT_BAD_CONDITION, &text)
        });
        let failed = bad.is_some() || inherits(message) && around.is_some_and(|block| block.failed);
        self.open.push(Block { no_error: expects_no_error(message, inherited), failed });
        bad.map_or(Ok(()), Err)
    }

    /// Closes the innermost block.
    pub(super) fn close(&mut self) -> Result<(), SessionError> {
        let has_failed = if self.too_deep > 0 {
            self.too_deep -= 1;
            true
        } else {
            let not_open = || error(code::EXPECT_NOT_OPEN, "Expect block currently not open");
            self.open.pop().ok_or_else(not_open)?.failed
        };
        self.note(has_failed);
        if has_failed { Err(failed()) } else { Ok(()) }
    }

    /// Returns an error if a request may not run now.
    pub(super) fn check(&self) -> Result<(), SessionError> {
        let has_failed = self.too_deep > 0 || self.open.iter().any(|block| block.failed);
        if has_failed { Err(failed()) } else { Ok(()) }
    }

    /// Notes the end of a request.
    pub(super) fn note(&mut self, is_error: bool) {
        if is_error && let Some(block) = self.open.last_mut() {
            block.failed |= block.no_error;
        }
    }
}

/// Returns true if the block starts from the conditions of the block around it.
fn inherits(message: &Open) -> bool {
    message.op.unwrap_or_default() == CtxOperation::ExpectCtxCopyPrev
}

/// First condition that is not known.
fn unknown(message: &Open) -> Option<&Condition> {
    message.cond.iter().find(|condition| condition.condition_key != NO_ERROR)
}

/// Returns true if no request may fail in this block. `around` is the answer of the block around
/// it.
fn expects_no_error(message: &Open, around: bool) -> bool {
    let mut known = message.cond.iter().filter(|condition| condition.condition_key == NO_ERROR);
    match known.next_back() {
        Some(last) => last.op.unwrap_or_default() == ConditionOperation::ExpectOpSet,
        None => around && inherits(message),
    }
}

fn failed() -> SessionError {
    error(code::EXPECT_FAILED, "Expectation failed: no_error")
}

fn error(code: u32, text: &str) -> SessionError {
    SessionError::new(code, GENERAL_STATE, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers<const N: usize>(results: [Result<(), SessionError>; N]) -> [u32; N] {
        results.map(|result| result.err().map_or(0, |error| error.code))
    }

    #[test]
    fn conditions_come_from_around_and_change_in_order() {
        let change = |key, op: ConditionOperation| Condition {
            condition_key: key,
            condition_value: None,
            op: Some(op),
        };
        assert!(expects_no_error(&Open::no_error(), false));
        let copies = Open::default();
        assert!(inherits(&copies) && expects_no_error(&copies, true));
        assert!(!expects_no_error(&copies, false));
        let empty = Open { op: Some(CtxOperation::ExpectCtxEmpty), cond: Vec::new() };
        assert!(!expects_no_error(&empty, true));
        let cond = vec![
            change(NO_ERROR, ConditionOperation::ExpectOpSet),
            change(7, ConditionOperation::ExpectOpSet),
            change(NO_ERROR, ConditionOperation::ExpectOpUnset),
        ];
        let both = Open { op: None, cond };
        assert!(!expects_no_error(&both, true));
        assert_eq!(unknown(&both).map(|condition| condition.condition_key), Some(7));
        assert_eq!(unknown(&Open::no_error()), None);
    }

    #[test]
    fn a_block_fails_with_the_block_in_it() {
        let mut blocks = ExpectBlocks::default();
        let open = Open::no_error();
        assert_eq!(numbers([blocks.open(&open), blocks.open(&open)]), [0, 0]);
        blocks.note(true);
        let results = [blocks.close(), blocks.check(), blocks.close(), blocks.check()];
        assert_eq!(numbers(results), [5159, 5159, 5159, 0]);
    }

    #[test]
    fn a_block_without_conditions_goes_on_after_the_block_in_it_has_failed() {
        let mut blocks = ExpectBlocks::default();
        let results = [blocks.open(&Open::default()), blocks.open(&Open::no_error())];
        assert_eq!(numbers(results), [0, 0]);
        blocks.note(true);
        assert_eq!(numbers([blocks.close(), blocks.check(), blocks.close()]), [5159, 0, 0]);
    }

    #[test]
    fn a_block_that_is_too_deep_fails_and_its_close_closes_no_other() {
        let mut blocks = ExpectBlocks::default();
        let open = Open { op: None, cond: Vec::new() };
        assert_eq!(numbers([(); DEEPEST].map(|()| blocks.open(&open))), [0; DEEPEST]);
        let results = [blocks.open(&open), blocks.open(&open), blocks.check()];
        assert_eq!(numbers(results), [5160, 5160, 5159]);
        assert_eq!(numbers([blocks.close(), blocks.check()]), [5159, 5159]);
        assert_eq!(numbers([blocks.close(), blocks.check()]), [5159, 0]);
        assert_eq!(numbers([(); DEEPEST].map(|()| blocks.close())), [0; DEEPEST]);
        assert_eq!(numbers([blocks.close()]), [5158]);
    }
}

//! Expect blocks: requests that run only if all earlier requests of the block succeeded. Only the
//! older server line knows them; the engine of today has `reset_error` in the requests instead.

use crate::codec::proto::expect::{Condition, ConditionOperation, CtxOperation, Open};

/// Number of the condition "no error so far", the only condition that clients use.
const NO_ERROR: u32 = 1;

impl Open {
    /// Block in which no request may fail, inside the block around it, if any.
    #[must_use]
    pub fn no_error() -> Self {
        let condition = Condition { condition_key: NO_ERROR, ..Condition::default() };
        Self { op: None, cond: vec![condition] }
    }

    /// Returns true if the block starts from the conditions of the block around it.
    #[must_use]
    pub fn inherits(&self) -> bool {
        self.op.unwrap_or_default() == CtxOperation::ExpectCtxCopyPrev
    }

    /// First condition that is not known.
    #[must_use]
    pub fn unknown(&self) -> Option<&Condition> {
        self.cond.iter().find(|condition| condition.condition_key != NO_ERROR)
    }

    /// Returns true if no request may fail in this block. `around` is the answer of the block
    /// around it.
    #[must_use]
    pub fn expects_no_error(&self, around: bool) -> bool {
        let mut known = self.cond.iter().filter(|condition| condition.condition_key == NO_ERROR);
        match known.next_back() {
            Some(last) => last.op.unwrap_or_default() == ConditionOperation::ExpectOpSet,
            None => around && self.inherits(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::message::ClientMessage;

    #[test]
    fn known_bytes() {
        let mut body = Vec::new();
        ClientMessage::ExpectOpen(Open::no_error()).encode_body(&mut body);
        assert_eq!(body, b"\x12\x02\x08\x01");
    }

    #[test]
    fn conditions_come_from_around_and_change_in_order() {
        let change = |key, op: ConditionOperation| Condition {
            condition_key: key,
            condition_value: None,
            op: Some(op),
        };
        assert!(Open::no_error().expects_no_error(false));
        let copies = Open::default();
        assert!(copies.inherits() && copies.expects_no_error(true));
        assert!(!copies.expects_no_error(false));
        let empty = Open { op: Some(CtxOperation::ExpectCtxEmpty), cond: Vec::new() };
        assert!(!empty.expects_no_error(true));
        let cond = vec![
            change(NO_ERROR, ConditionOperation::ExpectOpSet),
            change(7, ConditionOperation::ExpectOpSet),
            change(NO_ERROR, ConditionOperation::ExpectOpUnset),
        ];
        let both = Open { op: None, cond };
        assert!(!both.expects_no_error(true));
        assert_eq!(both.unknown().map(|condition| condition.condition_key), Some(7));
        assert_eq!(Open::no_error().unknown(), None);
    }
}

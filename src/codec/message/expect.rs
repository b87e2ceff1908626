//! Expect blocks: requests that run only if all earlier requests of the block succeeded. Only the
//! older server line knows them; the engine of today has `reset_error` in the requests instead.

use crate::codec::proto::expect::{Condition, Open};

/// Number of the condition "no error so far", the only condition that clients use.
const NO_ERROR: u32 = 1;

impl Open {
    /// Block in which no request may fail, inside the block around it, if any.
    #[must_use]
    pub fn no_error() -> Self {
        let condition = Condition { condition_key: NO_ERROR, ..Condition::default() };
        Self { op: None, cond: vec![condition] }
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
}

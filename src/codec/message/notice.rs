//! Notices by their content.

use prost::Message;

use crate::codec::error::MessageError;
use crate::codec::limits::Limits;
use crate::codec::message::{ScalarValue, decode};
use crate::codec::proto::notice::{
    Frame, Parameter, Scope, SessionStateChanged, SessionVariableChanged, Warning,
};
use crate::codec::proto::schema;
use crate::codec::proto::value::Scalar;

/// Types of the payloads that are described.
const WARNING: u32 = 1;
const VARIABLE_CHANGED: u32 = 2;
const STATE_CHANGED: u32 = 3;

/// Content of a notice.
///
/// *Shape*: owns its data.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Notice {
    /// A warning of the database about the statement.
    Warning(Warning),
    /// New value of a session variable.
    VariableChanged(SessionVariableChanged),
    /// First automatic number of the statement.
    InsertId(u64),
    /// Rows that the statement changed; 0 for queries.
    RowsAffected(u64),
    /// Rows that the statement found.
    RowsFound(u64),
    /// Rows that the statement matched.
    RowsMatched(u64),
    /// Text for people about the statement, in the character set of the results. A collation that was
    /// sent with it is dropped.
    Produced(Vec<u8>),
    /// Number of the connection.
    ClientId(u64),
    /// Bits of the server's state; 1: its leadership moves to another server.
    ServerState(u64),
    /// Another parameter, or a parameter listed above with a value of another type.
    StateChanged(SessionStateChanged),
    /// A notice of another type, or about no listed parameter: the type and the payload.
    Other(u32, Vec<u8>),
}

impl Notice {
    /// Reads the content of this notice.
    ///
    /// # Errors
    ///
    /// Those of [`ClientMessage::decode`](crate::codec::message::ClientMessage::decode), for the payload.
    pub fn read(frame: &Frame, limits: &Limits) -> Result<Self, MessageError> {
        let payload = frame.payload.as_deref().unwrap_or_default();
        match frame.r#type {
            WARNING => decode(payload, &schema::NOTICE_WARNING, limits).map(Self::Warning),
            VARIABLE_CHANGED => decode(payload, &schema::NOTICE_SESSION_VARIABLE_CHANGED, limits)
                .map(Self::VariableChanged),
            STATE_CHANGED => {
                match decode(payload, &schema::NOTICE_SESSION_STATE_CHANGED, limits) {
                    // The state change names no parameter, or an unlisted one.
                    Err(MessageError::Missing { message, .. })
                        if message == schema::NOTICE_SESSION_STATE_CHANGED.name =>
                    {
                        Ok(Self::Other(STATE_CHANGED, payload.to_vec()))
                    }
                    state => state.map(Self::state),
                }
            }
            kind => Ok(Self::Other(kind, payload.to_vec())),
        }
    }

    fn state(state: SessionStateChanged) -> Self {
        let value = state.value.as_ref().and_then(|value| value.value().ok());
        match (state.param, value) {
            (Parameter::GeneratedInsertId, Some(ScalarValue::Unsigned(id))) => Self::InsertId(id),
            (Parameter::RowsAffected, Some(ScalarValue::Unsigned(rows))) => {
                Self::RowsAffected(rows)
            }
            (Parameter::RowsFound, Some(ScalarValue::Unsigned(rows))) => Self::RowsFound(rows),
            (Parameter::RowsMatched, Some(ScalarValue::Unsigned(rows))) => Self::RowsMatched(rows),
            (Parameter::ProducedMessage, Some(ScalarValue::String(text, _))) => {
                Self::Produced(text.to_vec())
            }
            (Parameter::ClientIdAssigned, Some(ScalarValue::Unsigned(id))) => Self::ClientId(id),
            (Parameter::ExtraServerState, Some(ScalarValue::Unsigned(bits))) => {
                Self::ServerState(bits)
            }
            _ => Self::StateChanged(state),
        }
    }

    /// Frame of this notice. Its scope is the statement, except for the state of the server and for
    /// [`Self::Other`], whose scope is global. Set another scope if need be.
    #[must_use]
    pub fn to_frame(&self) -> Frame {
        let state = |param: Parameter, value| {
            let state = SessionStateChanged { param, value: Some(value) };
            (STATE_CHANGED, state.encode_to_vec())
        };
        let number = |param, value: &u64| state(param, Scalar::unsigned(*value));
        let (kind, payload) = match self {
            Self::Warning(warning) => (WARNING, warning.encode_to_vec()),
            Self::VariableChanged(changed) => (VARIABLE_CHANGED, changed.encode_to_vec()),
            Self::StateChanged(state) => (STATE_CHANGED, state.encode_to_vec()),
            Self::InsertId(id) => number(Parameter::GeneratedInsertId, id),
            Self::RowsAffected(rows) => number(Parameter::RowsAffected, rows),
            Self::RowsFound(rows) => number(Parameter::RowsFound, rows),
            Self::RowsMatched(rows) => number(Parameter::RowsMatched, rows),
            Self::ClientId(id) => number(Parameter::ClientIdAssigned, id),
            Self::ServerState(bits) => number(Parameter::ExtraServerState, bits),
            Self::Produced(text) => {
                state(Parameter::ProducedMessage, Scalar::string(text.as_slice(), None))
            }
            Self::Other(kind, payload) => (*kind, payload.clone()),
        };
        let scope = match self {
            Self::ServerState(_) | Self::Other(..) => Scope::Global,
            _ => Scope::Local,
        };
        Frame { r#type: kind, scope: Some(scope), payload: Some(payload) }
    }
}

#[cfg(test)]
#[expect(clippy::expect_used, reason = "a test may panic on its own mistakes")]
mod tests {
    use super::*;
    use crate::codec::frame::Dialect;
    use crate::codec::message::ServerMessage;
    use crate::codec::proto::notice::Level;

    fn body(notice: &Notice) -> Vec<u8> {
        let mut body = Vec::new();
        ServerMessage::Notice(notice.to_frame()).encode_body(Dialect::Legacy, &mut body);
        body
    }

    #[test]
    fn known_bytes() {
        let rows = b"\x08\x03\x10\x02\x1a\x08\x08\x04\x12\x04\x08\x02\x18\x00";
        assert_eq!(body(&Notice::RowsAffected(0)), rows);
        let id = b"\x08\x03\x10\x02\x1a\x09\x08\x03\x12\x05\x08\x02\x18\xac\x02";
        assert_eq!(body(&Notice::InsertId(300)), id);
        let warning =
            Warning { level: Some(Level::Warning), code: 1365, msg: "Division by 0".into() };
        let bytes = b"\x08\x01\x10\x02\x1a\x14\x08\x02\x10\xd5\x0a\x1a\x0dDivision by 0";
        assert_eq!(body(&Notice::Warning(warning)), bytes);
    }

    #[test]
    fn padded_varints_of_the_engine_are_read() {
        let body = b"\x08\x03\x10\x02\x1a\x92\x80\x80\x00\x08\x0a\x12\x8b\x80\x80\x00\x08\x08\
            \x4a\x84\x80\x80\x00\x0a\x02hi";
        let frame = decode(body, &schema::NOTICE_FRAME, &Limits::default()).expect("it is right");
        let notice = Notice::read(&frame, &Limits::default());
        assert_eq!(notice, Ok(Notice::Produced(b"hi".to_vec())));
        let value = Some(Scalar::string("hi", Some(45)));
        let state = SessionStateChanged { param: Parameter::ProducedMessage, value };
        let frame = Notice::StateChanged(state).to_frame();
        let notice = Notice::read(&frame, &Limits::default());
        assert_eq!(notice, Ok(Notice::Produced(b"hi".to_vec())), "of another collation");
    }

    #[test]
    fn what_is_made_reads_back() {
        let changed = SessionVariableChanged { param: "a".into(), value: Some(Scalar::signed(1)) };
        let null = SessionStateChanged { param: Parameter::RowsAffected, value: None };
        for notice in [
            Notice::VariableChanged(changed),
            Notice::InsertId(u64::MAX),
            Notice::RowsAffected(0),
            Notice::RowsFound(1),
            Notice::RowsMatched(2),
            Notice::Produced(b"\xff".to_vec()),
            Notice::ClientId(3),
            Notice::ServerState(1),
            Notice::StateChanged(null),
            Notice::Other(4, b"x".to_vec()),
            Notice::Other(u32::MAX, Vec::new()),
        ] {
            assert_eq!(Notice::read(&notice.to_frame(), &Limits::default()), Ok(notice));
        }
    }

    #[test]
    fn a_payload_that_is_cut_is_an_error() {
        let frame = Frame { r#type: 1, scope: None, payload: Some(b"\x1a\x05x".to_vec()) };
        assert!(Notice::read(&frame, &Limits::default()).is_err());
    }
}

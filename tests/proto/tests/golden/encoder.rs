//! The direct encoder writes the recorded frames of a server.

use epoll_group::codec::encoder::{Encoder, OutBuffer};
use epoll_group::codec::error::EncodeError;
use epoll_group::codec::frame::Dialect;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::{Notice, ServerMessage};
use epoll_group::codec::proto::notice;
use epoll_group::codec::proto::notice::{Parameter, Scope};
use prost::Message;

use crate::{GALAXY, Vector, is_other_folder, vectors};

/// Writes the recorded frame through the direct encoder. Returns `false` if that has no call for it.
fn say(
    out: &mut Encoder<'_>,
    vector: &Vector,
    message: &ServerMessage,
) -> Result<bool, EncodeError> {
    match message {
        ServerMessage::Error(error) if error.severity.is_some() => {
            let state = error.sql_state[..].try_into().expect("five characters");
            out.error(error.severity.unwrap_or_default(), error.code, state, &error.msg)?;
        }
        ServerMessage::Notice(frame) if frame.scope == Some(Scope::Local) && frame.r#type == 1 => {
            let payload = frame.payload.as_deref().unwrap_or_default();
            let warning = notice::Warning::decode(payload).expect("a warning");
            out.notice(&Notice::Warning(warning))?;
        }
        ServerMessage::Notice(frame) if frame.scope == Some(Scope::Local) && frame.r#type == 3 => {
            let payload = frame.payload.as_deref().unwrap_or_default();
            let state = notice::SessionStateChanged::decode(payload).expect("a state");
            let value = state.value.clone().expect("a value");
            match (state.param, value.v_unsigned_int, value.v_string) {
                (Parameter::RowsAffected, Some(rows), _) => out.rows_affected(rows),
                (Parameter::ProducedMessage, _, Some(text)) => {
                    out.notice(&Notice::Produced(text.value))?
                }
                (parameter, Some(number), _) => out.state(parameter, number),
                _ => return Ok(false),
            }
        }
        ServerMessage::FetchDone(done) => match (done.examined_row_count, &done.chosen_index) {
            (None, None) => out.fetch_done(),
            _ => return Ok(false),
        },
        ServerMessage::TokenDone(done) if done.token_left.is_none() => out.token_done(),
        ServerMessage::Tso(tso) if tso.error_no == 0 && vector.kind() == 20 => {
            out.timestamps(tso.ts)
        }
        _ => match vector.kind() {
            16 => out.fetch_done_more_resultsets(),
            17 => out.execute_ok(),
            _ => return Ok(false),
        },
    }
    Ok(true)
}

fn frames(file: &str, dialect: Dialect) -> usize {
    let mut said = 0;
    for vector in vectors(file) {
        if vector.is_from_client() || vector.json.get("client_type_id").is_some() {
            continue;
        }
        let body = vector.bytes("frame_hex").split_off(dialect.header_bytes());
        let Ok(message) = ServerMessage::decode(dialect, vector.kind(), &body, &Limits::default())
        else {
            continue;
        };
        let mut buffer = OutBuffer::default();
        let mut out = Encoder::with_dialect(&mut buffer, dialect, vector.number("sid"));
        if say(&mut out, &vector, &message).expect("small") {
            said += 1;
            assert_eq!(buffer.to_vec(), vector.bytes("frame_hex"), "{vector}");
        }
        buffer.clear();
        Encoder::with_dialect(&mut buffer, dialect, vector.number("sid"))
            .message(&message)
            .expect("small");
        assert_eq!(buffer.to_vec(), vector.bytes("frame_hex"), "{vector}");
    }
    said
}

#[test]
fn recorded_frames_of_a_server_are_written() {
    let said = frames("s2c.jsonl", Dialect::Legacy) + frames("galaxy_header.jsonl", GALAXY);
    // All but those for which there is nothing to gain: capabilities, the login, feedback, files.
    assert!(said >= 26 || is_other_folder(), "{said} frames");
}

//! [`Login`]: the client's half of the handshake, without I/O.

use std::sync::Arc;

use super::error::{Error, ErrorKind, Fate};
use super::options::Options;
use crate::codec::auth::{Challenge, Reply};
use crate::codec::message::{ClientMessage, ServerMessage};
use crate::codec::proto::session::{AuthenticateContinue, AuthenticateStart};

/// State of the handshake.
#[derive(Debug)]
pub(super) enum Login {
    /// The first frame was sent. The challenge is outstanding.
    Started,
    /// The challenge was answered.
    Proved,
}

/// Next action after a frame.
#[derive(Debug)]
pub(super) enum Step {
    /// Wait for the next frame.
    Wait,
    /// Send this message.
    Send(Box<ClientMessage>),
    /// The login succeeded.
    Done,
    /// The login failed.
    Failed(Error),
}

/// Limit of the hash rounds that a server may ask for: twice MySQL's default of 5000.
const MAX_ROUNDS: u32 = 10_000;

impl Login {
    /// Creates the first frame. Newer servers use the name in it; others ignore it.
    pub(super) fn start(options: &Options) -> (Self, ClientMessage) {
        let start = AuthenticateStart {
            mech_name: b"MYSQL41".to_vec(),
            auth_data: Some(options.user.clone().into_bytes()),
            ..AuthenticateStart::default()
        };
        (Self::Started, ClientMessage::AuthenticateStart(start))
    }

    /// Handles a message of the server on session 0.
    pub(super) fn handle(&mut self, message: ServerMessage, options: &Options) -> Step {
        match (&self, message) {
            (_, ServerMessage::Notice(_)) => Step::Wait,
            (_, ServerMessage::Error(error)) => {
                let kind = ErrorKind::Login(Arc::new(error));
                Step::Failed(Error::new(Fate::NotSent, kind))
            }
            (Self::Started, ServerMessage::AuthenticateContinue(challenge)) => {
                *self = Self::Proved;
                match prove(&challenge.auth_data, options) {
                    Ok(auth_data) => {
                        let proof = AuthenticateContinue { auth_data };
                        Step::Send(Box::new(ClientMessage::AuthenticateContinue(proof)))
                    }
                    Err(what) => Step::Failed(Error::not_sent(ErrorKind::Protocol(what.into()))),
                }
            }
            (Self::Proved, ServerMessage::AuthenticateOk(_)) => Step::Done,
            (_, other) => {
                let what = format!("kind {} during the login", other.kind());
                Step::Failed(Error::not_sent(ErrorKind::Protocol(what.into())))
            }
        }
    }
}

fn prove(challenge: &[u8], options: &Options) -> Result<Vec<u8>, String> {
    if challenge.is_empty() {
        // Some servers send this in place of an error.
        return Err("an empty challenge".into());
    }
    let challenge = Challenge::parse(challenge).map_err(|error| error.to_string())?;
    let proof = challenge.prove(options.password.0.as_bytes(), MAX_ROUNDS);
    let proof = proof.map_err(|error| error.to_string())?;
    Reply::new(options.user.as_bytes(), proof).encode().map_err(|error| error.to_string())
}

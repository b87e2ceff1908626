//! [`Login`]: the client's half of the handshake, sans-I/O.

use std::sync::Arc;

use super::error::{Error, ErrorKind, Fate, ServerError};
use super::options::Options;
use crate::codec::auth::{Challenge, Reply};
use crate::codec::message::session::{AuthenticateContinue, AuthenticateStart};
use crate::codec::message::{ClientMessage, ServerMessage};

/// Where the handshake stands.
#[derive(Debug)]
pub(super) enum Login {
    /// The first frame was sent, a challenge is to come.
    Started,
    /// The challenge was answered.
    Proved,
}

/// What follows from a frame.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing.
    Wait,
    /// This is to be sent.
    Send(Box<ClientMessage>),
    /// We are in.
    Done,
    /// We are not.
    Failed(Error),
}

/// Rounds of hashing that a server may ask for: MySQL's default of 5000, and as many again.
const MAX_ROUNDS: u32 = 10_000;

impl Login {
    /// The first frame. The name is in it for servers of the newer form; others do not look.
    pub(super) fn start(options: &Options) -> (Self, ClientMessage) {
        let start = AuthenticateStart {
            mech_name: b"MYSQL41".to_vec(),
            auth_data: Some(options.user.clone().into_bytes()),
            ..AuthenticateStart::default()
        };
        (Self::Started, ClientMessage::AuthenticateStart(start))
    }

    /// The server sent this, on session 0.
    pub(super) fn handle(&mut self, message: ServerMessage, options: &Options) -> Step {
        match (&self, message) {
            (_, ServerMessage::Notice(_)) => Step::Wait,
            (_, ServerMessage::Error(error)) => {
                let kind = ErrorKind::Login(Arc::new(ServerError::new(error)));
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
        // What some servers send in place of an error.
        return Err("an empty challenge".into());
    }
    let challenge = Challenge::parse(challenge).map_err(|error| error.to_string())?;
    let proof = challenge.prove(options.password.as_bytes(), MAX_ROUNDS);
    let proof = proof.map_err(|error| error.to_string())?;
    Reply::new(options.user.as_bytes(), proof).encode().map_err(|error| error.to_string())
}

//! One connection with sessions: its questions, and which answer a frame belongs to.

use std::sync::Arc;

use epoll_group::codec::frame::Decoder;
use epoll_group::codec::limits::Limits;
use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::sql::TokenOffer;

use super::answer::{Checker, Next, Progress};
use super::question::{Asker, Form, TOKEN, encode};
use crate::load::{Answer, Conversation, session_id};

/// Statements of the sessions of one connection, and the check of their answers.
#[derive(Debug)]
pub struct Statements {
    connection: usize,
    decoder: Decoder,
    asker: Arc<Asker>,
    random: fastrand::Rng,
    checker: Checker,
    sessions: Vec<Session>,
}

#[derive(Clone, Debug)]
struct Session {
    /// Id of the row that its request asks for.
    id: i64,
    in_flight: bool,
    /// Form of the last request for the row.
    form: Form,
    progress: Progress,
}

impl Statements {
    pub(super) fn new(connection: usize, sessions: usize, asker: &Arc<Asker>) -> Self {
        let session = Session {
            id: 0,
            in_flight: false,
            form: Form::DigestAlone,
            progress: Progress::default(),
        };
        Self {
            connection,
            decoder: Decoder::new(Limits::default()),
            asker: Arc::clone(asker),
            // Connections ask for different rows.
            random: fastrand::Rng::with_seed(connection as u64),
            checker: Checker::new(asker.question()),
            sessions: vec![session; sessions],
        }
    }
}

impl Conversation for Statements {
    fn ask(&mut self, session: u32, out: &mut Vec<u8>) {
        let id = self.asker.draw(&mut self.random);
        let asked = &mut self.sessions[session as usize];
        (asked.id, asked.in_flight, asked.form) = (id, true, Form::DigestAlone);
        self.asker.write(session_id(self.connection, session), id, Form::DigestAlone, out);
    }

    fn take(
        &mut self,
        bytes: &[u8],
        out: &mut Vec<u8>,
        answers: &mut Vec<Answer>,
    ) -> Result<(), String> {
        self.decoder.feed(bytes);
        while let Some(frame) = self.decoder.next_frame().map_err(|error| error.to_string())? {
            let id = frame.session();
            let place = id as u32;
            let known = self.sessions.get_mut(place as usize);
            let known = known.filter(|_| id == session_id(self.connection, place));
            let Some(session) = known.filter(|session| session.in_flight) else {
                let kind = frame.kind();
                return Err(format!("session {id:#x}: a frame of kind {kind} without a request"));
            };
            let next = self.checker.take(&mut session.progress, session.id, &frame);
            match next.map_err(|error| format!("session {id:#x}: {error}"))? {
                Next::More => {}
                Next::Done => {
                    session.in_flight = false;
                    answers.push(Answer { session: place, wrong: None });
                }
                Next::Missed if session.form == Form::Whole => {
                    return Err(format!("session {id:#x}: a miss of what was sent with its text"));
                }
                Next::Missed => {
                    session.form = Form::Whole;
                    self.asker.write(id, session.id, Form::Whole, out);
                }
                Next::OutOfTokens => {
                    let offer = TokenOffer { token: Some(TOKEN) };
                    encode(&ClientMessage::TokenOffer(offer), id, out);
                }
            }
        }
        Ok(())
    }
}

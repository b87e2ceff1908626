//! [`Passage`]: the answer of a data node, on its way to the client.
#![forbid(unsafe_code)]

use epoll_group::client::{Answer, Piece, Summary};
use epoll_group::codec::message::ServerKind;
use epoll_group::session::{Ending, Relay, Relayed, SessionError, Wake};

use crate::ask::is_said;
use crate::nodes::Name;
use crate::refuse::of_node;

/// The answer of a data node, frame by frame as it comes. The session goes back when the answer has
/// ended.
pub struct Passage<U: User> {
    answer: Answer,
    has_rows: bool,
    /// Until the answer has ended.
    user: Option<U>,
}

/// Owner of the session in which an answer comes.
pub trait User: Send + 'static {
    /// The data node that answers.
    fn node(&self) -> &Name;

    /// Called when the answer has ended. A drop without this call means that the answer was given
    /// up.
    fn ended(self, end: End<'_>);
}

/// How an answer ended.
#[derive(Debug)]
pub enum End<'a> {
    Well(&'a Summary),
    /// The data node answered with an error. The session goes on.
    Failed(&'a SessionError),
    /// The session is gone.
    Lost(&'a SessionError),
}

impl<U: User> Passage<U> {
    pub const fn new(answer: Answer, user: U) -> Self {
        Self { answer, has_rows: false, user: Some(user) }
    }

    fn end(&mut self) -> Ending {
        let summary = self.answer.summary();
        if let Some(user) = self.user.take() {
            user.ended(End::Well(summary));
        }
        ending(self.answer.summary(), self.has_rows)
    }
}

/// The end of the answer to the client.
pub fn ending(summary: &Summary, has_rows: bool) -> Ending {
    let mut ending = Ending::default();
    ending.insert_id = summary.insert_id.unwrap_or(0);
    if !has_rows {
        ending.affected = summary.affected;
    }
    ending.info = summary.info.clone();
    ending.server_state = summary.server_state;
    if let Some(cost) = &summary.feedback {
        let index = cost.chosen_index.clone().unwrap_or_default();
        ending.feedback = Some((cost.examined_row_count.unwrap_or(0), index));
    }
    for warning in &summary.warnings {
        ending.warning(warning.level(), warning.code, warning.msg.as_slice());
    }
    ending
}

impl<U: User> Relay for Passage<U> {
    fn next(&mut self, wake: &Wake) -> Result<Relayed<'_>, SessionError> {
        let kind = match self.answer.try_frame() {
            Ok(Piece::Frame(kind, _)) => kind,
            Ok(Piece::Later) => {
                let wake = wake.clone();
                self.answer.when_more(move || wake.wake());
                return Ok(Relayed::Later);
            }
            Ok(Piece::End) => return Ok(Relayed::End(self.end())),
            Err(error) => {
                let Some(user) = self.user.take() else { return Err(SessionError::interrupted()) };
                let text = of_node(user.node(), &error);
                user.ended(if is_said(&error) { End::Failed(&text) } else { End::Lost(&text) });
                return Err(text);
            }
        };
        self.has_rows |= kind == ServerKind::ColumnMetaData;
        Ok(Relayed::Frame { kind, body: self.answer.frame_body() })
    }
}

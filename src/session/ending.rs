//! [`Ending`]: the end of a reply, behind its rows.

use super::error::{LONGEST_TEXT, SessionError, put_error};
use crate::codec::encoder::Encoder;
use crate::codec::message::{Notice, ServerMessage};
use crate::codec::proto::notice::{Level, Parameter, Warning};
use crate::codec::proto::resultset::FetchDone;

/// End of a reply, behind its rows. The layer writes the last frames of the reply from it, in their
/// order.
///
/// A handler changes that of its own reply, by [`Reply::ending`](super::Reply::ending). A
/// [`Relay`](super::Relay) returns that of another server's answer.
///
/// ```
/// use epoll_group::codec::message::Notice;
/// use epoll_group::codec::proto::notice::{Level, Warning};
/// use epoll_group::session::Ending;
///
/// let mut inserted = Ending::default();
/// inserted.affected = 3;
/// inserted.insert_id = 17;
/// inserted.info = "Records: 3".into();
/// inserted.server_state = 1;
/// inserted.warning(Level::Note, 1003, "careful");
/// // The notices of the other server give the same.
/// let mut heard = Ending::default();
/// heard.notice(Notice::RowsAffected(3));
/// heard.notice(Notice::InsertId(17));
/// heard.notice(Notice::Produced("Records: 3".into()));
/// heard.notice(Notice::ServerState(1));
/// let warning = Warning { level: Some(Level::Note), code: 1003, msg: "careful".into() };
/// heard.notice(Notice::Warning(warning));
/// assert_eq!(heard, inserted);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Number of changed rows.
    pub affected: u64,
    /// First id that the database generated for a row of the statement; 0 for none.
    pub insert_id: u64,
    /// Text for people about the result.
    pub info: Vec<u8>,
    /// Number of examined rows and names of the indexes used, separated by `;`. They are sent behind
    /// a result, to a client that asks for them by `feed_back`.
    pub feedback: Option<(u64, Vec<u8>)>,
    /// Bits about the state of the server: 1 while it hands its leadership over. 0 is not sent.
    pub server_state: u64,
    /// Error of a request that has failed. The client then gets only the warnings and the error. A
    /// handler may return the error instead. With either, a [source](super::Reply::source) or
    /// [relay](super::Reply::relay) of the reply is dropped unread.
    pub error: Option<SessionError>,
    warnings: Vec<(Level, u32, Vec<u8>)>,
}

/// Number of warnings that MySQL 5.7 keeps by default (`max_error_count`; 1024 since 8.0).
const MOST_WARNINGS: usize = 64;

impl Ending {
    /// Adds a warning. The first 64 warnings are kept.
    pub fn warning(&mut self, level: Level, code: u32, text: impl Into<Vec<u8>>) {
        if self.warnings.len() < MOST_WARNINGS {
            let mut text = text.into();
            if text.len() > LONGEST_TEXT {
                text = text[..LONGEST_TEXT].to_vec();
            }
            self.warnings.push((level, code, text));
        }
    }

    /// Applies a notice of another server. Kinds without a field here are ignored.
    pub fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Warning(warning) => self.warning(warning.level(), warning.code, warning.msg),
            Notice::RowsAffected(rows) => self.affected = rows,
            Notice::InsertId(id) => self.insert_id = id,
            Notice::Produced(text) => self.info = text,
            Notice::ServerState(bits) => self.server_state = bits,
            _ => {}
        }
    }

    /// Takes the error out and returns it.
    pub(super) fn take_error(&mut self) -> Result<(), SessionError> {
        self.error.take().map_or(Ok(()), Err)
    }

    /// Replaces everything by `other`, but appends its warnings and adds its bits about the server.
    /// Returns the error of `other`.
    pub(super) fn replace_by(&mut self, mut other: Self) -> Result<(), SessionError> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.append(&mut other.warnings);
        warnings.truncate(MOST_WARNINGS);
        let result = other.take_error();
        let server_state = self.server_state | other.server_state;
        *self = Self { warnings, server_state, ..other };
        result
    }

    /// Writes the end of a reply that succeeded.
    pub(super) fn put(&self, encoder: &mut Encoder<'_>, has_result: bool) {
        if has_result {
            let written = self.feedback.as_ref().is_some_and(|(rows, index)| {
                let (examined_row_count, chosen_index) = (Some(*rows), Some(index.clone()));
                let done = FetchDone { examined_row_count, chosen_index };
                // A text that is too long is left out, because the request has succeeded.
                encoder.message(&ServerMessage::FetchDone(done)).is_ok()
            });
            if !written {
                encoder.fetch_done();
            }
        }
        self.put_warnings(encoder);
        encoder.rows_affected(self.affected);
        if self.insert_id > 0 {
            encoder.state(Parameter::GeneratedInsertId, self.insert_id);
        }
        if !self.info.is_empty() {
            // A text that is too long is left out.
            let _ = encoder.notice(&Notice::Produced(self.info.clone()));
        }
        if self.server_state != 0 {
            encoder.state(Parameter::ExtraServerState, self.server_state);
        }
        encoder.execute_ok();
    }

    /// Writes the end of a reply that failed.
    pub(super) fn put_failed(&self, encoder: &mut Encoder<'_>, error: &SessionError) {
        self.put_warnings(encoder);
        put_error(encoder, error);
    }

    fn put_warnings(&self, encoder: &mut Encoder<'_>) {
        for (level, code, text) in &self.warnings {
            let warning = Warning { level: Some(*level), code: *code, msg: text.clone() };
            // A text that is too long is left out.
            let _ = encoder.notice(&Notice::Warning(warning));
        }
    }
}

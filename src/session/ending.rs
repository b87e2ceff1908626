//! [`Ending`]: the end of a reply, behind its rows.

use super::error::{LONGEST_TEXT, SessionError, put_error};
use crate::codec::encoder::Encoder;
use crate::codec::message::Notice;
use crate::codec::proto::notice::{Level, Parameter};

/// End of another server's answer, passed on at the end of a [`Relay`](super::Relay).
///
/// The layer writes the last frames of the reply from it, in their order.
///
/// ```
/// use epoll_group::codec::message::Notice;
/// use epoll_group::session::{Ending, SessionError};
///
/// let inserted = Ending::new().affected(3).last_insert_id(17).info("Records: 3").server_state(1);
/// // The notices of the other server give the same.
/// let heard = [
///     Notice::RowsAffected(3),
///     Notice::InsertId(17),
///     Notice::Produced("Records: 3".into()),
///     Notice::ServerState(1),
/// ];
/// assert_eq!(heard.into_iter().fold(Ending::new(), Ending::notice), inserted);
/// // An ending can report a failure.
/// let failed = Ending::new().failed(SessionError::new(1062, b"23000", "Duplicate entry"));
/// assert_ne!(failed, inserted);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    pub(super) affected: u64,
    pub(super) insert_id: u64,
    pub(super) info: Vec<u8>,
    warnings: Vec<(Level, u32, Vec<u8>)>,
    /// Number of examined rows, and names of the indexes used.
    pub(super) feedback: Option<(u64, Vec<u8>)>,
    /// Bits of the server's state; 0 is not sent.
    pub(super) server_state: u64,
    error: Option<SessionError>,
}

/// Number of warnings that MySQL 5.7 keeps by default (`max_error_count`; 1024 since 8.0).
const MOST_WARNINGS: usize = 64;

impl Ending {
    /// Creates an ending without changed rows and without notices.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of changed rows.
    #[must_use]
    pub fn affected(self, rows: u64) -> Self {
        Self { affected: rows, ..self }
    }

    /// Sets the first id that the database generated for a row of the statement; 0 for none.
    #[must_use]
    pub fn last_insert_id(self, id: u64) -> Self {
        Self { insert_id: id, ..self }
    }

    /// Sets a text for people about the result.
    #[must_use]
    pub fn info(self, text: impl Into<Vec<u8>>) -> Self {
        Self { info: text.into(), ..self }
    }

    /// Adds a warning. The first 64 warnings are kept.
    #[must_use]
    pub fn warning(mut self, level: Level, code: u32, text: impl Into<Vec<u8>>) -> Self {
        self.add_warning(level, code, text.into());
        self
    }

    /// Sets the number of examined rows and the names of the indexes used, separated by `;`. They are
    /// sent behind a result, to a client that asks for them by `feed_back`.
    #[must_use]
    pub fn feedback(self, examined_rows: u64, chosen_index: impl Into<Vec<u8>>) -> Self {
        Self { feedback: Some((examined_rows, chosen_index.into())), ..self }
    }

    /// Sets bits about the state of the server: 1 while it hands its leadership over. 0 is not sent.
    #[must_use]
    pub fn server_state(self, bits: u64) -> Self {
        Self { server_state: bits, ..self }
    }

    /// Applies a notice of the other server. Kinds without a method here are ignored.
    #[must_use]
    pub fn notice(self, notice: Notice) -> Self {
        match notice {
            Notice::Warning(warning) => self.warning(warning.level(), warning.code, warning.msg),
            Notice::RowsAffected(rows) => self.affected(rows),
            Notice::InsertId(id) => self.last_insert_id(id),
            Notice::Produced(text) => self.info(text),
            Notice::ServerState(bits) => self.server_state(bits),
            _ => self,
        }
    }

    /// Marks the request as failed. The client then gets only the warnings and the error.
    #[must_use]
    pub fn failed(self, error: SessionError) -> Self {
        Self { error: Some(error), ..self }
    }

    pub(super) fn add_warning(&mut self, level: Level, code: u32, mut text: Vec<u8>) {
        if self.warnings.len() < MOST_WARNINGS {
            if text.len() > LONGEST_TEXT {
                text = text[..LONGEST_TEXT].to_vec();
            }
            self.warnings.push((level, code, text));
        }
    }

    /// Replaces everything by `other`, but appends its warnings and adds its bits about the server.
    /// Returns the error of `other`.
    pub(super) fn replace_by(&mut self, mut other: Self) -> Result<(), SessionError> {
        let mut warnings = std::mem::take(&mut self.warnings);
        warnings.append(&mut other.warnings);
        warnings.truncate(MOST_WARNINGS);
        let error = other.error.take();
        let server_state = self.server_state | other.server_state;
        *self = Self { warnings, server_state, ..other };
        error.map_or(Ok(()), Err)
    }

    /// Writes the end of a reply that succeeded.
    pub(super) fn put(&self, encoder: &mut Encoder<'_>, has_result: bool) {
        if has_result {
            let written = self.feedback.as_ref().is_some_and(|(rows, index)| {
                // A text that is too long is left out, because the request has succeeded.
                encoder.fetch_done_with(*rows, index).is_ok()
            });
            if !written {
                encoder.fetch_done();
            }
        }
        self.put_warnings(encoder);
        encoder.rows_affected(self.affected);
        if self.insert_id > 0 {
            encoder.last_insert_id(self.insert_id);
        }
        if !self.info.is_empty() {
            // A text that is too long is left out.
            let _ = encoder.produced_message(&self.info);
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
            // A text that is too long is left out.
            let _ = encoder.warning(*level, *code, text);
        }
    }
}

//! Ends of requests and of sessions.

use std::any::Any;
use std::mem;

use super::{Body, Session, StepResult, Unfinished};
use crate::codec::encoder::{Encoder, Metadata};
use crate::runtime::{Class, guard};
use crate::session::error::{SessionError, put_error};
use crate::session::output::Output;
use crate::session::service::Service;
use crate::session::session_shared::Cancel;

impl<S: Service> Session<S> {
    /// Ends a request that was run and answered.
    pub(super) fn ended(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        result: Result<(), SessionError>,
    ) -> StepResult {
        let fatal = result.as_ref().is_err_and(SessionError::is_fatal);
        body.expect_blocks.note(result.is_err());
        body.last_error = result.err().map(SessionError::shortened);
        if fatal {
            self.close_after_final_message(body, out, None);
            return StepResult::Continue;
        }
        if let Some(session) = &body.session {
            let progress = guard(self.shared.conn.group(), "in_transaction", || {
                self.service.in_transaction(session)
            });
            let outside = self.shared.conn.class;
            let class =
                if progress == Some(true) { outside.or(Class::InProgress) } else { outside };
            if class != self.shared.class() {
                self.shared.set_class(class);
            }
        }
        self.end_command(body)
    }

    /// Ends the running command.
    pub(super) fn end_command(&self, body: &mut Body<S::Session>) -> StepResult {
        if let Some(reason) = self.shared.end_request() {
            if let Some(counter) = reason.counter() {
                self.shared.conn.count(counter);
            }
            if let Some(session) = &mut body.session {
                guard(self.shared.conn.group(), "cancelled", || self.service.cancelled(session));
            }
        }
        StepResult::Continue
    }

    /// Answers a request that was not run. Later requests without `reset_error` fail with the same
    /// error.
    pub(super) fn fail(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        error: SessionError,
    ) -> StepResult {
        self.write(out, |encoder| put_error(encoder, &error));
        body.expect_blocks.note(true);
        body.last_error = Some(error.shortened());
        self.end_command(body)
    }

    /// Answers a request whose digest is not in the cache. Later requests are not affected.
    pub(super) fn miss(&self, out: &Output, body: &mut Body<S::Session>, text: &str) -> StepResult {
        let error = SessionError::cache_miss(text);
        self.write(out, |encoder| put_error(encoder, &error));
        self.end_command(body)
    }

    /// Answers a command that does not reach the service.
    pub(super) fn answer(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        result: Result<(), SessionError>,
    ) -> StepResult {
        self.write(out, |encoder| match result {
            Ok(()) => encoder.ok(None),
            Err(error) => put_error(encoder, &error),
        });
        self.end_command(body)
    }

    pub(super) fn write<R>(&self, out: &Output, code: impl FnOnce(&mut Encoder<'_>) -> R) {
        out.write(self.shared.id.wire, Metadata::Full, code);
    }

    pub(super) fn panicked(&self, payload: Box<dyn Any + Send>) -> SessionError {
        self.shared.conn.note_panic(payload);
        SessionError::panicked()
    }

    /// Sends the final message, which is written already, and ends the session. Waiting requests
    /// get `answer` each; without it the final message answers them all.
    pub(super) fn close_after_final_message(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        answer: Option<&SessionError>,
    ) {
        self.shared.refuse(|waiting| {
            if let Some(error) = answer {
                for _ in waiting {
                    self.write(out, |encoder| put_error(encoder, error));
                }
            }
            out.pass_on();
        });
        self.server_conn.forget(self.shared.id);
        self.shared.end();
        self.clean_up(body);
    }

    /// Ends an idle session during a drain, because other sessions may wait for its locks.
    pub(super) fn shut_down(&self, body: &mut Body<S::Session>, out: &Output) {
        // The call of `closed` may wait.
        out.flush();
        self.close_service_session(body);
        self.write(out, |encoder| put_error(encoder, &SessionError::shutdown()));
        self.close_after_final_message(body, out, None);
    }

    /// Ends the session of one statement. A later statement on the same id finds no state of it.
    pub(super) fn end_statement(&self, body: &mut Body<S::Session>) {
        if body.session.is_some() {
            self.close_service_session(body);
        }
        body.last_error = None;
    }

    /// Cleans up a dead session.
    pub(super) fn clean_up(&self, body: &mut Body<S::Session>) {
        self.drop_unfinished(body);
        self.shared.end_request();
        self.shared.refuse(|_| ());
        self.close_service_session(body);
    }

    /// Drops the begun request. Its source or relay is a foreign value.
    pub(super) fn drop_unfinished(&self, body: &mut Body<S::Session>) {
        match mem::replace(&mut body.unfinished, Unfinished::None) {
            Unfinished::Deferred(deferral) => {
                guard(self.shared.conn.group(), "drop", || drop((deferral.claim(), deferral)));
            }
            Unfinished::Fed(state, _) => {
                guard(self.shared.conn.group(), "drop", || drop(state));
            }
            Unfinished::None => {}
        }
    }

    pub(super) fn close_service_session(&self, body: &mut Body<S::Session>) {
        self.shared.set_class(self.shared.conn.class);
        self.shared.set_cancel(Cancel::none());
        if let Some(session) = body.session.take() {
            guard(self.shared.conn.group(), "closed", || self.service.closed(session));
        }
    }
}

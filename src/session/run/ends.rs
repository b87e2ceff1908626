//! Ends of requests and of sessions.

use std::any::Any;
use std::mem;

use super::{Body, Current, Session, Turn};
use crate::codec::encoder::{Encoder, Metadata};
use crate::runtime::{Class, guard};
use crate::session::answers::put_error;
use crate::session::error::SessionError;
use crate::session::link::Runnable;
use crate::session::output::Output;
use crate::session::service::{Cancel, Service};

impl<S: Service> Session<S> {
    /// Ends a request that was run and answered.
    pub(super) fn ended(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        result: Result<(), SessionError>,
    ) -> Turn {
        let fatal = result.as_ref().is_err_and(SessionError::is_fatal);
        body.expecting.note(result.is_err());
        body.last_error = result.err().map(SessionError::shortened);
        if fatal {
            self.close_after_last_word(body, out, None);
            return Turn::Again;
        }
        if let Some(session) = &body.session {
            let service = &self.link.server.service;
            let progress =
                guard(self.link.line.group(), "in_transaction", || service.in_transaction(session));
            let outside = self.channel.line.class;
            let class =
                if progress == Some(true) { outside.or(Class::InProgress) } else { outside };
            if class != self.channel.class() {
                self.channel.set_class(class);
            }
        }
        self.over(body)
    }

    /// Ends the running command.
    pub(super) fn over(&self, body: &mut Body<S::Session>) -> Turn {
        if let Some(reason) = self.channel.end_request() {
            if let Some(counter) = reason.counter() {
                self.link.line.count(counter);
            }
            if let Some(session) = &mut body.session {
                let service = &self.link.server.service;
                guard(self.link.line.group(), "cancelled", || service.cancelled(session));
            }
        }
        Turn::Again
    }

    /// Answers a request that was not run. Later requests without `reset_error` fail with the same
    /// error.
    pub(super) fn fail(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        error: SessionError,
    ) -> Turn {
        self.write(out, |encoder| put_error(encoder, &error));
        body.expecting.note(true);
        body.last_error = Some(error.shortened());
        self.over(body)
    }

    /// Answers a request whose digest is not in the cache. Later requests are not affected.
    pub(super) fn miss(&self, out: &Output, body: &mut Body<S::Session>, text: &str) -> Turn {
        let error = SessionError::cache_miss(text);
        self.write(out, |encoder| put_error(encoder, &error));
        self.over(body)
    }

    /// Answers a command that does not reach the service.
    pub(super) fn answer(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        result: Result<(), SessionError>,
    ) -> Turn {
        self.write(out, |encoder| match result {
            Ok(()) => encoder.ok(None),
            Err(error) => put_error(encoder, &error),
        });
        self.over(body)
    }

    pub(super) fn write<R>(&self, out: &Output, code: impl FnOnce(&mut Encoder<'_>) -> R) {
        out.write(self.channel.id.wire, Metadata::Full, code);
    }

    pub(super) fn panicked(&self, payload: Box<dyn Any + Send>) -> SessionError {
        self.link.note_panic(payload);
        SessionError::panicked()
    }

    /// Sends the final message, which is written already, and ends the session. Waiting requests
    /// get `answer` each; without it the final message answers them all.
    pub(super) fn close_after_last_word(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        answer: Option<&SessionError>,
    ) {
        let others = self.channel.refuse_after(|waiting| {
            if let Some(error) = answer {
                for _ in waiting {
                    self.write(out, |encoder| put_error(encoder, error));
                }
            }
            out.send()
        });
        others.into_iter().for_each(Runnable::settle);
        self.link.forget(self.channel.id);
        self.channel.end();
        self.bury(body);
    }

    /// Ends an idle session during a drain, because other sessions may wait for its locks.
    pub(super) fn shut_down(&self, body: &mut Body<S::Session>, out: &Output) {
        // The call of `closed` may wait.
        out.flush();
        self.part(body);
        self.write(out, |encoder| put_error(encoder, &SessionError::shutdown()));
        self.close_after_last_word(body, out, None);
    }

    /// Ends the session of one statement. A later statement on the same id finds no state of it.
    pub(super) fn leave(&self, body: &mut Body<S::Session>) {
        if body.session.is_some() {
            self.part(body);
        }
        body.last_error = None;
    }

    /// Cleans up a dead session.
    pub(super) fn bury(&self, body: &mut Body<S::Session>) {
        self.abandon(body);
        self.channel.end_request();
        drop(self.channel.refuse());
        self.part(body);
    }

    /// Drops the begun request. Its source or relay is a foreign value.
    pub(super) fn abandon(&self, body: &mut Body<S::Session>) {
        match mem::replace(&mut body.current, Current::None) {
            Current::Deferred(deferral) => {
                guard(self.link.line.group(), "drop", || drop((deferral.claim(), deferral)));
            }
            Current::Fed(state, _) => {
                guard(self.link.line.group(), "drop", || drop(state));
            }
            Current::None => {}
        }
    }

    pub(super) fn part(&self, body: &mut Body<S::Session>) {
        self.channel.set_class(self.channel.line.class);
        self.channel.set_cancel(Cancel::none());
        if let Some(session) = body.session.take() {
            let service = &self.link.server.service;
            guard(self.link.line.group(), "closed", || service.closed(session));
        }
    }
}

//! Begin of each command of a session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Body, Current, Session, Turn};
use crate::codec::cache::Source;
use crate::codec::message::plan::ExecPlan;
use crate::codec::message::sql::StmtExecute;
use crate::session::answers::put_error;
use crate::session::error::SessionError;
use crate::session::link::KeptPlan;
use crate::session::output::Output;
use crate::session::post::{Errand, Post};
use crate::session::reply::Reply;
use crate::session::request::{Plan, Request, Savepoint, Sql};
use crate::session::service::Service;
use crate::session::state::{Form, State};
use crate::stats::Counter;

impl<S: Service> Session<S> {
    pub(super) fn begin(&self, body: &mut Body<S::Session>, out: &Output, post: Post) -> Turn {
        if let Some(reason) = post.cancelled {
            if let Some(counter) = reason.counter() {
                self.link.line.count(counter);
            }
            return self.fail(body, out, SessionError::cancelled(reason));
        }
        match post.errand {
            Errand::Open => self.open(body, out),
            Errand::Sql(message) => self.sql(body, out, &message),
            Errand::Plan(message) => self.plan(body, out, &message, post.bytes),
            Errand::Savepoint(message) => match Savepoint::new(&message) {
                Some(savepoint) => {
                    let form = Form::PLAIN;
                    let reset = message.reset_error();
                    self.execute(body, out, reset, form, Request::Savepoint(savepoint))
                }
                None => {
                    self.fail(body, out, SessionError::unsupported("Handle auto savepoint failed."))
                }
            },
            Errand::ExpectOpen(message) => {
                let result = body.expecting.open(&message);
                self.answer(body, out, result)
            }
            Errand::ExpectClose => {
                let result = body.expecting.close();
                self.answer(body, out, result)
            }
            Errand::Broken(error) => self.fail(body, out, error),
            Errand::File => self.fail(body, out, SessionError::unsupported("unsupported command")),
            Errand::Close => {
                // Locks of the session are free before its client learns of the end.
                self.part(body);
                self.write(out, |encoder| encoder.ok(None));
                self.close_after_last_word(body, out, Some(&SessionError::not_found()));
                Turn::Again
            }
        }
    }

    /// Opens the session if it is not open yet. Returns false if that failed; the fatal error is
    /// answered then.
    fn make_open(&self, body: &mut Body<S::Session>, out: &Output) -> bool {
        if body.session.is_some() {
            return true;
        }
        let opened = catch_unwind(AssertUnwindSafe(|| {
            self.link.server.service.open(self.link.peer(), self.channel.id)
        }));
        let error = match opened {
            Ok(Ok((session, cancel))) => {
                body.session = Some(session);
                self.channel.set_cancel(cancel);
                return true;
            }
            Ok(Err(error)) => error.into_fatal(),
            Err(payload) => self.panicked(payload),
        };
        self.write(out, |encoder| put_error(encoder, &error));
        self.close_after_last_word(body, out, None);
        false
    }

    fn open(&self, body: &mut Body<S::Session>, out: &Output) -> Turn {
        if !self.make_open(body, out) {
            return Turn::Again;
        }
        let number = self.channel.id.number();
        self.write(out, |encoder| encoder.ok(Some(number)));
        self.over(body)
    }

    fn sql(&self, body: &mut Body<S::Session>, out: &Output, message: &StmtExecute) -> Turn {
        let form = Form::of(message.compact_metadata(), message.chunk_result(), message.token);
        let form = match form {
            Ok(form) => form,
            Err(error) => return self.fail(body, out, error),
        };
        let account = self.link.peer().account();
        let cached;
        let text = match message.source() {
            Source::Text(text) => text,
            Source::Store(text, digest) => {
                self.link.keep_sql(account, digest, text);
                text
            }
            Source::Cached(digest) => match self.link.kept_sql(account, digest) {
                Some(text) => {
                    cached = text;
                    &cached
                }
                None => return self.miss(out, body, "do not exist query!"),
            },
            Source::Neither => {
                let error = SessionError::unsupported("Neither stmt nor digest exist.");
                return self.fail(body, out, error);
            }
        };
        let request = Request::Sql(Sql { text, message });
        self.execute(body, out, message.reset_error(), form, request)
    }

    fn plan(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        message: &ExecPlan,
        bytes: usize,
    ) -> Turn {
        let form = Form::of(message.compact_metadata(), message.chunk_result(), message.token);
        let form = match form {
            Ok(form) => form,
            Err(error) => return self.fail(body, out, error),
        };
        let account = self.link.peer().account();
        let own_audit = message.audit_str.as_deref().unwrap_or_default();
        let cached: Arc<KeptPlan>;
        let (plan, audit) = match message.source() {
            Source::Text(plan) => (plan, own_audit),
            Source::Store(plan, digest) => {
                self.link.keep_plan(account, digest, plan, own_audit, bytes);
                (plan, own_audit)
            }
            Source::Cached(digest) => match self.link.kept_plan(account, digest) {
                Some(kept) => {
                    cached = kept;
                    (&cached.plan, &*cached.audit)
                }
                None => return self.miss(out, body, "do not exist plan!"),
            },
            Source::Neither => {
                let error = SessionError::unsupported("Neither plan nor digest exist.");
                return self.fail(body, out, error);
            }
        };
        let request = Request::Plan(Plan { plan, audit, message });
        self.execute(body, out, message.reset_error(), form, request)
    }

    fn execute(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        reset_error: bool,
        form: Form,
        request: Request<'_>,
    ) -> Turn {
        if let Err(error) = body.expecting.check() {
            return self.answer(body, out, Err(error));
        }
        if !reset_error && let Some(error) = &body.last_error {
            self.write(out, |encoder| put_error(encoder, error));
            return self.over(body);
        }
        if !self.make_open(body, out) {
            return Turn::Again;
        }
        // While the session was being opened it had no `Cancel` to call.
        if self.channel.is_interrupted()
            && let Some(reason) = self.channel.cancelled()
        {
            return self.fail(body, out, SessionError::cancelled(reason));
        }
        let Some(session) = &mut body.session else { return Turn::Again };
        self.link.line.count(Counter::RequestsExecuted);
        let mut state = Box::new(State::new(Arc::clone(&self.channel), form));
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut reply = Reply { state: &mut state, out };
            self.link.server.service.execute(session, request, &mut reply)
        }));
        let result = result.unwrap_or_else(|payload| Err(self.panicked(payload)));
        match (result, state.deferral.take()) {
            (Ok(()), Some(deferral)) => {
                body.current = Current::Deferred(deferral);
                Turn::Again
            }
            (Ok(()), None) if state.feed.is_some() => {
                body.current = Current::Fed(state, None);
                Turn::Again
            }
            (Err(error), Some(deferral)) => match deferral.claim() {
                // The holder of the deferred handle comes too late.
                Some(mut state) => {
                    let result = state.finish(out, Err(self.channel.reason(error)));
                    self.ended(body, out, result)
                }
                // The holder of the deferred handle has answered or is answering, and that answer
                // counts.
                None => {
                    body.current = Current::Deferred(deferral);
                    Turn::Again
                }
            },
            (result, None) => {
                let result = state.finish(out, result.map_err(|error| self.channel.reason(error)));
                self.ended(body, out, result)
            }
        }
    }
}

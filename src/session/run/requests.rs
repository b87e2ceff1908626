//! Start of each command of a session.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::{Body, Session, StepResult};
use crate::codec::message::Source;
use crate::codec::proto::plan::ExecPlan;
use crate::codec::proto::sql::StmtExecute;
use crate::runtime::in_span;
use crate::session::error::{SessionError, put_error};
use crate::session::output::Output;
use crate::session::queued::{Queued, SessionCommand};
use crate::session::reply::Reply;
use crate::session::reply_state::{ReplyForm, ReplyState};
use crate::session::request::{Plan, Request, Savepoint, Sql};
use crate::session::server_conn::KeptPlan;
use crate::session::service::Service;
use crate::stats::Counter;

impl<S: Service> Session<S> {
    pub(super) fn begin(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        queued: Queued,
    ) -> StepResult {
        if let Some(reason) = queued.cancelled {
            if let Some(counter) = reason.counter() {
                self.shared.conn.count(counter);
            }
            return self.fail(body, out, SessionError::cancelled(reason));
        }
        let result = match queued.command {
            SessionCommand::Open => Ok(self.open(body, out)),
            SessionCommand::Sql(message) => self.sql(body, out, &message),
            SessionCommand::Plan(message) => self.plan(body, out, &message, queued.bytes),
            SessionCommand::Savepoint(message) => {
                let (reset, form) = (message.reset_error(), ReplyForm::PLAIN);
                let request = Request::Savepoint(Savepoint::new(&message));
                Ok(self.execute(body, out, reset, form, request))
            }
            SessionCommand::ExpectOpen(message) => {
                let result = body.expect_blocks.open(&message);
                Ok(self.answer(body, out, result))
            }
            SessionCommand::ExpectClose => {
                let result = body.expect_blocks.close();
                Ok(self.answer(body, out, result))
            }
            SessionCommand::Broken(error) => Err(error),
            SessionCommand::File => Err(SessionError::unsupported("unsupported command")),
            SessionCommand::Close => {
                // Locks of the session are free before its client learns of the end.
                self.close_service_session(body);
                self.write(out, |encoder| encoder.ok(None));
                self.close_after_final_message(body, out, Some(&SessionError::not_found()));
                Ok(StepResult::Continue)
            }
        };
        result.unwrap_or_else(|error| self.fail(body, out, error))
    }

    /// Opens the session if it is not open yet. Returns false if that failed. Then the client
    /// has got a fatal error, and the session is closed.
    fn make_open(&self, body: &mut Body<S::Session>, out: &Output) -> bool {
        if body.session.is_some() {
            return true;
        }
        let opened = catch_unwind(AssertUnwindSafe(|| {
            self.server_conn.server.service.open(self.server_conn.peer(), self.shared.id)
        }));
        let error = match opened {
            Ok(Ok((session, cancel))) => {
                body.session = Some(session);
                self.shared.set_cancel(cancel);
                return true;
            }
            Ok(Err(error)) => error.into_fatal(),
            Err(payload) => self.panicked(payload),
        };
        self.write(out, |encoder| put_error(encoder, &error));
        self.close_after_final_message(body, out, None);
        false
    }

    fn open(&self, body: &mut Body<S::Session>, out: &Output) -> StepResult {
        if !self.make_open(body, out) {
            return StepResult::Continue;
        }
        let number = self.shared.id.number();
        self.write(out, |encoder| encoder.ok(Some(number)));
        self.end_command(body)
    }

    fn sql(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        message: &StmtExecute,
    ) -> Result<StepResult, SessionError> {
        let form = ReplyForm::of(message.compact_metadata, message.chunk_result, message.token)?;
        let cached;
        let text = match message.source() {
            Source::Text(text) => text,
            Source::Store(text, digest) => {
                self.server_conn.keep_sql(digest, text);
                text
            }
            Source::Cached(digest) => match self.server_conn.kept_sql(digest) {
                Some(text) => {
                    cached = text;
                    &cached
                }
                None => return Ok(self.miss(out, body, "do not exist query!")),
            },
            Source::Neither => {
                return Err(SessionError::unsupported("Neither stmt nor digest exist."));
            }
        };
        let request = Request::Sql(Sql { text, message });
        Ok(self.execute(body, out, message.reset_error(), form, request))
    }

    fn plan(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        message: &ExecPlan,
        bytes: usize,
    ) -> Result<StepResult, SessionError> {
        let form = ReplyForm::of(message.compact_metadata, message.chunk_result, message.token)?;
        let own_audit = message.audit_str.as_deref().unwrap_or_default();
        let cached: Arc<KeptPlan>;
        let (plan, audit) = match message.source() {
            Source::Text(plan) => (plan, own_audit),
            Source::Store(plan, digest) => {
                self.server_conn.keep_plan(digest, plan, own_audit, bytes);
                (plan, own_audit)
            }
            Source::Cached(digest) => match self.server_conn.kept_plan(digest) {
                Some(kept) => {
                    cached = kept;
                    (&cached.plan, &*cached.audit)
                }
                None => return Ok(self.miss(out, body, "do not exist plan!")),
            },
            Source::Neither => {
                return Err(SessionError::unsupported("Neither plan nor digest exist."));
            }
        };
        let request = Request::Plan(Plan { plan, audit, message });
        Ok(self.execute(body, out, message.reset_error(), form, request))
    }

    fn execute(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        reset_error: bool,
        form: ReplyForm,
        request: Request<'_>,
    ) -> StepResult {
        if let Err(error) = body.expect_blocks.check() {
            return self.answer(body, out, Err(error));
        }
        if !reset_error && let Some(error) = &body.last_error {
            self.write(out, |encoder| put_error(encoder, error));
            return self.end_command(body);
        }
        if !self.make_open(body, out) {
            return StepResult::Continue;
        }
        // While the session was being opened it had no `Cancel` to call.
        if self.shared.is_interrupted()
            && let Some(reason) = self.shared.cancelled()
        {
            return self.fail(body, out, SessionError::cancelled(reason));
        }
        let Some(session) = &mut body.session else { return StepResult::Continue };
        self.shared.conn.count(Counter::RequestsExecuted);
        let mut state = Box::new(ReplyState::new(Arc::clone(&self.shared), form));
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut reply = Reply { state: &mut state, out };
            in_span!(
                self.server_conn.server.service.execute(session, request, &mut reply),
                "request",
                connection = self.shared.conn.net.id().number(),
                session = self.shared.id.number(),
                class = self.shared.class().name()
            )
        }));
        let result = result.unwrap_or_else(|payload| Err(self.panicked(payload)));
        let outcome = state.conclude(out, result);
        self.apply(body, out, outcome)
    }
}

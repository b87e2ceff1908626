//! Begin and end of each command of a session, and the end of the session.

use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use md5::{Digest, Md5};

use super::{Body, Session, StepResult, Unfinished};
use crate::codec::encoder::{Encoder, Metadata};
use crate::codec::proto::plan::{AnyPlan, ExecPlan};
use crate::codec::proto::sql::StmtExecute;
use crate::runtime::{Class, in_span};
use crate::session::error::{SessionError, put_error};
use crate::session::mailbox::{Queued, SessionCommand};
use crate::session::output::Output;
use crate::session::reply::Reply;
use crate::session::reply_state::{ReplyForm, ReplyState};
use crate::session::request::{Plan, Request, Savepoint, Sql};
use crate::session::server_shared::KeptPlan;
use crate::session::service::Service;
use crate::session::session_shared::Cancel;
use crate::stats::{Counter, Stage};

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
            SessionCommand::Plan(message, plan_bytes) => self.plan(body, out, &message, plan_bytes),
            SessionCommand::Savepoint(message) => {
                let savepoint = Savepoint { action: message.op, name: &message.sp_name };
                let request = Request::Savepoint(savepoint);
                Ok(match self.skip(body, out, message.reset_error) {
                    Some(skipped) => skipped,
                    None => self.execute(body, out, ReplyForm::PLAIN, request),
                })
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
            SessionCommand::Unsupported => {
                // An unsupported command leaves no error for `reset_error`.
                body.expect_blocks.note(true);
                Ok(self.answer(body, out, Err(SessionError::unsupported("unsupported command"))))
            }
            SessionCommand::Close => {
                // Locks of the session are free, and another may be opened, before its client learns
                // of the end.
                self.close_service_session(body);
                body.counted = None;
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
            self.served.service.open(self.shared.conn.peer(), self.shared.id)
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
        // The client may open another session as soon as it has the error.
        body.counted = None;
        self.write(out, |encoder| put_error(encoder, &error));
        self.close_after_final_message(body, out, None);
        false
    }

    fn open(&self, body: &mut Body<S::Session>, out: &Output) -> StepResult {
        if !self.make_open(body, out) {
            return StepResult::Continue;
        }
        let number = self.shared.id.number;
        self.write(out, |encoder| encoder.ok(Some(number)));
        self.end_command(body)
    }

    fn sql(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        message: &StmtExecute,
    ) -> Result<StepResult, SessionError> {
        let form = ReplyForm::of(
            message.compact_metadata,
            message.chunk_result,
            message.token,
            message.feed_back,
        )?;
        if let Some(skipped) = self.skip(body, out, message.reset_error) {
            return Ok(skipped);
        }
        let conn = &self.shared.conn;
        let cached;
        let text = match (message.stmt.as_deref(), message.stmt_digest.as_deref()) {
            (Some(text), None) => text,
            (Some(text), Some(digest)) => {
                self.keep_sql(digest, text);
                text
            }
            (None, Some(digest)) => {
                match conn.server.sql.get(conn.group(), conn.account(), digest) {
                    Some(text) => {
                        cached = text;
                        &cached
                    }
                    None => return Ok(self.miss(out, body, "do not exist query!")),
                }
            }
            (None, None) => {
                return Err(SessionError::unsupported("Neither stmt nor digest exist."));
            }
        };
        let request = Request::Sql(Sql {
            text,
            args: &message.args,
            hint: message.hint.as_deref().unwrap_or_default(),
            schema: message.schema_name.as_deref(),
            message,
        });
        Ok(self.execute(body, out, form, request))
    }

    /// Keeps a text under its digest, unless the digest is that of another text. Otherwise a client
    /// that uses the digest later would run a text that it does not expect.
    fn keep_sql(&self, digest: &[u8], text: &[u8]) {
        let conn = &self.shared.conn;
        // A longer text is not kept in any case, so its digest is not computed.
        if text.len() > conn.config().request_cache_max_length || is_of(digest, text) {
            let (sql, length) = (&conn.server.sql, text.len());
            sql.put(conn.group(), conn.account(), digest, length, || text.into());
        }
    }

    fn plan(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        message: &ExecPlan,
        plan_bytes: usize,
    ) -> Result<StepResult, SessionError> {
        let form = ReplyForm::of(
            message.compact_metadata,
            message.chunk_result,
            message.token,
            message.feed_back,
        )?;
        if let Some(skipped) = self.skip(body, out, message.reset_error) {
            return Ok(skipped);
        }
        let conn = &self.shared.conn;
        let own_audit = message.audit_str.as_deref().unwrap_or_default();
        let cached: Arc<KeptPlan>;
        let (plan, audit) = match (&message.plan, message.plan_digest.as_deref()) {
            (Some(plan), None) => (plan, own_audit),
            (Some(plan), Some(digest)) => {
                self.keep_plan(digest, plan, plan_bytes, own_audit);
                (plan, own_audit)
            }
            (None, Some(digest)) => {
                match conn.server.plans.get(conn.group(), conn.account(), digest) {
                    Some(kept) => {
                        cached = kept;
                        (&cached.plan, &*cached.audit)
                    }
                    None => return Ok(self.miss(out, body, "do not exist plan!")),
                }
            }
            (None, None) => {
                return Err(SessionError::unsupported("Neither plan nor digest exist."));
            }
        };
        let parameters = &message.parameters;
        let request = Request::Plan(Plan { plan, parameters, audit, message });
        Ok(self.execute(body, out, form, request))
    }

    /// Keeps a plan and its audit text. Their parameters belong to one request, so they do not count.
    fn keep_plan(&self, digest: &[u8], plan: &AnyPlan, plan_bytes: usize, audit: &[u8]) {
        let conn = &self.shared.conn;
        let bytes = plan_bytes.saturating_add(size_of::<KeptPlan>()).saturating_add(audit.len());
        conn.server.plans.put(conn.group(), conn.account(), digest, bytes, || {
            Arc::new(KeptPlan { plan: plan.clone(), audit: audit.into() })
        });
    }

    /// Answers a request that an earlier failure keeps from running. Its text and plan are not kept
    /// either. Returns `None` if the request may run. An absent `reset_error` stands for true.
    fn skip(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        reset_error: Option<bool>,
    ) -> Option<StepResult> {
        let error = match (body.expect_blocks.check(), &body.last_error) {
            (Err(error), _) => error,
            (Ok(()), Some(error)) if reset_error == Some(false) => error.clone(),
            (Ok(()), _) => return None,
        };
        Some(self.answer(body, out, Err(error)))
    }

    fn execute(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        form: ReplyForm,
        request: Request<'_>,
    ) -> StepResult {
        if !self.make_open(body, out) {
            return StepResult::Continue;
        }
        // While the session was being opened it had no `Cancel` to call.
        if self.shared.is_interrupted()
            && let Some(reason) = self.shared.mail(|mail| mail.cancelled())
        {
            return self.fail(body, out, SessionError::cancelled(reason));
        }
        let Some(session) = &mut body.session else { return StepResult::Continue };
        self.shared.conn.count(Counter::RequestsExecuted);
        let mut state = Box::new(ReplyState::new(Arc::clone(&self.shared), form));
        let result = catch_unwind(AssertUnwindSafe(|| {
            let mut reply = Reply { state: &mut state, out };
            in_span!(
                self.served.service.execute(session, request, &mut reply),
                "request",
                connection = self.shared.conn.net.id().number,
                session = self.shared.id.number,
                class = self.shared.class().name()
            )
        }));
        let result = result.unwrap_or_else(|payload| Err(self.panicked(payload)));
        let outcome = state.conclude(out, result);
        self.apply(body, out, outcome)
    }

    // ---- ends ----

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
        self.look_at_transaction(body);
        self.end_command(body)
    }

    /// Sets the class of the session by what its service says.
    pub(super) fn look_at_transaction(&self, body: &Body<S::Session>) {
        if let Some(session) = &body.session {
            let in_transaction = || self.served.service.in_transaction(session);
            let progress = self.shared.conn.group().guard("in_transaction", in_transaction);
            let outside = self.shared.conn.class;
            let class =
                if progress == Some(true) { outside.or(Class::InProgress) } else { outside };
            self.shared.set_class(class);
        }
    }

    /// Ends the running command.
    pub(super) fn end_command(&self, body: &mut Body<S::Session>) -> StepResult {
        if let Some(reason) = self.shared.end_request() {
            if let Some(counter) = reason.counter() {
                self.shared.conn.count(counter);
            }
            if let Some(session) = &mut body.session {
                let cancelled = || self.served.service.cancelled(session);
                self.shared.conn.group().guard("cancelled", cancelled);
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

    /// Answers a request whose digest is not in the cache. Of later requests, only those of its expect
    /// block fail.
    pub(super) fn miss(&self, out: &Output, body: &mut Body<S::Session>, text: &str) -> StepResult {
        let error = SessionError::cache_miss(text);
        self.write(out, |encoder| put_error(encoder, &error));
        body.expect_blocks.note(true);
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
        let not_found = SessionError::not_found();
        // To its client, each statement on such an id is alone.
        let answer = answer.or_else(|| self.shared.id.is_auto_commit().then_some(&not_found));
        // The client may send its next request as soon as it has its answer.
        drop(self.shared.mail(|mail| mail.take_place()));
        self.shared.refuse(|waiting| {
            if let Some(error) = answer {
                for _ in waiting {
                    self.write(out, |encoder| put_error(encoder, error));
                }
            }
            out.pass_on();
            self.shared.end();
        });
        self.served.server_conn.forget(self.shared.id);
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
            Unfinished::Deferred(deferral, _) => {
                self.shared.conn.group().guard("drop", || drop((deferral.claim(), deferral)));
            }
            Unfinished::Fed(state, _) => {
                self.shared.conn.group().guard("drop", || drop(state));
            }
            Unfinished::None => {}
        }
    }

    pub(super) fn close_service_session(&self, body: &mut Body<S::Session>) {
        self.shared.set_class(self.shared.conn.class);
        self.shared.set_cancel(Cancel::default());
        if let Some(session) = body.session.take() {
            let group = self.shared.conn.group();
            let closed = || self.served.service.closed(session);
            group.guard("closed", || group.timed(Stage::Cleanup, closed));
        }
    }
}

/// Returns true if the text may have this digest. A digest of 16 bytes must be the MD5 of the text.
/// Clients may choose other digests freely.
fn is_of(digest: &[u8], text: &[u8]) -> bool {
    let md5 = || Md5::digest(text);
    digest.len() != <Md5 as Digest>::output_size() || *md5() == *digest
}

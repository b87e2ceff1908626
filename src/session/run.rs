//! [`Session`]: runs the requests of one session, one after the other, on whichever thread has the right
//! to.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::answers::put_error;
use super::channel::{Channel, Wake};
use super::deferred::{Deferral, Outcome};
use super::error::SessionError;
use super::expecting::Expecting;
use super::link::{KeptPlan, Link, Runnable};
use super::output::Output;
use super::post::{Errand, Post};
use super::reply::{Blocked, Form, Pulled, Reply, State};
use super::request::{Plan, Request, Savepoint, Sql};
use super::service::{Service, SessionId};
use crate::codec::cache::Source;
use crate::codec::encoder::{Encoder, Metadata};
use crate::codec::message::plan::ExecPlan;
use crate::codec::message::sql::StmtExecute;
use crate::runtime::{Class, Cost, Lent, Work, guard};
use crate::stats::Counter;
use crate::sync::runner::{Marks, Runner, Running};

/// One session.
pub(super) struct Session<S: Service> {
    pub(super) channel: Arc<Channel>,
    link: Arc<Link<S>>,
    runner: Runner<Body<S::Session>>,
    /// What one of its requests costs; that of its connection if it is there for one statement only.
    cost: Option<Cost>,
}

/// What only who runs the session may touch.
struct Body<T> {
    /// None before it is opened and when it has ended.
    session: Option<T>,
    /// Of the last request that was run; see `reset_error`.
    last_error: Option<SessionError>,
    expecting: Expecting,
    current: Current,
}

/// The request that was begun and is not over, when nobody runs it.
enum Current {
    None,
    Deferred(Arc<Deferral>),
    Source(Box<State>, Option<Blocked>),
}

/// How a look at the session went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Something was done, and there may be more.
    Again,
    /// There is nothing to do until somebody says so.
    Idle,
    /// There is more to do; others first.
    Later,
}

/// There is something to look at.
const LOOK: Marks = Marks::bit(0);

/// Whether its reply may wait for those of the requests behind it: it is not worth a send of its own.
pub(super) fn is_quick(cost: &Cost) -> bool {
    cost.nanos().is_some_and(|nanos| nanos < QUICK_NANOS)
}

const QUICK_NANOS: u32 = 20_000;
/// Time after which a session whose requests never end goes to the back of the queue.
pub(super) const TURN: Duration = Duration::from_millis(1);
/// Bytes of rows that a source may send in a turn.
const SOURCE_BUDGET: usize = 256 << 10;

impl<S: Service> Session<S> {
    pub(super) fn new(id: SessionId, link: &Arc<Link<S>>) -> Arc<Self> {
        link.line.count(Counter::SessionsOpened);
        link.line.group().session_opened();
        Arc::new_cyclic(|me: &Weak<Self>| {
            let me: Weak<dyn Wake> = me.clone();
            let body = Body {
                session: None,
                last_error: None,
                expecting: Expecting::default(),
                current: Current::None,
            };
            Self {
                channel: Arc::new(Channel::new(id, Arc::clone(&link.line), me)),
                link: Arc::clone(link),
                runner: Runner::new(body),
                cost: (!id.is_auto_commit()).then(Cost::unknown),
            }
        })
    }

    /// Something was posted: `true` when the caller now has to see that it is run.
    pub(super) fn becomes_runnable(&self) -> bool {
        self.runner.notify(LOOK).map(Running::queue).is_some()
    }

    fn queue(self: Arc<Self>) {
        let group = Arc::clone(self.channel.line.group());
        group.push_work(self);
    }

    /// Runs what was queued, from `now` on, and returns the time at its end.
    fn serve(self: Arc<Self>, out: &Output, mut now: Instant, waited: &Cell<Duration>) -> Instant {
        let Some(mut running) = self.runner.resume() else { return now };
        let started = now;
        let budget = self.link.line.config().session_budget;
        let urgent_alone = self.link.line.group().runs_urgent_alone();
        let mut done = 0;
        out.begin(Some(&self.channel));
        // What the marks are about is looked at below.
        let _marks = running.take_marks();
        loop {
            // What comes behind the end of a transaction is not for the reserve.
            let over = done > 0 && urgent_alone && !self.class().is_urgent();
            let spent = done >= budget || now.saturating_duration_since(started) >= TURN;
            let turn = if over || spent { Turn::Later } else { self.step(&mut running, out) };
            match turn {
                // Somebody else may run it before this thread sends anything.
                Turn::Later => {
                    out.flush();
                    running.mark(LOOK);
                    running.queue();
                    self.queue();
                    return now;
                }
                Turn::Idle => {
                    running.queue();
                    out.hold(self);
                    return now;
                }
                Turn::Again => {}
            }
            done += 1;
            let before = mem::replace(&mut now, Instant::now());
            // A wait that was announced has given back what others could want.
            let spent = now.saturating_duration_since(before).saturating_sub(waited.take());
            self.cost().add(spent);
            // Whoever holds what others wait for is not kept from its client.
            if is_quick(self.cost()) && !self.class().is_urgent() {
                out.keep(now);
            } else {
                out.flush();
            }
        }
    }

    /// One step: ends it, goes on with the request that was begun, or begins the next.
    fn step(&self, body: &mut Body<S::Session>, out: &Output) -> Turn {
        if self.channel.is_dead() {
            self.bury(body);
            return Turn::Idle;
        }
        match mem::replace(&mut body.current, Current::None) {
            Current::None => match self.channel.next(self.channel.id.is_auto_commit()) {
                Some(post) => {
                    if out.keeps() {
                        out.show(&self.link);
                    }
                    if self.channel.id.is_auto_commit() && body.session.is_some() {
                        // Another one came before the first one's had ended.
                        self.part(body);
                        body.last_error = None;
                    }
                    self.begin(body, out, post)
                }
                None if self.channel.id.is_auto_commit() => {
                    self.leave(body);
                    Turn::Idle
                }
                None => Turn::Idle,
            },
            Current::Deferred(deferral) => self.look_at(body, out, deferral),
            Current::Source(state, blocked) => self.pull(body, out, state, blocked),
        }
    }

    // ---- requests ----

    fn begin(&self, body: &mut Body<S::Session>, out: &Output, post: Post) -> Turn {
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
                // What it held is free when the client hears of it.
                self.part(body);
                self.write(out, |encoder| encoder.ok(None));
                self.close_after_last_word(body, out, Some(&SessionError::not_found()));
                Turn::Again
            }
        }
    }

    /// Opens the session, if it is not open yet. An error is fatal and was answered.
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
        // While it was being opened nobody could be told.
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
            (Ok(()), None) if state.source.is_some() => {
                body.current = Current::Source(state, None);
                Turn::Again
            }
            // Whoever has it comes too late.
            (Err(error), Some(deferral)) if deferral.claim() => {
                self.write(out, |encoder| put_error(encoder, &error));
                self.ended(body, out, Err(error))
            }
            // It was answered meanwhile, or is being answered: that counts.
            (Err(_), Some(deferral)) => {
                body.current = Current::Deferred(deferral);
                Turn::Again
            }
            (result, _) => {
                let result = state.finish(out, self.reason(result));
                self.ended(body, out, result)
            }
        }
    }

    /// A request whose time is over says so, whatever its engine calls that.
    fn reason(&self, result: Result<(), SessionError>) -> Result<(), SessionError> {
        result.map_err(|error| match self.channel.cancelled() {
            Some(reason) if error.is_interrupted() => SessionError::cancelled(reason),
            _ => error,
        })
    }

    fn look_at(&self, body: &mut Body<S::Session>, out: &Output, deferral: Arc<Deferral>) -> Turn {
        match deferral.take_outcome() {
            Some(Outcome::Ended(result)) => return self.ended(body, out, result),
            Some(Outcome::Source(state)) => body.current = Current::Source(state, None),
            Some(Outcome::Deferred(again)) => body.current = Current::Deferred(again),
            None => match self.channel.cancelled() {
                Some(reason) if deferral.claim() => {
                    let error = SessionError::cancelled(reason);
                    self.write(out, |encoder| put_error(encoder, &error));
                    return self.ended(body, out, Err(error));
                }
                _ => {
                    body.current = Current::Deferred(deferral);
                    return Turn::Idle;
                }
            },
        }
        Turn::Again
    }

    fn pull(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        mut state: Box<State>,
        blocked: Option<Blocked>,
    ) -> Turn {
        let result = match self.channel.cancelled() {
            Some(reason) => Err(SessionError::cancelled(reason)),
            None => {
                if let Some(blocked) = blocked
                    && !state.is_unblocked(blocked, out)
                {
                    return self.park(body, out, state, blocked);
                }
                // The source may wait.
                out.flush();
                let pulled = catch_unwind(AssertUnwindSafe(|| state.pull(out, SOURCE_BUDGET)));
                match pulled.unwrap_or_else(|payload| Err(self.panicked(payload))) {
                    Ok(Pulled::Budget) => {
                        body.current = Current::Source(state, None);
                        return Turn::Later;
                    }
                    Ok(Pulled::Blocked(blocked)) => return self.park(body, out, state, blocked),
                    Ok(Pulled::Done) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        };
        let result = state.finish(out, self.reason(result));
        self.ended(body, out, result)
    }

    /// Waits without a thread. What it waits for wakes it.
    fn park(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        mut state: Box<State>,
        blocked: Blocked,
    ) -> Turn {
        if blocked == Blocked::Credit && self.channel.line.is_finished() {
            let result = state.finish(out, Err(SessionError::interrupted()));
            return self.ended(body, out, result);
        }
        body.current = Current::Source(state, Some(blocked));
        if blocked == Blocked::Room {
            self.channel.line.wake_when_room(&self.channel);
        }
        Turn::Idle
    }

    // ---- ends ----

    /// A request that was run has been answered.
    fn ended(
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
            let class = if progress == Some(true) { Class::InProgress } else { Class::Ordinary };
            if class != self.channel.class() {
                self.channel.set_class(class);
            }
        }
        self.over(body)
    }

    /// The errand is done.
    fn over(&self, body: &mut Body<S::Session>) -> Turn {
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

    /// A request that was not run: its error counts for those behind it.
    fn fail(&self, body: &mut Body<S::Session>, out: &Output, error: SessionError) -> Turn {
        self.write(out, |encoder| put_error(encoder, &error));
        body.expecting.note(true);
        body.last_error = Some(error.shortened());
        self.over(body)
    }

    /// Nothing is kept under the digest. The session is as it was.
    fn miss(&self, out: &Output, body: &mut Body<S::Session>, text: &str) -> Turn {
        let error = SessionError::cache_miss(text);
        self.write(out, |encoder| put_error(encoder, &error));
        self.over(body)
    }

    /// Answers what does not touch the database.
    fn answer(
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

    fn write<R>(&self, out: &Output, code: impl FnOnce(&mut Encoder<'_>) -> R) {
        out.write(self.channel.id.wire, Metadata::Full, code);
    }

    fn panicked(&self, payload: Box<dyn Any + Send>) -> SessionError {
        self.link.note_panic(payload);
        SessionError::panicked()
    }

    /// Its last word is written, and it is gone. What waits behind that has `answer` each; without one
    /// the last word answers all.
    fn close_after_last_word(
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

    /// A session for one statement that has nothing more to do.
    fn leave(&self, body: &mut Body<S::Session>) {
        self.link.forget(self.channel.id);
        self.part(body);
    }

    /// It is dead: ends what was begun, and the session.
    fn bury(&self, body: &mut Body<S::Session>) {
        match mem::replace(&mut body.current, Current::None) {
            Current::Deferred(deferral) => {
                deferral.claim();
                // It may have a source, which is the user's.
                guard(self.link.line.group(), "drop", || drop(deferral));
            }
            Current::Source(state, _) => {
                guard(self.link.line.group(), "drop", || drop(state));
            }
            Current::None => {}
        }
        self.channel.end_request();
        drop(self.channel.refuse());
        self.part(body);
    }

    fn part(&self, body: &mut Body<S::Session>) {
        self.channel.set_class(Class::Ordinary);
        self.channel.set_cancel(super::service::Cancel::none());
        if let Some(session) = body.session.take() {
            let service = &self.link.server.service;
            guard(self.link.line.group(), "closed", || service.closed(session));
        }
    }
}

impl<S: Service> Runnable for Session<S> {
    fn run_here(self: Arc<Self>, out: &Output, now: Instant) -> Instant {
        self.serve(out, now, &Cell::default())
    }

    fn settle(self: Arc<Self>) {
        self.channel.rest();
        if self.runner.resume().is_some_and(Running::finish_or_queue) {
            self.queue();
        }
    }
}

impl<S: Service> Work for Session<S> {
    fn run(self: Arc<Self>, lent: &mut Lent<'_>) {
        let line = Arc::clone(&self.channel.line);
        lent.now = Output::with(&line, |out| self.serve(out, lent.now, lent.waited));
    }

    fn class(&self) -> Class {
        self.channel.class()
    }

    fn cost(&self) -> &Cost {
        self.cost.as_ref().unwrap_or(&self.link.statement_cost)
    }
}

impl<S: Service> Wake for Session<S> {
    fn wake(self: Arc<Self>) {
        if self.becomes_runnable() {
            self.queue();
        }
    }
}

impl<S: Service> Drop for Session<S> {
    fn drop(&mut self) {
        // Nobody came to bury it: the runtime ends.
        if let Some(mut body) = self.runner.notify(LOOK).or_else(|| self.runner.resume()) {
            self.part(&mut body);
        }
        let group = self.link.line.group();
        group.usage().session_closed();
        group.session_closed();
        group.count(Counter::SessionsClosed, 1);
    }
}

impl<S: Service> fmt::Debug for Session<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("channel", &self.channel).finish_non_exhaustive()
    }
}

//! [`Session`]: runs the requests of one session, one after the other. Any worker may run it, one
//! at a time.

mod commands;

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use super::accounts::Place;
use super::conn_shared::ConnShared;
use super::error::{SessionError, put_error};
use super::expect_blocks::ExpectBlocks;
use super::mailbox::Settled;
use super::output::Output;
use super::reply_state::{Blocked, Deferral, Outcome, Pulled, ReplyState};
use super::server_conn::{AnySession, Runnable, ServerConn, TURN};
use super::service::Service;
use super::session_shared::{SessionId, SessionShared, Wakeable};
#[cfg(feature = "client")]
use crate::net::call_next;
use crate::net::is_corked;
use crate::runtime::{Class, Cost, Lap, Work, WorkerContext};
use crate::stats::Counter;
use crate::sync::runner::{Marks, Runner, Running};
use crate::sys::clock::Instant;

/// A session with its service's data.
pub(super) struct Session<S: Service> {
    pub(super) shared: Arc<SessionShared>,
    served: Arc<ServedConn<S>>,
    runner: Runner<Body<S::Session>>,
    /// Cost of a request. Sessions of one statement use the cost that their connection keeps.
    cost: Option<Cost>,
}

/// A connection and the service of its sessions. A session holds both by one count, which no other
/// connection changes.
pub(super) struct ServedConn<S> {
    pub(super) server_conn: Arc<ServerConn>,
    pub(super) service: Arc<S>,
}

/// Counts a session as one of its account, its connection and its server.
struct Counted {
    conn: Arc<ConnShared>,
    _place: Place,
}

impl Counted {
    fn new(conn: &Arc<ConnShared>, place: Place) -> Self {
        conn.count(Counter::SessionsOpened);
        conn.sessions.fetch_add(1, Ordering::Relaxed);
        conn.group().session_opened();
        Self { conn: Arc::clone(conn), _place: place }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.conn.sessions.fetch_sub(1, Ordering::Relaxed);
        let group = self.conn.group();
        group.usage().session_closed();
        group.session_closed();
        group.count(Counter::SessionsClosed, 1);
    }
}

/// Data that only the worker which runs the session may use.
struct Body<T> {
    /// Dropped with the session; earlier by a close, if the session could not be opened, and when a
    /// session of one statement is over.
    counted: Option<Counted>,
    /// Set from the opening to the end of the session.
    session: Option<T>,
    /// Error of the last request; see `reset_error`.
    last_error: Option<SessionError>,
    expect_blocks: ExpectBlocks,
    unfinished: Unfinished,
}

/// Unfinished request between two runs.
enum Unfinished {
    None,
    /// The deferral, and the error with which the session ends after the answer, if it does.
    Deferred(Arc<Deferral>, Option<SessionError>),
    Fed(Box<ReplyState>, Option<Blocked>),
}

/// Result of one step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepResult {
    /// The step did something. The next step may follow at once.
    Continue,
    /// The session has nothing to do until a wake-up.
    Idle,
    /// Like `Idle`, but a part of a long result was written.
    IdleInResult,
    /// The session has more to do. Other work goes first.
    Yield,
    /// Like `Yield`, in a long result. Work that arrives meanwhile goes first too.
    YieldInResult,
}

/// Set when the session has something to look at.
const LOOK: Marks = Marks::bit(0);

/// Returns true if a reply is not worth a send of its own. It then waits for the replies behind it.
fn is_quick(cost: &Cost) -> bool {
    cost.nanos().is_some_and(|nanos| nanos < QUICK_NANOS)
}

const QUICK_NANOS: u32 = 20_000;

impl<S: Service> Session<S> {
    pub(super) fn new(id: SessionId, served: &Arc<ServedConn<S>>, place: Place) -> Arc<Self> {
        let conn = &served.server_conn.conn;
        conn.group().note_urgent(Class::Ordinary, conn.class);
        Arc::new_cyclic(|me: &Weak<Self>| {
            let me: Weak<dyn Wakeable> = me.clone();
            let body = Body {
                counted: Some(Counted::new(conn, place)),
                session: None,
                last_error: None,
                expect_blocks: ExpectBlocks::default(),
                unfinished: Unfinished::None,
            };
            Self {
                shared: Arc::new(SessionShared::new(id, Arc::clone(conn), me)),
                served: Arc::clone(served),
                runner: Runner::new(body),
                cost: (!id.is_auto_commit()).then(Cost::unknown),
            }
        })
    }

    fn queue(self: Arc<Self>) {
        let group = Arc::clone(self.shared.conn.group());
        if self.shared.is_dead() {
            // No client waits for the end of a dead session.
            group.push_spent_work(self);
        } else {
            group.push_work(self);
        }
    }

    /// Runs queued requests from `now` on. Returns the time at the end.
    fn serve(self: Arc<Self>, out: &Output, now: Instant) -> Instant {
        let Some(mut running) = self.runner.resume() else { return now };
        let mut lap = Lap::from(now);
        let budget = self.shared.conn.config().session_budget;
        let urgent_alone = self.shared.conn.group().runs_urgent_alone();
        let mut done = 0;
        out.begin(Some(&self.shared));
        // Each step below looks at all that the marks announce.
        let _marks = running.take_marks();
        loop {
            // The reserve thread stops at the end of a transaction.
            let over = done > 0 && urgent_alone && !self.class().is_urgent();
            let spent = done >= budget || lap.now.duration_since(now) >= TURN;
            let result =
                if over || spent { StepResult::Yield } else { self.step(&mut running, out) };
            if matches!(result, StepResult::IdleInResult | StepResult::YieldInResult) {
                // The time must be measured here, or the session would never become slow.
                self.cost().add(lap.end());
            }
            match result {
                // Afterwards another worker may run the session, so its output goes ahead.
                StepResult::Yield | StepResult::YieldInResult => {
                    out.flush();
                    running.mark(LOOK);
                    running.queue();
                    let group = Arc::clone(self.shared.conn.group());
                    if spent || result == StepResult::YieldInResult {
                        group.push_spent_work(self);
                    } else {
                        group.push_work(self);
                    }
                    return lap.now;
                }
                // A request that was answered within its handler has left a mark. To look again here
                // takes no wake-up.
                StepResult::Idle | StepResult::IdleInResult if !running.take_marks().is_empty() => {
                    done += 1;
                    continue;
                }
                StepResult::Idle | StepResult::IdleInResult => {
                    out.flush();
                    self.settle(running);
                    return lap.now;
                }
                StepResult::Continue => {}
            }
            done += 1;
            self.cost().add(lap.end());
            // The reply of a quick request waits for the replies behind it. A session in a
            // transaction may hold locks, so its client gets the reply at once.
            if !is_quick(self.cost()) || self.class().is_urgent() {
                out.flush();
            }
        }
    }

    /// Has this thread end the request after its present callback, which has answered it. So the next request
    /// finds the session idle. Returns false if this thread runs no callback of the same runtime.
    #[cfg(feature = "client")]
    fn end_behind_callback(self: &Arc<Self>) -> bool {
        call_next(self.shared.conn.group(), || {
            let session = Arc::clone(self);
            Box::new(move || session.end_answered())
        })
    }

    #[cfg(not(feature = "client"))]
    fn end_behind_callback(&self) -> bool {
        false
    }

    /// Ends an answered request. If there is more to do, a worker of its group does it.
    #[cfg(feature = "client")]
    fn end_answered(self: &Arc<Self>) {
        let Some(mut running) = self.runner.resume() else { return };
        Output::with(&self.shared.conn, |out| {
            out.begin(Some(&self.shared));
            let _marks = running.take_marks();
            let ends = matches!(running.unfinished, Unfinished::Deferred(_, None));
            let is_idle = ends && !self.shared.is_dead() && {
                let _ = self.step(&mut running, out);
                out.flush();
                self.shared.settle(|| ()) == Settled::Idle
            };
            // A mark that was taken may have announced something else, such as the end of the session.
            if !is_idle {
                running.mark(LOOK);
            }
            if running.finish_or_queue() {
                Arc::clone(self).queue();
            }
        });
    }

    /// Ends a run whose output was passed on.
    fn settle(self: &Arc<Self>, mut running: Running<'_, Body<S::Session>>) {
        match self.shared.settle(|| running.counted = None) {
            Settled::Over => self.served.server_conn.forget(self.shared.id),
            Settled::ToEnd => running.mark(LOOK),
            Settled::Busy | Settled::Idle => {}
        }
        if running.finish_or_queue() {
            Arc::clone(self).queue();
        }
    }

    /// Performs one step: ends the session, continues the begun request, or begins the next
    /// command.
    fn step(&self, body: &mut Body<S::Session>, out: &Output) -> StepResult {
        if self.shared.is_dead() {
            self.clean_up(body);
            return StepResult::Idle;
        }
        match mem::replace(&mut body.unfinished, Unfinished::None) {
            Unfinished::None => match self.shared.next() {
                Some(queued) => {
                    if out.is_unsent() {
                        out.keep();
                    }
                    if is_corked() {
                        self.served.server_conn.show(out);
                    }
                    if self.shared.id.is_auto_commit() {
                        // A second statement arrived before the session of the first had ended.
                        self.end_statement(body);
                    }
                    self.begin(body, out, queued)
                }
                None if self.shared.id.is_auto_commit() => {
                    // A quick reply leaves when the service has closed the session.
                    self.end_statement(body);
                    StepResult::Idle
                }
                None => {
                    if self.shared.close_if_done() {
                        self.shut_down(body, out);
                    }
                    StepResult::Idle
                }
            },
            Unfinished::Deferred(deferral, fatal) => self.poll_deferred(body, out, deferral, fatal),
            Unfinished::Fed(state, blocked) => {
                // The feed is foreign code and may wait.
                out.flush();
                self.pull(body, out, state, blocked)
            }
        }
    }

    fn poll_deferred(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        deferral: Arc<Deferral>,
        fatal: Option<SessionError>,
    ) -> StepResult {
        if let Some(outcome) = deferral.take_outcome() {
            self.shared.note_outcome_taken();
            return match fatal {
                None => {
                    if matches!(outcome, Outcome::Fed(..)) {
                        // The feed is foreign code and may wait. No other worker knows of held replies.
                        out.flush();
                    }
                    self.apply(body, out, outcome)
                }
                Some(fatal) => self.apply_and_end(body, out, outcome, fatal),
            };
        }
        let claim = |reason| Some((SessionError::cancelled(reason), deferral.claim()?));
        let Some((error, mut state)) = self.shared.mail(|mail| mail.cancelled()).and_then(claim)
        else {
            body.unfinished = Unfinished::Deferred(deferral, fatal);
            return StepResult::Idle;
        };
        let result = state.finish(out, Err(fatal.unwrap_or(error)));
        self.ended(body, out, result)
    }

    /// Continues after a handler, or [`Deferred::finish`](super::Deferred::finish), has returned.
    fn apply(&self, body: &mut Body<S::Session>, out: &Output, outcome: Outcome) -> StepResult {
        if matches!(outcome, Outcome::Fed(..) | Outcome::Deferred(..)) {
            // The request may hold locks before it has ended.
            self.look_at_transaction(body);
        }
        match outcome {
            Outcome::Ended(result) => self.ended(body, out, result),
            Outcome::Failed(mut state, error) => {
                let result = state.finish(out, Err(error));
                self.ended(body, out, result)
            }
            // The first rows leave together with the columns, as those of a handler do.
            Outcome::Fed(state, blocked) => self.pull(body, out, state, blocked),
            Outcome::Deferred(again, fatal) => {
                body.unfinished = Unfinished::Deferred(again, fatal);
                StepResult::Continue
            }
        }
    }

    /// Like [`apply`](Self::apply), after a handler that has deferred the answer and then failed with a
    /// fatal error.
    fn apply_and_end(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        outcome: Outcome,
        fatal: SessionError,
    ) -> StepResult {
        match outcome {
            Outcome::Ended(_) => {
                self.write(out, |encoder| put_error(encoder, &fatal));
                self.close_after_final_message(body, out, None);
                StepResult::Continue
            }
            Outcome::Fed(mut state, _) | Outcome::Failed(mut state, _) => {
                let result = state.finish(out, Err(fatal));
                self.ended(body, out, result)
            }
            Outcome::Deferred(again, _) => {
                body.unfinished = Unfinished::Deferred(again, Some(fatal));
                StepResult::Continue
            }
        }
    }

    fn pull(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        mut state: Box<ReplyState>,
        blocked: Option<Blocked>,
    ) -> StepResult {
        let result = match self.shared.mail(|mail| mail.cancelled()) {
            Some(reason) => Err(SessionError::cancelled(reason)),
            None => {
                if let Some(blocked) = blocked
                    && !state.is_unblocked(blocked, out)
                {
                    return self.park(body, out, state, blocked);
                }
                match state.pull(out, |payload| self.panicked(payload)) {
                    Ok(Pulled::Budget) => {
                        body.unfinished = Unfinished::Fed(state, None);
                        return StepResult::YieldInResult;
                    }
                    Ok(Pulled::Blocked(blocked)) => return self.park(body, out, state, blocked),
                    Ok(Pulled::Done) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        };
        let result = state.finish(out, result.map_err(|error| self.shared.reason(error)));
        self.ended(body, out, result)
    }

    /// Waits without a thread until the condition wakes the session.
    fn park(
        &self,
        body: &mut Body<S::Session>,
        out: &Output,
        mut state: Box<ReplyState>,
        blocked: Blocked,
    ) -> StepResult {
        if blocked == Blocked::Credit && self.shared.conn.is_finished() {
            let result = state.finish(out, Err(SessionError::interrupted()));
            return self.ended(body, out, result);
        }
        body.unfinished = Unfinished::Fed(state, Some(blocked));
        if blocked == Blocked::Room {
            self.shared.wake_when_room();
        }
        StepResult::IdleInResult
    }
}

impl<S: Service> AnySession for Session<S> {
    fn shared(&self) -> &Arc<SessionShared> {
        &self.shared
    }
}

impl<S: Service> Runnable for Session<S> {
    fn becomes_runnable(&self) -> bool {
        self.runner.notify(LOOK).map(Running::queue).is_some()
    }

    fn run_here(self: Arc<Self>, out: &Output, now: Instant) -> Instant {
        self.serve(out, now)
    }
}

impl<S: Service> Work for Session<S> {
    fn run(self: Arc<Self>, context: &mut WorkerContext<'_>) {
        let conn = Arc::clone(&self.shared.conn);
        context.lap.now = Output::with(&conn, |out| self.serve(out, context.lap.now));
    }

    fn class(&self) -> Class {
        self.shared.class()
    }

    fn cost(&self) -> &Cost {
        self.cost.as_ref().unwrap_or(&self.shared.conn.statement_cost)
    }
}

impl<S: Service> Wakeable for Session<S> {
    fn wake(self: Arc<Self>) {
        if self.becomes_runnable() {
            self.queue();
        }
    }

    fn wake_with_outcome(self: Arc<Self>, answered: bool) {
        if self.becomes_runnable() {
            // The end of a session of one statement takes more steps, which call the service.
            let may_end_here = answered && !self.shared.id.is_auto_commit();
            let ends_here = may_end_here && self.end_behind_callback();
            if !ends_here {
                self.queue();
            }
        } else if self.runner.is_queued() {
            // It may be among ordinary work, for which no thread is left.
            self.queue();
        }
    }
}

impl<S: Service> Drop for Session<S> {
    fn drop(&mut self) {
        // The session was not run to its end, because the runtime ends.
        if let Some(mut body) = self.runner.notify(LOOK).or_else(|| self.runner.resume()) {
            self.drop_unfinished(&mut body);
            self.close_service_session(&mut body);
        }
        let conn = &self.shared.conn;
        conn.group().note_urgent(conn.class, Class::Ordinary);
    }
}

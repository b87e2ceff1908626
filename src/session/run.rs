//! [`Session`]: runs the requests of one session, one after the other. Any worker may run it, one
//! at a time.

mod ends;
mod requests;

use std::fmt;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::channel::{Channel, Settled, Wakeable};
use super::deferred::{Deferral, Outcome};
use super::error::SessionError;
use super::expecting::Expecting;
use super::link::{Link, Runnable};
use super::output::Output;
use super::service::{Service, SessionId};
use super::state::{Blocked, Pulled, State};
use crate::runtime::{Class, Cost, Lap, Lent, Work};
use crate::stats::Counter;
use crate::sync::runner::{Marks, Runner, Running};

/// A session with its service's data.
pub(super) struct Session<S: Service> {
    pub(super) channel: Arc<Channel>,
    link: Arc<Link<S>>,
    runner: Runner<Body<S::Session>>,
    /// Cost of a request. Sessions of one statement use the cost that their connection keeps.
    cost: Option<Cost>,
    /// Set when the session was removed from its connection's table before its end.
    lingers: AtomicBool,
}

/// Data that only the worker which runs the session may use.
struct Body<T> {
    /// Set from the opening to the end of the session.
    session: Option<T>,
    /// Error of the last request; see `reset_error`.
    last_error: Option<SessionError>,
    expecting: Expecting,
    current: Current,
}

/// Unfinished request between two runs.
enum Current {
    None,
    Deferred(Arc<Deferral>),
    Fed(Box<State>, Option<Blocked>),
}

/// Result of one step of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The step did something. The next step may follow at once.
    Again,
    /// The session has nothing to do until a wake-up.
    Idle,
    /// Like `Idle`, but a part of a long result was written.
    Waits,
    /// The session has more to do. Other work goes first.
    Later,
    /// Like `Later`, in a long result. Work that arrives meanwhile goes first too.
    Spent,
}

/// Set when the session has something to look at.
const LOOK: Marks = Marks::bit(0);

/// Returns true if a reply is not worth a send of its own. It then waits for the replies behind it.
pub(super) fn is_quick(cost: &Cost) -> bool {
    cost.nanos().is_some_and(|nanos| nanos < QUICK_NANOS)
}

const QUICK_NANOS: u32 = 20_000;
/// Length of a turn. After it, a session, or the sessions of one connection together, go to the
/// background queue.
pub(super) const TURN: Duration = Duration::from_millis(1);

impl<S: Service> Session<S> {
    pub(super) fn new(id: SessionId, link: &Arc<Link<S>>) -> Arc<Self> {
        link.line.count(Counter::SessionsOpened);
        link.line.group().session_opened();
        link.line.group().note_urgent(Class::Ordinary, link.line.class);
        Arc::new_cyclic(|me: &Weak<Self>| {
            let me: Weak<dyn Wakeable> = me.clone();
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
                lingers: AtomicBool::new(false),
            }
        })
    }

    /// Counts the session as open until its end, although it was removed from the table.
    pub(super) fn linger(&self) {
        if !self.lingers.swap(true, Ordering::Relaxed) {
            self.link.lingers(true);
        }
    }

    /// Marks the session. Returns true if the caller must queue or run it.
    pub(super) fn becomes_runnable(&self) -> bool {
        self.runner.notify(LOOK).map(Running::queue).is_some()
    }

    fn queue(self: Arc<Self>) {
        let group = Arc::clone(self.channel.line.group());
        if self.channel.is_dead() {
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
        let budget = self.link.line.config().session_budget;
        let urgent_alone = self.link.line.group().runs_urgent_alone();
        let mut done = 0;
        out.begin(Some(&self.channel));
        // Each step below looks at all that the marks announce.
        let _marks = running.take_marks();
        loop {
            // The reserve thread stops at the end of a transaction.
            let over = done > 0 && urgent_alone && !self.class().is_urgent();
            let spent = done >= budget || lap.now.saturating_duration_since(now) >= TURN;
            let turn = if over || spent { Turn::Later } else { self.step(&mut running, out) };
            if matches!(turn, Turn::Waits | Turn::Spent) {
                // The time must be measured here, or the session would never become slow.
                self.cost().add(lap.end());
            }
            match turn {
                // After `queue` another worker may run the session, so the output leaves before.
                Turn::Later | Turn::Spent => {
                    out.flush();
                    running.mark(LOOK);
                    running.queue();
                    let group = Arc::clone(self.channel.line.group());
                    if spent || turn == Turn::Spent {
                        group.push_spent_work(self);
                    } else {
                        group.push_work(self);
                    }
                    return lap.now;
                }
                Turn::Idle | Turn::Waits => {
                    running.queue();
                    out.hold(self);
                    return lap.now;
                }
                Turn::Again => {}
            }
            done += 1;
            self.cost().add(lap.end());
            // A session in a transaction may hold locks, so its client gets the reply at once.
            if is_quick(self.cost()) && !self.class().is_urgent() {
                out.keep(lap.now);
            } else {
                out.flush();
            }
        }
    }

    /// Performs one step: ends the session, continues the begun request, or begins the next
    /// command.
    fn step(&self, body: &mut Body<S::Session>, out: &Output) -> Turn {
        if self.channel.is_dead() {
            self.bury(body);
            return Turn::Idle;
        }
        match mem::replace(&mut body.current, Current::None) {
            Current::None => match self.channel.next() {
                Some(post) => {
                    if out.keeps() {
                        out.show(&self.link);
                    }
                    if self.channel.id.is_auto_commit() {
                        // A second statement arrived before the session of the first had ended.
                        self.leave(body);
                    }
                    self.begin(body, out, post)
                }
                None if self.channel.id.is_auto_commit() => {
                    // Calls the service before the output leaves. Afterwards the call could run
                    // inside the handler of another session.
                    self.leave(body);
                    Turn::Idle
                }
                None => {
                    if self.channel.close_if_done() {
                        self.shut_down(body, out);
                    }
                    Turn::Idle
                }
            },
            Current::Deferred(deferral) => self.look_at(body, out, deferral),
            Current::Fed(state, blocked) => self.pull(body, out, state, blocked),
        }
    }

    fn look_at(&self, body: &mut Body<S::Session>, out: &Output, deferral: Arc<Deferral>) -> Turn {
        match deferral.take_outcome() {
            Some(Outcome::Ended(result)) => return self.ended(body, out, result),
            Some(Outcome::Fed(state)) => body.current = Current::Fed(state, None),
            Some(Outcome::Deferred(again)) => body.current = Current::Deferred(again),
            None => {
                let claim = |reason| Some((SessionError::cancelled(reason), deferral.claim()?));
                let Some((error, mut state)) = self.channel.cancelled().and_then(claim) else {
                    body.current = Current::Deferred(deferral);
                    return Turn::Idle;
                };
                let result = state.finish(out, Err(error));
                return self.ended(body, out, result);
            }
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
                // The feed is foreign code and may wait.
                out.flush();
                match state.pull(out, |payload| self.panicked(payload)) {
                    Ok(Pulled::Budget) => {
                        body.current = Current::Fed(state, None);
                        return Turn::Spent;
                    }
                    Ok(Pulled::Blocked(blocked)) => return self.park(body, out, state, blocked),
                    Ok(Pulled::Done) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        };
        let result = state.finish(out, result.map_err(|error| self.channel.reason(error)));
        self.ended(body, out, result)
    }

    /// Waits without a thread until the condition wakes the session.
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
        body.current = Current::Fed(state, Some(blocked));
        if blocked == Blocked::Room {
            self.channel.line.wake_when_room(&self.channel);
        }
        Turn::Waits
    }
}

impl<S: Service> Runnable for Session<S> {
    fn run_here(self: Arc<Self>, out: &Output, now: Instant) -> Instant {
        self.serve(out, now)
    }

    fn settle(self: Arc<Self>) {
        let settled = self.channel.settle();
        if settled == Settled::Over {
            self.link.forget(self.channel.id);
        }
        let Some(mut running) = self.runner.resume() else { return };
        if settled == Settled::ToEnd {
            running.mark(LOOK);
        }
        if running.finish_or_queue() {
            self.queue();
        }
    }
}

impl<S: Service> Work for Session<S> {
    fn run(self: Arc<Self>, lent: &mut Lent<'_>) {
        let line = Arc::clone(&self.channel.line);
        lent.lap.now = Output::with(&line, |out| self.serve(out, lent.lap.now));
    }

    fn class(&self) -> Class {
        self.channel.class()
    }

    fn cost(&self) -> &Cost {
        self.cost.as_ref().unwrap_or(&self.link.statement_cost)
    }
}

impl<S: Service> Wakeable for Session<S> {
    fn wake(self: Arc<Self>) {
        if self.becomes_runnable() {
            self.queue();
        }
    }
}

impl<S: Service> Drop for Session<S> {
    fn drop(&mut self) {
        // The session was not run to its end, because the runtime ends.
        if let Some(mut body) = self.runner.notify(LOOK).or_else(|| self.runner.resume()) {
            self.abandon(&mut body);
            self.part(&mut body);
        }
        if *self.lingers.get_mut() {
            self.link.lingers(false);
        }
        let group = self.link.line.group();
        group.note_urgent(self.channel.class(), Class::Ordinary);
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

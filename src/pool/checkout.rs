//! Checkout of a connection: on a thread that waits, or by a callback.

use std::panic::Location;
use std::sync::Arc;
use std::time::Instant;

use super::backend::{Fit, Inner, Pooled};
use super::error::{Cause, GetError};
use super::guard::{Wait, guarded, in_turn, waiting};
use super::manage::{Manage, ManageError, Version};
use super::stack::{
    Ask, Checkout, Connected, Fitness, Grant, Holder, Patience, Ready, Ticket, Turn, Waiter,
};
use super::status::Discard;
use crate::sync::mutant::mutant;
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};
use crate::sys::clock;

/// Result that a caller gets.
pub(super) type Got<M> = Result<Pooled<M>, GetError>;

/// A caller that waits.
pub(super) enum Caller<M: Manage> {
    Thread(Arc<Seat<M::Connection>>),
    Callback(Then<M>),
}

/// Place where one thread sleeps until it is granted something.
pub(super) struct Seat<C> {
    grant: Mutex<Option<Grant<C>>>,
    filled: Condvar,
}

/// A callback, and the time of its call.
pub(super) struct Then<M: Manage> {
    pub(super) code: Box<dyn FnOnce(Got<M>) + Send>,
    pub(super) asked: Instant,
}

impl<C> Seat<C> {
    fn new() -> Self {
        Self { grant: Mutex::new(None), filled: Condvar::new() }
    }

    /// Wakes the thread. Must not be called after the thread has left the queue.
    pub(super) fn fill(&self, grant: Grant<C>) {
        *lock(&self.grant) = Some(grant);
        self.filled.notify_one();
    }

    /// Sleeps until there is a grant. `None`: the deadline has passed first.
    fn wait(&self, deadline: Option<Instant>) -> Option<Grant<C>> {
        let limit = deadline.map(|deadline| deadline.saturating_duration_since(clock::now()));
        let guard = lock(&self.grant);
        wait_while(&self.filled, guard, limit, |grant| grant.is_none()).0.take()
    }
}

/// Outcome of asking again, and of the wait.
enum Asked<M: Manage> {
    Step(Checkout<M::Connection>),
    Got(Fit<M>),
    Failed(GetError),
}

impl<M: Manage> Asked<M> {
    fn granted(grant: Grant<M::Connection>, ask: &Ask<'_>) -> Self {
        match grant {
            Grant::Conn(conn, ticket, version) => Self::Got((conn, ticket, version)),
            Grant::Connect(ticket, version) => Self::Step(Checkout::Connect(ticket, version)),
            Grant::Refused(refused) => Self::Step(Checkout::Refused(refused)),
            Grant::Expired(cause) => Self::Failed(ask.timeout(cause)),
        }
    }
}

/// On a thread that waits.
impl<M: Manage> Inner<M> {
    /// Gets a connection. Without a deadline the limits decide.
    #[inline]
    pub(super) fn get(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        location: &'static Location<'static>,
    ) -> Got<M> {
        let asked = clock::now();
        let holder = Holder::new(location);
        let mut ask = Ask { holder: &holder, asked, deadline, turn: Turn::First };
        let mut step = self.with(|stack| stack.checkout(asked, &ask));
        if let Checkout::Ready(ready) = step {
            match self.fit_in_time(ready, &ask) {
                Ok(Some(fit)) => return Ok(self.hand_out(fit, asked)),
                Ok(None) => ask.turn = Turn::Again,
                Err(error) => return Err(self.refused(error)),
            }
            step = Checkout::Wait;
        }
        self.get_slowly(step, ask)
    }

    /// Looks at an idle connection. `None`: it was closed, and the caller may ask again.
    ///
    /// The check of an invalid connection may have taken until the deadline. Then the caller fails,
    /// because the check of the next one would take as long.
    #[inline]
    fn fit_in_time(
        self: &Arc<Self>,
        ready: Ready<M::Connection>,
        ask: &Ask<'_>,
    ) -> Result<Option<Fit<M>>, GetError> {
        let checks = ready.fitness == Fitness::Check;
        let fit = self.fit(ready);
        if checks && fit.is_none() { self.fail_if_late(ask).map(|()| None) } else { Ok(fit) }
    }

    #[cold]
    fn fail_if_late(&self, ask: &Ask<'_>) -> Result<(), GetError> {
        let now = clock::now();
        self.with(|stack| match ask.deadline(stack.limits()) {
            Some(deadline) if deadline <= now => Err(ask.timeout(stack.expire_now())),
            _ => Ok(()),
        })
    }

    /// Gets an idle connection, if there is one.
    pub(super) fn try_get(
        self: &Arc<Self>,
        location: &'static Location<'static>,
    ) -> Option<Pooled<M>> {
        let holder = Holder::new(location);
        loop {
            let now = clock::now();
            let ready = self.with(|stack| stack.checkout_idle(now, &holder, Turn::First))?;
            if let Some(fit) = self.fit(ready) {
                return Some(self.hand_out(fit, now));
            }
        }
    }

    #[cold]
    fn get_slowly(self: &Arc<Self>, mut step: Checkout<M::Connection>, mut ask: Ask<'_>) -> Got<M> {
        loop {
            let outcome = match step {
                Checkout::Ready(ready) => self.fit_in_time(ready, &ask),
                Checkout::Connect(ticket, version) => self.connect_here(ticket, version, &ask),
                Checkout::Refused(refused) => Err(refused.into()),
                Checkout::Wait => match self.ask_or_wait(&ask) {
                    Asked::Step(next) => {
                        step = next;
                        continue;
                    }
                    Asked::Got(fit) => Ok(Some(fit)),
                    Asked::Failed(error) => Err(error),
                },
            };
            match outcome {
                Ok(Some(fit)) => return Ok(self.hand_out(fit, ask.asked)),
                Ok(None) => ask.turn = Turn::Again,
                Err(error) => return Err(self.refused(error)),
            }
            step = Checkout::Wait;
        }
    }

    /// Asks once more, and waits if there is still no connection. Both happen under one lock, so a
    /// connection that is returned in between is not missed.
    fn ask_or_wait(self: &Arc<Self>, ask: &Ask<'_>) -> Asked<M> {
        let seat = Arc::new(Seat::new());
        let now = clock::now();
        let waits = self.apply(|stack, fx| {
            let deadline = ask.deadline(stack.limits());
            match mutant!(stack.checkout(now, ask), WaitWithoutLook => Checkout::Wait) {
                // A caller that asks again may be past its deadline by now.
                Checkout::Wait if deadline.is_none_or(|deadline| deadline > now) => {}
                Checkout::Wait => return Err(Asked::Failed(ask.timeout(stack.expire_now()))),
                other => return Err(Asked::Step(other)),
            }
            let patience = Patience { deadline, has_thread: true };
            let what = Caller::Thread(Arc::clone(&seat));
            let waiter = Waiter { what, patience, holder: ask.holder.clone() };
            let refused = |(_, refused)| Asked::Step(Checkout::Refused(refused));
            let id = stack.wait(now, waiter, ask.turn, fx).map_err(refused)?;
            Ok((id, deadline))
        });
        let (id, deadline) = match waits {
            Ok(waits) => waits,
            Err(asked) => return asked,
        };
        waiting(Wait::Other, || match seat.wait(deadline) {
            Some(grant) => Asked::granted(grant, ask),
            None => match self.with(|stack| stack.leave(id)) {
                Some(cause) => Asked::Failed(ask.timeout(cause)),
                // Another thread has taken the waiter off the queue, and is about to fill the seat.
                None => mutant!(
                    Asked::granted(seat.wait(None).expect("without a deadline it waits"), ask),
                    ExpiryIgnoresGrant => Asked::Failed(ask.timeout(Cause::Paused))
                ),
            },
        })
    }

    /// Makes a connection on this thread. `None`: the connect failed or its result is unwanted, and
    /// there is time left.
    fn connect_here(
        self: &Arc<Self>,
        ticket: Ticket,
        version: Version,
        ask: &Ask<'_>,
    ) -> Result<Option<Fit<M>>, GetError> {
        let now = clock::now();
        let (deadline, timeout) =
            self.with(|stack| (ask.deadline(stack.limits()), stack.limits().connect_timeout));
        if deadline.is_some_and(|deadline| deadline <= now) {
            let cause = self.apply(|stack, fx| {
                stack.connect_abandoned(now, ticket, fx);
                stack.expire_now()
            });
            return Err(ask.timeout(cause));
        }
        let limit = clock::later(now, timeout);
        match self.connect(version, deadline.map_or(limit, |deadline| deadline.min(limit))) {
            Ok(conn) => {
                let connected = self.apply(|stack, fx| stack.connected(clock::now(), ticket, fx));
                match connected {
                    Connected::Kept => return Ok(Some((conn, ticket, version))),
                    Connected::Unwanted(why) => self.drop_conn(conn, version, why),
                }
            }
            Err(error) => self.connect_failed(ticket, error),
        }
        Ok(None)
    }

    /// Calls [`Manage::connect`], and tells the observer of the outcome.
    fn connect(&self, version: Version, deadline: Instant) -> Result<M::Connection, ManageError> {
        let target = self.target(version);
        let shared = self.shared();
        let began = clock::now();
        let connect = || guarded(|| shared.manage.connect(&target, deadline));
        let result = waiting(Wait::Network, connect);
        shared.observe(|observer| match &result {
            Ok(_) => observer.connected(&target, clock::since(began)),
            Err(error) => observer.connect_failed(&target, error),
        });
        result
    }

    fn connect_failed(self: &Arc<Self>, ticket: Ticket, error: ManageError) {
        self.apply(|stack, fx| stack.connect_failed(clock::now(), ticket, error, fx));
    }
}

impl Ask<'_> {
    fn timeout(&self, cause: Cause) -> GetError {
        GetError::Timeout { waited: clock::since(self.asked), cause }
    }
}

/// Checkout by a callback.
impl<M: Manage> Inner<M> {
    pub(super) fn get_then(
        self: &Arc<Self>,
        deadline: Instant,
        code: Box<dyn FnOnce(Got<M>) + Send>,
        location: &'static Location<'static>,
    ) {
        let then = Then { code, asked: clock::now() };
        self.ask_then(then, deadline, Holder::new(location), Turn::First);
    }

    fn ask_then(
        self: &Arc<Self>,
        then: Then<M>,
        deadline: Instant,
        holder: Holder,
        mut turn: Turn,
    ) {
        let mut then = Some(then);
        loop {
            let now = clock::now();
            let step = self.apply(|stack, fx| {
                if let Some(ready) = stack.checkout_idle(now, &holder, turn) {
                    return Ok(Some(ready));
                }
                let patience = Patience { deadline: Some(deadline), has_thread: false };
                let what = Caller::Callback(then.take().expect("taken once"));
                let waiter = Waiter { what, patience, holder: holder.clone() };
                stack.wait(now, waiter, turn, fx).map(|_| None)
            });
            match step {
                Ok(None) => return,
                Ok(Some(ready)) if ready.fitness == Fitness::Check => {
                    let then = then.take().expect("it did not wait");
                    let check = Some(Check { ready, then, deadline, holder });
                    let job = CheckJob { inner: Arc::clone(self), check };
                    return self.shared().ask_host(|host| host.spawn(Box::new(|| job.run())));
                }
                Ok(Some(ready)) => {
                    if let Some(fit) = self.fit(ready) {
                        let then = then.take().expect("it did not wait");
                        return self.finish(then, fit);
                    }
                    turn = Turn::Again;
                }
                Err((Caller::Callback(then), refused)) => {
                    let error = self.refused(refused.into());
                    return in_turn(move || (then.code)(Err(error)));
                }
                Err((Caller::Thread(_), _)) => unreachable!("a callback was passed"),
            }
        }
    }

    fn finish(self: &Arc<Self>, then: Then<M>, fit: Fit<M>) {
        let conn = self.hand_out(fit, then.asked);
        in_turn(move || (then.code)(Ok(conn)));
    }
}

/// Asks the host for a connect.
pub(super) fn connect_by_host<M: Manage>(inner: &Arc<Inner<M>>, ticket: Ticket, version: Version) {
    let job = ConnectJob { inner: Arc::clone(inner), connect: Some((ticket, version)) };
    inner.shared().ask_host(|host| host.spawn(Box::new(|| job.run())));
}

/// A connect of the host. If the host drops it without running it, it counts as failed.
struct ConnectJob<M: Manage> {
    inner: Arc<Inner<M>>,
    /// Present until it runs.
    connect: Option<(Ticket, Version)>,
}

impl<M: Manage> ConnectJob<M> {
    fn run(mut self) {
        let Some((ticket, version)) = self.connect.take() else { return };
        let timeout = self.inner.with(|stack| stack.limits().connect_timeout);
        match self.inner.connect(version, clock::later(clock::now(), timeout)) {
            Ok(conn) => self.inner.apply(|stack, fx| {
                stack.connected_by_host(clock::now(), ticket, conn, fx);
            }),
            Err(error) => self.inner.connect_failed(ticket, error),
        }
    }
}

impl<M: Manage> Drop for ConnectJob<M> {
    fn drop(&mut self) {
        if let Some((ticket, _)) = self.connect.take() {
            self.inner.connect_failed(ticket, "the host did not run it".into());
        }
    }
}

/// A check, by the host, of a connection that was idle for long, for a callback. If the host drops it
/// without running it, the connection counts as invalid.
struct CheckJob<M: Manage> {
    inner: Arc<Inner<M>>,
    /// Present until it runs.
    check: Option<Check<M>>,
}

struct Check<M: Manage> {
    ready: Ready<M::Connection>,
    then: Then<M>,
    deadline: Instant,
    holder: Holder,
}

impl<M: Manage> CheckJob<M> {
    fn run(mut self) {
        let Some(Check { ready, then, deadline, holder }) = self.check.take() else { return };
        match self.inner.fit(ready) {
            Some(fit) => self.inner.finish(then, fit),
            // The next check would take as long.
            None if deadline <= clock::now() => {
                let cause = self.inner.with(|stack| stack.expire_now());
                self.inner.call(then, Grant::Expired(cause));
            }
            None => self.inner.ask_then(then, deadline, holder, Turn::Again),
        }
    }
}

impl<M: Manage> Drop for CheckJob<M> {
    fn drop(&mut self) {
        let Some(Check { ready, then, deadline, holder }) = self.check.take() else { return };
        let Ready { conn, ticket, version, .. } = ready;
        self.inner.discard(conn, ticket, version, Discard::Invalid);
        let inner = Arc::clone(&self.inner);
        // The host may drop the next check within that call, too. One call in another for each idle
        // connection would overflow the stack.
        in_turn(move || inner.ask_then(then, deadline, holder, Turn::Again));
    }
}

//! How a caller comes to a connection: with a thread that waits, or with a callback.

use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Caller, Got, Inner, Then};
use super::error::{Cause, GetError};
use super::jobs::CheckJob;
use super::manage::{Key, ManageError, Version};
use super::pooled::Pooled;
use super::seat::Seat;
use super::slots::{Holder, Ticket};
use super::stack::{Ask, Checkout, Connected, Fitness, Grant, Patience, Refused, Turn, Waiter};
use super::turns::{Wait, guarded, in_turn, waiting};
use crate::sync::mutant::mutant;

/// A connection that can be handed out.
type Fit<C> = (C, Ticket, Version);

/// What comes of asking again, and waiting.
enum Asked<C> {
    Step(Checkout<C>),
    Got(Fit<C>),
    Failed(GetError),
}

impl<C> Asked<C> {
    fn granted(grant: Grant<C>, ask: &Ask<'_>) -> Self {
        match grant {
            Grant::Conn(conn, ticket, version) => Self::Got((conn, ticket, version)),
            Grant::Connect(ticket, version) => Self::Step(Checkout::Connect(ticket, version)),
            Grant::Refused(refused) => Self::Step(Checkout::Refused(refused)),
            Grant::Expired(cause) => Self::Failed(ask.timeout(cause)),
        }
    }
}

impl<K: Key, C: Send + 'static> Inner<K, C> {
    /// `None`: the limits say how long.
    #[inline]
    pub(super) fn get(
        self: &Arc<Self>,
        deadline: Option<Instant>,
        location: &'static Location<'static>,
    ) -> Got<K, C> {
        let asked = Instant::now();
        let holder = Holder::new(location);
        let mut ask = Ask { holder: &holder, asked, deadline, turn: Turn::First };
        let mut step = self.with(|stack| stack.checkout(asked, &ask));
        if let Checkout::Ready(ready) = step {
            if let Some(fit) = self.fit(ready) {
                return Ok(self.hand_out(fit, asked));
            }
            ask.turn = Turn::Again;
            step = Checkout::Wait;
        }
        self.get_slowly(step, ask)
    }

    /// An idle connection, if there is one.
    pub(super) fn try_get(
        self: &Arc<Self>,
        location: &'static Location<'static>,
    ) -> Option<Pooled<K, C>> {
        let holder = Holder::new(location);
        loop {
            let now = Instant::now();
            let ready = self.with(|stack| stack.checkout_idle(now, &holder, Turn::First))?;
            if let Some(fit) = self.fit(ready) {
                return Some(self.hand_out(fit, now));
            }
        }
    }

    #[inline]
    fn hand_out(self: &Arc<Self>, (conn, ticket, version): Fit<C>, asked: Instant) -> Pooled<K, C> {
        self.handed_out(version, asked);
        Pooled::new(conn, ticket, version, Arc::clone(self))
    }

    #[cold]
    fn get_slowly(self: &Arc<Self>, mut step: Checkout<C>, mut ask: Ask<'_>) -> Got<K, C> {
        loop {
            let outcome = match step {
                Checkout::Ready(ready) => Ok(self.fit(ready)),
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

    /// Asks once more, and waits if there is still nothing: both under one lock, so that nothing that
    /// comes back between is missed.
    fn ask_or_wait(self: &Arc<Self>, ask: &Ask<'_>) -> Asked<C> {
        let seat = Arc::new(Seat::new());
        let now = Instant::now();
        let waits = self.apply(|stack, fx| {
            let deadline = ask.deadline(stack.limits());
            match mutant!(stack.checkout(now, ask), WaitWithoutLook => Checkout::Wait) {
                // Who has had its turn may be too late by now.
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
                // Somebody took it off the list, and is about to fill the seat.
                None => mutant!(
                    Asked::granted(seat.wait(None).expect("without a deadline it waits"), ask),
                    ExpiryIgnoresGrant => Asked::Failed(ask.timeout(Cause::Paused))
                ),
            },
        })
    }

    /// Makes a connection on this thread. `None`: it came to nothing, but there is time left.
    fn connect_here(
        self: &Arc<Self>,
        ticket: Ticket,
        version: Version,
        ask: &Ask<'_>,
    ) -> Result<Option<Fit<C>>, GetError> {
        let now = Instant::now();
        let (deadline, connect) =
            self.with(|stack| (ask.deadline(stack.limits()), stack.limits().connect_timeout));
        if deadline.is_some_and(|deadline| deadline <= now) {
            let cause = self.apply(|stack, fx| {
                stack.connect_abandoned(now, ticket, fx);
                stack.expire_now()
            });
            return Err(ask.timeout(cause));
        }
        let limit = now.checked_add(connect);
        let limit = deadline.into_iter().chain(limit).min().unwrap_or(now + FAR);
        match self.connect(version, limit) {
            Ok(conn) => {
                let connected = self.apply(|stack, fx| stack.connected(Instant::now(), ticket, fx));
                match connected {
                    Connected::Kept => return Ok(Some((conn, ticket, version))),
                    Connected::Unwanted(why) => self.drop_conn(conn, version, why),
                }
            }
            Err(error) => {
                self.apply(|stack, fx| stack.connect_failed(Instant::now(), ticket, error, fx));
            }
        }
        Ok(None)
    }

    /// Calls the manager, and tells of what came of it.
    pub(super) fn connect(&self, version: Version, deadline: Instant) -> Result<C, ManageError> {
        let target = self.target(version);
        let shared = self.shared();
        let began = Instant::now();
        let connect = || guarded(|| shared.manage.connect(&target, deadline));
        let result = waiting(Wait::Network, connect);
        shared.observe(|observer| match &result {
            Ok(_) => observer.connected(&target, began.elapsed()),
            Err(error) => observer.connect_failed(&target, error),
        });
        result
    }

    pub(super) fn get_then(
        self: &Arc<Self>,
        deadline: Instant,
        code: Box<dyn FnOnce(Got<K, C>) + Send>,
        location: &'static Location<'static>,
    ) {
        let then = Then { code, asked: Instant::now() };
        self.ask_then(then, deadline, Holder::new(location), Turn::First);
    }

    pub(super) fn ask_then(
        self: &Arc<Self>,
        then: Then<K, C>,
        deadline: Instant,
        holder: Holder,
        mut turn: Turn,
    ) {
        let mut then = Some(then);
        loop {
            let now = Instant::now();
            let step = self.apply(|stack, fx| {
                if let Some(ready) = stack.checkout_idle(now, &holder, turn) {
                    return Ok(Some(ready));
                }
                let patience = Patience { deadline: Some(deadline), has_thread: false };
                let what = Caller::Callback(then.take().expect("taken once"));
                let waiter = Waiter { what, patience, holder: holder.clone() };
                match stack.wait(now, waiter, turn, fx) {
                    Ok(_) => Ok(None),
                    Err((what, refused)) => Err((what, refused)),
                }
            });
            match step {
                Ok(None) => return,
                Ok(Some(ready)) if ready.fitness == Fitness::Check => {
                    let then = then.take().expect("it did not wait");
                    return CheckJob::start(self, ready, then, deadline, holder);
                }
                Ok(Some(ready)) => {
                    if let Some(fit) = self.fit(ready) {
                        let then = then.take().expect("it did not wait");
                        return self.finish(then, fit);
                    }
                    turn = Turn::Again;
                }
                Err((Caller::Callback(then), refused)) => return self.refuse(then, refused),
                Err((Caller::Thread(_), _)) => unreachable!("it is the one that was given"),
            }
        }
    }

    pub(super) fn finish(self: &Arc<Self>, then: Then<K, C>, fit: Fit<C>) {
        let conn = self.hand_out(fit, then.asked);
        in_turn(move || (then.code)(Ok(conn)));
    }

    pub(super) fn refuse(&self, then: Then<K, C>, refused: Refused) {
        let error = self.refused(refused.into());
        in_turn(move || (then.code)(Err(error)));
    }
}

/// For an instant that cannot be computed because it is too far.
const FAR: Duration = Duration::from_secs(86_400);

impl Ask<'_> {
    fn timeout(&self, cause: Cause) -> GetError {
        GetError::Timeout { waited: self.asked.elapsed(), cause }
    }
}

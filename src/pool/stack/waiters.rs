//! [`Waiters`]: callers that wait, in the order in which they are served, and their deadlines.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;
use std::thread::{self, Thread};

use crate::pool::config::Limits;
use crate::sys::clock::Instant;

/// User of a connection, for the report of leaks.
#[derive(Clone, Debug)]
pub(in crate::pool) struct Holder {
    pub(in crate::pool) location: &'static Location<'static>,
    pub(in crate::pool) thread: Thread,
}

impl Holder {
    #[inline]
    pub(in crate::pool) fn new(location: &'static Location<'static>) -> Self {
        Self { location, thread: thread::current() }
    }
}

/// Caller that asks for a connection.
#[derive(Clone, Debug)]
pub(in crate::pool) struct Ask {
    pub(in crate::pool) holder: Holder,
    /// Time of the first question.
    pub(in crate::pool) asked: Instant,
    /// `None`: [`Limits::wait_timeout`] decides.
    pub(in crate::pool) deadline: Option<Instant>,
    /// True if a thread waits: it can connect, and gives up by itself.
    pub(in crate::pool) has_thread: bool,
    /// True if an earlier grant came to nothing. `max_waiting` does not refuse the caller then.
    pub(in crate::pool) again: bool,
}

impl Ask {
    /// Deadline of the caller. `None`: it has none.
    pub(super) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        self.deadline.or_else(|| self.asked.checked_add(limits.wait_timeout))
    }
}

/// Caller that waits. `W` is the way to reach it.
#[derive(Debug)]
pub(in crate::pool) struct Waiter<W> {
    pub(in crate::pool) way: W,
    pub(in crate::pool) ask: Ask,
}

impl<W> Waiter<W> {
    fn expiry(&self, id: WaiterId) -> Option<(Instant, WaiterId)> {
        self.ask.deadline.filter(|_| !self.ask.has_thread).map(|deadline| (deadline, id))
    }
}

/// Names a waiter. Never used twice; its order is that in which waiters are served.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::pool) struct WaiterId {
    /// Time of the first question. So a waiter whose turn came to nothing does not lose its place.
    asked: Instant,
    number: u64,
}

#[derive(Debug)]
pub(super) struct Waiters<W> {
    queue: BTreeMap<WaiterId, Waiter<W>>,
    /// Deadlines of waiters that have no thread to give up by itself.
    pub(super) expiries: BTreeSet<(Instant, WaiterId)>,
    /// Number of the last waiter that was added.
    last: u64,
}

impl<W> Waiters<W> {
    pub(super) const fn new() -> Self {
        Self { queue: BTreeMap::new(), expiries: BTreeSet::new(), last: 0 }
    }

    pub(super) fn add(&mut self, waiter: Waiter<W>) -> WaiterId {
        self.last += 1;
        let id = WaiterId { asked: waiter.ask.asked, number: self.last };
        self.expiries.extend(waiter.expiry(id));
        self.queue.insert(id, waiter);
        id
    }

    /// Returns `None` if the waiter has left.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<Waiter<W>> {
        let waiter = self.queue.remove(&id)?;
        if let Some(expiry) = waiter.expiry(id) {
            self.expiries.remove(&expiry);
        }
        Some(waiter)
    }

    pub(super) fn first(&self) -> Option<&Ask> {
        self.queue.first_key_value().map(|(_, waiter)| &waiter.ask)
    }

    pub(super) fn pop_first(&mut self) -> Option<Waiter<W>> {
        let (&id, _) = self.queue.first_key_value()?;
        self.remove(id)
    }

    /// Removes a waiter without a thread whose deadline has passed.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<Waiter<W>> {
        let &(deadline, id) = self.expiries.first()?;
        if deadline <= now { self.remove(id) } else { None }
    }

    /// First deadline of the waiters without a thread.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.expiries.first().map(|&(deadline, _)| deadline)
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_waiter_whose_turn_came_to_nothing_gets_its_old_place() {
        let mut waiters = Waiters::new();
        let start = Instant::now();
        let mut add = |way, again| {
            let holder = Holder::new(Location::caller());
            let asked = start + Duration::from_secs(way);
            let ask = Ask { holder, asked, deadline: None, has_thread: true, again };
            waiters.add(Waiter { way, ask })
        };
        let ids = [6, 7, 7].map(|way| add(way, false));
        for way in [2, 1, 3, 8] {
            add(way, true);
        }
        assert!(waiters.remove(ids[1]).is_some() && waiters.remove(ids[1]).is_none());
        let order = std::iter::from_fn(|| waiters.pop_first()).map(|waiter| waiter.way);
        assert_eq!(order.collect::<Vec<_>>(), [1, 2, 3, 6, 7, 8]);
    }
}

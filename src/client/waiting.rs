//! [`Waiting`]: callers that wait for a session, in order of arrival.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;

use super::error::Error;
use super::session::Session;
use crate::sys::clock::Instant;

pub(super) type Outcome = Result<Session, Error>;

/// Callback of the user.
pub(super) type Callback = Box<dyn FnOnce(Outcome) + Send>;

/// Receiver of a session or of an error.
pub(super) enum Receiver {
    /// A thread that waits for the result.
    Thread(SyncSender<Outcome>),
    Call(Callback),
}

/// Caller that waits for a session.
pub(super) struct Caller {
    pub(super) ticket: u64,
    pub(super) since: Instant,
    deadline: Instant,
    pub(super) receiver: Receiver,
}

/// Waiting callers by ticket.
#[derive(Default)]
pub(super) struct Waiting {
    callers: BTreeMap<u64, Caller>,
    next_ticket: u64,
    /// Lower bound of the deadlines.
    next_due: Option<Instant>,
    /// Number of callers refused at `max_waiting`.
    refused: u64,
}

impl Waiting {
    /// Adds a caller behind the others. Returns its ticket.
    pub(super) fn add(&mut self, since: Instant, deadline: Instant, receiver: Receiver) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.callers.insert(ticket, Caller { ticket, since, deadline, receiver });
        self.next_due = Some(self.next_due.map_or(deadline, |due| due.min(deadline)));
        ticket
    }

    /// Removes the caller that waits longest.
    pub(super) fn pop(&mut self) -> Option<Caller> {
        self.callers.pop_first().map(|(_, caller)| caller)
    }

    /// Removes the caller that came last, if more than `limit` wait.
    pub(super) fn refuse(&mut self, limit: usize) -> Option<Caller> {
        if self.callers.len() <= limit {
            return None;
        }
        self.refused += 1;
        self.callers.pop_last().map(|(_, caller)| caller)
    }

    /// Removes the caller with this ticket.
    pub(super) fn remove(&mut self, ticket: u64) -> Option<Caller> {
        self.callers.remove(&ticket)
    }

    /// Removes the callers whose deadlines have passed.
    pub(super) fn remove_late(&mut self, now: Instant) -> Vec<Caller> {
        if self.next_due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        let late = self.callers.values().filter(|caller| caller.deadline <= now);
        let late: Vec<u64> = late.map(|caller| caller.ticket).collect();
        let late = late.into_iter().filter_map(|ticket| self.remove(ticket)).collect();
        self.next_due = self.callers.values().map(|caller| caller.deadline).min();
        late
    }

    /// Lower bound of the deadlines. `None` if no caller waits.
    pub(super) fn next_due(&mut self) -> Option<Instant> {
        self.next_due = self.next_due.filter(|_| !self.is_empty());
        self.next_due
    }

    pub(super) fn is_empty(&self) -> bool {
        self.callers.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.callers.len()
    }

    /// Number of callers refused so far.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }
}

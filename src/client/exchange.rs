//! [`Exchange`]: the requests of one session, in order.
//!
//! ```text
//!  oldest                                                  newest
//!  ┌──────────┬──────────┬──────────┬──────────┬─────────────────┐
//!  │ answered │ answered │ sent     │ sent     │ held            │
//!  │ not taken│ taken    │ receiving│ waits    │ not on the wire │
//!  └──────────┴──────────┴────▲─────┴──────────┴─────────────────┘
//!                             └ next frame of the session belongs to it
//! ```
//!
//! Replies have no number: a reply belongs to the oldest unanswered request. So an abandoned
//! request keeps its place until its answer has arrived.

use std::collections::VecDeque;
use std::time::Instant;

use super::error::Error;
use super::slot::Slot;

/// Requests of one session.
pub(super) struct Exchange {
    slots: VecDeque<Slot>,
    /// Number of the first request.
    first: u64,
    /// Error that ended the session. No more requests are sent.
    pub(super) dead: Option<Error>,
    /// Set if the session serves one request only.
    pub(super) once: bool,
    /// Set when the server has opened the session or is about to.
    pub(super) opened: bool,
    /// Set when the session has a canceller. Its requests are then sent one at a time.
    pub(super) cancellable: bool,
    /// Set when the session accepts no more requests. It is removed after those that it has.
    pub(super) closing: bool,
}

impl Exchange {
    pub(super) const fn new(once: bool) -> Self {
        let slots = VecDeque::new();
        let (opened, cancellable) = (false, false);
        Self { slots, first: 0, dead: None, once, opened, cancellable, closing: once }
    }

    pub(super) fn push(&mut self, slot: Slot) -> u64 {
        self.slots.push_back(slot);
        self.first + self.slots.len() as u64 - 1
    }

    pub(super) fn slot(&mut self, seq: u64) -> Option<&mut Slot> {
        let index = usize::try_from(seq.checked_sub(self.first)?).ok()?;
        self.slots.get_mut(index)
    }

    pub(super) fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        self.slots.iter_mut()
    }

    /// Request to which the next frame belongs.
    pub(super) fn current(&mut self) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.is_sent())
    }

    /// Returns true if no later request was sent behind the current one.
    pub(super) fn is_current_last(&self) -> bool {
        self.slots.iter().filter(|slot| slot.is_sent()).nth(1).is_none()
    }

    /// Returns true if a wanted request was sent behind the current one. A late kill would reach it.
    pub(super) fn risks_next(&self) -> bool {
        self.slots.iter().filter(|slot| slot.is_request_sent()).skip(1).any(Slot::is_wanted)
    }

    /// Returns true if a caller waits for an outstanding answer.
    pub(super) fn is_wanted(&self) -> bool {
        self.slots.iter().any(Slot::is_wanted)
    }

    /// Number of requests on the wire. True beside it if no caller wants the answer of one of them.
    pub(super) fn in_flight(&self) -> (usize, bool) {
        let sent = self.slots.iter().filter(|slot| slot.is_sent());
        sent.fold((0, false), |(count, left), slot| (count + 1, left || slot.is_left()))
    }

    /// Number of the first known request.
    pub(super) const fn first(&self) -> u64 {
        self.first
    }

    /// Number of the request to which the next frame belongs.
    pub(super) fn current_seq(&self) -> u64 {
        let index = self.slots.iter().position(Slot::is_sent).unwrap_or(self.slots.len());
        self.first + index as u64
    }

    /// First request that waits to be sent.
    pub(super) fn first_held(&mut self) -> Option<&mut Slot> {
        self.slots.iter_mut().find(|slot| slot.is_held())
    }

    /// Latest deadline of the unanswered requests.
    pub(super) fn last_deadline(&self) -> Option<Instant> {
        let open = self.slots.iter().filter(|slot| !slot.is_answered());
        open.filter_map(|slot| slot.deadline).max()
    }

    /// Removes requests that were answered and taken. Returns true if none is left.
    pub(super) fn tidy(&mut self) -> bool {
        while self.slots.front().is_some_and(|slot| slot.is_answered() && slot.taken) {
            self.slots.pop_front();
            self.first += 1;
        }
        self.slots.is_empty()
    }

    /// Returns true if no request is on its way.
    pub(super) fn is_idle(&self) -> bool {
        self.slots.iter().all(Slot::is_answered)
    }
}

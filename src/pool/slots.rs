//! [`Slots`]: one for each connection of a backend, from before it is made until it is closed.

use std::panic::Location;
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::manage::Version;

/// Names a connection as long as it exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Ticket(u32);

/// Who has it, for the report of leaks.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    pub(super) location: &'static Location<'static>,
    pub(super) thread: Thread,
}

impl Holder {
    #[inline]
    pub(super) fn new(location: &'static Location<'static>) -> Self {
        Self { location, thread: thread::current() }
    }
}

#[derive(Debug)]
pub(super) struct Slot<C> {
    pub(super) version: Version,
    /// Since when it is in the state that it is in.
    pub(super) since: Instant,
    /// Past its age then; `None`: never.
    pub(super) expires: Option<Instant>,
    /// How long it may be idle; `None`: for ever.
    pub(super) idle_timeout: Option<Duration>,
    /// The connection, while it is idle.
    pub(super) conn: Option<C>,
    pub(super) state: State,
    /// Its last user.
    pub(super) holder: Option<Holder>,
    next_free: u32,
}

/// Idle when it holds a connection, else:
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    Free,
    Connecting {
        /// By the host.
        by_host: bool,
    },
    /// Idle or in use.
    Made,
}

impl<C> Slot<C> {
    /// It has a new user.
    #[inline]
    pub(super) fn hold(&mut self, holder: &Holder) {
        match &mut self.holder {
            // Most often it is the one from before: then nothing is to be counted.
            Some(last) if last.thread.id() == holder.thread.id() => last.location = holder.location,
            last => *last = Some(holder.clone()),
        }
    }

    /// When it has been idle for too long.
    #[inline]
    pub(super) fn idle_until(&self) -> Option<Instant> {
        self.since.checked_add(self.idle_timeout?)
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.state == State::Made && self.conn.is_none()
    }
}

/// All of them; free ones are used again, last freed first.
#[derive(Debug)]
pub(super) struct Slots<C> {
    slots: Vec<Slot<C>>,
    free: u32,
}

const NONE: u32 = u32::MAX;

impl<C> Slots<C> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), free: NONE }
    }

    #[inline]
    pub(super) fn at(&mut self, ticket: Ticket) -> &mut Slot<C> {
        &mut self.slots[ticket.0 as usize]
    }

    #[inline]
    pub(super) fn look(&self, ticket: Ticket) -> &Slot<C> {
        &self.slots[ticket.0 as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Slot<C>> {
        self.slots.iter()
    }

    /// For a connect that begins.
    pub(super) fn connect(
        &mut self,
        version: Version,
        since: Instant,
        by_host: bool,
        holder: Option<Holder>,
    ) -> Ticket {
        let slot = Slot {
            version,
            since,
            expires: None,
            idle_timeout: None,
            conn: None,
            state: State::Connecting { by_host },
            holder,
            next_free: NONE,
        };
        if let Some(place) = self.slots.get_mut(self.free as usize) {
            let number = std::mem::replace(&mut self.free, place.next_free);
            *place = slot;
            return Ticket(number);
        }
        self.slots.push(slot);
        Ticket(u32::try_from(self.slots.len() - 1).expect("bounded by max for each version"))
    }

    /// Its connection is gone.
    pub(super) fn free(&mut self, ticket: Ticket) {
        let slot = &mut self.slots[ticket.0 as usize];
        debug_assert!(slot.state != State::Free && slot.conn.is_none(), "freed once, when empty");
        slot.state = State::Free;
        slot.holder = None;
        slot.next_free = std::mem::replace(&mut self.free, ticket.0);
    }
}

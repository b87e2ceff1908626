//! What goes into a [`Stack`](super::Stack), and what comes out.

use std::time::Instant;

use crate::pool::error::Cause;
use crate::pool::limits::Limits;
use crate::pool::manage::Version;
use crate::pool::slots::{Holder, Ticket};
use crate::pool::status::Discard;

/// Somebody who waits.
#[derive(Debug)]
pub(in crate::pool) struct Waiter<W> {
    pub(in crate::pool) what: W,
    pub(in crate::pool) patience: Patience,
    pub(in crate::pool) holder: Holder,
}

/// How long, and how.
#[derive(Clone, Copy, Debug)]
pub(in crate::pool) struct Patience {
    pub(in crate::pool) deadline: Option<Instant>,
    /// A thread sleeps for it: it can connect, and leaves by itself.
    pub(in crate::pool) has_thread: bool,
}

/// What comes of asking for a connection.
#[derive(Debug)]
pub(in crate::pool) enum Checkout<C> {
    Ready(Ready<C>),
    /// The caller may make one.
    Connect(Ticket, Version),
    /// The caller has to wait: [`Stack::wait`], under the same lock.
    Wait,
    Refused(Refused),
}

/// An idle connection, now in use.
#[derive(Debug)]
pub(in crate::pool) struct Ready<C> {
    pub(in crate::pool) conn: C,
    pub(in crate::pool) ticket: Ticket,
    pub(in crate::pool) version: Version,
    pub(in crate::pool) fitness: Fitness,
    /// Fewer are idle now than are to be kept: [`Stack::keep_ahead`] is to be called.
    pub(in crate::pool) more: bool,
}

/// What is to be done with it first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pool) enum Fitness {
    Fresh,
    /// It was idle for long: ask whether it is valid.
    Check,
    /// It is past its age: discard it.
    TooOld,
}

/// Why there is no point in waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pool) enum Refused {
    Disabled,
    Closed,
    TooMany(usize),
}

/// A thread that asks for a connection.
#[derive(Clone, Copy, Debug)]
pub(in crate::pool) struct Ask<'a> {
    pub(in crate::pool) holder: &'a Holder,
    pub(in crate::pool) asked: Instant,
    /// `None`: as long as the limits say.
    pub(in crate::pool) deadline: Option<Instant>,
    pub(in crate::pool) turn: Turn,
}

impl Ask<'_> {
    /// `None`: never.
    pub(in crate::pool) fn deadline(&self, limits: &Limits) -> Option<Instant> {
        self.deadline.or_else(|| self.asked.checked_add(limits.wait_timeout))
    }
}

/// Whether a caller is new or has had its turn, which came to nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::pool) enum Turn {
    First,
    Again,
}

/// What somebody gets who waited.
#[derive(Debug)]
pub(in crate::pool) enum Grant<C> {
    Conn(C, Ticket, Version),
    /// It may make one: only for who has a thread.
    Connect(Ticket, Version),
    Refused(Refused),
    /// Its deadline has passed: only for who has no thread.
    Expired(Cause),
}

/// What is to be done, outside the lock.
#[derive(Debug)]
pub(in crate::pool) struct Effects<C, W> {
    pub(in crate::pool) grants: Vec<(W, Grant<C>)>,
    pub(in crate::pool) close: Vec<(C, Version, Discard)>,
    /// The host makes connections.
    pub(in crate::pool) connect: Vec<(Ticket, Version)>,
    /// The host calls `due` then.
    pub(in crate::pool) arm: Option<Instant>,
    /// Nothing is in use any more, and somebody waits for that.
    pub(in crate::pool) quiet: bool,
    /// Nobody uses the backend: it may vanish.
    pub(in crate::pool) unused: bool,
}

impl<C, W> Default for Effects<C, W> {
    fn default() -> Self {
        let (grants, close, connect) = (Vec::new(), Vec::new(), Vec::new());
        Self { grants, close, connect, arm: None, quiet: false, unused: false }
    }
}

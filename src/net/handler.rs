//! A [`Protocol`] without its type, so that connections and listeners have no type parameter.

use std::sync::Arc;

use super::close::{Close, CloseReason, HalfClose};
use super::connection::Connection;
use super::options::ConnOptions;
use super::read_buf::Input;
use super::{Protocol, Turn};
use crate::runtime::Cost;

/// A protocol without its type, with the options that the connections of a listener share.
pub(super) trait Erased: Send + Sync {
    /// Time that the first request of a connection takes, with which the estimate of a new connection
    /// begins. Otherwise each new connection would count as slow until its first request is over.
    fn first_cost(&self) -> &Cost;
    fn options(&self) -> &ConnOptions;
    fn open(self: Arc<Self>, conn: &Connection) -> Result<Box<dyn Handler>, Close>;
    fn released(&self, conn: &Connection, turn: Turn);
    fn drained(&self, conn: &Connection);
    fn connect_failed(&self, conn: &Connection, reason: &CloseReason);
}

/// A protocol with the state of one connection.
pub(super) trait Handler: Send {
    fn received(&mut self, conn: &Connection, input: &mut Input<'_>) -> Result<(), Close>;
    fn notified(&mut self, conn: &Connection, input: &mut Input<'_>) -> Result<(), Close>;
    fn ended(&mut self, conn: &Connection) -> Result<HalfClose, Close>;
    fn draining(&mut self, conn: &Connection);
    fn closed(self: Box<Self>, conn: &Connection, reason: &CloseReason);
}

/// The only implementation of [`Erased`].
pub(super) struct Typed<P> {
    protocol: P,
    first_cost: Cost,
    options: ConnOptions,
}

impl<P> Typed<P> {
    pub(super) fn new(protocol: P, options: ConnOptions) -> Self {
        Self { protocol, first_cost: Cost::quick(), options }
    }
}

struct Session<P: Protocol> {
    protocol: Arc<Typed<P>>,
    state: P::State,
}

impl<P: Protocol> Erased for Typed<P> {
    fn first_cost(&self) -> &Cost {
        &self.first_cost
    }

    fn options(&self) -> &ConnOptions {
        &self.options
    }

    fn open(self: Arc<Self>, conn: &Connection) -> Result<Box<dyn Handler>, Close> {
        let state = self.protocol.opened(conn)?;
        Ok(Box::new(Session { protocol: self, state }))
    }

    fn released(&self, conn: &Connection, turn: Turn) {
        self.protocol.released(conn, turn);
    }

    fn drained(&self, conn: &Connection) {
        self.protocol.drained(conn);
    }

    fn connect_failed(&self, conn: &Connection, reason: &CloseReason) {
        self.protocol.connect_failed(conn, reason);
    }
}

impl<P: Protocol> Handler for Session<P> {
    fn received(&mut self, conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
        self.protocol.protocol.received(conn, &mut self.state, input)
    }

    fn notified(&mut self, conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
        self.protocol.protocol.notified(conn, &mut self.state, input)
    }

    fn ended(&mut self, conn: &Connection) -> Result<HalfClose, Close> {
        self.protocol.protocol.ended(conn, &mut self.state)
    }

    fn draining(&mut self, conn: &Connection) {
        self.protocol.protocol.draining(conn, &mut self.state);
    }

    fn closed(self: Box<Self>, conn: &Connection, reason: &CloseReason) {
        let Self { protocol, state } = *self;
        protocol.protocol.closed(conn, state, reason);
    }
}

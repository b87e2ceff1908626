//! [`Served`]: a protocol on sockets that are connected already, for simulations.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::Protocol;
use super::accept::admit;
use super::address::Address;
use super::connection::Connection;
use super::handler::{Erased, Typed};
use crate::runtime::{Class, Group};

/// A protocol with as many connections as it is given, as if a listener had accepted them.
pub(crate) struct Served(Arc<dyn Erased>);

impl Served {
    pub(crate) fn new(protocol: impl Protocol) -> Self {
        Self(Arc::new(Typed(protocol)))
    }

    /// Serves a socket, which does not block, or closes it if there are too many.
    pub(crate) fn accept(
        &self,
        group: &Arc<Group>,
        socket: OwnedFd,
        peer: Address,
    ) -> Option<Connection> {
        admit(group, socket, peer, &self.0, Class::Ordinary)
    }
}

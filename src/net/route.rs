//! [`Route`]: addresses of a server, tried one after the other.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Instant;

use super::address::Address;
use crate::sys::clock;
use crate::sys::socket::{self, Options};

/// Addresses to connect to, and how.
#[derive(Debug)]
pub(super) struct Route {
    /// Addresses that were not tried yet, the last one first.
    rest: Vec<Address>,
    local_addr: Option<SocketAddr>,
    options: Options,
    /// Time by which the connection must be established.
    until: Option<Instant>,
    /// Address that is tried now, if it is not the first one.
    pub(super) later: Option<Address>,
}

/// Attempt to connect that has begun.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) address: Address,
    pub(super) socket: OwnedFd,
    /// Time by which it must succeed: an equal share of the time that is left.
    pub(super) until: Option<Instant>,
}

impl Route {
    pub(super) fn new(
        mut addresses: Vec<Address>,
        local_addr: Option<SocketAddr>,
        options: Options,
        until: Option<Instant>,
    ) -> Self {
        addresses.reverse();
        Self { rest: addresses, local_addr, options, until, later: None }
    }

    /// Begins to connect to the next address that allows it. `failed` is the error of the attempt before.
    ///
    /// # Errors
    ///
    /// The last error, if no address is left.
    pub(super) fn go_on(&mut self, mut failed: io::Error) -> io::Result<Attempt> {
        while let Some(address) = self.rest.pop() {
            let begun = address
                .to_raw()
                .and_then(|raw| socket::connect(&raw, self.local_addr, &self.options));
            match begun {
                Ok(socket) => return Ok(Attempt { address, socket, until: self.share() }),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn share(&self) -> Option<Instant> {
        let (until, now) = (self.until?, clock::now());
        let attempts = u32::try_from(self.rest.len() + 1).unwrap_or(u32::MAX);
        Some(clock::later(now, until.saturating_duration_since(now) / attempts))
    }
}

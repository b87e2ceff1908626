//! [`Route`]: addresses of a server, tried one after the other.
#![forbid(unsafe_code)]

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::address::Address;
use crate::sys::clock::{self, Instant};
use crate::sys::socket::{self, Options};

/// Addresses to connect to, and the options and time limit of the attempts.
#[derive(Debug)]
pub(super) struct Route {
    /// Addresses that were not tried yet, the last one first.
    rest: Vec<Address>,
    local_addr: Option<SocketAddr>,
    options: Options,
    /// `connect_timeout`, and the time at which it ends.
    limit: Option<(Duration, Instant)>,
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
        connect_timeout: Option<Duration>,
    ) -> Self {
        addresses.reverse();
        let limit = connect_timeout.map(|limit| (limit, clock::now() + limit));
        Self { rest: addresses, local_addr, options, limit, later: None }
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

    /// Error of an attempt that has taken too long. `first` is the first address.
    pub(super) fn timed_out(&self, first: &Address) -> io::Error {
        let address = self.later.as_ref().unwrap_or(first);
        let limit = self.limit.map_or(Duration::MAX, |(limit, _)| limit);
        let share = if self.later.is_some() { "its share of " } else { "" };
        let text = format!("{address} did not answer within {share}connect_timeout {limit:?}");
        io::Error::new(io::ErrorKind::TimedOut, text)
    }

    fn share(&self) -> Option<Instant> {
        let ((_, until), now) = (self.limit?, clock::now());
        let attempts = u32::try_from(self.rest.len() + 1).unwrap_or(u32::MAX);
        Some(now + until.duration_since(now) / attempts)
    }
}

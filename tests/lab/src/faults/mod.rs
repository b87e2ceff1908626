//! The relay of the example `faults`. It stands between a client and a server and applies the
//! faults of a script to connections.

pub mod passage;
pub mod plan;
#[cfg(test)]
mod plans;
pub mod relay;
pub mod script;
mod sys;

use std::net::SocketAddr;

pub use crate::address::Address;
pub use passage::End;
pub use relay::{Relay, Report, Totals};
pub use script::{Coalesce, Cut, Faults, How, Mark, Script, Stop};

/// Starts a relay on a free port of the loopback.
#[track_caller]
pub fn relay(script: Script, to: SocketAddr) -> Relay {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    Relay::start(script, &listen, to.into()).expect("listening")
}

impl Relay {
    /// Address at which the relay listens.
    #[track_caller]
    pub fn tcp(&self) -> SocketAddr {
        match self.address() {
            Address::Tcp(address) => *address,
            other => panic!("not TCP: {other}"),
        }
    }
}

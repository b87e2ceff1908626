//! The relay of the example `faults`: stands between a client and a server, and does to connections
//! what a script says.

#![allow(dead_code, unused_imports, reason = "each test file uses a part of this")]

#[path = "../../examples/faults/address.rs"]
mod address;
#[path = "../../examples/faults/dice.rs"]
mod dice;
#[path = "../../examples/faults/passage.rs"]
mod passage;
#[path = "../../examples/faults/plan.rs"]
mod plan;
#[path = "../../examples/faults/relay.rs"]
mod relay;
#[path = "../../examples/faults/script.rs"]
mod script;
#[path = "../../examples/faults/sys.rs"]
mod sys;

use std::net::SocketAddr;

pub(crate) use address::Address;
pub(crate) use passage::End;
pub(crate) use relay::{Relay, Report, Totals};
pub(crate) use script::{Coalesce, Cut, Faults, How, Mark, Script, Stop};

/// On a free port of the loopback.
#[track_caller]
pub(crate) fn relay(script: Script, to: SocketAddr) -> Relay {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0)).into();
    Relay::start(script, &listen, to.into()).expect("listening")
}

impl Relay {
    /// Where it listens.
    #[track_caller]
    pub(crate) fn tcp(&self) -> SocketAddr {
        match self.address() {
            Address::Tcp(address) => *address,
            other => panic!("not TCP: {other}"),
        }
    }
}

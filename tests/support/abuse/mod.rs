//! Those who abuse a server, and those who stand by.

#[path = "../../../examples/echo/load/sys.rs"]
pub(crate) mod sys;

mod bystander;
pub(crate) mod bystanders;

use std::net::SocketAddr;

/// Where attackers go.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) user: String,
    pub(crate) password: String,
    pub(crate) small: String,
    pub(crate) large: String,
}

//! PROXY protocol: the address of a client behind a proxy.

mod header;
mod layer;
mod network;

#[cfg(feature = "internal")]
pub(crate) use header::check;
pub use header::{ProxyHeader, ProxyVersion};
pub(super) use layer::{AcceptHeaders, SendHeader};
pub use network::{Network, NetworkError};

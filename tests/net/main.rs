//! Connections and listeners: bytes, frames, limits, options, ends.
#![cfg(feature = "server")]

mod addresses;
mod churn;
mod close;
mod descriptors;
mod flow;
mod frames;
mod ipv6;
mod layers;
mod limits;
mod listeners;
mod many;
mod options;
mod proxy_protocol;
mod read_more;
mod reuse;
mod routes;
mod send;
mod status;
#[cfg(feature = "tls")]
mod tls;

#[global_allocator]
static ALLOCATOR: lab::allocator::Noting = lab::allocator::LIVE;

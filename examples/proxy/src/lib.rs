//! Parts of the program `proxy`: sessions of clients in front, data nodes behind. `main.rs` draws
//! them. `proxy.rs` is the service, and the file to read first.

pub mod ask;
pub mod cancel;
pub mod cell;
pub mod config;
pub mod data_node;
pub mod engaged;
pub mod failover;
pub mod fleet;
pub mod front;
pub mod local;
pub mod nodes;
pub mod passage;
pub mod proxy;
pub mod refuse;
pub mod route;
pub mod scatter;
pub mod spread;
pub mod status;
#[cfg(test)]
mod tests;
pub mod turn;

use select1::node;

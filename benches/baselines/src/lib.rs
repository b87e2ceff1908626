//! Servers that epoll-group is measured against, each in the shape that its documents describe.
//!
//! The head of each file names the system that it models, the description it follows, and what it is good
//! and bad at. All of them have the same socket options, allocator and checks, and pass the same tests.
//!
//! | module | shape |
//! |---|---|
//! | [`loops`] | bare epoll loops (`limit`), and libuv's way to run them (`uv`) |
//! | [`easy_sync`], [`easy_async`] | libeasy: io threads, alone or with workers |
//! | [`pairs`] | a proxy of bare epoll loops |
//! | [`percona`] | thread groups of Percona Server and MariaDB |
//! | [`grpc_cq`] | gRPC's completion queue |
//! | [`thread_per_connection`], [`frame_per_session`] | threads |
//! | [`tokio_tasks`] | tokio |
//! | [`thread_per_client`], [`thread_per_session`] | threads before statements of sessions |
//!
//! [`Spec`] names a server that echoes frames, and [`Server`] starts it. Frames are described in
//! [`frames`], statements in [`statements`].

pub mod client;
pub mod easy_async;
pub mod easy_sync;
pub mod epoll;
mod event_loop;
pub mod frame_per_session;
pub mod frames;
pub mod grpc_cq;
mod lock_table;
pub mod loops;
pub mod pairs;
pub mod percona;
// The example is what users read first, so it keeps its server, and this package measures that file.
#[path = "../../../examples/echo/protocol.rs"]
mod protocol;
mod server;
mod spec;
pub mod statements;
#[cfg(test)]
mod tests;
pub mod thread_per_client;
pub mod thread_per_connection;
pub mod thread_per_session;
mod threads;
pub mod tokio_tasks;

pub use server::Server;
pub use spec::{KINDS, Kind, Setting, Spec};

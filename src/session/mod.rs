//! Session layer: a database server on connections that carry many sessions each.
//!
//! A database engine implements [`Service`]. A [`Server`] around it is a
//! [`Protocol`](crate::net::Protocol) for [`listen`](crate::Handle::listen).
//!
//! ```text
//!  connection                       sessions of it                    workers
//!  ┌────────────────┐  post   ┌─────────┐ ┌─────────┐   in place   ┌────────────────┐
//!  │ frames, decoded│────────▶│ mailbox │▶│ Runner  │─────────────▶│ your execute() │
//!  │ one at a time  │         └─────────┘ └─────────┘  or queued   └───────┬────────┘
//!  │                │  kill, offer, probe: at once                         │ rows
//!  └────────────────┘                                                      ▼
//!         ▲              one send for what is ready at the same time  ┌─────────┐
//!         └───────────────────────────────────────────────────────────│ output  │
//!                                                                     └─────────┘
//! ```
//!
//! # Promises
//!
//! * **Order.** The requests of a session run one after the other, in the order of their arrival.
//!   Their replies leave in the same order and are never mixed. Sessions of one connection run in
//!   parallel, without an order between them.
//! * **One answer.** Each request gets one answer. If its session dies, one fatal error answers all
//!   outstanding requests of the session.
//! * **End.** After the message about the end of a session, the server sends no frame of it.
//! * **Isolation.** A session may wait for a lock, its client or a deferred answer. Other sessions
//!   run meanwhile, and their replies leave.
//!
//! # Life of a request
//!
//! 1. The connection decodes the frame and queues the request in the mailbox of its session.
//!    `max_queued_messages`, `max_queued_bytes_per_connection` and `max_queued_bytes` bound it.
//!    Kill, credit and probes do not enter the mailbox: the connection handles them at once.
//! 2. After the receive, sessions with queued requests run. Sessions known to be quick run in
//!    place, others as tasks. Sessions in a transaction go first.
//! 3. [`Service::execute`] writes the reply. It may leave the rest of the reply to a
//!    [source](Reply::source), a [relay](Reply::relay) or a [deferred](Reply::defer) handle. The
//!    session then waits without a thread.
//! 4. The layer writes the end of the reply, and the session begins its next request.
//!
//! # Sessions of one statement
//!
//! A statement on a session id with the highest bit set gets a session of its own, which ends with
//! the statement: [`Service::open`], [`Service::execute`], [`Service::closed`]. Such sessions run
//! in parallel.
#![forbid(unsafe_code)]

mod accounts;
mod auth;
mod cache;
mod conn_shared;
mod credit;
mod ending;
mod error;
mod expect_blocks;
mod glitches;
mod login;
mod logins;
mod mailbox;
mod notify_once;
mod output;
mod reader;
mod relay;
mod reply;
mod reply_state;
mod request;
mod row;
mod run;
mod server;
mod server_conn;
mod server_shared;
mod service;
mod session_shared;
mod signal;
mod timestamps;
mod writers;

pub use accounts::{Account, AccountLimits, AccountStats, Accounts, Peer};
pub use auth::Login;
#[cfg(feature = "internal")]
pub(crate) use auth::attempt;
pub use ending::Ending;
pub use error::{AuthError, CancelReason, SessionError};
pub use reader::Reader;
pub use relay::{Relay, Relayed, Wake};
pub use reply::{Deferred, Reply};
pub use request::{Plan, Request, Savepoint, Sql};
pub use row::{Row, RowSource};
pub use server::Server;
pub use service::Service;
pub use session_shared::{Cancel, SessionId};
#[cfg(feature = "internal")]
pub(crate) use signal::simulate_waits;

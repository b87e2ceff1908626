//! Sessions: a database server on connections that each carry many of them.
//!
//! An engine implements [`Service`]; a [`Server`] with it is a [`Protocol`](crate::net::Protocol), to
//! be given to [`listen`](crate::Handle::listen).
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
//! # What is promised
//!
//! * **Order.** The requests of a session run one after the other, in the order in which they came, and
//!   their replies leave in that order, never mixed. Between sessions there is no order: those of one
//!   connection run side by side.
//! * **One outcome.** Each request has one answer, unless its session dies: a fatal error answers all
//!   that its session had outstanding.
//! * **Nothing of the dead.** When the end of a session was told, no frame of it follows.
//! * **Nobody pays for others.** A session that waits, for a lock, for its client, for a deferred
//!   answer, keeps no other from running, and no reply waits for one of another session.
//!
//! # The life of a request
//!
//! 1. The frame is decoded and posted to the mailbox of its session, bounded by `max_queued_messages`,
//!    `max_queued_bytes_per_connection` and `max_queued_bytes`. What overtakes the mailbox is done at
//!    once: kill, credit, probes.
//! 2. When the receive is over, sessions that have something to do are run: those known to be quick in
//!    place, the others as tasks, those inside a transaction first.
//! 3. [`Service::execute`] writes the reply. It returns when it is written, or leaves the rest to a
//!    [source](Reply::source), to a [relay](Reply::relay) or to a [deferred](Reply::defer) handle; then
//!    the session waits without a thread.
//! 4. The end of the reply is written, and the next request of the session begins.
//!
//! # Sessions for one statement
//!
//! A statement on a session id whose highest bit is set gets a session of its own, which ends with it:
//! [`Service::open`], [`Service::execute`], [`Service::closed`]. They run like any others, in parallel.
#![forbid(unsafe_code)]

mod answers;
mod auth;
mod cache;
mod channel;
mod clock;
mod credit;
mod deferred;
mod ending;
mod error;
mod expecting;
mod gate;
mod glitches;
mod kept;
mod line;
mod link;
mod logins;
mod output;
mod post;
mod relay;
mod reply;
mod request;
mod row;
mod run;
mod server;
mod service;
mod source;
mod state;
mod told;
mod writers;

pub use auth::Login;
#[cfg(feature = "internal")]
pub(crate) use auth::attempt;
pub use deferred::Deferred;
pub use ending::Ending;
pub use error::{AuthError, SessionError};
pub use relay::{Relay, Relayed, Wake};
pub use reply::Reply;
pub use request::{Plan, Request, Savepoint, SavepointAction, Sql, Timestamps};
pub use row::Row;
pub use server::{Reader, Server};
pub use service::{Account, Cancel, CancelReason, Peer, Service, SessionId};
pub use source::RowSource;

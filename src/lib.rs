//! An event-loop networking library for database servers and proxies on Linux, without async:
//! handlers are plain blocking Rust.
//!
//! ```text
//!   sockets, timers                 a group: one shared epoll, four equal workers
//!  ┌──────────────┐     ┌──────────────────────────────────────────────────────────────┐
//!  │ connection ──┼──┐  │  ┌────────┐  wait   ┌─────────┐  quick: here, at once          │
//!  │ connection ──┼──┼──┼─▶│ epoll  │────────▶│ worker  │──────────────▶ your handler    │
//!  │ listener   ──┼──┘  │  │ (edges)│         └─────────┘                     │ send     │
//!  │ timerfd    ──┼─────┼─▶│        │◀─┐      ┌─────────┐  slow: queued       ▼          │
//!  │ eventfd    ──┼─────┼─▶└────────┘  └──────│ worker  │◀────────────┐  socket, else    │
//!  └──────────────┘     │   number of waiters  │ asleep …│   task queue│  the connection's│
//!                       │   depends on handlers└─────────┘             │  backlog         │
//!  your threads ── spawn, send, close, after ─────────────────────────▶┘                  │
//!                       └──────────────────────────────────────────────────────────────┘
//! ```
//!
//! A [`Runtime`] owns groups of workers. Each connection belongs to one group; any worker of that
//! group may receive, run your handler and send for it, one at a time. A handler that blocks holds
//! up its own connection and one worker; the others go on. A full task queue loses no task. A slow,
//! hostile or vanished peer costs bounded memory and delays no other connection.
//!
//! # Example
//!
//! A server that returns what it gets, and a client on the same workers:
//!
//! ```
//! use std::sync::mpsc;
//! use std::time::Duration;
//!
//! use epoll_group::Runtime;
//! use epoll_group::net::{Close, Connection, Input, Protocol};
//!
//! struct Echo;
//!
//! impl Protocol for Echo {
//!     type State = ();
//!
//!     fn opened(&self, _conn: &Connection) -> Result<(), Close> {
//!         Ok(())
//!     }
//!
//!     fn received(&self, conn: &Connection, _: &mut (), input: &mut Input<'_>) -> Result<(), Close> {
//!         conn.send(input.take_all());
//!         Ok(())
//!     }
//! }
//!
//! struct Ask(mpsc::Sender<Vec<u8>>);
//!
//! impl Protocol for Ask {
//!     type State = ();
//!
//!     fn opened(&self, conn: &Connection) -> Result<(), Close> {
//!         conn.send("hello");
//!         Ok(())
//!     }
//!
//!     fn received(&self, conn: &Connection, _: &mut (), input: &mut Input<'_>) -> Result<(), Close> {
//!         let _ = self.0.send(input.take_all().to_vec());
//!         conn.close("answered");
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let runtime = Runtime::builder().start()?;
//!     let listener = runtime.listen("127.0.0.1:0", Echo)?;
//!
//!     let (answer, answers) = mpsc::channel();
//!     runtime.connect(listener.local_addr(), Ask(answer))?;
//!     assert_eq!(answers.recv()?, b"hello");
//!
//!     let report = runtime.drain(Duration::from_secs(5));
//!     assert_eq!(report.cut, 0);
//!     Ok(())
//! }
//! ```
//!
//! # Owners and references
//!
//! The last owner of a thing ends it when dropped. The drop of a reference ends nothing.
//!
//! | value | kind | effect of its drop |
//! |---|---|---|
//! | [`Runtime`] | owner | drains for 100 ms at most, cuts what is left, joins its threads except stuck ones |
//! | [`Handle`] | reference | none |
//! | [`net::Listener`] | owner | serves waiting connections, then closes; its connections continue |
//! | [`net::Connection`] | reference | none; `close`, the peer or the runtime ends a connection |
//! | [`net::Hold`] | owner | ends its request: a drain waits for it no longer |
//! | [`Timer`] | owner | cancels the timer, unless it was [detached](Timer::detach) |
//! | [`Registration`] | owner | ends the watch, then closes the descriptor |
//! | [`session::Deferred`] | owner | answers its request with an error |
//! | [`client::Client`] | owner, shared by clones, sessions and answers | the last drop closes its connections |
//! | [`client::Session`] | owner | closes the session, after the answers to its requests |
//! | [`client::Pending`], [`client::Answer`] | owner | discards the rest of its answer, and interrupts the request if no wanted one was sent behind it |
//! | [`pool::Pool`] | owner, shared by clones | the last drop closes the pool |
//! | [`pool::Pooled`] | owner | returns the connection to its pool |
//!
//! # Where to go from here
//!
//! * [`session`]: a database server, of which you write the engine
//! * [`net`]: connections, and the view of them that a protocol has
//! * [`Handle`]: tasks, timers, foreign descriptors
//! * [`client`]: sessions of another server, blocking or by completion
//! * [`pool`]: connections to backends, kept for the next caller
//! * [`stall`] and [`sync`]: announcements of a handler that is about to wait, and locks that
//!   announce
//! * [`Class`]: the work that goes first when threads are short, such as the requests of a transaction
//! * [`Config`]: every tunable limit and time, with range and default
//! * [`status`]: a page that shows a runtime to its operator, and the same for Prometheus
//! * [`guide`]: reasons for the design, promises, and the workings of its concurrency
//! * [`codec`]: the wire format, alone, without sockets or threads
//!
//! # Features
//!
//! `server` (default): sockets, workers, timers, sessions, on Linux. Without default features
//! [`codec`] is built alone, on any system.
//!
//! `client` (default): [`client`], on the workers of `server`.
//!
//! `pool` (default): [`pool`], on any system. With `server` its waits are announced, and a
//! [`Handle`] keeps it going.
//!
//! `metrics`: counters and times, through the facade of that name.
//!
//! `status`: [`status`], on the workers of `server`.
//!
//! `spans`: a span of `tracing`, of level `INFO`, around each `received` and `notified` of a
//! connection and each request of a session, with the fields `connection` and `class`, and
//! `session` for a request.
//!
//! `serde`: [`Config`] is read from config files and written to them, see [`guide::tuning`].
//!
//! `tls`: TLS for accepted and outgoing connections, with `rustls` 0.23 and the cryptography that you
//! choose, for example `rustls = { version = "0.23", features = ["ring"] }`. See
//! [`TlsServer`](net::TlsServer).
//!
//! # Logs
//!
//! Events go through `tracing`, with targets that begin with `epoll_group`. Of each kind that peers or
//! handlers can cause, at most `max_log_events` are written in a second.
//!
//! | level | events |
//! |---|---|
//! | `ERROR` | a handler panicked; a listener or an epoll has failed |
//! | `WARN` | a handler runs longer than `handler_report_after`; a listener pauses after an unknown error; a connection could not be served; a relay passed a frame out of place; the file of a Unix socket stays; a tunable has no effect; events were left out |
//! | `INFO` | a session or a request was killed |
//! | `DEBUG` | a connection has ended, with `id`, `peer` and `reason`; a thread was added, or refused by the system |
//!
//! # What it does not do
//!
//! No async, no other system than Linux, no signals, no printing, no process exit.

#![cfg_attr(docsrs, feature(doc_cfg), doc(auto_cfg(hide(loom, target_os = "linux"))))]
#![cfg_attr(
    not(all(
        feature = "server",
        feature = "client",
        feature = "pool",
        feature = "status",
        target_os = "linux"
    )),
    allow(
        rustdoc::broken_intra_doc_links,
        rustdoc::private_intra_doc_links,
        reason = "the overview names items of all features"
    )
)]

#[cfg(all(feature = "server", not(target_os = "linux")))]
compile_error!(
    "epoll-group runs on Linux only: its feature `server` is built on epoll, eventfd and timerfd. \
     The codec alone builds anywhere with `default-features = false`."
);

pub mod codec;

#[cfg(all(feature = "client", target_os = "linux", not(loom)))]
pub mod client;
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
mod config;
#[cfg(all(feature = "server", target_os = "linux"))]
pub mod guide;
#[cfg(all(feature = "server", feature = "pool", target_os = "linux", not(loom)))]
mod host;
#[doc(hidden)]
#[cfg(all(feature = "internal", any(feature = "server", feature = "pool"), not(loom)))]
pub mod internal;
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub mod net;
#[cfg(feature = "pool")]
pub mod pool;
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
mod runtime;
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub mod session;
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub mod stall;
#[cfg(all(feature = "server", target_os = "linux"))]
#[cfg_attr(
    loom,
    allow(
        dead_code,
        unreachable_pub,
        unused_imports,
        reason = "the users of all this are left out"
    )
)]
pub mod stats;
#[cfg(all(feature = "status", target_os = "linux", not(loom)))]
pub mod status;
#[cfg(all(feature = "server", target_os = "linux"))]
#[cfg_attr(loom, allow(dead_code, reason = "the users of all this are left out"))]
pub mod sync;
#[cfg(all(feature = "pool", not(all(feature = "server", target_os = "linux"))))]
mod sync;
#[cfg(all(feature = "server", target_os = "linux"))]
#[cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "the users of all this are left out"))]
mod sys;

/// A pool without a runtime needs the clock alone.
#[cfg(all(feature = "pool", not(all(feature = "server", target_os = "linux"))))]
#[allow(dead_code, reason = "most of its users are left out")]
mod sys {
    pub(crate) mod clock;
}

#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub use config::{Config, ConfigError, Field, ReconfigureError, Unit};
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub use runtime::{
    Builder, Class, DrainReport, Handle, Interest, Readiness, Registration, Runtime, SpawnError,
    StartError, ThreadInfo, ThreadKind, ThreadReason, Timer,
};

/// The README's example, compiled and run.
#[cfg(all(doctest, feature = "server", target_os = "linux"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// Models build only the modules that synchronise, not those that call the system.
#[cfg(all(feature = "server", target_os = "linux", loom))]
#[cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "the users of all this are left out"))]
mod runtime {
    mod alarm;
    mod class;
    mod draining;
    mod end;
    mod park;
    mod queue;
    mod room;
    mod run_queues;
    mod scale;
    mod schedule;
    mod slots;
    mod starved;
    mod stealable;
    mod thread_set;
    mod timer;
    mod watch;
    mod worker_slot;

    /// Stands in for the work of the layers above.
    mod work {
        pub(crate) trait Work: Send + Sync {}
    }

    pub(crate) use crate::net::conn::{Excuse, leaves_room};
}

#[cfg(all(feature = "server", target_os = "linux", loom))]
#[cfg_attr(loom, allow(dead_code, unreachable_pub, reason = "the users of all this are left out"))]
mod net {
    mod close;
    /// Stands in for the connection and its group.
    #[path = "send_queue/stand_in.rs"]
    pub(crate) mod conn;
    mod phase;
    mod pieces;
    mod send_queue;

    use conn::{connection, cork};
}

#[cfg(all(feature = "server", target_os = "linux", loom))]
#[cfg_attr(loom, allow(dead_code, reason = "the users of all this are left out"))]
mod session {
    mod notify_once;
}

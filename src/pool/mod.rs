//! Connections to backends, kept for the next who wants one.
//!
//! ```text
//!                 read-mostly map                      a backend: one lock
//!   get(SPT0) ──▶ ┌──────────────┐     ┌──────────────────────────────────────────────┐
//!                 │ SPT0 ────────┼────▶│ idle     ▒ ▒ ▒  last in, first out           │
//!                 │ SPT1 ─────┐  │     │ in use   ■ ■ ■ ■        handed over directly │
//!                 │ SPT2 ──┐  │  │     │ waiters  ☺ ☺ ☺  first in, first out          │
//!                 └────────┼──┼──┘     └──────────────────────────────────────────────┘
//!                          ▼  ▼
//! ```
//!
//! A [`Pool`] has any number of backends, each named by a key and each with its own lock, idle
//! connections, waiters and [`Limits`]. What a connection is, it does not know: you say how one is made
//! and looked at by [`Manage`].
//!
//! ```
//! use std::net::{SocketAddr, TcpListener, TcpStream};
//! use std::time::Instant;
//!
//! use epoll_group::pool::{Limits, Manage, ManageError, Pool, Target};
//!
//! struct Tcp;
//!
//! impl Manage<SocketAddr, TcpStream> for Tcp {
//!     fn connect(
//!         &self,
//!         target: &Target<'_, SocketAddr>,
//!         deadline: Instant,
//!     ) -> Result<TcpStream, ManageError> {
//!         let timeout = deadline.saturating_duration_since(Instant::now());
//!         Ok(TcpStream::connect_timeout(target.key(), timeout)?)
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let backend = TcpListener::bind("127.0.0.1:0")?;
//! let pool = Pool::builder(Tcp).limits(Limits::default().max(50)).build()?;
//!
//! let conn = pool.get(&backend.local_addr()?)?;
//! conn.set_nodelay(true)?;
//! drop(conn); // it goes back
//!
//! assert_eq!(pool.status()[0].idle, 1);
//! # Ok(())
//! # }
//! ```
//!
//! # What it promises
//!
//! * The connection that was used last is handed out first; the coldest are closed first.
//! * Who waits is served in order. A connection that comes back while somebody waits is handed to the
//!   first of them, and nobody who comes later gets it.
//! * At the maximum nobody gets an error but by its own deadline, and that says what was in the way.
//! * A connection that breaks frees its place at once for who waits longest.
//! * Connects run outside every lock, few at a time, with pauses after failures. A backend that is
//!   dead, slow or silent holds up nobody but who wants that one.
//! * A panic, in a borrower or in code that the pool calls, costs the connection that it was about,
//!   and nothing else.
//! * Nothing of yours runs under a lock of the pool, but the hash, the comparison and the clone of
//!   keys.
//!
//! # Who connects
//!
//! When no connection is in use that could come back, who waits on a thread makes one itself, unless
//! its deadline is closer than [`connect_timeout`](Limits::connect_timeout). Otherwise (also for
//! callbacks and [`min_idle`](Limits::min_idle)) the [`Host`] does, and the first who waits gets it, or
//! what comes back before.
//!
//! # Fail-over
//!
//! A backend has a [`Version`]. [`Pool::fail_over`] makes the next one: idle connections of the old one
//! are closed, those in use as they come back, and who waits goes over. [`Manage::connect`] is told
//! the version, and so connects to the stand-by.
#![forbid(unsafe_code)]

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

mod backend;
mod builder;
mod checkout;
mod error;
#[cfg(all(any(test, feature = "internal"), not(loom)))]
pub(crate) mod exercise;
mod host;
mod jobs;
mod limits;
mod manage;
#[cfg(all(test, loom))]
mod model;
mod observe;
mod operate;
mod pooled;
mod seat;
mod shared;
mod slots;
mod stack;
mod status;
mod turns;
mod waiters;

pub use backend::Backend;
pub use builder::{BuildError, Builder};
pub use error::{Cause, GetError};
pub use host::Host;
pub use limits::{Limits, LimitsError};
pub use manage::{Key, Manage, ManageError, Target, Version};
pub use observe::Observer;
pub use operate::{CloseReport, PauseError};
pub use pooled::Pooled;
pub use status::{BackendState, BackendStatus, Discard, Held, Leaving, Totals};

use shared::Shared;

/// Connections to backends, by key.
///
/// A cheap reference: clones are the same pool. When the last one is dropped the pool is closed: who
/// waits gets [`GetError::Closed`], and connections in use are closed as they come back.
pub struct Pool<K: Key, C: Send + 'static> {
    owner: Arc<Owner<K, C>>,
}

/// Closes the pool when it is dropped.
struct Owner<K: Key, C: Send + 'static> {
    shared: Arc<Shared<K, C>>,
}

impl<K: Key, C: Send + 'static> Pool<K, C> {
    /// Begins to make one, with what knows how to connect.
    pub fn builder(manage: impl Manage<K, C>) -> Builder<K, C> {
        Builder::new(manage)
    }

    /// A connection to a backend; waits for one, for [`Limits::wait_timeout`] at most.
    ///
    /// A worker that waits counts as stalled.
    ///
    /// # Errors
    ///
    /// There was none in time; see [`GetError`].
    #[track_caller]
    #[inline]
    pub fn get(&self, key: &K) -> Result<Pooled<K, C>, GetError> {
        self.shared().backend(key)?.get(None, Location::caller())
    }

    /// [`get`](Self::get) with another deadline.
    ///
    /// # Errors
    ///
    /// The same.
    #[track_caller]
    pub fn get_before(&self, key: &K, deadline: Instant) -> Result<Pooled<K, C>, GetError> {
        self.shared().backend(key)?.get(Some(deadline), Location::caller())
    }

    /// An idle connection, if there is one; neither waits nor connects.
    #[track_caller]
    #[must_use]
    pub fn try_get(&self, key: &K) -> Option<Pooled<K, C>> {
        self.shared().find(key)?.try_get(Location::caller())
    }

    /// A connection for a callback: no thread waits, and the call returns at once.
    ///
    /// The callback is called on this thread, before this returns, when a connection is idle; else on
    /// the thread of whoever gives one back, or of the [`Host`]. It should be quick, and must not wait
    /// for another callback. A thread runs callbacks one after the other: one that is due while
    /// another runs on the same thread is called right after it. A panic goes no further.
    ///
    /// It is called once in any case: with [`GetError::Timeout`] within some milliseconds of the
    /// deadline, as long as the host runs.
    #[track_caller]
    pub fn get_then(
        &self,
        key: &K,
        deadline: Instant,
        then: impl FnOnce(Result<Pooled<K, C>, GetError>) + Send + 'static,
    ) {
        match self.shared().backend(key) {
            Ok(inner) => inner.get_then(deadline, Box::new(then), Location::caller()),
            Err(error) => turns::in_turn(move || then(Err(error))),
        }
    }

    /// A backend, to be used again and again without a look at the map.
    ///
    /// # Errors
    ///
    /// [`GetError::Closed`].
    pub fn backend(&self, key: &K) -> Result<Backend<K, C>, GetError> {
        Ok(Backend { inner: self.shared().backend(key)? })
    }

    /// How all backends stand, in no order.
    #[must_use]
    pub fn status(&self) -> Vec<BackendStatus<K>> {
        self.shared().all().iter().map(|inner| inner.status()).collect()
    }

    /// How a backend stands; `None`: nobody has asked for it, or not for long.
    #[must_use]
    pub fn status_of(&self, key: &K) -> Option<BackendStatus<K>> {
        Some(self.shared().find(key)?.status())
    }

    /// Who has had a connection for so long or longer, the longest first.
    ///
    /// Each connection remembers where it was asked for, and the thread that did.
    #[must_use]
    pub fn leaks(&self, older_than: Duration) -> Vec<Held<K>> {
        let (now, all) = (Instant::now(), self.shared().all());
        let mut held: Vec<_> = all.iter().flat_map(|inner| inner.held(now, older_than)).collect();
        held.sort_by_key(|held| std::cmp::Reverse(held.held_for));
        held
    }

    fn shared(&self) -> &Arc<Shared<K, C>> {
        &self.owner.shared
    }
}

impl<K: Key, C: Send + 'static> Clone for Pool<K, C> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<K: Key, C: Send + 'static> Drop for Owner<K, C> {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.forget_all();
        self.shared.leave_host();
    }
}

impl<K: Key, C: Send + 'static> fmt::Debug for Pool<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backends = self.shared().all().len();
        f.debug_struct("Pool").field("backends", &backends).finish_non_exhaustive()
    }
}

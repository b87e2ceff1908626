//! Pools of connections to backends.
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
//! A [`Pool`] has any number of backends. Each has a key, a lock, idle connections, waiters and
//! [`Limits`] of its own. [`Manage`] defines the type of a connection, and makes and checks
//! connections.
//!
//! ```
//! use std::io;
//! use std::net::{SocketAddr, TcpListener, TcpStream};
//! use std::time::Instant;
//!
//! use epoll_group::pool::{Limits, Manage, Pool, Target};
//!
//! struct Tcp;
//!
//! impl Manage for Tcp {
//!     type Key = SocketAddr;
//!     type Connection = TcpStream;
//!     type Error = io::Error;
//!
//!     fn connect(
//!         &self,
//!         target: &Target<'_, SocketAddr>,
//!         deadline: Instant,
//!     ) -> io::Result<TcpStream> {
//!         let timeout = deadline.saturating_duration_since(Instant::now());
//!         TcpStream::connect_timeout(target.key, timeout)
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
//! # Promises
//!
//! * The connection that was used last is handed out first. The coldest are closed first.
//! * Waiting callers are served in order. A returned connection goes to the first of them, and no later
//!   caller gets it.
//! * A caller that waits in vain fails at its own deadline, and the error names the reason. It
//!   fails earlier only if an operator disables, retires or closes what it waits for, or if a
//!   connect fails with a [permanent](Manage::is_permanent) error. A caller beyond
//!   [`max_waiting`](Limits::max_waiting) does not wait, unless a connect can begin for it.
//! * A connection that breaks frees its place at once for the first waiting caller.
//! * Connects run outside every lock, few at a time, with pauses after failures. A backend that is dead,
//!   slow or silent delays only its own callers.
//! * A panic, in a user of a connection or in code that the pool calls, costs one connection and nothing
//!   else.
//! * While a lock of the pool is held, no code of yours runs but the hash, the comparison and the clone
//!   of keys.
//!
//! # Threads that connect
//!
//! If no connection is in use that could be returned, a caller that waits on a thread makes one itself,
//! unless its deadline is closer than [`connect_timeout`](Limits::connect_timeout). Otherwise (also for
//! callbacks and [`min_idle`](Limits::min_idle)) the [`Host`] connects. The first waiting caller gets the
//! new connection, or a returned one if that comes earlier.
//!
//! # Fail-over
//!
//! A backend has a [`Version`]. [`Pool::fail_over`] makes the next one. Idle connections of the old
//! version are closed, those in use when they are returned, and waiting callers go over.
//! [`Manage::connect`] gets the version, and so connects to the stand-by.
//!
//! # Connections that workers serve
//!
//! The pool closes a connection by dropping it, but the drop of a [`net::Connection`](crate::net::Connection)
//! ends nothing. So a pool of them has a type whose drop closes the connection. The protocol of a
//! connection may tell the pool of its end ([`Pool::remove_broken`]):
//!
//! ```
//! # #[cfg(all(feature = "server", target_os = "linux"))]
//! # mod example {
//! use std::error::Error;
//! use std::net::SocketAddr;
//! use std::sync::{Weak, mpsc};
//! use std::time::Instant;
//!
//! use epoll_group::Handle;
//! use epoll_group::net::{Close, CloseReason, Connection, Input, Protocol};
//! use epoll_group::pool::{Manage, Pool, Target};
//!
//! struct Upstream(Connection);
//!
//! impl Drop for Upstream {
//!     fn drop(&mut self) {
//!         self.0.close("no longer used");
//!     }
//! }
//!
//! struct Upstreams {
//!     handle: Handle,
//!     /// Weak, because the pool owns its manager and its connections.
//!     pool: Weak<Pool<Upstreams>>,
//! }
//!
//! impl Manage for Upstreams {
//!     type Key = SocketAddr;
//!     type Connection = Upstream;
//!     type Error = Box<dyn Error + Send + Sync>;
//!
//!     fn connect(
//!         &self,
//!         target: &Target<'_, SocketAddr>,
//!         deadline: Instant,
//!     ) -> Result<Upstream, Self::Error> {
//!         let (tell, told) = mpsc::channel();
//!         let answers = Answers { tell, pool: self.pool.clone(), key: *target.key };
//!         let conn = Upstream(self.handle.connect(target.key, answers)?);
//!         told.recv_timeout(deadline.saturating_duration_since(Instant::now()))??;
//!         Ok(conn)
//!     }
//!
//!     fn has_broken(&self, _: &Target<'_, SocketAddr>, conn: &mut Upstream) -> bool {
//!         conn.0.is_closed()
//!     }
//! }
//!
//! /// Tells `connect` its outcome, gives answers to the user of the connection, and tells the pool of its
//! /// end.
//! struct Answers {
//!     tell: mpsc::Sender<Result<(), String>>,
//!     pool: Weak<Pool<Upstreams>>,
//!     key: SocketAddr,
//! }
//!
//! impl Protocol for Answers {
//!     type State = ();
//!
//!     fn opened(&self, _: &Connection) -> Result<(), Close> {
//!         let _ = self.tell.send(Ok(()));
//!         Ok(())
//!     }
//!
//!     fn connect_failed(&self, _: &Connection, reason: &CloseReason) {
//!         let _ = self.tell.send(Err(reason.to_string()));
//!     }
//!
//!     fn received(&self, _: &Connection, _: &mut (), input: &mut Input<'_>) -> Result<(), Close> {
//!         // An extension of the connection, set by its user, says where the answer goes.
//!         input.take_all();
//!         Ok(())
//!     }
//!
//!     fn closed(&self, _: &Connection, _: (), _: &CloseReason) {
//!         // If the connection is idle, it ends here and not when it would be handed out.
//!         if let Some(pool) = self.pool.upgrade() {
//!             pool.remove_broken(&self.key);
//!         }
//!     }
//! }
//! # pub fn main() {
//! #     use std::sync::Arc;
//! #     use epoll_group::Runtime;
//! #     let runtime = Runtime::builder().start().unwrap();
//! #     struct Silent;
//! #     impl Protocol for Silent {
//! #         type State = ();
//! #         fn opened(&self, _: &Connection) -> Result<(), Close> { Ok(()) }
//! #         fn received(&self, _: &Connection, _: &mut (), _: &mut Input<'_>) -> Result<(), Close> { Ok(()) }
//! #     }
//! #     let listener = runtime.listen("127.0.0.1:0", Silent).unwrap();
//! #     let at = listener.local_addr().to_string().parse().unwrap();
//! #     let pool = Arc::new_cyclic(|pool| {
//! #         let manage = Upstreams { handle: runtime.handle(), pool: pool.clone() };
//! #         Pool::builder(manage).build().unwrap()
//! #     });
//! #     let conn = pool.get(&at).unwrap();
//! #     assert!(!conn.0.is_closed());
//! #     let handle = conn.0.clone();
//! #     drop(conn);
//! #     assert_eq!(pool.status()[0].idle, 1);
//! #     handle.close("as the backend would");
//! #     let late = Instant::now() + std::time::Duration::from_secs(60);
//! #     while pool.status()[0].idle > 0 {
//! #         assert!(Instant::now() < late);
//! #         std::thread::yield_now();
//! #     }
//! #     let handle = pool.get(&at).unwrap().0.clone();
//! #     pool.close(late);
//! #     assert!(handle.is_closed());
//! # }
//! # }
//! # #[cfg(all(feature = "server", target_os = "linux"))]
//! # fn main() { example::main() }
//! # #[cfg(not(all(feature = "server", target_os = "linux")))]
//! # fn main() {}
//! ```
#![forbid(unsafe_code)]

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::time::{self, Duration};

mod backend;
mod config;
mod error;
mod host;
mod manage;
#[cfg(all(test, loom))]
mod model;
mod stack;
mod status;

pub use backend::{Backend, Pooled};
pub use config::{BuildError, Builder, Limits, LimitsError};
pub use error::{Cause, GetError};
pub use host::{Host, Observer};
pub use manage::{Manage, Target, Version};
pub use status::{
    BackendState, BackendStatus, CloseReport, Discard, Held, Leaving, PauseError, Totals,
};

#[cfg(all(any(test, feature = "internal"), not(loom)))]
pub(crate) use stack::exercise::exercise;

use backend::{Fx, Inner};

use crate::sync::payload::contain;
use crate::sync::shim::{Mutex, RwLock, lock, read, write};
use crate::sys::clock;

/// Connections to backends, by key.
///
/// *Shape*: a cheap reference; clones are the same pool. The drop of the last one closes the pool: waiting
/// callers get [`GetError::Closed`], and connections in use are closed when they are returned.
pub struct Pool<M: Manage> {
    owner: Arc<Owner<M>>,
}

/// Closes the pool when it is dropped.
struct Owner<M: Manage> {
    shared: Arc<Shared<M>>,
}

impl<M: Manage> Pool<M> {
    /// Returns a builder of a pool whose connections `manage` makes and checks.
    pub fn builder(manage: M) -> Builder<M> {
        Builder::new(manage)
    }

    /// Returns a connection to a backend, like [`Backend::get`].
    ///
    /// # Errors
    ///
    /// Those of [`Backend::get`].
    #[track_caller]
    #[inline]
    pub fn get(&self, key: &M::Key) -> Result<Pooled<M>, GetError> {
        self.shared().backend(key)?.get(None, Location::caller())
    }

    /// Returns a backend, and adds it if it is new.
    ///
    /// # Errors
    ///
    /// [`GetError::Closed`].
    pub fn backend(&self, key: &M::Key) -> Result<Backend<M>, GetError> {
        Ok(Backend { inner: self.shared().backend(key)? })
    }

    /// Closes the idle connections of a backend for which [`has_broken`](Manage::has_broken) is true.
    /// Without this call a broken connection counts as idle until it would be handed out. Returns false
    /// if there is no such backend.
    ///
    /// For code that knows that a connection has ended, for example the callback
    /// [`closed`](crate::net::Protocol::closed) of its protocol. It waits for no other thread: if one
    /// checks the idle connections, that thread checks all again and this call returns at once. One
    /// connection at a time is checked, and cannot be handed out meanwhile. A connection that breaks just
    /// while it is returned is found when it would be handed out.
    pub fn remove_broken(&self, key: &M::Key) -> bool {
        let found = self.shared().find(key);
        found.inspect(|inner| inner.remove_broken()).is_some()
    }

    /// State and numbers of all backends, in no order.
    #[must_use]
    pub fn status(&self) -> Vec<BackendStatus<M::Key>> {
        self.shared().all().iter().map(|inner| inner.status()).collect()
    }

    /// State and numbers of a backend. `None`: no caller has asked for it, or it was retired, or it
    /// has vanished after [`unused_after`](Limits::unused_after).
    #[must_use]
    pub fn status_of(&self, key: &M::Key) -> Option<BackendStatus<M::Key>> {
        Some(self.shared().find(key)?.status())
    }

    /// Connections that have been in use for at least this long, the longest first.
    ///
    /// Each entry names the call that asked for the connection, and its thread.
    #[must_use]
    pub fn leaks(&self, older_than: Duration) -> Vec<Held<M::Key>> {
        let (now, all) = (clock::now(), self.shared().all());
        let mut held: Vec<_> = all.iter().flat_map(|inner| inner.held(now, older_than)).collect();
        held.sort_by_key(|held| Reverse(held.held_for));
        held
    }

    fn shared(&self) -> &Arc<Shared<M>> {
        &self.owner.shared
    }
}

/// Methods for operators.
impl<M: Manage> Pool<M> {
    /// Stops handing out connections to a backend, closes the idle ones, and waits until those in use are
    /// returned, until the deadline.
    ///
    /// Callers that ask meanwhile wait, until their own deadlines. The backend stays paused, also after
    /// an error, until [`resume`](Self::resume).
    ///
    /// # Errors
    ///
    /// A connection is still in use, or another caller resumed the backend; see [`PauseError`].
    pub fn pause(&self, key: &M::Key, deadline: time::Instant) -> Result<(), PauseError<M::Key>> {
        let inner = self.shared().backend(key).map_err(|_| PauseError::Interrupted)?;
        inner.set_state(BackendState::Paused);
        let quiet = inner.wait_quiet(BackendState::Paused, Some(deadline.into()));
        if inner.with(|stack| stack.state()) != BackendState::Paused {
            return Err(PauseError::Interrupted);
        }
        if quiet {
            Ok(())
        } else {
            Err(PauseError::StillHeld(inner.held(clock::now(), Duration::ZERO)))
        }
    }

    /// Ends a [`pause`](Self::pause) or [`disable`](Self::disable), and serves waiting callers. Returns
    /// false if there is no such backend.
    pub fn resume(&self, key: &M::Key) -> bool {
        let found = self.shared().find(key);
        found.inspect(|inner| inner.set_state(BackendState::Open)).is_some()
    }

    /// Refuses all callers of a backend, also waiting ones, with [`GetError::Disabled`]. Closes its idle
    /// connections, and those in use when they are returned.
    ///
    /// # Errors
    ///
    /// [`GetError::Closed`].
    pub fn disable(&self, key: &M::Key) -> Result<(), GetError> {
        self.shared().backend(key)?.set_state(BackendState::Disabled);
        Ok(())
    }

    /// Makes the next version of a backend, if its present version is `from`.
    ///
    /// `from` is the version that failed ([`Pooled::version`]). If several callers see a server die, the
    /// first one changes the version and the others change nothing.
    ///
    /// Idle connections of the old version are closed at once, those in use when they are returned, and
    /// connects that have begun when they end. Waiting callers go over to the new version, whose connects
    /// begin without a pause.
    ///
    /// # Errors
    ///
    /// The present version, if it is not `from`. If the pool is closed, `from` itself. Nothing was changed.
    pub fn fail_over(&self, key: &M::Key, from: Version) -> Result<Version, Version> {
        let inner = self.shared().backend(key).map_err(|_| from)?;
        let now = clock::now();
        let to = inner.apply(|stack, fx| stack.fail_over(now, from, fx))?;
        self.shared().observe(|observer| observer.failed_over(key, from, to));
        Ok(to)
    }

    /// Changes the limits of all backends without limits of their own, and of new backends.
    ///
    /// If fewer connections are allowed than before, idle ones are closed at once and others when they
    /// are returned. If more are allowed, waiting callers are served. A new [`max_age`](Limits::max_age) or
    /// [`idle_timeout`](Limits::idle_timeout) also holds for the connections that exist.
    ///
    /// # Errors
    ///
    /// A limit is outside its range.
    pub fn set_limits(&self, limits: Limits) -> Result<(), LimitsError> {
        limits.check()?;
        self.shared().set_limits(&limits);
        Ok(())
    }

    /// Gives a backend limits of its own, and adds it if it is new. After [`close`](Self::close) no
    /// backend is added.
    ///
    /// # Errors
    ///
    /// A limit is outside its range.
    pub fn set_limits_of(&self, key: &M::Key, limits: Limits) -> Result<(), LimitsError> {
        limits.check()?;
        if let Ok(inner) = self.shared().backend(key) {
            inner.apply(|stack, fx| stack.set_limits(clock::now(), limits, true, fx));
        }
        Ok(())
    }

    /// Forgets a backend, its limits and its version. Waiting callers get [`GetError::Closed`], and
    /// connections in use are closed when they are returned. Returns false if there is no such backend.
    ///
    /// The next caller that asks for the key gets a new backend.
    pub fn retire(&self, key: &M::Key) -> bool {
        let found = self.shared().take(key);
        found.inspect(|inner| inner.set_state(BackendState::Closed)).is_some()
    }

    /// Closes the pool for good: callers get no connection any more, and idle ones are closed. Waits until
    /// those in use are returned, until the deadline.
    pub fn close(&self, deadline: time::Instant) -> CloseReport<M::Key> {
        let deadline = deadline.into();
        let all = self.shared().close();
        let (mut held, mut connecting) = (Vec::new(), 0);
        for inner in all {
            if !inner.wait_quiet(BackendState::Closed, Some(deadline)) {
                held.extend(inner.held(clock::now(), Duration::ZERO));
            }
            let status = inner.status();
            let leaving = status.leaving.iter().map(|leaving| leaving.connecting);
            connecting += status.connecting + leaving.sum::<usize>();
        }
        CloseReport { held, connecting }
    }
}

impl<M: Manage> Clone for Pool<M> {
    fn clone(&self) -> Self {
        Self { owner: Arc::clone(&self.owner) }
    }
}

impl<M: Manage> Drop for Owner<M> {
    fn drop(&mut self) {
        self.shared.close();
        self.shared.forget_all();
        self.shared.leave_host();
    }
}

impl<M: Manage> fmt::Debug for Pool<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let backends = self.shared().all().len();
        f.debug_struct("Pool").field("backends", &backends).finish_non_exhaustive()
    }
}

/// Map of backends, and their common parts.
struct Shared<M: Manage> {
    manage: M,
    /// Present until the pool is dropped.
    host: Mutex<Option<Arc<dyn Host>>>,
    observer: Option<Box<dyn Observer<M::Key>>>,
    /// Limits of new backends.
    limits: Mutex<Limits>,
    /// Written only when a backend is added or removed.
    map: RwLock<Map<M>>,
}

struct Map<M: Manage> {
    backends: HashMap<M::Key, Arc<Inner<M>>>,
    /// True if no backend may be added any more.
    closed: bool,
}

impl<M: Manage> Shared<M> {
    fn new(
        manage: M,
        host: Arc<dyn Host>,
        observer: Option<Box<dyn Observer<M::Key>>>,
        limits: Limits,
    ) -> Self {
        let map = RwLock::new(Map { backends: HashMap::new(), closed: false });
        let (host, limits) = (Mutex::new(Some(host)), Mutex::new(limits));
        Self { manage, host, observer, limits, map }
    }

    /// Calls the host. A panic ends there.
    fn ask_host(&self, ask: impl FnOnce(&dyn Host)) {
        let host = lock(&self.host).clone();
        if let Some(host) = host {
            contain(|| ask(&*host));
        }
    }

    /// Drops the host. A thread of the pool's own ends.
    fn leave_host(&self) {
        let host = lock(&self.host).take();
        contain(|| drop(host));
    }

    fn limits(&self) -> Limits {
        lock(&self.limits).clone()
    }

    #[inline]
    fn observe(&self, tell: impl FnOnce(&dyn Observer<M::Key>)) {
        if let Some(observer) = &self.observer {
            contain(|| tell(&**observer));
        }
    }

    #[inline]
    fn find(&self, key: &M::Key) -> Option<Arc<Inner<M>>> {
        read(&self.map).backends.get(key).map(Arc::clone)
    }

    /// Returns the backend, and adds it if it is new.
    #[inline]
    fn backend(self: &Arc<Self>, key: &M::Key) -> Result<Arc<Inner<M>>, GetError> {
        match self.find(key) {
            Some(found) => Ok(found),
            None => self.appear(key),
        }
    }

    #[cold]
    fn appear(self: &Arc<Self>, key: &M::Key) -> Result<Arc<Inner<M>>, GetError> {
        let now = clock::now();
        let new = Arc::new(Inner::new(key.clone(), Arc::clone(self), now));
        {
            let mut map = write(&self.map);
            if map.closed {
                return Err(GetError::Closed);
            }
            // An entry of the map would drop its key under the lock.
            if let Some(found) = map.backends.get(key) {
                return Ok(Arc::clone(found));
            }
            map.backends.insert(key.clone(), Arc::clone(&new));
        }
        // A change of the limits may have missed the new backend.
        self.limit(&new);
        Ok(new)
    }

    /// Gives a backend the limits of the pool, unless it has its own. The limits are read under the lock
    /// of the backend, so the last change counts.
    fn limit(&self, inner: &Arc<Inner<M>>) {
        inner.apply(|stack, fx| {
            if !stack.has_own_limits() {
                stack.set_limits(clock::now(), self.limits(), false, fx);
            }
        });
    }

    fn all(&self) -> Vec<Arc<Inner<M>>> {
        read(&self.map).backends.values().cloned().collect()
    }

    /// Changes the limits of all backends, and of new ones.
    fn set_limits(&self, limits: &Limits) {
        lock(&self.limits).clone_from(limits);
        self.all().iter().for_each(|inner| self.limit(inner));
    }

    /// Takes a backend out of the map.
    fn take(&self, key: &M::Key) -> Option<Arc<Inner<M>>> {
        let entry = write(&self.map).backends.remove_entry(key);
        // The key is dropped here, outside the lock.
        entry.map(|(_, inner)| inner)
    }

    /// Closes all backends. No backend is added any more.
    fn close(&self) -> Vec<Arc<Inner<M>>> {
        write(&self.map).closed = true;
        let all = self.all();
        for inner in &all {
            inner.set_state(BackendState::Closed);
        }
        all
    }

    /// Takes all backends out of the map.
    fn forget_all(&self) {
        let backends = std::mem::take(&mut write(&self.map).backends);
        drop(backends);
    }

    /// Takes an unused backend out of the map, unless a caller found it meanwhile.
    fn vanish(this: &Arc<Self>, inner: &Arc<Inner<M>>) {
        let mut fx = Fx::<M>::default();
        let mut map = write(&this.map);
        // The map has one reference, and this call another. A caller that finds the backend clones
        // it under the map's lock.
        let unused = map
            .backends
            .get(&inner.key)
            .is_some_and(|found| Arc::ptr_eq(found, inner) && Arc::strong_count(found) == 2);
        let gone = unused
            && inner.with(|stack| {
                let now = clock::now();
                let unused = stack.is_unused(now);
                if unused {
                    stack.set_state(now, BackendState::Closed, &mut fx);
                }
                unused
            });
        let entry = if gone { map.backends.remove_entry(&inner.key) } else { None };
        drop(map);
        drop(entry);
        inner.apply(|_, effects| *effects = fx);
    }
}

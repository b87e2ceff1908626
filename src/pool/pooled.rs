//! [`Pooled`]: a connection that goes back when it is dropped.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::backend::Inner;
use super::manage::{Key, Version};
use super::slots::Ticket;
use super::status::Discard;

/// A connection of a pool, in use. It goes back when it is dropped.
///
/// Dropped while its thread panics it is closed instead: nobody knows what state it was left in.
///
/// What it can do beside its connection are functions, not methods: `Pooled::discard(conn)`.
#[must_use = "dropped, it goes back at once"]
pub struct Pooled<K: Key, C: Send + 'static> {
    /// Present until it is dropped or taken.
    conn: Option<C>,
    ticket: Ticket,
    version: Version,
    backend: Arc<Inner<K, C>>,
}

impl<K: Key, C: Send + 'static> Pooled<K, C> {
    #[inline]
    pub(super) const fn new(
        conn: C,
        ticket: Ticket,
        version: Version,
        backend: Arc<Inner<K, C>>,
    ) -> Self {
        Self { conn: Some(conn), ticket, version, backend }
    }

    /// The key of its backend.
    #[must_use]
    pub fn key(this: &Self) -> &K {
        this.backend.key()
    }

    /// The version of its backend: what [`fail_over`](super::Pool::fail_over) wants to know when this
    /// connection turned out to be dead.
    #[must_use]
    pub const fn version(this: &Self) -> Version {
        this.version
    }

    /// Whether it is not of the current version any more, and will be closed as it comes back.
    #[must_use]
    pub fn is_leaving(this: &Self) -> bool {
        this.backend.version() != this.version
    }

    /// Closes it: nobody shall use it again. Whoever waits may make another one.
    pub fn discard(mut this: Self) {
        if let Some(conn) = this.conn.take() {
            this.backend.discard(conn, this.ticket, this.version, Discard::Unwanted);
        }
    }

    /// Takes it out of the pool, which does not count it any more.
    #[must_use]
    pub fn detach(mut this: Self) -> C {
        let conn = this.conn.take().expect("present until it is dropped");
        this.backend.detach(this.ticket);
        conn
    }
}

impl<K: Key, C: Send + 'static> Drop for Pooled<K, C> {
    #[inline]
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.backend.give_back(conn, self.ticket, self.version);
        }
    }
}

impl<K: Key, C: Send + 'static> Deref for Pooled<K, C> {
    type Target = C;

    #[inline]
    fn deref(&self) -> &C {
        self.conn.as_ref().expect("present until it is dropped")
    }
}

impl<K: Key, C: Send + 'static> DerefMut for Pooled<K, C> {
    #[inline]
    fn deref_mut(&mut self) -> &mut C {
        self.conn.as_mut().expect("present until it is dropped")
    }
}

impl<K: Key + fmt::Debug, C: Send + 'static> fmt::Debug for Pooled<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pooled")
            .field("key", self.backend.key())
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

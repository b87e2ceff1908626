//! [`Unread`]: limits the results that clients have not read yet.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoll_group::net::ConnectionId;

use crate::error::StoreError;

/// Bytes of the results that clients have not read yet. Clones count together.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    bytes: Arc<Mutex<Bytes>>,
    limit: usize,
}

#[derive(Debug, Default)]
struct Bytes {
    all: usize,
    /// Bytes of the connections that have some.
    of: HashMap<ConnectionId, usize>,
}

/// Unread bytes of one connection.
///
/// Requests that are under way exceed the limits: each by its own result.
#[derive(Clone, Debug)]
pub(super) struct Share {
    unread: Unread,
    connection: ConnectionId,
}

/// Bytes of one result. They are unread until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    share: Share,
    bytes: usize,
}

impl Unread {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Arc::default(), limit }
    }

    pub(super) fn share(&self, connection: ConnectionId) -> Share {
        Share { unread: self.clone(), connection }
    }

    pub(super) fn bytes(&self) -> usize {
        self.lock().all
    }

    fn lock(&self) -> MutexGuard<'_, Bytes> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Refuses a request to read while too much is unread. The share of the connection has a smaller
    /// limit, so that a connection that does not read is refused before all others are.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let (all, own) = {
            let bytes = self.unread.lock();
            (bytes.all, bytes.of.get(&self.connection).copied().unwrap_or(0))
        };
        let limit = self.unread.limit;
        within("bytes that wait to be read", all, limit)?;
        within("bytes that this connection has to read", own, limit / 4)
    }

    pub(super) fn hold(&self, bytes: usize) -> Held {
        let mut held = self.unread.lock();
        held.all += bytes;
        *held.of.entry(self.connection).or_default() += bytes;
        Held { share: self.clone(), bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Share { unread, connection } = &self.share;
        let mut held = unread.lock();
        held.all -= self.bytes;
        if let Some(own) = held.of.get_mut(connection) {
            *own -= self.bytes;
            if *own == 0 {
                held.of.remove(connection);
            }
        }
    }
}

fn within(what: &'static str, bytes: usize, limit: usize) -> Result<(), StoreError> {
    if bytes > limit { Err(StoreError::Busy { what, bytes, limit }) } else { Ok(()) }
}

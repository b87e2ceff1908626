//! [`Unread`]: limits the results that clients have not read yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::StoreError;

/// Bytes of the results that clients have not read yet. Clones count together.
///
/// Requests that are under way exceed the limit: each by its own result.
#[derive(Clone, Debug)]
pub(super) struct Unread {
    bytes: Arc<AtomicUsize>,
    limit: usize,
}

/// Bytes of one result. They are unread until it is dropped.
#[derive(Debug)]
pub(super) struct Held {
    unread: Unread,
    bytes: usize,
}

impl Unread {
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Arc::default(), limit }
    }

    /// Refuses a request to read while too much is unread.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        let (bytes, limit) = (self.bytes.load(Ordering::Relaxed), self.limit);
        let what = "bytes that wait to be read";
        if bytes > limit { Err(StoreError::Busy { what, bytes, limit }) } else { Ok(()) }
    }

    pub(super) fn hold(&self, bytes: usize) -> Held {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Held { unread: self.clone(), bytes }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.unread.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

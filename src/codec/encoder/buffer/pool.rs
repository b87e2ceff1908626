//! Spare pages, for all buffers.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// A bounded number of spare pages that buffers share.
///
/// *Shape*: a cheap handle; clones share one pool. It may be used from any thread. Its lock is held
/// while one page is pushed or popped, and no page is allocated or freed under it. The pool bounds
/// the spare pages, not the pages in use: a buffer always gets its page, new if need be.
///
/// *Units*: at most `max_pages` × `page_bytes` bytes are kept. The default pool keeps 256 pages of
/// 16 KiB: 4 MiB.
#[derive(Clone)]
pub struct PagePool {
    shared: Arc<Shared>,
}

struct Shared {
    page_bytes: usize,
    max_pages: usize,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl PagePool {
    /// Smallest page: a few words.
    pub(crate) const MIN_PAGE_BYTES: usize = 64;

    /// Page size of the default pool: see the numbers in the docs of [`encoder`](crate::codec::encoder).
    const DEFAULT_PAGE_BYTES: usize = 16 << 10;

    /// Pages that the default pool keeps: 4 MiB.
    const DEFAULT_PAGES: usize = 256;

    /// Creates a pool of pages of `page_bytes`, at least 64. The pool keeps at most `max_pages`, and
    /// allocates nothing yet.
    #[must_use]
    pub fn new(page_bytes: usize, max_pages: usize) -> Self {
        let page_bytes = page_bytes.max(Self::MIN_PAGE_BYTES);
        Self { shared: Arc::new(Shared { page_bytes, max_pages, spare: Mutex::default() }) }
    }

    /// Spare pages in the pool.
    #[cfg(test)]
    pub(super) fn spare_pages(&self) -> usize {
        self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// An empty page.
    pub(super) fn take(&self) -> Vec<u8> {
        // A separate statement frees the lock before a page is allocated.
        let spare = self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
        spare.unwrap_or_else(|| Vec::with_capacity(self.shared.page_bytes))
    }

    /// Takes a page back, or frees it.
    pub(super) fn give(&self, mut page: Vec<u8>) {
        page.clear();
        if page.capacity() == 0 {
            return;
        }
        let mut spare = self.shared.spare.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.len() < self.shared.max_pages {
            // The list itself grows under the lock, a few times in the life of the pool.
            spare.push(page);
        } else {
            drop(spare);
            drop(page);
        }
    }
}

impl Default for PagePool {
    fn default() -> Self {
        Self::new(Self::DEFAULT_PAGE_BYTES, Self::DEFAULT_PAGES)
    }
}

impl fmt::Debug for PagePool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PagePool")
            .field("page_bytes", &self.shared.page_bytes)
            .field("max_pages", &self.shared.max_pages)
            .finish_non_exhaustive()
    }
}

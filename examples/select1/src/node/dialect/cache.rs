//! [`Cache`]: statements that were read before, by their text.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use epoll_group::session::SessionError;
use lru::LruCache;

use super::Statement;
use crate::node::prepared::Prepared;

/// Parsed statements of the texts that came last.
///
/// Split in parts with a lock each, so that threads seldom compete for one.
pub struct Cache {
    hasher: RandomState,
    parts: Vec<Mutex<LruCache<Box<str>, Arc<Prepared>>>>,
}

const PARTS: usize = 16;
const TEXTS_PER_PART: NonZeroUsize = NonZeroUsize::new(128).expect("it is not 0");
/// Longer texts are read each time.
const LONGEST: usize = 16 * 1024;

impl Cache {
    pub fn new() -> Self {
        let part = || Mutex::new(LruCache::new(TEXTS_PER_PART));
        Self {
            hasher: RandomState::new(),
            parts: std::iter::repeat_with(part).take(PARTS).collect(),
        }
    }

    /// Reads `text`, unless it was read before.
    pub fn read(&self, text: &str, schema: &str) -> Result<Arc<Prepared>, SessionError> {
        let part = self.hasher.hash_one(text) as usize % PARTS;
        let part = || self.parts[part].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = part().get(text) {
            return Ok(Arc::clone(known));
        }
        let read = Arc::new(Prepared::new(Statement::parse(text, schema)?));
        if text.len() <= LONGEST {
            let evicted = part().push(text.into(), Arc::clone(&read));
            // Not under the lock.
            drop(evicted);
        }
        Ok(read)
    }
}

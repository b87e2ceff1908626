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
/// Bytes of a text that is kept. Longer ones are read each time.
pub const LONGEST_KEPT: usize = 16 * 1024;
/// List elements of a statement that is kept.
const MOST_ELEMENTS: usize = 256;

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
        if text.len() <= LONGEST_KEPT && read.statement.elements() <= MOST_ELEMENTS {
            let evicted = part().push(text.into(), Arc::clone(&read));
            // Not under the lock.
            drop(evicted);
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_of_many_elements_is_not_kept() {
        let cache = Cache::new();
        let is_kept = |text: &str| {
            let [first, second] = [(); 2].map(|()| cache.read(text, "test").expect("it is SQL"));
            Arc::ptr_eq(&first, &second)
        };
        let most = |start: &str, element: &str, more: usize| {
            start.to_owned() + &vec![element; MOST_ELEMENTS + more].join(",")
        };
        for (start, element) in
            [("select ", "1"), ("set ", "@a=1"), ("insert into t values (1),", "(1)")]
        {
            assert!(is_kept(&most(start, element, 0)), "{start}");
            assert_eq!(is_kept(&most(start, element, 1)), start.starts_with("insert"), "{start}");
        }
        assert!(!is_kept(&format!("select {:LONGEST_KEPT$}1", "")));
    }
}

//! [`Cache`]: statements that were read before, by their text.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use epoll_group::session::SessionError;
use lru::LruCache;
use md5::{Digest, Md5};

use super::keys::{Id, Ids};
use super::{Catalogue, Statement, read};

/// Statements of the latest texts.
///
/// In parts with a lock each, so that threads seldom meet.
pub struct Cache {
    hasher: RandomState,
    parts: Vec<Mutex<Part>>,
    catalogue: Catalogue,
}

type Part = LruCache<Box<[u8]>, Arc<Known>>;

/// Facts about a text.
#[derive(Debug)]
pub struct Known {
    pub statement: Result<Statement, SessionError>,
    /// Digest under which data nodes keep the text. The client's digest is not used: a client could
    /// name one text and send another, which other clients would then get.
    pub digest: [u8; 16],
    /// It came again: worth to be kept by data nodes.
    pub is_frequent: bool,
}

const PARTS: usize = 16;
const TEXTS_PER_PART: NonZeroUsize = NonZeroUsize::new(256).expect("it is not 0");
/// Longer texts are read each time.
const LONGEST: usize = 16 * 1024;
/// Statements with more ids are read each time. This number of ids takes as much memory as the
/// longest text.
const MOST_IDS: usize = LONGEST / size_of::<Id>();

impl Cache {
    pub fn new(catalogue: Catalogue) -> Self {
        let part = || Mutex::new(LruCache::new(TEXTS_PER_PART));
        Self {
            hasher: RandomState::new(),
            parts: std::iter::repeat_with(part).take(PARTS).collect(),
            catalogue,
        }
    }

    pub const fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// Reads `text`, unless it was read before.
    pub fn read(&self, text: &[u8]) -> Arc<Known> {
        let part = self.hasher.hash_one(text) as usize % PARTS;
        let part = || self.parts[part].lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = part().get(text) {
            return Arc::clone(known);
        }
        let statement = read::read(text, &self.catalogue);
        let known = Known { statement, digest: Md5::digest(text).into(), is_frequent: false };
        let ids = match &known.statement {
            Ok(Statement::Rows(rows)) => rows.ids.as_ref().map_or(0, Ids::len),
            _ => 0,
        };
        if text.len() > LONGEST || ids > MOST_IDS {
            return Arc::new(known);
        }
        let frequent =
            Arc::new(Known { is_frequent: true, statement: known.statement.clone(), ..known });
        let evicted = part().push(text.into(), frequent);
        // Not under the lock.
        drop(evicted);
        Arc::new(known)
    }
}

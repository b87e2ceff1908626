//! Comparison of index and engine.

use std::collections::HashSet;

use super::Store;
use crate::error::StoreError;

impl Store {
    /// Compares index and engine: each revision of the index has its record, and each record is in
    /// the index, but for those that wait to be published or removed. Says how many revisions there
    /// are. Other threads may use the store meanwhile. Takes memory for all revisions.
    ///
    /// # Errors
    ///
    /// Index and engine do not agree, or the engine cannot be read.
    pub fn check(&self) -> Result<u64, StoreError> {
        let shared = &*self.0;
        let (head, revisions, snapshot) = shared.index.revisions(|| shared.engine.snapshot());
        let snapshot = snapshot.map_err(StoreError::Read)?;
        let count = revisions.len() as u64;
        let mut missing: HashSet<_> = revisions.into_iter().collect();
        let mut unknown = None;
        let scan = &mut |revision: crate::record::Revision, _| {
            let waits = revision.main > head.revision || revision.main <= head.compacted;
            if !missing.remove(&revision) && !waits {
                unknown = unknown.or(Some(revision));
            }
        };
        snapshot.scan(scan).map_err(StoreError::Read)?;
        match (missing.into_iter().next(), unknown) {
            (Some(lost), _) => Err(StoreError::Lost(lost)),
            (None, Some(unknown)) => Err(StoreError::Unknown(unknown)),
            (None, None) => Ok(count),
        }
    }
}

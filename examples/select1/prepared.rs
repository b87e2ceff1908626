//! [`Prepared`]: a statement, and what was found out about it when it was run.

use std::sync::{Arc, Mutex, PoisonError};

use crate::columns::Description;
use crate::dialect::Statement;

/// A statement that has been read.
#[derive(Debug)]
pub(crate) struct Prepared {
    pub(crate) statement: Statement,
    described: Mutex<Option<(u64, Arc<[Description]>)>>,
}

impl Prepared {
    pub(crate) const fn new(statement: Statement) -> Self {
        Self { statement, described: Mutex::new(None) }
    }

    /// Its columns, if they were described since tables changed for the `generation`th time.
    pub(crate) fn described(&self, generation: u64) -> Option<Arc<[Description]>> {
        let described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, columns) = described.as_ref().filter(|(known, _)| *known == generation)?;
        Some(Arc::clone(columns))
    }

    pub(crate) fn describe(&self, generation: u64, columns: Arc<[Description]>) {
        let described = Some((generation, columns));
        let before = std::mem::replace(
            &mut *self.described.lock().unwrap_or_else(PoisonError::into_inner),
            described,
        );
        drop(before);
    }
}

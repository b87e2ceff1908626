//! [`Prepared`]: a statement, and what was found out about it when it was run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::node::columns::Description;
use crate::node::dialect::Statement;

/// A statement that has been read.
#[derive(Debug)]
pub struct Prepared {
    pub statement: Statement,
    /// Set when the statement is run. Relaxed: the flag decides about cost alone.
    is_known: AtomicBool,
    described: Mutex<Option<(u64, Arc<[Description]>)>>,
}

/// Columns that are kept of a statement.
const MOST_COLUMNS: usize = 256;

impl Prepared {
    pub const fn new(statement: Statement) -> Self {
        Self { statement, is_known: AtomicBool::new(false), described: Mutex::new(None) }
    }

    /// True if the statement was run before, so that it may come again. Marks it as run.
    pub fn is_known(&self) -> bool {
        self.is_known.swap(true, Ordering::Relaxed)
    }

    /// Its columns, if they were described since tables changed for the `generation`th time.
    pub fn described(&self, generation: u64) -> Option<Arc<[Description]>> {
        let described = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, columns) = described.as_ref().filter(|(known, _)| *known == generation)?;
        Some(Arc::clone(columns))
    }

    /// Keeps the columns, unless there are many.
    pub fn describe(&self, generation: u64, columns: Arc<[Description]>) {
        if columns.len() > MOST_COLUMNS {
            return;
        }
        let described = Some((generation, columns));
        let before = std::mem::replace(
            &mut *self.described.lock().unwrap_or_else(PoisonError::into_inner),
            described,
        );
        drop(before);
    }
}

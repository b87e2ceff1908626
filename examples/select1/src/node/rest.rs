//! Rows of a result.
//!
//! The handler writes a result of one row. A source gives the rows of longer results while the peer reads
//! them, so a slow peer holds a connection to SQLite but no thread. The source tells the session how it
//! has ended, before the next request of the session begins.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError};

use epoll_group::session::{Reply, Row, RowSource, SessionError};

use crate::node::engine::Engine;
use crate::node::functions::Facts;
use crate::node::pool;
use crate::node::state::EngineSession;

/// Rows of a result that has begun.
pub trait Rows: RowSource + 'static {
    /// Largest number of rows that may come; `None` while the statement may give more.
    fn most(&self) -> Option<usize>;
}

/// Number of results that sources give, at most [`MOST`].
#[derive(Debug, Default)]
pub struct Sources(AtomicUsize);

/// Results that sources may give at the same time: as many as connections that are kept when they are
/// idle. Beyond it the handler writes the rows.
const MOST: usize = pool::MOST_IDLE;

/// Counts one source.
struct Counted(Arc<Sources>);

/// Source of the rows of one result.
struct Source<R> {
    rows: R,
    /// End of the statement, for the session. It is an interruption if the source is dropped early.
    end: Result<(), SessionError>,
    session: Arc<Facts>,
    _counted: Counted,
}

impl Engine {
    /// Writes the rows of a result, or leaves them to a source.
    pub fn give_rows<R: Rows>(
        &self,
        session: &EngineSession,
        mut rows: R,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match rows.most() {
            Some(0) => {}
            Some(1) => {
                write_row(&mut rows, reply)?;
            }
            _ => match Sources::count(&self.sources) {
                Some(_counted) => {
                    let end = Err(SessionError::interrupted());
                    let session = Arc::clone(&session.facts);
                    reply.source(Source { rows, end, session, _counted });
                    return Ok(());
                }
                None => while write_row(&mut rows, reply)? {},
            },
        }
        session.changed(0, 0);
        Ok(())
    }
}

/// Writes the next row. Returns false if there is none.
pub fn write_row(rows: &mut impl Rows, reply: &mut Reply<'_>) -> Result<bool, SessionError> {
    let written = reply.try_row(|row| match rows.next(row) {
        Ok(true) => Ok(()),
        Ok(false) => Err(None),
        Err(error) => Err(Some(error)),
    });
    match written {
        Ok(()) => Ok(true),
        Err(None) => Ok(false),
        Err(Some(error)) => Err(error),
    }
}

impl Sources {
    pub fn number(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts one more, unless there are enough.
    fn count(this: &Arc<Self>) -> Option<Counted> {
        let counted = Counted(Arc::clone(this));
        // Relaxed: it guards nothing.
        (this.0.fetch_add(1, Ordering::Relaxed) < MOST).then_some(counted)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<R: Rows> RowSource for Source<R> {
    fn next(&mut self, row: &mut Row<'_>) -> Result<bool, SessionError> {
        let next = self.rows.next(row);
        match &next {
            Ok(true) => {}
            Ok(false) => self.end = Ok(()),
            Err(error) => self.end = Err(error.clone()),
        }
        next
    }
}

impl<R> Drop for Source<R> {
    fn drop(&mut self) {
        let end = mem::replace(&mut self.end, Ok(()));
        *self.session.source_end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
    }
}

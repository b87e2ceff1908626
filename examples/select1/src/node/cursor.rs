//! [`Cursor`]: a statement that runs, together with the connection on which it runs.
//!
//! A row source lives from one turn of its session to the next, without a thread. So it owns the
//! connection, and the statement beside it.

// The macro needs the name of the lifetime.
#![allow(single_use_lifetimes)]

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use rusqlite::fallible_streaming_iterator::FallibleStreamingIterator;
use rusqlite::types::ValueRef;
use rusqlite::{CachedStatement, Row, Rows, Statement, StatementStatus};
use self_cell::{MutBorrow, self_cell};

use crate::node::pool::Lent;

/// A statement that runs.
///
/// *Shape*: dropped, it resets the statement, which ends a read transaction of its own. Then the
/// connection goes back.
pub struct Cursor {
    running: Running,
    /// Rows that were fetched ahead, the next one first.
    ahead: VecDeque<Vec<Cell>>,
    /// The current row, if it was fetched ahead. Otherwise the statement stands on it.
    kept: Option<Vec<Cell>>,
    /// Set when the statement has no further row.
    is_over: bool,
}

/// A compiled statement.
pub enum Compiled<'db> {
    /// The connection keeps it for the next time.
    Kept(CachedStatement<'db>),
    Once(Statement<'db>),
}

/// A value that was fetched ahead. Its text may be no UTF-8.
pub enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    Text(Box<[u8]>),
    Blob(Box<[u8]>),
}

/// The current row of a cursor.
pub enum Current<'a> {
    Kept(&'a [Cell]),
    Fetched(&'a Row<'a>),
}

self_cell! {
    struct Running {
        owner: Lent,
        #[not_covariant]
        dependent: Stepping,
    }
}

self_cell! {
    struct Stepping<'db> {
        owner: MutBorrow<Compiled<'db>>,
        #[covariant]
        dependent: Rows,
    }
}

#[allow(unsafe_code, reason = "the compiler does not see that both move together")]
// SAFETY: SQLite lets any thread use a connection and its statements, one thread at a time; therefore
// `Connection` is `Send`. A statement is not, because it refers to a connection that may stay behind.
// Here that connection is in the same value, and nothing else refers to it: both callers of `open` compile
// on the connection that they get.
unsafe impl Send for Running {}

impl Cursor {
    /// Starts the statement that `compile` makes and binds.
    ///
    /// # Errors
    ///
    /// Returns the error of `compile`, and the connection.
    pub fn open<T, E>(
        db: Lent,
        compile: impl for<'db> FnOnce(&'db Lent) -> Result<(Compiled<'db>, T), E>,
    ) -> Result<(Self, T), Box<(Lent, E)>> {
        let mut made = None;
        let running = Running::try_new_or_recover(db, |db| {
            let (compiled, beside) = compile(db)?;
            made = Some(beside);
            let compiled = MutBorrow::new(compiled);
            Ok(Stepping::new(compiled, |compiled| compiled.borrow_mut().raw_query()))
        });
        let running = running.map_err(Box::new)?;
        let beside = made.expect("it is made with the statement");
        let cursor = Self { running, ahead: VecDeque::new(), kept: None, is_over: false };
        Ok((cursor, beside))
    }

    pub fn db(&self) -> &Lent {
        self.running.borrow_owner()
    }

    /// Ends the statement, and returns the connection.
    pub fn into_db(self) -> Lent {
        self.running.into_owner()
    }

    /// Moves to the next row. Returns false behind the last one.
    pub fn advance(&mut self) -> rusqlite::Result<bool> {
        self.kept = self.ahead.pop_front();
        if self.kept.is_some() { Ok(true) } else { self.step() }
    }

    /// Fetches one more row ahead, and returns it. After the first [`advance`](Self::advance)
    /// allowed only if no row is ahead; the current row is then gone.
    pub fn look_ahead(&mut self) -> rusqlite::Result<Option<&[Cell]>> {
        if !self.step()? {
            return Ok(None);
        }
        let row = self.running.with_dependent(|_, stepping| {
            let row = stepping.borrow_dependent().get();
            let columns = row.map_or(0, |row| row.as_ref().column_count());
            let cells = row.into_iter().flat_map(|row| (0..columns).map(|at| row.get_ref(at)));
            cells.map(|cell| cell.map(Cell::of)).collect::<rusqlite::Result<_>>()
        })?;
        self.ahead.push_back(row);
        Ok(self.ahead.back().map(Vec::as_slice))
    }

    /// Returns true if there is a row to advance to. Fetches it if need be.
    pub fn has_more(&mut self) -> rusqlite::Result<bool> {
        Ok(!self.ahead.is_empty() || self.look_ahead()?.is_some())
    }

    /// Number of rows that were fetched ahead.
    pub fn rows_ahead(&self) -> usize {
        self.ahead.len()
    }

    /// True if no row is left but those that were fetched ahead.
    pub const fn is_over(&self) -> bool {
        self.is_over
    }

    /// Calls `code` with the current row.
    pub fn with_row<T>(&self, code: impl FnOnce(&Current<'_>) -> T) -> Option<T> {
        if let Some(kept) = &self.kept {
            return Some(code(&Current::Kept(kept)));
        }
        self.running.with_dependent(|_, stepping| {
            let row = stepping.borrow_dependent().get();
            row.map(|row| code(&Current::Fetched(row)))
        })
    }

    /// Number of times that SQLite has compiled the statement again since the last call; `None` if
    /// the statement is over.
    pub fn compiled_again(&self) -> Option<i32> {
        self.running.with_dependent(|_, stepping| {
            let statement = stepping.borrow_dependent().as_ref();
            statement.map(|statement| statement.reset_status(StatementStatus::RePrepare))
        })
    }

    fn step(&mut self) -> rusqlite::Result<bool> {
        if self.is_over {
            return Ok(false);
        }
        let stepped = self.running.with_dependent_mut(|_, stepping| {
            stepping.with_dependent_mut(|_, rows| {
                rows.advance()?;
                Ok(rows.get().is_some())
            })
        });
        self.is_over = !matches!(stepped, Ok(true));
        stepped
    }
}

impl Cell {
    fn of(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Real(number) => Self::Real(number),
            ValueRef::Text(bytes) => Self::Text(bytes.into()),
            ValueRef::Blob(bytes) => Self::Blob(bytes.into()),
        }
    }

    pub fn get(&self) -> ValueRef<'_> {
        match self {
            Self::Null => ValueRef::Null,
            Self::Integer(number) => ValueRef::Integer(*number),
            Self::Real(number) => ValueRef::Real(*number),
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
        }
    }

    /// Bytes that it takes in memory.
    pub fn bytes(&self) -> usize {
        let (Self::Text(bytes) | Self::Blob(bytes)) = self else { return size_of::<Self>() };
        size_of::<Self>() + bytes.len()
    }
}

impl<'a> Current<'a> {
    pub fn get_ref(&self, at: usize) -> rusqlite::Result<ValueRef<'a>> {
        match self {
            Self::Kept(cells) => {
                cells.get(at).map(Cell::get).ok_or(rusqlite::Error::InvalidColumnIndex(at))
            }
            Self::Fetched(row) => row.get_ref(at),
        }
    }
}

impl<'db> Deref for Compiled<'db> {
    type Target = Statement<'db>;

    fn deref(&self) -> &Statement<'db> {
        match self {
            Self::Kept(statement) => statement,
            Self::Once(statement) => statement,
        }
    }
}

impl<'db> DerefMut for Compiled<'db> {
    fn deref_mut(&mut self) -> &mut Statement<'db> {
        match self {
            Self::Kept(statement) => statement,
            Self::Once(statement) => statement,
        }
    }
}

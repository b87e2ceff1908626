//! Right answers of the suite, and the table that its changes must leave.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use epoll_group::codec::chunk::{BlockKind, ChunkError, ChunkFrame};
use epoll_group::codec::row::Row;
use epoll_group::codec::value::{Value, ValueError};
use lab::sessions::{PASSWORD, USER};
use lab::xrpc::{Client, Datum};

/// Right answer to a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Right {
    Nothing,
    /// One row is changed.
    Change,
    /// This many texts `c`.
    Texts(i64),
    /// Texts `c` of a range, each above the one before. No two texts are equal.
    Ascending,
    /// Sum of `k` of a range.
    Sum,
    /// All rows and columns.
    Scan,
}

/// Rows of a range.
pub const RANGE: i64 = 100;
/// Bytes of the texts `c` and `pad` of a new table, and of those that a transaction writes.
const C_BYTES: i64 = 119;
const PAD_BYTES: i64 = 59;
const WRITTEN_BYTES: i64 = 23;

/// The table as it was, and its changes.
#[derive(Debug)]
pub struct Table {
    /// Values of `k` by id, from 1.
    pub ks: Vec<i64>,
    changes: Mutex<Changes>,
}

#[derive(Debug, Default)]
pub struct Changes {
    /// Number of increments of `k`. All have ids of the lower half.
    pub increments: i64,
    /// Ids with a text `c` that was written. Those of the upper half have such a `pad` too.
    pub written: HashSet<i64>,
}

impl Table {
    pub fn read(address: SocketAddr, rows: i64) -> Result<Self, String> {
        let mut client = connect(address);
        let mut ks = vec![0; rows as usize];
        // In parts, so that no server needs more memory here than in its windows.
        for first in (1..=rows).step_by(1000) {
            let range = format!("where id between {first} and {}", first + 999);
            let reply = client.execute(1, &format!("select id, k from sbtest1 {range}"));
            for row in &reply.rows {
                match row[..] {
                    [Datum::Signed(id), Datum::Signed(k)] if (1..=rows).contains(&id) => {
                        ks[id as usize - 1] = k;
                    }
                    _ => return Err(format!("the table has {row:?}")),
                }
            }
        }
        Ok(Self { ks, changes: Mutex::default() })
    }

    pub fn rows(&self) -> i64 {
        self.ks.len() as i64
    }

    /// Last id of the lower half.
    pub fn half(&self) -> i64 {
        self.rows() / 2
    }

    /// Sum of `k` of the range from this id on, before all increments.
    fn sum(&self, first: i64) -> i64 {
        self.ks[first as usize - 1..][..RANGE as usize].iter().sum()
    }

    pub fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of rows, and sums of ids, `k`, bytes of `c` and bytes of `pad`, after all changes.
    pub fn sums(&self) -> [i64; 5] {
        let (rows, changes) = (self.rows(), self.changes());
        let inserted = changes.written.iter().filter(|id| **id > self.half()).count() as i64;
        let written = changes.written.len() as i64;
        [
            rows,
            sum_of_ids(rows),
            self.ks.iter().sum::<i64>() + changes.increments,
            rows * C_BYTES - written * (C_BYTES - WRITTEN_BYTES),
            rows * PAD_BYTES - inserted * (PAD_BYTES - WRITTEN_BYTES),
        ]
    }
}

/// Contents of an answer so far.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    rows: i64,
    pub changed: i64,
    /// Sum of `k` of a range, or of the ids of a scan.
    sum: i64,
    /// Bytes of the texts of a scan.
    text_bytes: i64,
    /// Texts of another length, or out of order.
    wrong_texts: i64,
    last_text: Vec<u8>,
}

impl Seen {
    pub fn row(&mut self, right: Right, row: Row<'_>) -> Result<(), ValueError> {
        self.rows += 1;
        match right {
            Right::Scan => {
                self.value(0, row.cell(0)?.signed()?.map_or(Value::Null, Value::Signed));
                for place in [2, 3] {
                    self.value(place, row.cell(place)?.bytes()?.map_or(Value::Null, Value::Bytes));
                }
            }
            Right::Sum => self.sum = row.cell(0)?.signed()?.unwrap_or(0),
            _ => {
                let c = row.cell(0)?.bytes()?.unwrap_or_default();
                let fits = [C_BYTES, WRITTEN_BYTES].contains(&(c.len() as i64));
                let ascends = right != Right::Ascending || self.last_text.as_slice() < c;
                self.wrong_texts += i64::from(!(fits && ascends));
                self.last_text.clear();
                self.last_text.extend_from_slice(c);
            }
        }
        Ok(())
    }

    /// Adds a value of a scan.
    fn value(&mut self, column: usize, value: Value<'_>) {
        match value {
            Value::Signed(id) if column == 0 => self.sum += id,
            Value::Bytes(text) => self.text_bytes += text.len() as i64,
            _ => {}
        }
    }

    pub fn chunk(&mut self, body: &[u8]) -> Result<(), ChunkError> {
        let chunk = ChunkFrame::parse(body)?;
        let count = chunk.row_count();
        self.rows += i64::from(count);
        let kinds = [BlockKind::Signed, BlockKind::Signed, BlockKind::Bytes, BlockKind::Bytes];
        for (column, (block, kind)) in chunk.columns().zip(kinds).enumerate() {
            for value in block.values(kind, count, column as u32)? {
                self.value(column, value?);
            }
        }
        Ok(())
    }

    /// Returns true if the answer is right for a range from `first` on.
    pub fn is(&self, right: Right, first: i64, table: &Table) -> bool {
        let (rows, changed) = match right {
            Right::Nothing => (0, 0),
            Right::Change => (0, 1),
            Right::Texts(rows) => (rows, 0),
            Right::Ascending => (RANGE, 0),
            Right::Sum => (1, 0),
            Right::Scan => (table.rows(), 0),
        };
        let sums_fit = match right {
            // Any of the increments may be made by now.
            Right::Sum => (0..=table.changes().increments).contains(&(self.sum - table.sum(first))),
            Right::Scan => {
                let text_bytes = rows * (C_BYTES + PAD_BYTES);
                (self.sum, self.text_bytes) == (sum_of_ids(rows), text_bytes)
            }
            _ => true,
        };
        (self.rows, self.changed, self.wrong_texts) == (rows, changed, 0) && sums_fit
    }
}

pub fn connect(address: SocketAddr) -> Client {
    let mut client = Client::logged_in(address, USER, PASSWORD);
    client.new_session(1);
    client
}

fn sum_of_ids(rows: i64) -> i64 {
    rows * (rows + 1) / 2
}

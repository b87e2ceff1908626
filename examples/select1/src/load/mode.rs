//! [`Mode`]: the requests of a load, and the check of their answers.

use std::fmt;

use clap::ValueEnum;
use epoll_group::client::{Answer, Request};
use epoll_group::codec::proto::plan::{AnyPlan, GetExpr, IndexInfo, TableInfo};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::value::Value;
use lab::drive::Failure;

use super::SCHEMA;

/// Requests of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// `select 1`.
    Select1,
    /// One row of sbtest1 by its id, in a text that differs each time.
    Sql,
    /// The same, as one text in the server's cache and an argument.
    Digest,
    /// The same, as an execution plan in the server's cache.
    Plan,
}

const TABLE: &str = "sbtest1";
/// utf8mb4, as the protocol's Java client tags the texts of a plan.
const COLLATION: Option<u64> = Some(45);

impl Mode {
    /// True if a request asks for a row by its id.
    pub(super) fn is_point(self) -> bool {
        self != Self::Select1
    }

    /// Builds the request for this id.
    pub(super) fn request(self, id: i64) -> Request {
        match self {
            Self::Select1 => Request::sql("select 1"),
            Self::Sql => Request::sql(format!("select id, c from {TABLE} where id = {id}")),
            Self::Digest => Request::sql("select id, c from sbtest1 where id = ?")
                .arg(Scalar::signed(id))
                .cached(),
            Self::Plan => Request::plan(point_plan()).arg(Scalar::signed(id)).cached(),
        }
    }

    /// Reads the answer to the request for this id.
    pub(super) fn check(self, id: i64, mut answer: Answer) -> Result<(), Failure> {
        let (columns, expected) = if self.is_point() { (2, id) } else { (1, 1) };
        let mut rows = 0;
        while let Some(row) = answer.next_row()? {
            rows += 1;
            let cells = row.cells().len();
            if cells != columns {
                return Err(Failure::wrong(format!("{cells} columns in place of {columns}")));
            }
            for (place, value) in row.values().enumerate() {
                let value = value?;
                if !is_right(place, value, expected) {
                    let text = format!("column {place} is {value:?} in the answer for {expected}");
                    return Err(Failure::wrong(text));
                }
            }
        }
        if rows == 1 { Ok(()) } else { Err(Failure::wrong(format!("{rows} rows for id {id}"))) }
    }
}

fn is_right(place: usize, value: Value<'_>, expected: i64) -> bool {
    match (place, value) {
        (0, Value::Signed(value)) => value == expected,
        (0, Value::Unsigned(value)) => u64::try_from(expected) == Ok(value),
        (1, Value::Bytes(bytes)) => !bytes.is_empty(),
        _ => false,
    }
}

/// The plan for `select id, c from sbtest1 where id = ?`.
fn point_plan() -> AnyPlan {
    let text = |text: &str| Scalar::string(text, COLLATION);
    let table = TableInfo::new(text(TABLE), Some(text(SCHEMA)));
    let index = IndexInfo { name: text("PRIMARY"), ..IndexInfo::default() };
    let key = GetExpr::new([(text("id"), Scalar::placeholder(0))]);
    AnyPlan::get(table, Some(index), [key]).table_project([text("id"), text("c")])
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no mode is hidden");
        f.pad(value.get_name())
    }
}

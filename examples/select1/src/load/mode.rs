//! [`Mode`]: what is asked, and what the answer has to be.

use std::fmt;
use std::str::FromStr;

use epoll_group::client::{Answer, Request};
use epoll_group::codec::message::plan::{AnyPlan, GetExpr, IndexInfo, TableInfo};
use epoll_group::codec::message::value::Scalar;
use epoll_group::codec::value::Value;

use super::SCHEMA;
use super::asking::Failure;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// `select 1`.
    SelectOne,
    /// One row by its id, the id in the text: a text that differs each time.
    Sql,
    /// The same as a text that stays, under a digest, and an argument.
    Digest,
    /// The same as a plan, under a digest.
    Plan,
}

const NAMES: [(&str, Mode); 4] = [
    ("select1", Mode::SelectOne),
    ("sql", Mode::Sql),
    ("digest", Mode::Digest),
    ("plan", Mode::Plan),
];
const TABLE: &str = "sbtest1";
/// utf8mb4, as the protocol's Java client tags the texts of a plan.
const COLLATION: Option<u64> = Some(45);

impl Mode {
    /// A row by its id, not `select 1`.
    pub(super) fn is_point(self) -> bool {
        self != Self::SelectOne
    }

    /// The request for this id.
    pub(super) fn request(self, id: i64) -> Request {
        match self {
            Self::SelectOne => Request::sql("select 1"),
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
                return Err(Failure::Wrong(format!("{cells} columns in place of {columns}")));
            }
            for (place, value) in row.values().enumerate() {
                let value = value?;
                if !is_right(place, value, expected) {
                    let text = format!("column {place} is {value:?} in the answer for {expected}");
                    return Err(Failure::Wrong(text));
                }
            }
        }
        if rows == 1 { Ok(()) } else { Err(Failure::Wrong(format!("{rows} rows for id {id}"))) }
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
        let entry = NAMES.iter().find(|(_, mode)| mode == self);
        f.pad(entry.map_or("", |(name, _)| name))
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let entry = NAMES.iter().find(|(name, _)| *name == text);
        entry.map(|(_, mode)| *mode).ok_or_else(|| {
            let names = NAMES.map(|(name, _)| name).join(", ");
            format!("--mode {text} is none of {names}")
        })
    }
}

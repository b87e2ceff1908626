//! [`Asked`]: a read of a table, and its shape, which lacks the values of the keys. Plans of one
//! shape share a statement.
//!
//! ```text
//!  kind │ table │ schema │ index │ parts of the first key │ of the last │ columns
//!                                  name, is it NULL …                     number or name …
//! ```
//!
//! Texts and lists have their length in front, so that no two plans that differ have one shape.

use epoll_group::codec::message::{Node, ScalarValue};
use epoll_group::codec::proto::plan::{ExecPlan, IndexInfo, KeyExpr, TableInfo, TableProject};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::session::SessionError;

use super::{malformed, refuse};

/// A read of a table.
///
/// *Shape*: borrows from the request, but for the key.
#[derive(Debug)]
pub(super) struct Asked<'a> {
    message: &'a ExecPlan,
    pub(super) way: Way,
    /// Set if the rows come in the reverse order of the index.
    pub(super) is_back: bool,
    pub(super) table: &'a str,
    /// Empty if it was not named.
    pub(super) schema: &'a str,
    pub(super) index: &'a str,
    /// The key of a get, or the first of a range.
    pub(super) first: &'a [KeyExpr],
    /// The last key of a range.
    pub(super) last: &'a [KeyExpr],
    wanted: Option<&'a TableProject>,
    key: Vec<u8>,
}

/// Kind of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Way {
    Get,
    Scan,
    Range,
}

impl Way {
    /// Returns the name of the node.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Scan => "TABLE_SCAN",
            Self::Range => "RANGE_SCAN",
        }
    }
}

/// A column that is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wanted<'a> {
    Number(u64),
    Name(&'a str),
}

/// The index that is meant where none is named.
const PRIMARY: &str = "PRIMARY";

impl<'a> Asked<'a> {
    /// Reads a node without an input, and the columns that are wanted of it.
    pub(super) fn of(
        message: &'a ExecPlan,
        base: Node<'a>,
        wanted: Option<&'a TableProject>,
    ) -> Result<Self, SessionError> {
        let (way, table, index, first, last) = parts(base)?;
        let is_back = match base {
            Node::TableScan(scan) => scan.reverse,
            Node::RangeScan(scan) => scan.reverse,
            _ => None,
        };
        let is_back = is_back.unwrap_or_default();
        let table = table.ok_or_else(|| refuse(format_args!("{} without a table", way.name())))?;
        let schema = table.schema_name.as_ref().map_or(Ok(""), |name| text(message, name))?;
        let index = index.map_or(Ok(PRIMARY), |index| text(message, &index.name))?;
        let table = text(message, &table.name)?;
        let mut asked = Self {
            message,
            way,
            is_back,
            table,
            schema,
            index,
            first,
            last,
            wanted,
            key: Vec::new(),
        };
        asked.put_key()?;
        Ok(asked)
    }

    pub(super) const fn schema(&self) -> &'a str {
        self.schema
    }

    fn put_key(&mut self) -> Result<(), SessionError> {
        let mut key = Vec::with_capacity(64);
        key.extend([self.way as u8, self.is_back.into()]);
        for name in [self.table, self.schema, self.index] {
            put_text(&mut key, name);
        }
        for parts in [self.first, self.last] {
            put_length(&mut key, parts.len());
            for part in parts {
                put_text(&mut key, self.name(&part.field)?);
                key.push(self.is_null(part)?.into());
            }
        }
        match self.wanted {
            None => key.push(0),
            Some(project) => {
                key.push(1);
                put_length(&mut key, project.fields.len());
                for field in &project.fields {
                    match wanted(self.message, field)? {
                        Wanted::Number(number) => {
                            key.push(0);
                            key.extend(number.to_le_bytes());
                        }
                        Wanted::Name(name) => {
                            key.push(1);
                            put_text(&mut key, name);
                        }
                    }
                }
            }
        }
        self.key = key;
        Ok(())
    }

    /// The shape.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// A name in the plan.
    pub(super) fn name(&self, scalar: &'a Scalar) -> Result<&'a str, SessionError> {
        text(self.message, scalar)
    }

    /// The value of a part of a key.
    pub(super) fn value(&self, part: &'a KeyExpr) -> Result<ScalarValue<'a>, SessionError> {
        let scalar = self.message.resolve(&part.value).map_err(malformed)?;
        scalar.value().map_err(refuse)
    }

    pub(super) fn is_null(&self, part: &'a KeyExpr) -> Result<bool, SessionError> {
        Ok(self.value(part)? == ScalarValue::Null)
    }

    /// The columns that are asked for; `None` for all.
    pub(super) fn wanted(&self) -> Option<impl Iterator<Item = Result<Wanted<'a>, SessionError>>> {
        let message = self.message;
        Some(self.wanted?.fields.iter().map(move |field| wanted(message, field)))
    }
}

/// A column by number or by name.
pub(super) fn wanted<'a>(
    message: &'a ExecPlan,
    field: &'a Scalar,
) -> Result<Wanted<'a>, SessionError> {
    match message.resolve(field).map_err(malformed)?.value() {
        Ok(ScalarValue::Unsigned(number)) => Ok(Wanted::Number(number)),
        _ => text(message, field).map(Wanted::Name),
    }
}

/// Returns a name of a plan as UTF-8 text.
pub(super) fn text<'a>(message: &'a ExecPlan, scalar: &'a Scalar) -> Result<&'a str, SessionError> {
    let name = message.name(scalar).map_err(malformed)?;
    std::str::from_utf8(name)
        .map_err(|_| refuse(format_args!("'{}' is no name", name.escape_ascii())))
}

type Parts<'a> = (Way, Option<&'a TableInfo>, Option<&'a IndexInfo>, &'a [KeyExpr], &'a [KeyExpr]);

fn parts(base: Node<'_>) -> Result<Parts<'_>, SessionError> {
    Ok(match base {
        Node::Get(get) => {
            let key = get.keys.first().map_or(&[][..], |key| &key.keys);
            if key.is_empty() {
                return Err(refuse("GET without a key"));
            }
            (Way::Get, Some(&get.table_info), get.index_info.as_ref(), key, &[])
        }
        Node::TableScan(scan) => {
            (Way::Scan, Some(&scan.table_info), scan.index_info.as_ref(), &[], &[])
        }
        Node::RangeScan(scan) => {
            let [first, last] =
                [&scan.key, &scan.end_key].map(|key| key.as_ref().map_or(&[][..], |key| &key.keys));
            (Way::Range, scan.table_info.as_ref(), scan.index_info.as_ref(), first, last)
        }
        _ => return Err(refuse("a plan ends at a table")),
    })
}

/// Seven bits a byte, the lowest first: most lengths are one byte.
fn put_length(key: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        key.push(length as u8 | 0x80);
        length >>= 7;
    }
    key.push(length as u8);
}

fn put_text(key: &mut Vec<u8>, text: &str) {
    put_length(key, text.len());
    key.extend_from_slice(text.as_bytes());
}

//! [`Ids`]: values of the sharding column in the rows that a statement is about.

use std::collections::HashMap;

use epoll_group::codec::message::{AnyValue, ScalarValue};
use epoll_group::codec::proto::value::Any;
use epoll_group::session::SessionError;
use sqlparser::ast::{BinaryOperator, Expr, Ident, UnaryOperator, Value, ValueWithSpan};
use sqlparser::tokenizer::Location;

use crate::refuse::wrong_arguments;

/// Values of the sharding column to which a statement is restricted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ids {
    ids: Vec<Id>,
    /// True for inserted rows. None of their ids may be NULL.
    all: bool,
}

/// A value of the sharding column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id {
    Number(i128),
    /// The argument at this place.
    Argument(usize),
}

/// Numbers of the `?` in the text, from 0, by their places.
pub(super) type Marks = HashMap<Location, usize>;

/// Arguments of a statement or parameters of a plan.
pub trait Scalars {
    /// The value at this place.
    fn scalar(&self, at: usize) -> Result<ScalarValue<'_>, SessionError>;
}

impl Scalars for [Any] {
    fn scalar(&self, at: usize) -> Result<ScalarValue<'_>, SessionError> {
        let missing = || wrong_arguments(format_args!("there is none for mark {}", at + 1));
        match self.get(at).ok_or_else(missing)?.value()? {
            AnyValue::Scalar(scalar) => Ok(scalar.value()?),
            _ => Err(wrong_arguments("only scalars are arguments")),
        }
    }
}

impl Ids {
    fn any(ids: Vec<Id>) -> Self {
        Self { ids, all: false }
    }

    /// Ids of inserted rows.
    pub(super) const fn all(ids: Vec<Id>) -> Self {
        Self { ids, all: true }
    }

    pub(super) const fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns the nodes of the rows, each once and in order, out of `nodes`. Empty if no row can
    /// match: nothing equals NULL.
    pub fn nodes<S: Scalars + ?Sized>(
        &self,
        arguments: &S,
        nodes: usize,
    ) -> Result<Vec<usize>, SessionError> {
        let mut found = Vec::with_capacity(1);
        for &id in &self.ids {
            let Some(number) = id.number(arguments)? else {
                if self.all {
                    return Err(wrong_arguments("the id of a row is NULL"));
                }
                continue;
            };
            let node = node_of(number, nodes);
            if !found.contains(&node) {
                found.push(node);
            }
        }
        found.sort_unstable();
        Ok(found)
    }
}

/// The node of a row.
pub fn node_of(id: i128, nodes: usize) -> usize {
    id.rem_euclid(nodes as i128) as usize
}

impl Id {
    fn number<S: Scalars + ?Sized>(self, arguments: &S) -> Result<Option<i128>, SessionError> {
        match self {
            Self::Number(number) => Ok(Some(number)),
            Self::Argument(at) => number_of(arguments.scalar(at)?),
        }
    }
}

/// The number that a value stands for; `None` for NULL.
pub(super) fn number_of(value: ScalarValue<'_>) -> Result<Option<i128>, SessionError> {
    let number = match value {
        ScalarValue::Null => return Ok(None),
        ScalarValue::Signed(number) => Some(number.into()),
        ScalarValue::Unsigned(number) => Some(number.into()),
        ScalarValue::Bool(is) => Some(is.into()),
        ScalarValue::String(text, _) | ScalarValue::Octets(text) | ScalarValue::RawString(text) => {
            std::str::from_utf8(text).ok().and_then(integer)
        }
        _ => None,
    };
    number.map(Some).ok_or_else(|| wrong_arguments("the id is no integer"))
}

/// Integer in the text. `5.0`, ` 5` and `5 apples` are none here: servers differ on them.
fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let plain =
        !digits.is_empty() && digits.len() <= 20 && digits.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// The sharding column and its names in a statement.
#[derive(Debug)]
pub(super) struct KeyColumn<'a> {
    pub(super) column: &'a str,
    pub(super) schema: &'a str,
    pub(super) table: &'a str,
    pub(super) alias: Option<&'a str>,
    pub(super) marks: &'a Marks,
}

impl KeyColumn<'_> {
    /// True if the expression is the column.
    pub(super) fn is(&self, expr: &Expr) -> bool {
        match expr {
            Expr::Identifier(name) => self.is_named(name),
            Expr::CompoundIdentifier(parts) => self.is_path(parts),
            Expr::Nested(inner) => self.is(inner),
            _ => false,
        }
    }

    pub(super) fn is_path(&self, parts: &[Ident]) -> bool {
        let same = |part: &Ident, name: &str| part.value.eq_ignore_ascii_case(name);
        match parts {
            [column] => self.is_named(column),
            [table, column] => {
                let known = match self.alias {
                    Some(alias) => same(table, alias),
                    None => same(table, self.table),
                };
                known && self.is_named(column)
            }
            [schema, table, column] => {
                same(schema, self.schema)
                    && same(table, self.table)
                    && self.alias.is_none()
                    && self.is_named(column)
            }
            _ => false,
        }
    }

    fn is_named(&self, name: &Ident) -> bool {
        name.value.eq_ignore_ascii_case(self.column)
    }

    /// The ids that rows can have for which the condition holds; `None`: any.
    pub(super) fn ids(&self, condition: &Expr) -> Option<Ids> {
        match condition {
            Expr::Nested(inner) => self.ids(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                // Either is enough.
                match (self.ids(left), self.ids(right)) {
                    (Some(left), Some(right)) if right.ids.len() < left.ids.len() => Some(right),
                    (Some(left), _) => Some(left),
                    (None, right) => right,
                }
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                let mut ids = self.ids(left)?;
                ids.ids.extend(self.ids(right)?.ids);
                Some(ids)
            }
            Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
                let value = if self.is(left) {
                    right
                } else if self.is(right) {
                    left
                } else {
                    return None;
                };
                self.value(value).map(|id| Ids::any(id.into_iter().collect()))
            }
            Expr::InList { expr, list, negated: false } if self.is(expr) => {
                let ids = list.iter().map(|value| self.value(value));
                let ids: Option<Vec<_>> = ids.collect();
                Some(Ids::any(ids?.into_iter().flatten().collect()))
            }
            _ => None,
        }
    }

    /// Value of the expression, if the text shows it: a number, a mark, or NULL.
    pub(super) fn value(&self, expr: &Expr) -> Option<Option<Id>> {
        match expr {
            Expr::Nested(inner) => self.value(inner),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match &**expr {
                Expr::Value(ValueWithSpan { value: Value::Number(text, false), .. }) => {
                    Some(Some(Id::Number(-integer(text)?)))
                }
                _ => None,
            },
            Expr::Value(ValueWithSpan { value, span }) => match value {
                Value::Number(text, false) => Some(Some(Id::Number(integer(text)?))),
                Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => {
                    Some(Some(Id::Number(integer(text)?)))
                }
                Value::Null => Some(None),
                Value::Placeholder(mark) if mark == "?" => {
                    Some(Some(Id::Argument(*self.marks.get(&span.start)?)))
                }
                _ => None,
            },
            _ => None,
        }
    }
}

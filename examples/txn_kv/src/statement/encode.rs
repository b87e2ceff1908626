//! [`Encoded`]: a statement as it is sent.

use std::borrow::Cow;

use epoll_group::client::Request;
use epoll_group::codec::proto::value::Scalar;

use super::Statement;
use crate::txn::{Compare, KeyRange, Op, Relation, Target, Txn};

/// A statement as it is sent: a text with marks, and an argument for each of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded {
    /// The text.
    pub text: Cow<'static, str>,
    /// One for each mark, in order.
    pub arguments: Vec<Scalar>,
}

impl From<Encoded> for Request {
    fn from(encoded: Encoded) -> Self {
        Self::sql(encoded.text.into_owned()).args(encoded.arguments)
    }
}

impl Encoded {
    /// A put of one key.
    #[must_use]
    pub fn put(key: &[u8], value: &[u8]) -> Self {
        let arguments = vec![Scalar::octets(key), Scalar::octets(value)];
        Self { text: "put ? ?".into(), arguments }
    }

    /// A delete.
    #[must_use]
    pub fn delete(range: &KeyRange) -> Self {
        let mut writer = Writer::default();
        writer.delete(range);
        writer.finish()
    }

    /// A read as of a revision; `usize::MAX` is no limit.
    #[must_use]
    pub fn read(range: &KeyRange, limit: usize, at: Option<u64>) -> Self {
        let mut writer = Writer::default();
        writer.read(range, limit);
        if let Some(at) = at {
            writer.word(" at");
            writer.number(at);
        }
        writer.finish()
    }

    /// A transaction.
    #[must_use]
    pub fn txn(txn: &Txn) -> Self {
        let mut writer = Writer::default();
        match (txn.compares.as_slice(), txn.then.as_slice(), txn.otherwise.as_slice()) {
            ([], [op @ (Op::Put { .. } | Op::Delete(_))], []) => writer.operation(op),
            _ => writer.txn(txn),
        }
        writer.finish()
    }

    /// A compaction up to a revision.
    #[must_use]
    pub fn compact(at: u64) -> Self {
        Self { text: "compact ?".into(), arguments: vec![Scalar::unsigned(at)] }
    }
}

impl From<&Statement> for Encoded {
    fn from(statement: &Statement) -> Self {
        match statement {
            Statement::Txn(txn) => Self::txn(txn),
            Statement::Read { range, limit, at } => Self::read(range, *limit, *at),
            Statement::Compact(at) => Self::compact(*at),
            Statement::Status => Self { text: "status".into(), arguments: Vec::new() },
        }
    }
}

#[derive(Default)]
struct Writer {
    text: String,
    arguments: Vec<Scalar>,
}

impl Writer {
    fn finish(self) -> Encoded {
        Encoded { text: self.text.into(), arguments: self.arguments }
    }

    fn txn(&mut self, txn: &Txn) {
        self.word("txn");
        for (index, compare) in txn.compares.iter().enumerate() {
            self.word(if index == 0 { " if " } else { " and " });
            self.compare(compare);
        }
        self.word(" then ");
        self.operations(&txn.then);
        if !txn.otherwise.is_empty() {
            self.word(" else ");
            self.operations(&txn.otherwise);
        }
    }

    fn operations(&mut self, operations: &[Op]) {
        if operations.is_empty() {
            self.word("nothing");
        }
        for (index, operation) in operations.iter().enumerate() {
            if index > 0 {
                self.word(", ");
            }
            self.operation(operation);
        }
    }

    fn operation(&mut self, operation: &Op) {
        match operation {
            Op::Put { key, value } => {
                self.word("put");
                self.bytes(key);
                self.bytes(value);
            }
            Op::Delete(range) => self.delete(range),
            Op::Get { range, limit } => self.read(range, *limit),
        }
    }

    fn delete(&mut self, range: &KeyRange) {
        self.word(match range {
            KeyRange::One(_) => "delete",
            KeyRange::Span(..) => "delete range",
        });
        self.keys(range);
    }

    fn read(&mut self, range: &KeyRange, limit: usize) {
        self.word(match range {
            KeyRange::One(_) => "get",
            KeyRange::Span(..) => "range",
        });
        self.keys(range);
        if limit < usize::MAX {
            self.word(" limit");
            self.number(limit as u64);
        }
    }

    fn keys(&mut self, range: &KeyRange) {
        match range {
            KeyRange::One(key) => self.bytes(key),
            KeyRange::Span(from, to) => {
                self.bytes(from);
                to.iter().for_each(|to| self.bytes(to));
            }
        }
    }

    fn compare(&mut self, compare: &Compare) {
        self.word(match compare.target {
            Target::Value(_) => "value",
            Target::Version(_) => "version",
            Target::Created(_) => "created",
            Target::Modified(_) => "modified",
        });
        self.bytes(&compare.key);
        self.word(match compare.relation {
            Relation::Equal => " =",
            Relation::NotEqual => " !=",
            Relation::Less => " <",
            Relation::Greater => " >",
        });
        match &compare.target {
            Target::Value(value) => self.bytes(value),
            Target::Version(n) | Target::Created(n) | Target::Modified(n) => self.number(*n),
        }
    }

    fn word(&mut self, word: &str) {
        self.text.push_str(word);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.text.push_str(" ?");
        self.arguments.push(Scalar::octets(bytes));
    }

    fn number(&mut self, number: u64) {
        self.text.push_str(" ?");
        self.arguments.push(Scalar::unsigned(number));
    }
}

//! Reads a text by recursive descent: a function for each line of the grammar.

use std::borrow::Cow;
use std::slice;

use epoll_group::codec::message::{AnyValue, ScalarValue};
use epoll_group::codec::proto::value::Any;

use super::error::StatementError;
use super::tokens::{Token, Tokens};
use super::{MOST_OPERATIONS, Statement};
use crate::record::Key;
use crate::txn::{Compare, KeyRange, Op, Relation, Target, Txn};

pub(super) fn parse(text: &[u8], arguments: &[Any]) -> Result<Statement, StatementError> {
    let mut tokens = Tokens::new(text);
    let (token, at) = tokens.next()?;
    let all = arguments.len();
    let arguments = arguments.iter();
    let mut parser = Parser { tokens, token, at, arguments, marks: 0, operations: 0 };
    let statement = parser.statement()?;
    if parser.token != Token::End {
        return Err(parser.unexpected("the end"));
    }
    if parser.marks < all {
        return Err(StatementError::LeftOver { arguments: all, marks: parser.marks });
    }
    Ok(statement)
}

type Parsed<T> = Result<T, StatementError>;

struct Parser<'a> {
    tokens: Tokens<'a>,
    /// The first that is not read yet, and where it begins.
    token: Token<'a>,
    at: usize,
    /// Arguments that no mark has taken yet.
    arguments: slice::Iter<'a, Any>,
    marks: usize,
    /// Comparisons and operations so far.
    operations: usize,
}

const STATEMENTS: &str = "put, get, range, delete, txn, compact or status";
const OPERATIONS: &str = "put, get, range or delete";
const COMPARISONS: &str = "value, version, created or modified";
const KEY: &str = "a key (?, 'text' or x'hex')";
const VALUE: &str = "a value (?, 'text' or x'hex')";
const NUMBER: &str = "a number (? or digits)";

impl<'a> Parser<'a> {
    fn statement(&mut self) -> Parsed<Statement> {
        if let Some(op) = self.write()? {
            return Ok(Statement::Txn(Txn { then: vec![op], ..Txn::default() }));
        }
        if self.is_word("get") || self.is_word("range") {
            let (range, limit) = self.read()?;
            let at = if self.accept("at")? { Some(self.number()?) } else { None };
            return Ok(Statement::Read { range, limit, at });
        }
        if self.accept("txn")? {
            return Ok(Statement::Txn(self.txn()?));
        }
        if self.accept("compact")? {
            return Ok(Statement::Compact(self.number()?));
        }
        if self.accept("status")? {
            return Ok(Statement::Status);
        }
        Err(self.unexpected(STATEMENTS))
    }

    fn txn(&mut self) -> Parsed<Txn> {
        let mut txn = Txn::default();
        if self.accept("if")? {
            loop {
                self.count()?;
                txn.compares.push(self.compare()?);
                if !self.accept("and")? {
                    break;
                }
            }
        }
        if !self.accept("then")? {
            let more = if txn.compares.is_empty() { "if or then" } else { "and or then" };
            return Err(self.unexpected(more));
        }
        txn.then = self.operations()?;
        if self.accept("else")? {
            txn.otherwise = self.operations()?;
        }
        Ok(txn)
    }

    fn operations(&mut self) -> Parsed<Vec<Op>> {
        let mut operations = Vec::new();
        if self.accept("nothing")? {
            return Ok(operations);
        }
        loop {
            self.count()?;
            operations.push(self.operation()?);
            if self.token != Token::Comma {
                return Ok(operations);
            }
            self.advance()?;
        }
    }

    fn operation(&mut self) -> Parsed<Op> {
        if self.is_word("get") || self.is_word("range") {
            let (range, limit) = self.read()?;
            return Ok(Op::Get { range, limit });
        }
        self.write()?.ok_or_else(|| self.unexpected(OPERATIONS))
    }

    /// Reads a put or a delete, if one comes next.
    fn write(&mut self) -> Parsed<Option<Op>> {
        if self.accept("put")? {
            let key = self.key()?;
            let value = self.bytes(VALUE)?.into();
            return Ok(Some(Op::Put { key, value }));
        }
        if self.accept("delete")? {
            let range = if self.accept("range")? { self.span()? } else { self.one()? };
            return Ok(Some(Op::Delete(range)));
        }
        Ok(None)
    }

    /// A get or a range.
    fn read(&mut self) -> Parsed<(KeyRange, usize)> {
        let range = if self.accept("range")? {
            self.span()?
        } else {
            self.advance()?;
            self.one()?
        };
        let limit = if self.accept("limit")? {
            usize::try_from(self.number()?).unwrap_or(usize::MAX)
        } else {
            usize::MAX
        };
        Ok((range, limit))
    }

    fn compare(&mut self) -> Parsed<Compare> {
        let kinds = ["value", "version", "created", "modified"];
        let kind = kinds.into_iter().find(|kind| self.is_word(kind));
        let kind = kind.ok_or_else(|| self.unexpected(COMPARISONS))?;
        self.advance()?;
        let key = self.key()?;
        let relation = self.relation()?;
        let target = match kind {
            "value" => Target::Value(self.bytes(VALUE)?.into()),
            "version" => Target::Version(self.number()?),
            "created" => Target::Created(self.number()?),
            _ => Target::Modified(self.number()?),
        };
        Ok(Compare { key, relation, target })
    }

    fn relation(&mut self) -> Parsed<Relation> {
        let relation = match self.token {
            Token::Equal => Relation::Equal,
            Token::NotEqual => Relation::NotEqual,
            Token::Less => Relation::Less,
            Token::Greater => Relation::Greater,
            _ => return Err(self.unexpected("=, !=, < or >")),
        };
        self.advance()?;
        Ok(relation)
    }

    fn one(&mut self) -> Parsed<KeyRange> {
        Ok(KeyRange::One(self.key()?))
    }

    fn span(&mut self) -> Parsed<KeyRange> {
        let from = self.key()?;
        let ends = matches!(self.token, Token::Mark | Token::Text(_) | Token::Hex(_));
        let to = if ends { Some(self.key()?) } else { None };
        Ok(KeyRange::Span(from, to))
    }

    fn key(&mut self) -> Parsed<Key> {
        Ok(self.bytes(KEY)?.into())
    }

    fn bytes(&mut self, expected: &'static str) -> Parsed<Cow<'a, [u8]>> {
        let bytes = match self.token {
            Token::Mark => Cow::Borrowed(match self.argument()? {
                ScalarValue::Octets(bytes) | ScalarValue::String(bytes, _) => bytes,
                other => return Err(self.wrong_argument(other, "a string")),
            }),
            Token::Text(text) => unquoted(text),
            Token::Hex(digits) => {
                let bytes = from_hex(digits).ok_or(StatementError::Hex { at: self.at + 1 })?;
                Cow::Owned(bytes)
            }
            _ => return Err(self.unexpected(expected)),
        };
        self.advance()?;
        Ok(bytes)
    }

    fn number(&mut self) -> Parsed<u64> {
        let number = match self.token {
            Token::Mark => match self.argument()? {
                ScalarValue::Unsigned(number) => number,
                ScalarValue::Signed(number) if number >= 0 => number.unsigned_abs(),
                other => return Err(self.wrong_argument(other, "an integer from 0")),
            },
            Token::Number(digits) => digits
                .iter()
                .try_fold(0_u64, |number, digit| {
                    number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
                })
                .ok_or(StatementError::Number { at: self.at + 1 })?,
            _ => return Err(self.unexpected(NUMBER)),
        };
        self.advance()?;
        Ok(number)
    }

    /// The argument of the mark that comes next.
    fn argument(&mut self) -> Parsed<ScalarValue<'a>> {
        self.marks += 1;
        let number = self.marks;
        let none = StatementError::NoArgument { at: self.at + 1, number };
        let argument = self.arguments.next().ok_or(none)?;
        let Ok(AnyValue::Scalar(scalar)) = argument.value() else {
            let (found, expected) = ("no scalar", "a scalar");
            return Err(StatementError::Argument { number, found, expected });
        };
        scalar.value().map_err(|_| StatementError::Argument {
            number,
            found: "nothing of its type",
            expected: "a scalar",
        })
    }

    fn wrong_argument(&self, found: ScalarValue<'_>, expected: &'static str) -> StatementError {
        StatementError::Argument { number: self.marks, found: kind(found), expected }
    }

    /// One more comparison or operation.
    fn count(&mut self) -> Parsed<()> {
        self.operations += 1;
        if self.operations > MOST_OPERATIONS {
            let limit = MOST_OPERATIONS;
            return Err(StatementError::TooMany { at: self.at + 1, limit });
        }
        Ok(())
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.token, Token::Word(found) if found.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// Reads this word, if it comes next.
    fn accept(&mut self, word: &str) -> Parsed<bool> {
        let comes = self.is_word(word);
        if comes {
            self.advance()?;
        }
        Ok(comes)
    }

    fn advance(&mut self) -> Parsed<()> {
        (self.token, self.at) = self.tokens.next()?;
        Ok(())
    }

    fn unexpected(&self, expected: &'static str) -> StatementError {
        let found = self.token.describe();
        StatementError::Unexpected { at: self.at + 1, found, expected }
    }
}

fn kind(value: ScalarValue<'_>) -> &'static str {
    match value {
        ScalarValue::Signed(number) if number < 0 => "a negative integer",
        ScalarValue::Signed(_) | ScalarValue::Unsigned(_) => "an integer",
        ScalarValue::Null => "NULL",
        ScalarValue::Octets(_) | ScalarValue::String(..) => "a string",
        ScalarValue::Double(_) | ScalarValue::Float(_) => "a number with a point",
        ScalarValue::Bool(_) => "a truth value",
        ScalarValue::Identifier(_) => "a name",
        ScalarValue::RawString(_) => "a raw string",
        _ => "something else",
    }
}

fn unquoted(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.contains(&b'\'') {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(&byte) = rest.next() {
        bytes.push(byte);
        if byte == b'\'' {
            rest.next();
        }
    }
    Cow::Owned(bytes)
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    pairs.iter().map(|&[high, low]| Some(digit(high)? << 4 | digit(low)?)).collect()
}

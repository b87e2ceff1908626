//! `SET`: variables, names, the transaction.

use epoll_group::session::SessionError;

use super::cursor::Cursor;
use super::rewrite::variable_name;
use super::scan::Kind;
use super::{Query, Reader, Statement, rewrite};

/// One thing that is set.
#[derive(Debug)]
pub struct Setting {
    pub target: Target,
    pub value: Value,
}

/// Variable that is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// In lower case.
    User(String),
    System(Scope, String),
    /// The character set of the client.
    Names,
}

/// Owner of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// None was named: the session's.
    Unnamed,
    Session,
    Global,
    /// The next transaction only.
    Next,
}

/// New value of a variable.
#[derive(Debug)]
pub enum Value {
    /// A name, number or string, as text.
    Plain(String),
    Default,
    /// The argument of this number.
    Argument(usize),
    /// Result of a query; its first argument has this number.
    Expression(Box<Query>, usize),
}

impl Scope {
    /// Reads `@@name`, `@@global.name`.
    pub fn of_variable(text: &str) -> Option<(Self, String)> {
        let text = text.strip_prefix("@@")?;
        let (scope, name) = match text.split_once('.') {
            None => (Self::Unnamed, text),
            Some((scope, name)) => match scope.to_ascii_lowercase().as_str() {
                "global" | "persist" => (Self::Global, name),
                "session" | "local" => (Self::Session, name),
                _ => return None,
            },
        };
        let name = name.trim_matches('`').to_ascii_lowercase();
        (!name.is_empty()).then_some((scope, name))
    }
}

impl Value {
    /// Number of `?` in it.
    pub const fn marks(&self) -> usize {
        match self {
            Self::Argument(_) => 1,
            Self::Expression(query, _) => query.marks,
            Self::Plain(_) | Self::Default => 0,
        }
    }
}

pub(super) fn read(
    reader: &Reader<'_, '_>,
    mut cursor: Cursor<'_, '_>,
) -> Result<Statement, SessionError> {
    let mut settings = Vec::new();
    let mut marks = 0;
    loop {
        one(reader, &mut cursor, &mut marks, &mut settings)?;
        if !cursor.symbol(",") {
            return reader.whole(&cursor, Some(Statement::Set(settings)));
        }
    }
}

fn one(
    reader: &Reader<'_, '_>,
    cursor: &mut Cursor<'_, '_>,
    marks: &mut usize,
    settings: &mut Vec<Setting>,
) -> Result<(), SessionError> {
    let error = |cursor: &Cursor<'_, '_>| reader.error_at(cursor.at);
    let is_assigned = |cursor: &Cursor<'_, '_>| {
        let mut ahead = cursor.clone();
        ahead.next();
        ahead.symbol("=") || ahead.symbol(":=")
    };
    let is_names = |cursor: &mut Cursor<'_, '_>| {
        cursor.word("names") || cursor.word("charset") || cursor.words(&["character", "set"])
    };
    if !is_assigned(cursor) && is_names(cursor) {
        return names(reader, cursor, settings);
    }
    let scope = match cursor.peek() {
        Some(_) if is_assigned(cursor) => Scope::Unnamed,
        _ => match cursor.one_of(&["global", "persist", "session", "local"]) {
            Some("global" | "persist") => Scope::Global,
            Some(_) => Scope::Session,
            None => Scope::Unnamed,
        },
    };
    if !is_assigned(cursor) && cursor.word("transaction") {
        return transaction(reader, cursor, scope, settings);
    }
    let token = cursor.next().ok_or_else(|| error(cursor))?;
    let target = match token.kind {
        Kind::UserVariable if scope == Scope::Unnamed => {
            Target::User(variable_name(&token.text[1..]).to_lowercase())
        }
        Kind::SystemVariable => {
            let (scope, name) = Scope::of_variable(token.text).ok_or_else(|| error(cursor))?;
            Target::System(scope, name)
        }
        _ => {
            let name = token.name().ok_or_else(|| reader.error_at(cursor.at - 1))?;
            Target::System(scope, name.to_ascii_lowercase())
        }
    };
    if !cursor.symbol("=") && !cursor.symbol(":=") {
        return Err(error(cursor));
    }
    let takes_words = !matches!(target, Target::User(_));
    let value = value(reader, cursor, marks, takes_words)?;
    settings.push(Setting { target, value });
    Ok(())
}

/// Reads a value: all tokens to the next comma outside of parentheses. For system variables a word
/// is a text. For user variables a word means the same as in a query, and a text that looks like a
/// number stays a text.
fn value(
    reader: &Reader<'_, '_>,
    cursor: &mut Cursor<'_, '_>,
    marks: &mut usize,
    takes_words: bool,
) -> Result<Value, SessionError> {
    let from = cursor.at;
    let mut depth = 0_usize;
    let mut inside = 0;
    while let Some(token) = cursor.peek() {
        match token.text {
            "," if depth == 0 => break,
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
        inside += usize::from(token.kind == Kind::Mark);
        cursor.next();
    }
    let tokens = &reader.tokens.all[from..cursor.at];
    let first_mark = *marks;
    *marks += inside;
    let plain = match tokens {
        [] => return Err(reader.error_at(from)),
        [only] if only.kind == Kind::Mark => return Ok(Value::Argument(first_mark)),
        [only] if takes_words && only.is_word("default") => return Ok(Value::Default),
        [only] if only.is_word("null") => None,
        [only] if !takes_words => only.text.parse::<i64>().is_ok().then(|| only.text.to_owned()),
        _ if !takes_words => None,
        [only] if only.kind == Kind::Number && !only.text.contains(['x', 'X']) => {
            Some(only.text.to_owned())
        }
        [only] => only.name().or_else(|| only.string()),
        [minus, number] if minus.is_symbol("-") && number.kind == Kind::Number => {
            Some(format!("-{}", number.text))
        }
        _ => None,
    };
    if let Some(plain) = plain {
        return Ok(Value::Plain(plain));
    }
    let (start, end) = (tokens[0].start, tokens[tokens.len() - 1].end());
    let query = rewrite::expression(&reader.text[start..end], reader.schema)?;
    Ok(Value::Expression(Box::new(query), first_mark))
}

fn names(
    reader: &Reader<'_, '_>,
    cursor: &mut Cursor<'_, '_>,
    settings: &mut Vec<Setting>,
) -> Result<(), SessionError> {
    let error = reader.error_at(cursor.at);
    let value = if cursor.word("default") {
        Value::Default
    } else {
        Value::Plain(cursor.name().or_else(|| cursor.string()).ok_or(error)?)
    };
    settings.push(Setting { target: Target::Names, value });
    if cursor.word("collate") {
        let error = reader.error_at(cursor.at);
        let collation = cursor.name().or_else(|| cursor.string()).ok_or(error)?;
        let target = Target::System(Scope::Session, "collation_connection".to_owned());
        settings.push(Setting { target, value: Value::Plain(collation) });
    }
    Ok(())
}

/// `isolation level …`, `read only`, `read write`, in any order.
fn transaction(
    reader: &Reader<'_, '_>,
    cursor: &mut Cursor<'_, '_>,
    scope: Scope,
    settings: &mut Vec<Setting>,
) -> Result<(), SessionError> {
    let scope = if scope == Scope::Unnamed { Scope::Next } else { scope };
    loop {
        let (name, value) = if cursor.words(&["isolation", "level"]) {
            let level = if cursor.words(&["read", "committed"]) {
                "READ-COMMITTED"
            } else if cursor.words(&["read", "uncommitted"]) {
                "READ-UNCOMMITTED"
            } else if cursor.words(&["repeatable", "read"]) {
                "REPEATABLE-READ"
            } else if cursor.word("serializable") {
                "SERIALIZABLE"
            } else {
                return Err(reader.error_at(cursor.at));
            };
            ("transaction_isolation", level)
        } else if cursor.words(&["read", "only"]) {
            ("transaction_read_only", "ON")
        } else if cursor.words(&["read", "write"]) {
            ("transaction_read_only", "OFF")
        } else {
            return Err(reader.error_at(cursor.at));
        };
        let target = Target::System(scope, name.to_owned());
        settings.push(Setting { target, value: Value::Plain(value.to_owned()) });
        if !cursor.symbol(",") {
            return Ok(());
        }
    }
}

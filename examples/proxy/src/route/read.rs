//! Reads a statement: one, whole, and of a kind that the proxy knows.

use std::any::TypeId;
use std::fmt::Display;

use epoll_group::session::SessionError;
use sqlparser::ast::{self, ObjectName, ObjectNamePart, Query, SelectItem, SetExpr, TableFactor};
use sqlparser::dialect::MySqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Whitespace, Word};

use super::keys::Marks;
use super::{Catalogue, Effect, Own, Statement, session, tables};
use crate::refuse::{not_utf8, syntax, too_long, unroutable};

/// Facts about a statement before it is parsed.
pub(super) struct Facts<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) text: &'a str,
    /// The first words.
    pub(super) words: Vec<String>,
    pub(super) marks: Marks,
    /// Number of words that begin a query: `select` and `table`.
    pub(super) queries: usize,
}

/// Limit of operators and words in a statement. All of them may be nested, and deeper nesting takes
/// more stack than a worker has.
const MOST_WORDS: usize = 1000;

/// Longest text of a statement, in bytes. The parser takes up to 500 times as much memory.
const LONGEST_TEXT: usize = 1 << 20;

/// Functions whose result belongs to a session of the data node, which other clients use, too.
const OF_SESSION: [&str; 12] = [
    "connection_id",
    "last_insert_id",
    "row_count",
    "found_rows",
    "get_lock",
    "release_lock",
    "release_all_locks",
    "is_free_lock",
    "is_used_lock",
    "user",
    "session_user",
    "system_user",
];

/// Variables whose value belongs to a session of the data node.
pub(super) const VARIABLES_OF_SESSION: [&str; 6] = [
    "autocommit",
    "last_insert_id",
    "identity",
    "warning_count",
    "error_count",
    "pseudo_thread_id",
];

/// Reads a text.
pub(super) fn read(text: &[u8], catalogue: &Catalogue) -> Result<Statement, SessionError> {
    if text.len() > LONGEST_TEXT {
        return Err(too_long(text.len(), LONGEST_TEXT));
    }
    let text = std::str::from_utf8(text).map_err(|_| not_utf8())?;
    let tokens = tokens(text)?;
    let queries = count(&tokens, Keyword::SELECT) + count(&tokens, Keyword::TABLE);
    let marks = tokens.iter().filter(|token| matches!(token.token, Token::Placeholder(_)));
    let marks = marks.enumerate().map(|(at, token)| (token.span.start, at)).collect();
    let words = session::first_words(&tokens);
    let facts = Facts { catalogue, text, words, marks, queries };
    if let Some(statement) = session::of_words(&facts.words) {
        return statement;
    }
    check_depth(&tokens)?;
    let looked = look(&tokens);
    let mut parser = Parser::new(&MySqlDialect {}).with_tokens_with_locations(tokens);
    let mut parsed = parser
        .parse_statements()
        .map_err(|error| syntax(format_args!("the proxy cannot read it: {error}")))?;
    // At a word `END`, which may be an alias, the parser stops and calls the rest no error.
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        return Err(syntax(format_args!("the proxy cannot read it from `{rest}` on")));
    }
    let Some(statement) = parsed.pop() else { return Err(syntax("the statement is empty")) };
    if !parsed.is_empty() {
        return Err(unroutable("several statements in one text", "each may be for another node"));
    }
    if let ast::Statement::Query(query) = &statement
        && let Some(told) = session::told(query)
    {
        return Ok(Statement::Own(Own::Told(told)));
    }
    looked?;
    of(&statement, &facts)
}

pub(super) fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, SessionError> {
    // Some servers run the text of such a comment as a part of the statement, others do not.
    let executable = |token: &Token| matches!(token, Token::Whitespace(Whitespace::MultiLineComment(text)) if text.starts_with('!'));
    if text.contains("/*!") {
        let plain = Tokenizer::new(&Plain, text).tokenize().map_err(syntax)?;
        if plain.iter().any(executable) {
            let why = "whether it counts depends on the server";
            return Err(unroutable("a comment with code", why));
        }
    }
    let tokens = Tokenizer::new(&MySqlDialect {}, text).tokenize_with_location().map_err(syntax)?;
    match tokens.iter().find_map(|token| ends_elsewhere(&token.token)) {
        Some(what) => Err(unroutable(what, "some servers read another end of it")),
        None => Ok(tokens),
    }
}

/// Name of a token whose end depends on the server.
fn ends_elsewhere(token: &Token) -> Option<&'static str> {
    match token {
        // MySQL reads a name and a string behind it, in which `\` escapes a quote.
        Token::DoubleQuotedByteStringLiteral(_) => Some("`b\"`"),
        Token::SingleQuotedByteStringLiteral(text) if text.contains('\\') => Some("`b'\\'`"),
        // In MySQL a `*/` in quotes does not end a hint.
        Token::Whitespace(Whitespace::MultiLineComment(text))
            if text.starts_with('+') && text.contains(['\'', '"', '`']) =>
        {
            Some("a hint with quotes")
        }
        // MySQL wants an ASCII space behind `--`.
        Token::Whitespace(Whitespace::SingleLineComment { prefix, comment })
            if prefix == "--" && comment.starts_with(|space: char| !space.is_ascii()) =>
        {
            Some("`--` without a space")
        }
        _ => None,
    }
}

fn count(tokens: &[TokenWithSpan], keyword: Keyword) -> usize {
    let is =
        |token: &&TokenWithSpan| word(&token.token).is_some_and(|word| word.keyword == keyword);
    tokens.iter().filter(is).count()
}

/// A word without quotes.
pub(super) fn word(token: &Token) -> Option<&Word> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word),
        _ => None,
    }
}

/// Refuses deep nesting, for which the parser and the drop of its result take stack.
fn check_depth(tokens: &[TokenWithSpan]) -> Result<(), SessionError> {
    let is_flat = |token: &Token| {
        matches!(
            token,
            Token::Comma
                | Token::LParen
                | Token::RParen
                | Token::Number(..)
                | Token::SingleQuotedString(_)
                | Token::DoubleQuotedString(_)
                | Token::Placeholder(_)
                | Token::Whitespace(_)
        )
    };
    let words = tokens.iter().filter(|token| !is_flat(&token.token)).count();
    if words > MOST_WORDS {
        let why = format!("it has {words} words and operators, above {MOST_WORDS}");
        return Err(unroutable("the statement", why));
    }
    Ok(())
}

/// Checks that need the words alone.
fn look(tokens: &[TokenWithSpan]) -> Result<(), SessionError> {
    let tokens = tokens.iter().map(|token| &token.token);
    let tokens: Vec<_> = tokens.filter(|token| !matches!(token, Token::Whitespace(_))).collect();
    // A change of a variable has its own checks.
    let is_set = matches!(tokens[..], [Token::Word(word), ..] if word.keyword == Keyword::SET);
    for (at, token) in tokens.iter().enumerate() {
        let called = tokens.get(at + 1).is_some_and(|next| **next == Token::LParen);
        match token {
            Token::Assignment => {
                return Err(unroutable("`:=`", "it changes a variable of the session"));
            }
            Token::StringConcat => return Err(other_precedence("||")),
            Token::Word(word) if word.keyword == Keyword::XOR => {
                return Err(other_precedence("xor"));
            }
            Token::Word(word) => {
                let name = word.value.to_ascii_lowercase();
                if called && OF_SESSION.contains(&name.as_str())
                    || word.quote_style.is_none() && name == "current_user"
                {
                    return Err(of_shared_session(format_args!("{name}()")));
                }
                if !is_set && ends_with_variable_of_session(&tokens[..=at]) {
                    return Err(of_shared_session(format_args!("`{name}`")));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// True for tokens such as `select @@autocommit` and `1 + @@session.autocommit`.
fn ends_with_variable_of_session(tokens: &[&Token]) -> bool {
    let is_scope = |word: &Word| {
        let scopes = ["@@session", "@@local"];
        scopes.iter().any(|scope| word.value.eq_ignore_ascii_case(scope))
    };
    let name = match tokens {
        [.., Token::Word(scope), Token::Period, Token::Word(name)] if is_scope(scope) => {
            Some(name.value.as_str())
        }
        [.., Token::Word(name)] if name.quote_style.is_none() => name.value.strip_prefix("@@"),
        _ => None,
    };
    name.is_some_and(|name| {
        VARIABLES_OF_SESSION.iter().any(|known| name.eq_ignore_ascii_case(known))
    })
}

/// Error for a value that belongs to a session of the data node.
pub(super) fn of_shared_session(what: impl Display) -> SessionError {
    unroutable(what, "it tells of a session of the data node, which clients share")
}

/// Error for an operator that the parser binds tighter than `=`. MySQL binds it looser than `and`.
fn other_precedence(operator: &str) -> SessionError {
    unroutable(format_args!("`{operator}`"), "it reads its precedence otherwise than MySQL")
}

fn of(statement: &ast::Statement, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    use ast::Statement as Sql;
    match statement {
        Sql::Query(query) => of_query(query, facts),
        Sql::Insert(insert) => tables::insert(insert, facts),
        Sql::Update(update) => tables::update(update, facts),
        Sql::Delete(delete) => tables::delete(delete, facts),
        Sql::CreateTable(create) => {
            if create.temporary {
                return Err(unroutable(
                    "a temporary table",
                    "it belongs to a session of one data node, and rows are spread over all",
                ));
            }
            // One of the words is that of `create table`.
            if facts.queries > 1 || create.query.is_some() || create.like.is_some() {
                return Err(unroutable("a table made of another", "its rows are spread"));
            }
            tables::define(&create.name, facts)
        }
        Sql::CreateIndex(create) => tables::define(&create.table_name, facts),
        Sql::AlterTable(alter) => tables::define(&alter.name, facts),
        Sql::Drop { object_type: ast::ObjectType::Table, names, temporary: false, .. } => {
            let [name] = &names[..] else {
                return Err(unroutable("several tables", "one at a time is dropped"));
            };
            tables::define(name, facts)
        }
        Sql::Truncate(truncate) => match &truncate.table_names[..] {
            [table] => tables::define(&table.name, facts),
            _ => Err(unroutable("several tables", "one at a time is emptied")),
        },
        other => session::of(other, facts),
    }
}

fn of_query(query: &Query, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    let SetExpr::Select(select) = &*query.body else {
        return Err(unroutable("more than a simple select", "its parts may be on several nodes"));
    };
    if query.with.is_some() || facts.queries != 1 {
        return Err(unroutable("a query in a query", "its rows may be on several nodes"));
    }
    if select.into.is_some() {
        return Err(unroutable("select into", "it changes the session or the data node"));
    }
    if select.from.is_empty() || is_dual(&select.from) {
        let plain = |item: &SelectItem| !matches!(item, SelectItem::Wildcard(_));
        if select.projection.iter().all(plain) && query.locks.is_empty() {
            return Ok(Statement::At(None, Effect::Read));
        }
        return Err(syntax("there are no columns without a table"));
    }
    tables::select(query, select, facts)
}

fn is_dual(from: &[ast::TableWithJoins]) -> bool {
    let [table] = from else { return false };
    let TableFactor::Table { name, args: None, .. } = &table.relation else { return false };
    let is = |name: &ObjectName| path(name).is_some_and(|parts| parts == ["dual"]);
    table.joins.is_empty() && is(name)
}

/// The parts of a name, in lower case.
pub(super) fn path(name: &ObjectName) -> Option<Vec<String>> {
    let part = |part: &ObjectNamePart| match part {
        ObjectNamePart::Identifier(ident) => Some(ident.value.to_ascii_lowercase()),
        ObjectNamePart::Function(_) => None,
    };
    name.0.iter().map(part).collect()
}

/// MySQL's dialect, without a look into comments.
#[derive(Debug)]
struct Plain;

impl sqlparser::dialect::Dialect for Plain {
    /// The tokenizer knows comments that begin with `#` by this.
    fn dialect(&self) -> TypeId {
        MySqlDialect {}.dialect()
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        MySqlDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        MySqlDialect {}.is_identifier_part(ch)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        ch == '`'
    }

    fn supports_string_literal_backslash_escape(&self) -> bool {
        true
    }

    fn supports_numeric_prefix(&self) -> bool {
        true
    }

    fn requires_single_line_comment_whitespace(&self) -> bool {
        true
    }
}

//! Definitions of tables: read as MySQL's, written as SQLite's.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use epoll_group::session::SessionError;
use rusqlite::types::Value as Stored;
use sqlparser::ast::{
    AlterTableOperation, ColumnDef, ColumnOption, CreateTable, DataType, EnumMember, Expr, Ident,
    IndexColumn, ObjectName, OrderBySort, Statement, TableConstraint, UnaryOperator, Value,
};
use sqlparser::dialect::{MySqlDialect, SQLiteDialect};
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::cursor::Cursor;
use super::{Effect, Expected, Kind, Query, Reader, rewrite, scan};
use crate::node::columns::{Domain, from_hex, range};
use crate::node::errors::{UNSUPPORTED, syntax, unsupported};

/// Reads `create table`.
pub(super) fn table(reader: &Reader<'_, '_>) -> Result<Query, SessionError> {
    let mut cursor = Cursor::new(&reader.tokens.all);
    cursor.words(&["create", "table"]);
    cursor.words(&["if", "not", "exists"]);
    let name = reader.table_name(&mut cursor)?;
    // A query may be longer than sqlparser can take.
    if cursor.word("as") {
        return rewrite::rewrite(reader);
    }
    let (statement, expressions) = parse(reader)?;
    match statement {
        Some(Statement::CreateTable(table)) if table.query.is_some() => {
            if table.columns.is_empty() {
                rewrite::rewrite(reader)
            } else {
                Err(unsupported("create table (columns) select"))
            }
        }
        Some(Statement::CreateTable(table)) if table.like.is_some() => {
            Err(unsupported("create table like"))
        }
        Some(Statement::CreateTable(table)) => write_table(name, &table, &expressions),
        _ => Err(reader.error_at(0)),
    }
}

/// Most levels of a statement's tree. sqlparser limits the depth of its recursion, but it reads a chain of
/// operators in a loop, and then it recurses once per operator to write or to drop the chain.
/// A level takes 2 tokens or more, and up to 10 kB of the stack of a debug build.
const MOST_LEVELS: usize = 250;
/// Most levels of an expression in SQLite.
const MOST_IN_EXPRESSION: usize = 1000;
/// Most levels of a statement for SQLite. It overflows the stack of a thread at 2500 or more, in a debug
/// build, together with the views.
pub(super) const MOST_IN_STATEMENT: usize = 1400;
/// Most levels of a view, with those of the views that it names.
const MOST_IN_VIEWS: usize = 1000;

/// Reads a definition with sqlparser, and returns it with its expressions in SQLite's dialect: sqlparser does
/// not write an expression as it was. Its tree has [`mark`]s in their places.
fn parse(reader: &Reader<'_, '_>) -> Result<(Option<Statement>, Vec<String>), SessionError> {
    let tokens = &reader.tokens.all;
    // Text in executable comments is part of the statement.
    let mut edits: Vec<_> =
        reader.tokens.removed.iter().map(|range| (range.clone(), " ".to_owned())).collect();
    let mut expressions = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let is_expression = token.is_word("check") || token.is_word("default");
        at += 1;
        if is_expression && tokens.get(at).is_some_and(|token| token.is_symbol("(")) {
            let Some(close) = close_of(tokens, at) else { break };
            if !is_literal(&tokens[at..close]) {
                let (open, close) = (tokens[at], tokens[close].start);
                let text = &reader.text[open.end()..close];
                let query = rewrite::expression(text, reader.schema)?;
                edits.push((open.start..close, format!("({}", mark(expressions.len()))));
                expressions.push(query.sql[rewrite::SELECT.len()..].to_owned());
            }
            at = close;
        }
    }
    let text = rewrite::edited(reader.text, &mut edits);
    let dialect = MySqlDialect {};
    let tokens = Tokenizer::new(&dialect, &text).tokenize_with_location();
    let tokens = tokens.map_err(|error| syntax(&error.to_string()))?;
    if levels(texts(&tokens)) > MOST_LEVELS {
        return Err(unsupported("so deep a statement"));
    }
    let mut parser = Parser::new(&dialect).with_tokens_with_locations(tokens);
    let statements = parser.parse_statements().map_err(|error| match error {
        ParserError::RecursionLimitExceeded => unsupported("so deep a statement"),
        error => syntax(&error.to_string()),
    })?;
    Ok((statements.into_iter().next(), expressions))
}

/// True if these tokens may be a literal, with a sign or in parentheses.
fn is_literal(tokens: &[scan::Token<'_>]) -> bool {
    let is_parenthesis = |token: &&scan::Token<'_>| matches!(token.text, "(" | ")");
    let mut others = tokens.iter().filter(|token| !is_parenthesis(token));
    let is_name = |token: &scan::Token<'_>| {
        matches!(token.kind, Kind::Word | Kind::Quoted)
            && !["null", "true", "false"].iter().any(|word| token.is_word(word))
    };
    others.clone().count() <= 2 && !others.any(is_name)
}

/// Name in the place of an expression. No other name has a zero.
fn mark(number: usize) -> String {
    format!("`\0{number}`")
}

/// Puts expressions back in their places.
fn unmark(text: &str, expressions: &[String]) -> String {
    let mut edits = Vec::new();
    for (start, _) in text.match_indices("`\0") {
        let digits = text[start + 2..].split('`').next().unwrap_or_default();
        if let Some(expression) = digits.parse().ok().and_then(|at: usize| expressions.get(at)) {
            edits.push((start..start + digits.len() + 3, expression.clone()));
        }
    }
    rewrite::edited(text, &mut edits)
}

/// Returns the place of the parenthesis that closes the one at this place.
fn close_of(tokens: &[scan::Token<'_>], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    let inside = tokens[open..].iter().position(|token| {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    Some(open + inside?)
}

/// Returns an upper bound of the levels of the tree of these tokens. Each token adds one level at most. A
/// comma begins a new branch. The levels of queries add up, because SQLite puts the expressions of one into
/// those of another. Those of the queries that UNION and its like join do not. Such an operator takes up to
/// twice the stack of a level.
pub(super) fn levels(tokens: impl Iterator<Item = impl AsRef<str>>) -> usize {
    #[derive(Default)]
    struct Group {
        /// Levels before the first query, such as those of common tables. Each joined query may name them.
        before: Option<usize>,
        operators: usize,
        /// Most levels of a query before the last operator.
        deepest: usize,
        queries: usize,
        since_comma: usize,
        most: usize,
    }
    let levels_of_query =
        |group: &Group| group.queries + group.since_comma.max(group.most).min(MOST_IN_EXPRESSION);
    let levels_of = |group: &Group| 2 * group.operators + group.deepest.max(levels_of_query(group));
    let close = |outer: &mut Vec<Group>, group: &mut Group| {
        let inner = std::mem::replace(group, outer.pop().unwrap_or_default());
        let sum = if inner.queries > 0 { &mut group.queries } else { &mut group.since_comma };
        *sum += levels_of(&inner) + 1;
    };
    let mut outer = Vec::new();
    let mut group = Group::default();
    for token in tokens {
        match token.as_ref() {
            "(" | "[" | "{" => outer.push(std::mem::take(&mut group)),
            ")" | "]" | "}" => close(&mut outer, &mut group),
            "," => {
                group.most = group.most.max(group.since_comma);
                group.since_comma = 0;
            }
            word if word.eq_ignore_ascii_case("select") => {
                let levels = levels_of_query(&group);
                group.before.get_or_insert(levels);
                group = Group { queries: levels + 1, since_comma: 0, most: 0, ..group };
            }
            word if OPERATORS.iter().any(|operator| word.eq_ignore_ascii_case(operator)) => {
                let levels = levels_of_query(&group);
                let before = *group.before.get_or_insert(levels);
                group = Group {
                    before: Some(before),
                    operators: group.operators + 1,
                    deepest: group.deepest.max(levels),
                    queries: before,
                    ..Group::default()
                };
            }
            // Two operators, which sqlparser takes for one.
            "~~" => group.since_comma += 2,
            _ => group.since_comma += 1,
        }
    }
    while !outer.is_empty() {
        close(&mut outer, &mut group);
    }
    levels_of(&group)
}

/// Operators that join queries.
const OPERATORS: [&str; 3] = ["union", "intersect", "except"];

/// Checks the names and definitions of all views. SQLite writes a view into the query that names it, and
/// recurses once per level then, whatever its limits are.
///
/// # Errors
/// A view has too many levels, with those of the views that it names.
pub fn check_views(views: &[(String, String)]) -> Result<(), SessionError> {
    let names = views.iter().enumerate().map(|(at, (name, _))| (name.to_ascii_lowercase(), at));
    let places: HashMap<_, _> = names.collect();
    let mut read = Vec::new();
    for (at, (_, sql)) in views.iter().enumerate() {
        let tokens = Tokenizer::new(&SQLiteDialect {}, sql).tokenize_with_location();
        let tokens = tokens.map_err(|error| syntax(&error.to_string()))?;
        let named = tables(&tokens).into_iter().filter_map(|name| {
            places.get(&name.to_ascii_lowercase()).copied().filter(|&named| named != at)
        });
        read.push((levels(texts(&tokens)), named.collect::<Vec<_>>()));
    }
    let mut all = vec![0; read.len()];
    loop {
        let before = all.clone();
        for (at, (levels, named)) in read.iter().enumerate() {
            all[at] = levels + named.iter().map(|&named| all[named]).max().unwrap_or(0);
            if all[at] > MOST_IN_VIEWS {
                return Err(unsupported("so deep a view"));
            }
        }
        if all == before {
            return Ok(());
        }
    }
}

/// Returns the names of the tables that a query for SQLite reads. One may be a string, or stand behind IN.
/// The reader of MySQL's dialect in `rewrite` does not know these forms.
fn tables(tokens: &[TokenWithSpan]) -> Vec<&str> {
    let mut names = Vec::new();
    // True if a comma separates tables. The stack is that of the outer parentheses.
    let (mut lists_tables, mut outer) = (false, Vec::new());
    // True if this token, or the one before, may be the name of a table.
    let (mut is_table, mut was_table) = (false, false);
    let mut tokens = without_spaces(tokens).peekable();
    while let Some(token) = tokens.next() {
        let mut is_next = false;
        match token {
            Token::LParen => {
                outer.push(lists_tables);
                (lists_tables, is_next) = (is_table, is_table);
            }
            Token::RParen => lists_tables = outer.pop().unwrap_or_default(),
            Token::Comma => is_next = lists_tables,
            // Behind the name of the schema.
            Token::Period => is_next = was_table,
            Token::Word(word) => match word.keyword {
                Keyword::FROM | Keyword::JOIN => (lists_tables, is_next) = (true, true),
                Keyword::IN => is_next = tokens.peek() != Some(&&Token::LParen),
                Keyword::SELECT | Keyword::GROUP | Keyword::ORDER | Keyword::LIMIT => {
                    lists_tables = false;
                }
                _ if is_table => names.push(&word.value[..]),
                _ => {}
            },
            Token::SingleQuotedString(name) if is_table => names.push(name),
            // The table `n` and its alias.
            Token::NationalStringLiteral(_) if is_table => names.push("n"),
            _ => {}
        }
        (was_table, is_table) = (is_table, is_next);
    }
    names
}

fn texts(tokens: &[TokenWithSpan]) -> impl Iterator<Item = String> {
    without_spaces(tokens).map(Token::to_string)
}

fn without_spaces(tokens: &[TokenWithSpan]) -> impl Iterator<Item = &Token> {
    let tokens = tokens.iter().map(|token| &token.token);
    tokens.filter(|token| !matches!(token, Token::Whitespace(_)))
}

/// `drop index k on t`, where SQLite wants no table.
pub(super) fn drop_index(
    reader: &Reader<'_, '_>,
    mut cursor: Cursor<'_, '_>,
) -> Result<Query, SessionError> {
    cursor.word("index");
    let error = || reader.error_at(1);
    let index = cursor.name().ok_or_else(error)?;
    if !cursor.word("on") {
        return Err(error());
    }
    let table = reader.table_name(&mut cursor)?;
    if !cursor.is_at_end() {
        return Err(error());
    }
    let sql = format!("drop index {}", quoted(&index));
    Ok(Query { drops_index: Some(Box::new([index, table])), ..definition(sql) })
}

/// `alter table t add index k (c)` is an index of its own, and a new column is written as in `create table`;
/// the rest SQLite knows or refuses.
pub(super) fn alter(reader: &Reader<'_, '_>) -> Result<Query, SessionError> {
    let mut cursor = Cursor::new(&reader.tokens.all);
    cursor.words(&["alter", "table"]);
    let table = reader.table_name(&mut cursor)?;
    if cursor.word("add") {
        let unique = cursor.word("unique");
        if cursor.word("index") || cursor.word("key") || unique {
            let name = cursor.name().ok_or_else(|| reader.error_at(cursor.at))?;
            let columns = cursor.peek().map(|token| token.start);
            let columns = columns.and_then(|start| reader.text.get(start..)).unwrap_or_default();
            let columns = columns.trim_end_matches([';', ' ', '\n']);
            if !cursor.symbol("(") {
                return Err(reader.error_at(cursor.at));
            }
            let (name, table) = (quoted(&name), quoted(&table));
            let unique = if unique { "unique " } else { "" };
            return Ok(definition(format!("create {unique}index {name} on {table} {columns}")));
        }
        let parsed = match parse(reader) {
            // Statements of other syntax are left to SQLite.
            Err(error) if error.code == UNSUPPORTED => return Err(error),
            parsed => parsed.ok(),
        };
        if let Some((Some(Statement::AlterTable(alter)), expressions)) = parsed
            && let [AlterTableOperation::AddColumn { column_def, column_position: None, .. }] =
                &alter.operations[..]
        {
            let column = unmark(&write_column(column_def, false, false)?, &expressions);
            let sql = format!("alter table {} add column {column}", quoted(&table));
            return Ok(Query { retriggers: Some(table), ..definition(sql) });
        }
    }
    Ok(Query { retriggers: Some(table), ..rewrite::rewrite(reader)? })
}

fn definition(sql: String) -> Query {
    Query { sql, effect: Effect::Define, ..Query::default() }
}

fn write_table(
    name: String,
    table: &CreateTable,
    expressions: &[String],
) -> Result<Query, SessionError> {
    let mut parts = Vec::new();
    let mut then = Vec::new();
    let key = primary_key(table);
    let numbered = table.columns.iter().find(|column| is_numbered(column));
    let is_key = |column: &ColumnDef| key.contains(&column.name.value.to_ascii_lowercase());
    if numbered.is_some_and(|numbered| !is_key(numbered)) {
        let text = "Incorrect table definition; there can be only one auto column and it must be \
                    defined as a key";
        return Err(SessionError::new(1075, b"42000", text));
    }
    let mut has_domains = false;
    for column in &table.columns {
        has_domains |= domain(column)?.is_some();
        parts.push(write_column(column, numbered.is_some(), is_key(column))?);
    }
    for constraint in &table.constraints {
        match constraint {
            TableConstraint::PrimaryKey(_) if numbered.is_some() => {}
            TableConstraint::PrimaryKey(key) => {
                parts.push(format!("primary key ({})", write_columns(&key.columns)?));
            }
            TableConstraint::Unique(unique) => {
                let columns = write_columns(&unique.columns)?;
                let index = unique.index_name.as_ref().or(unique.name.as_ref());
                match index {
                    Some(index) => then.push(format!(
                        "create unique index {} on {} ({columns})",
                        quoted(&index.value),
                        quoted(&name)
                    )),
                    None => parts.push(format!("unique ({columns})")),
                }
            }
            TableConstraint::Index(index) => {
                let columns = write_columns(&index.columns)?;
                let first = index.columns.first().map(column_name).transpose()?;
                let index = index.name.as_ref().map(|name| name.value.clone()).or(first);
                let index = index.unwrap_or_else(|| "k".to_owned());
                let (index, table) = (quoted(&index), quoted(&name));
                then.push(format!("create index {index} on {table} ({columns})"));
            }
            TableConstraint::Check(check) => parts.push(check.to_string()),
            TableConstraint::ForeignKey(key) => parts.push(key.to_string()),
            other => return Err(unsupported(&other.to_string())),
        }
    }
    let condition = if table.if_not_exists { "if not exists " } else { "" };
    let parts = unmark(&parts.join(", "), expressions);
    // A zero is left only in a comment or a type, which are taken as they come.
    if parts.contains('\0') {
        return Err(syntax("\0"));
    }
    let sql = format!("create table {condition}{} ({parts})", quoted(&name));
    let retriggers = has_domains.then(|| name.clone());
    let conditional = table.if_not_exists.then_some((name, Expected::Missing));
    Ok(Query { then, conditional, retriggers, ..definition(sql) })
}

/// The columns of the primary key, in lower case.
fn primary_key(table: &CreateTable) -> HashSet<String> {
    let of_column = table.columns.iter().filter(|column| {
        column.options.iter().any(|option| matches!(option.option, ColumnOption::PrimaryKey(_)))
    });
    let of_table = table.constraints.iter().filter_map(|constraint| match constraint {
        TableConstraint::PrimaryKey(key) => Some(&key.columns),
        _ => None,
    });
    let of_table = of_table.flatten().filter_map(|column| column_name(column).ok());
    let all = of_column.map(|column| column.name.value.clone()).chain(of_table);
    all.map(|name| name.to_ascii_lowercase()).collect()
}

fn is_numbered(column: &ColumnDef) -> bool {
    column.options.iter().any(|option| is_auto_increment(&option.option))
}

fn is_auto_increment(option: &ColumnOption) -> bool {
    matches!(option, ColumnOption::DialectSpecific(tokens)
        if tokens.iter().any(|token| token.to_string().eq_ignore_ascii_case("auto_increment")))
}

fn write_column(
    column: &ColumnDef,
    has_numbered: bool,
    is_key: bool,
) -> Result<String, SessionError> {
    let name = quoted(&column.name.value);
    if is_numbered(column) {
        // The only form in which SQLite numbers rows.
        return Ok(format!("{name} integer primary key autoincrement not null"));
    }
    let domain = domain(column)?;
    let declared = match (&domain, column.data_type.to_string()) {
        (Some(domain), _) => domain.definition(),
        // SQLite takes no words behind parentheses.
        (None, declared) if declared.contains(") ") => quoted(&declared),
        (None, declared) => declared,
    };
    let mut text = format!("{name} {declared}");
    let mut options = column.options.iter().map(|option| &option.option);
    let is_not_null = is_key || options.clone().any(|option| *option == ColumnOption::NotNull);
    let has_default = options.any(|option| matches!(option, ColumnOption::Default(_)));
    if let Some(Domain::Enum(members)) = &domain
        && let Some(first) = members.first()
        && is_not_null
        && !has_default
    {
        // The default of MySQL.
        write!(text, " default {}", rewrite::literal(first)).expect("a String takes everything");
    }
    for option in &column.options {
        let option = &option.option;
        let put = match option {
            ColumnOption::Null => continue,
            ColumnOption::NotNull if is_key => continue,
            ColumnOption::NotNull => format!(" {option}"),
            ColumnOption::Default(value) => {
                let invalid = |why| {
                    let text = format!("Invalid default value for '{}': {why}", column.name.value);
                    SessionError::new(1067, b"42000", text)
                };
                let written = write_default(value, domain.as_ref()).map_err(invalid)?;
                format!(" default ({written})")
            }
            ColumnOption::PrimaryKey(_) if has_numbered => continue,
            ColumnOption::PrimaryKey(_) => " primary key".to_owned(),
            ColumnOption::Unique(_) => " unique".to_owned(),
            ColumnOption::Check(check) => format!(" {check}"),
            // They change nothing that can be seen here. MySQL ignores REFERENCES behind a column.
            ColumnOption::Comment(_)
            | ColumnOption::ForeignKey(_)
            | ColumnOption::CharacterSet(_)
            | ColumnOption::Collation(_)
            | ColumnOption::Invisible => continue,
            other => return Err(unsupported(&other.to_string())),
        };
        text.push_str(&put);
    }
    if is_key {
        // SQLite takes NULL in a primary key.
        text.push_str(" not null");
    }
    text.extend(range(&column.name.value, &column.data_type.to_string()));
    Ok(text)
}

/// A default. A string is written anew: it has escapes, or other quotes than SQLite's. With a domain it is
/// the stored form of a literal, because `alter table` fills rows with it and runs no triggers.
///
/// # Errors
/// Returns the reason why the column cannot have this default.
fn write_default(value: &Expr, domain: Option<&Domain>) -> Result<String, String> {
    let constant = constant(value);
    let Some(domain) = domain else {
        let is_bits = value.to_string().starts_with("B'");
        return Ok(match constant {
            Some(Stored::Text(text)) => rewrite::literal(&text),
            Some(Stored::Integer(bits)) if is_bits => bits.to_string(),
            _ => value.to_string(),
        });
    };
    let constant = constant.ok_or_else(|| "an expression is no literal".to_owned())?;
    let stored = match (domain, &constant) {
        // MySQL takes the number of a member in rows only.
        (Domain::Enum(_) | Domain::Set(_), Stored::Integer(_) | Stored::Real(_)) => None,
        _ => domain.store("", (&constant).into()).ok(),
    };
    match stored {
        Some(Stored::Text(text)) => Ok(rewrite::literal(&text)),
        Some(Stored::Integer(number)) => Ok(number.to_string()),
        Some(_) => Ok("null".to_owned()),
        None => Err(domain.excludes(&value.to_string())),
    }
}

/// The value of a literal, also with a sign or in parentheses.
fn constant(value: &Expr) -> Option<Stored> {
    use Stored::{Blob, Integer, Null, Real, Text};
    let literal = match value {
        Expr::Nested(value) | Expr::UnaryOp { op: UnaryOperator::Plus, expr: value } => {
            return constant(value);
        }
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            return match constant(expr)? {
                Integer(number) if number >= 0 => Some(Integer(-number)),
                Real(number) => Some(Real(-number)),
                _ => None,
            };
        }
        Expr::Value(literal) => &literal.value,
        _ => return None,
    };
    Some(match literal {
        Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Text(text.clone()),
        Value::SingleQuotedByteStringLiteral(digits) => Integer(rewrite::bits(digits)?),
        Value::HexStringLiteral(digits) => {
            let even = digits.len().next_multiple_of(2);
            Blob(from_hex(&format!("{digits:0>even$}"))?)
        }
        Value::Number(digits, _) => match digits.parse::<u64>() {
            Ok(number) => Integer(number.cast_signed()),
            Err(_) => Real(digits.parse().ok()?),
        },
        Value::Boolean(is) => Integer((*is).into()),
        Value::Null => Null,
        _ => return None,
    })
}

/// The domain of a column, if its type has one.
fn domain(column: &ColumnDef) -> Result<Option<Domain>, SessionError> {
    let name = &column.name.value;
    Ok(Some(match &column.data_type {
        DataType::Bit(bits) => Domain::bit(name, bits.unwrap_or(1))?,
        DataType::Set(members) => Domain::set(name, members.clone())?,
        DataType::Enum(members, None) => {
            let member = |member: &EnumMember| match member {
                EnumMember::Name(name) => Ok(name.clone()),
                EnumMember::NamedValue(..) => Err(syntax(&column.data_type.to_string())),
            };
            Domain::enumeration(name, members.iter().map(member).collect::<Result<_, _>>()?)?
        }
        _ => return Ok(None),
    }))
}

/// Writes the columns of a key. Their names are quoted here, because the text that sqlparser writes
/// leaves a quote behind a backslash as it is.
fn write_columns(columns: &[IndexColumn]) -> Result<String, SessionError> {
    let mut text = String::new();
    for column in columns {
        let separator = if text.is_empty() { "" } else { ", " };
        let name = quoted(&column_name(column)?);
        let order = match column.column.options.sort {
            Some(OrderBySort::Desc) => " desc",
            _ => "",
        };
        write!(text, "{separator}{name}{order}").expect("a String takes everything");
    }
    Ok(text)
}

/// The name of a column of a key, without the length of a prefix.
fn column_name(column: &IndexColumn) -> Result<String, SessionError> {
    match &column.column.expr {
        Expr::Identifier(name) => Ok(name.value.clone()),
        // With a length it looks like a call.
        Expr::Function(call) => last_name(&call.name),
        other => Err(unsupported(&format!("a key of {other}"))),
    }
}

fn last_name(name: &ObjectName) -> Result<String, SessionError> {
    let part = name.0.last().and_then(|part| part.as_ident());
    let name: &Ident = part.ok_or_else(|| syntax(&name.to_string()))?;
    Ok(name.value.clone())
}

/// A name as SQLite reads it, whatever is in it.
pub fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

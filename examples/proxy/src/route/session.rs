//! Statements about the session: settings, transactions, and what a server tells of itself.

use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::session::SessionError;
use sqlparser::ast::{
    self, ContextModifier, Expr, ObjectName, Query, SelectItem, Set, SetExpr, ShowCreateObject,
    ShowStatementIn, ShowStatementOptions, TransactionAccessMode, TransactionIsolationLevel,
    TransactionMode, UnaryOperator, Use, Value, ValueWithSpan,
};
use sqlparser::tokenizer::{Token, TokenWithSpan};

use super::read::{Facts, VARIABLES_OF_SESSION, of_shared_session, path, word};
use super::{Effect, Own, Statement, Told, What, tables};
use crate::refuse::{unknown_database, unroutable};

/// The words at the beginning of a statement, in lower case. A quoted one is empty here. An empty
/// one at the end stands for the rest, from a token that is no word or from the ninth word on.
pub(super) fn first_words(tokens: &[TokenWithSpan]) -> Vec<String> {
    let (mut words, mut is_over) = (Vec::new(), false);
    for TokenWithSpan { token, .. } in tokens {
        match token {
            Token::Whitespace(_) | Token::EOF => {}
            Token::SemiColon => is_over = !words.is_empty(),
            Token::Word(_) if !is_over && words.len() < 8 => {
                words.push(word(token).map_or_else(String::new, |word| word.value.to_lowercase()));
            }
            _ => {
                words.push(String::new());
                break;
            }
        }
    }
    words
}

/// Statements that the parser does not know, or knows otherwise.
pub(super) fn of_words(words: &[String]) -> Option<Result<Statement, SessionError>> {
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    Some(match &words[..] {
        ["start", "transaction", "with", "consistent", "snapshot"] => {
            Ok(Statement::Own(Own::Begin))
        }
        ["xa", ..] => Err(unroutable("XA", "the proxy has no two-phase commit")),
        ["lock" | "unlock", "tables" | "table", ..] => {
            Err(unroutable("a lock of tables", "it belongs to a session of one data node"))
        }
        ["show", "warnings"] => Ok(Statement::Own(Own::Warnings(Level::Note))),
        ["show", "errors"] => Ok(Statement::Own(Own::Warnings(Level::Error))),
        _ => return None,
    })
}

pub(super) fn of(statement: &ast::Statement, facts: &Facts<'_>) -> Result<Statement, SessionError> {
    use ast::Statement as Sql;
    match statement {
        Sql::StartTransaction { statements, exception, modifier, .. } => {
            if !statements.is_empty() || exception.is_some() || modifier.is_some() {
                return Err(unroutable("a block", "only transactions begin"));
            }
            Ok(Statement::Own(Own::Begin))
        }
        Sql::Commit { chain: false, end: false, modifier: None } => Ok(Statement::Own(Own::Commit)),
        Sql::Rollback { chain: false, savepoint: None } => Ok(Statement::Own(Own::Rollback)),
        Sql::Rollback { chain: false, savepoint: Some(name) } => {
            Ok(Statement::Own(Own::Savepoint(name.value.clone(), Operation::Rollback)))
        }
        Sql::Commit { .. } | Sql::Rollback { .. } => {
            Err(unroutable("and chain", "the next transaction may be on another node"))
        }
        Sql::Savepoint { name } => {
            Ok(Statement::Own(Own::Savepoint(name.value.clone(), Operation::Set)))
        }
        Sql::ReleaseSavepoint { name } => {
            Ok(Statement::Own(Own::Savepoint(name.value.clone(), Operation::Release)))
        }
        Sql::ShowVariables { filter: Some(filter), global: false, .. } => {
            let filter = filter.to_string().to_ascii_lowercase();
            let mut words = filter.split(|byte: char| !(byte.is_alphanumeric() || byte == '_'));
            match words.find(|word| VARIABLES_OF_SESSION.contains(word)) {
                Some(name) => Err(of_shared_session(format_args!("`show variables` of {name}"))),
                None => Ok(Statement::At(None, Effect::Read)),
            }
        }
        Sql::ShowCreate { obj_type: ShowCreateObject::Table, obj_name } => {
            tables::show(obj_name, facts)
        }
        Sql::ShowColumns {
            show_options:
                ShowStatementOptions {
                    show_in: Some(ShowStatementIn { parent_name: Some(name), .. }),
                    ..
                },
            ..
        } => tables::show(name, facts),
        // A list of tables is that of one node.
        Sql::ShowVariables { .. }
        | Sql::ShowStatus { .. }
        | Sql::ShowTables { .. }
        | Sql::ShowColumns { .. }
        | Sql::ShowCreate { .. }
        | Sql::ShowDatabases { .. }
        | Sql::ShowCollation { .. }
        | Sql::ShowCharset(_) => Ok(Statement::At(None, Effect::Read)),
        Sql::Use(Use::Object(name)) => {
            let schema = &facts.catalogue.schema;
            match path(name).as_deref() {
                Some([name]) if name.eq_ignore_ascii_case(schema) => {
                    Ok(Statement::Own(Own::Nothing))
                }
                _ => Err(unknown_database(name.to_string().as_bytes())),
            }
        }
        Sql::Set(set) => of_set(set, &facts.words),
        other => {
            let text = other.to_string();
            let kind = text.split(' ').next().unwrap_or_default().to_ascii_lowercase();
            Err(unroutable(format_args!("`{kind}`"), "it does not know what that needs"))
        }
    }
}

fn of_set(set: &Set, words: &[String]) -> Result<Statement, SessionError> {
    match set {
        Set::SetNames { charset_name, collation_name } => {
            check_charset(Some(&charset_name.value))?;
            let is_utf8 = is_utf8(&charset_name.value);
            Ok(set_names(is_utf8, is_utf8 && collation_name.is_none()))
        }
        Set::SetNamesDefault {} => Ok(set_names(true, true)),
        Set::SetTransaction { modes, session: false, snapshot: None } => {
            of_transaction(modes, words)
        }
        Set::SingleAssignment { scope, hivevar: false, variable, values } => {
            let [value] = &values[..] else {
                return Err(unroutable("the set", "a variable has one value"));
            };
            of_assignments(&[(scope.as_ref(), variable, value)])
        }
        Set::MultipleAssignments { assignments } => {
            let all = assignments.iter();
            let all: Vec<_> =
                all.map(|each| (each.scope.as_ref(), &each.name, &each.value)).collect();
            of_assignments(&all)
        }
        other => Err(unroutable(format_args!("`{other}`"), "it does not know what that changes")),
    }
}

/// `set transaction`. The parser drops its scope.
fn of_transaction(modes: &[TransactionMode], words: &[String]) -> Result<Statement, SessionError> {
    let name = |mode: &TransactionMode| match mode {
        TransactionMode::AccessMode(_) => "transaction_read_only".to_owned(),
        TransactionMode::IsolationLevel(_) => "transaction_isolation".to_owned(),
    };
    match words.get(1).map(String::as_str) {
        Some("transaction") => Ok(Statement::Own(Own::NextTransaction)),
        Some("session" | "local") => {
            let names = modes.iter().map(name).collect();
            let all_default = modes.iter().all(|mode| DEFAULT_MODES.contains(mode));
            let is_default = !modes.is_empty() && all_default;
            Ok(Statement::Own(Own::Set { names, mode: None, is_default, is_utf8: None }))
        }
        _ => Err(global_variable()),
    }
}

/// Returns the present name of a variable that has an older one, too.
fn present_name(name: &str) -> String {
    match name {
        "tx_isolation" => "transaction_isolation".to_owned(),
        "tx_read_only" => "transaction_read_only".to_owned(),
        name => name.to_owned(),
    }
}

/// Modes in which each session of a data node begins, unless its operator changes the global variables.
const DEFAULT_MODES: [TransactionMode; 2] = [
    TransactionMode::AccessMode(TransactionAccessMode::ReadWrite),
    TransactionMode::IsolationLevel(TransactionIsolationLevel::ReadCommitted),
];

type Assigned<'a> = (Option<&'a ContextModifier>, &'a ObjectName, &'a Expr);

fn of_assignments(all: &[Assigned<'_>]) -> Result<Statement, SessionError> {
    let (mut names, mut mode, mut arguments, mut is_default) = (Vec::new(), None, 0, true);
    let mut is_utf8_now = None;
    for &(scope, name, value) in all {
        let name = variable(scope, name)?;
        if name == "autocommit" {
            let on = switch(value)
                .ok_or_else(|| unroutable("the set", "autocommit is 0 or 1, in the text"))?;
            if all.len() > 1 {
                return Err(unroutable("the set", "autocommit is set alone"));
            }
            return Ok(Statement::Own(Own::Autocommit(on)));
        }
        if name == "sql_select_limit" {
            // Drivers set it back to this when they are done.
            if value.to_string().eq_ignore_ascii_case("default") {
                continue;
            }
            let why = "a select over several data nodes would have more rows";
            return Err(unroutable("a change of sql_select_limit", why));
        }
        if name == "completion_type" && !is_one_of(value, &["0", "no_chain", "default"]) {
            let why = "a commit would begin the next transaction, of which the proxy knows nothing";
            return Err(unroutable("this completion_type", why));
        }
        if !is_constant(value) {
            let why = "only a constant is the same on all nodes";
            return Err(unroutable(format_args!("a change of {name}"), why));
        }
        let is_argument =
            matches!(value, Expr::Value(ValueWithSpan { value: Value::Placeholder(_), .. }));
        if name == "sql_mode" {
            if !is_argument {
                check_mode(constant(value))?;
            }
            mode = is_argument.then_some(arguments);
        }
        arguments += usize::from(is_argument);
        if name == "character_set_client" {
            check_charset(constant(value))?;
        }
        if name == "character_set_results" {
            is_utf8_now = Some(constant(value).is_some_and(is_utf8));
        }
        is_default &= is_default_value(&name, value);
        match name.as_str() {
            // A change of one of them changes the other.
            "character_set_connection" | "collation_connection" => {
                names.extend(CONNECTION.map(str::to_owned));
            }
            _ => names.push(name),
        }
    }
    if names.is_empty() {
        return Ok(Statement::Own(Own::Nothing));
    }
    Ok(Statement::Own(Own::Set { names, mode, is_default, is_utf8: is_utf8_now }))
}

/// Variables of the connection's character set.
const CONNECTION: [&str; 2] = ["character_set_connection", "collation_connection"];

/// `set names`.
fn set_names(is_utf8: bool, is_default: bool) -> Statement {
    let names = ["character_set_client", "character_set_results"].into_iter().chain(CONNECTION);
    let names = names.map(str::to_owned).collect();
    Statement::Own(Own::Set { names, mode: None, is_default, is_utf8: Some(is_utf8) })
}

/// The name of a variable of the session, in lower case; one of the user begins with `@`.
fn variable(scope: Option<&ContextModifier>, name: &ObjectName) -> Result<String, SessionError> {
    if matches!(scope, Some(ContextModifier::Global)) {
        return Err(global_variable());
    }
    let parts = path(name).unwrap_or_default();
    let parts: Vec<_> = parts.iter().map(String::as_str).collect();
    match &parts[..] {
        ["@@global" | "@@persist" | "@@persist_only" | "persist" | "global", ..] => {
            Err(global_variable())
        }
        ["@@session" | "@@local" | "session" | "local", name] => Ok(present_name(name)),
        [name] => Ok(present_name(name.strip_prefix("@@").unwrap_or(name))),
        _ => Err(unroutable(name, "this is no variable")),
    }
}

fn global_variable() -> SessionError {
    unroutable("a global variable", "it would change for everybody")
}

fn is_utf8(name: &str) -> bool {
    ["utf8", "utf8mb3", "utf8mb4"].iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// True if each session of a data node begins with this value.
fn is_default_value(name: &str, value: &Expr) -> bool {
    match name {
        "character_set_client" | "character_set_connection" | "character_set_results" => {
            constant(value).is_some_and(is_utf8)
        }
        _ => false,
    }
}

/// Refuses a mode that changes where strings and names end, or how operators are read. `None` is
/// one that is not given as text: a number, or hexadecimal digits, may mean such a mode.
pub fn check_mode(mode: Option<&str>) -> Result<(), SessionError> {
    let changes = mode.is_none_or(|mode| {
        let mode = mode.to_ascii_lowercase();
        let modes = ["ansi", "no_backslash_escapes", "pipes_as_concat", "high_not_precedence"];
        // These combinations have some of the above in them.
        let combinations = ["db2", "maxdb", "mssql", "oracle", "postgresql"];
        modes.iter().chain(&combinations).any(|each| mode.contains(each))
    });
    if changes {
        return Err(unroutable("this sql_mode", "the proxy would read texts otherwise"));
    }
    Ok(())
}

/// Refuses a character set of the client in which a byte of a letter may be a quote or `\`. `None` stands
/// for a character set that is not given as text.
fn check_charset(name: Option<&str>) -> Result<(), SessionError> {
    let refused = ["big5", "cp932", "gb18030", "gbk", "sjis"];
    if name.is_none_or(|name| refused.iter().any(|known| name.eq_ignore_ascii_case(known))) {
        return Err(unroutable("this character set", "the proxy would read texts otherwise"));
    }
    Ok(())
}

/// The text of a constant that is a string or a word.
fn constant(value: &Expr) -> Option<&str> {
    match value {
        Expr::Identifier(word) => Some(&word.value),
        Expr::Value(ValueWithSpan {
            value: Value::SingleQuotedString(text) | Value::DoubleQuotedString(text),
            ..
        }) => Some(text),
        _ => None,
    }
}

/// True if the value is one of these words or numbers.
fn is_one_of(value: &Expr, words: &[&str]) -> bool {
    let word = match value {
        Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) => Some(text.as_str()),
        other => constant(other),
    };
    word.is_some_and(|word| words.iter().any(|known| word.eq_ignore_ascii_case(known)))
}

fn is_constant(value: &Expr) -> bool {
    match value {
        Expr::Value(_) => true,
        // A word, such as ON or DEFAULT, but no variable.
        Expr::Identifier(word) => !word.value.starts_with('@'),
        Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr } => {
            matches!(**expr, Expr::Value(ValueWithSpan { value: Value::Number(..), .. }))
        }
        _ => false,
    }
}

fn switch(value: &Expr) -> Option<bool> {
    let word = match value {
        Expr::Value(ValueWithSpan { value: Value::Number(text, _), .. }) => text.as_str(),
        Expr::Value(ValueWithSpan { value: Value::Boolean(is), .. }) => return Some(*is),
        other => constant(other)?,
    };
    match word.to_ascii_lowercase().as_str() {
        "0" | "off" | "false" => Some(false),
        "1" | "on" | "true" | "default" => Some(true),
        _ => None,
    }
}

/// Facts about the session that the query asks for, if the proxy can answer all of it. Printed,
/// such a query is `SELECT` and its columns alone.
pub(super) fn told(query: &Query) -> Option<Vec<Told>> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let item = |item: &SelectItem| {
        let (expr, label) = match item {
            SelectItem::UnnamedExpr(expr) => (expr, expr.to_string()),
            SelectItem::ExprWithAlias { expr, alias } => (expr, alias.value.clone()),
            _ => return None,
        };
        let what = match expr {
            Expr::Function(function) => of_function(function)?,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => of_variable(&expr.to_string())?,
            _ => return None,
        };
        Some(Told { label, what })
    };
    let told = select.projection.iter().map(item).collect::<Option<_>>()?;
    let items: Vec<_> = select.projection.iter().map(ToString::to_string).collect();
    (query.to_string() == format!("SELECT {}", items.join(", "))).then_some(told)
}

fn of_function(function: &ast::Function) -> Option<What> {
    if let ast::FunctionArguments::List(arguments) = &function.args
        && !arguments.args.is_empty()
    {
        return None;
    }
    let name = path(&function.name)?;
    let [name] = &name[..] else { return None };
    match name.as_str() {
        "connection_id" => Some(What::ConnectionId),
        "last_insert_id" => Some(What::LastInsertId),
        "row_count" => Some(What::RowCount),
        "database" | "schema" => Some(What::Database),
        "user" | "current_user" | "session_user" | "system_user" => Some(What::User),
        _ => None,
    }
}

fn of_variable(text: &str) -> Option<What> {
    let names = ["@@autocommit", "@@session.autocommit", "@@local.autocommit"];
    names.iter().any(|name| text.eq_ignore_ascii_case(name)).then_some(What::Autocommit)
}

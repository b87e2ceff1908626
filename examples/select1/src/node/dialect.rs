//! MySQL's dialect, as far as SQLite does not know it: what a statement is, and its text for SQLite.
//!
//! A statement is scanned once. Queries and changes go to SQLite with little changed in their text;
//! definitions of tables are read with `sqlparser` and written anew; the rest (`SET`, `SHOW`,
//! transactions) never reaches SQLite.

mod cache;
mod create;
mod cursor;
mod items;
mod rewrite;
mod scan;
mod set;
mod show;
mod transaction;

use std::borrow::Cow;

use epoll_group::codec::message::ScalarValue;
use epoll_group::session::SessionError;

pub use cache::{Cache, LONGEST_KEPT};
pub use create::{check_views, quoted};
pub use cursor::Cursor;
pub use rewrite::{PLACE, literal};
pub use scan::{Kind, Token};
use scan::{Tokens, scan};
pub use set::{Scope, Setting, Target, Value};
pub use show::{Filter, Show, like};
pub use transaction::{Access, Xa, Xid};

use crate::node::errors::{not_utf8, syntax, too_many_arguments, unsupported};
use crate::node::sequence::Sequence;

/// A parsed statement.
#[derive(Debug)]
pub enum Statement {
    /// SQLite does it.
    Query(Query),
    /// `select sleep(n)` and nothing else.
    Sleep {
        label: String,
        seconds: Seconds,
    },
    /// The rows of a sequence and nothing else.
    Sequence {
        sequence: Sequence,
        limit: Option<u64>,
    },
    Set(Vec<Setting>),
    Show(Show),
    Use(String),
    Begin(Access),
    Commit,
    Rollback,
    SetSavepoint(String),
    ReleaseSavepoint(String),
    RollBackTo(String),
    Xa(Xa),
    /// `call xrpc.perf_hist(…)`.
    Histograms(String),
}

/// Time to sleep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seconds {
    Number(f64),
    Argument,
}

/// A statement for SQLite.
#[derive(Debug, Default)]
pub struct Query {
    /// In its dialect.
    pub sql: String,
    pub effect: Effect,
    /// Number of `?` in it.
    pub marks: usize,
    /// Variables. The parameter of each is [`PLACE`] and its number here.
    pub variables: Vec<Variable>,
    /// Facts on its columns from the text alone; empty if there are none.
    pub items: Vec<Item>,
    /// The table into which it inserts.
    pub inserts_into: Option<String>,
    /// Names of the columns that the statement lists for it; empty if it lists none.
    pub inserts_columns: Vec<String>,
    /// Values of its first row; empty if a query gives the rows.
    pub first_row: Vec<Inserted>,
    /// Set by `on duplicate key update` and `on conflict`: an existing row may be changed instead.
    pub updates: bool,
    /// Rows that are there already are passed over, with a warning.
    pub ignores: bool,
    /// Definitions that belong to it.
    pub then: Vec<String>,
    /// Of `DROP INDEX`: the index and its table.
    pub drops_index: Option<Box<[String; 2]>>,
    /// Set by `create view`.
    pub makes_view: bool,
    /// The table whose triggers are made anew, because its columns change.
    pub retriggers: Option<String>,
    /// Of `IF EXISTS` and `IF NOT EXISTS`: the table, and whether it is to be there.
    pub conditional: Option<(String, Expected)>,
}

/// A value that a statement inserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    Null,
    /// The argument of this number.
    Argument(usize),
    Other,
}

/// Condition of a definition on its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// `DROP … IF EXISTS`.
    There,
    /// `CREATE … IF NOT EXISTS`.
    Missing,
}

/// Effect of a statement on the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    #[default]
    Read,
    /// Reads, and keeps others from writing.
    Lock,
    Write,
    /// Tables change, and the transaction ends.
    Define,
}

/// One of the variables in the text of a query.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Variable {
    /// In lower case.
    User(String),
    System(Scope, String),
}

/// Facts on a column of the result from the text of the query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Item {
    /// Label, if SQLite's own differs from MySQL's.
    pub label: Option<String>,
    /// It is this argument, as it came.
    pub argument: Option<usize>,
    /// It is a literal integer of so many characters.
    pub literal_integer: Option<u32>,
}

impl Statement {
    /// Reads a statement. `schema` is what the database is called.
    pub fn parse(text: &str, schema: &str) -> Result<Self, SessionError> {
        let tokens = scan(text).map_err(|open| syntax(text.get(open.0..).unwrap_or(text)))?;
        let tokens = one_statement(text, tokens)?;
        let reader = Reader { text, schema, tokens: &tokens };
        reader.read()
    }

    /// Number of list elements that were read from the text. Each takes more memory than its text.
    fn elements(&self) -> usize {
        match self {
            Self::Query(query) => {
                let Query { items, first_row, inserts_columns, variables, then, .. } = query;
                let inserted = first_row.len() + inserts_columns.len();
                items.len() + inserted + variables.len() + then.len()
            }
            Self::Set(settings) => settings.len(),
            _ => 0,
        }
    }
}

/// The text up to its last token, without semicolons; all of it if it cannot be read.
pub fn without_end(text: &str) -> &str {
    let Ok(tokens) = scan(text) else { return text };
    let Some(last) = tokens.all.iter().rfind(|token| !token.is_symbol(";")) else { return text };
    // The end of an executable comment belongs to it.
    let closes = tokens.removed.iter().rev().find(|range| text[(*range).clone()] == *"*/");
    let end = closes.map_or(0, |range| range.end).max(last.end());
    text.get(..end).unwrap_or(text)
}

/// Is there nothing but comments in the text?
pub fn is_comment(text: &str) -> bool {
    scan(text).is_ok_and(|tokens| tokens.all.is_empty())
}

/// Puts the arguments that are names into the text, and leaves the others.
pub fn splice_names<'t, 'a>(
    text: Cow<'t, str>,
    arguments: Vec<ScalarValue<'a>>,
) -> Result<(Cow<'t, str>, Vec<ScalarValue<'a>>), SessionError> {
    let is_name = |argument: &ScalarValue<'_>| matches!(argument, ScalarValue::Identifier(_));
    if !arguments.iter().any(is_name) {
        return Ok((text, arguments));
    }
    let tokens = scan(&text).map_err(|open| syntax(text.get(open.0..).unwrap_or(&text)))?;
    let mut spliced = String::with_capacity(text.len() + 32);
    let mut copied = 0;
    if tokens.all.iter().filter(|token| token.kind == Kind::Mark).count() < arguments.len() {
        return Err(too_many_arguments());
    }
    let marks = tokens.all.iter().filter(|token| token.kind == Kind::Mark);
    for (mark, argument) in marks.zip(&arguments) {
        let ScalarValue::Identifier(name) = argument else { continue };
        let name = std::str::from_utf8(name).map_err(|_| not_utf8())?;
        if name.is_empty() || name.contains('\0') {
            return Err(SessionError::new(1102, b"42000", "Incorrect name"));
        }
        spliced.push_str(&text[copied..mark.start]);
        spliced.extend(["`", &name.replace('`', "``"), "`"]);
        copied = mark.end();
    }
    spliced.push_str(&text[copied..]);
    let values = arguments.into_iter().filter(|argument| !is_name(argument)).collect();
    Ok((Cow::Owned(spliced), values))
}

/// The tokens without the semicolons at the end; more than one statement is refused.
fn one_statement<'a>(text: &str, mut tokens: Tokens<'a>) -> Result<Tokens<'a>, SessionError> {
    while tokens.all.last().is_some_and(|token| token.is_symbol(";")) {
        tokens.all.pop();
    }
    match tokens.all.iter().find(|token| token.is_symbol(";")) {
        Some(more) => Err(syntax(&text[more.end()..])),
        None if tokens.all.is_empty() => Err(SessionError::new(1065, b"42000", "Query was empty")),
        None => Ok(tokens),
    }
}

/// One statement that is being read.
struct Reader<'t, 'a> {
    text: &'a str,
    schema: &'t str,
    tokens: &'t Tokens<'a>,
}

impl Reader<'_, '_> {
    fn read(&self) -> Result<Statement, SessionError> {
        let mut cursor = Cursor::new(&self.tokens.all);
        let word = cursor.next().filter(|token| token.kind == Kind::Word || token.is_symbol("("));
        let word = word.ok_or_else(|| self.error_at(0))?.text.to_ascii_lowercase();
        match word.as_str() {
            "select" => self.select(),
            "with" | "values" | "table" | "(" => self.query(),
            "insert" | "replace" | "update" | "delete" | "truncate" => self.query(),
            "explain" | "describe" | "desc" => self.describe(cursor),
            "create" | "alter" | "drop" | "rename" | "analyze" => self.definition(cursor),
            "set" => set::read(self, cursor),
            "show" => show::read(self, cursor),
            "call" => self.call(cursor),
            "use" => {
                let name = cursor.name();
                self.whole(&cursor, name.map(Statement::Use))
            }
            "begin" | "start" | "commit" | "rollback" | "savepoint" | "release" | "xa" => {
                transaction::read(self, &word, cursor)
            }
            _ => Err(self.error_at(0)),
        }
    }

    /// The statement, if it was read and nothing is left.
    fn whole(
        &self,
        cursor: &Cursor<'_, '_>,
        statement: Option<Statement>,
    ) -> Result<Statement, SessionError> {
        statement.filter(|_| cursor.is_at_end()).ok_or_else(|| self.error_at(cursor.at))
    }

    /// The statement makes no sense from this token on.
    fn error_at(&self, token: usize) -> SessionError {
        let start = self.tokens.all.get(token).map(|token| token.start);
        syntax(start.and_then(|start| self.text.get(start..)).unwrap_or_default())
    }

    /// Reads the name of a table, with or without the session's schema in front.
    fn table_name(&self, cursor: &mut Cursor<'_, '_>) -> Result<String, SessionError> {
        let name =
            |cursor: &mut Cursor<'_, '_>| cursor.name().ok_or_else(|| self.error_at(cursor.at));
        let first = name(cursor)?;
        if !cursor.symbol(".") {
            return Ok(first);
        }
        self.own_schema(&first)?;
        name(cursor)
    }

    /// Refuses a schema other than that of the session, in which the statement would run.
    fn own_schema(&self, name: &str) -> Result<(), SessionError> {
        if name.eq_ignore_ascii_case(self.schema) {
            return Ok(());
        }
        Err(unsupported(&format!("the schema '{name}' here: use it first")))
    }

    fn select(&self) -> Result<Statement, SessionError> {
        let sleep = items::sleep(self.text, &self.tokens.all);
        let only = || sleep.or_else(|| crate::node::sequence::select(&self.tokens.all));
        only().map_or_else(|| self.query(), Ok)
    }

    fn query(&self) -> Result<Statement, SessionError> {
        rewrite::rewrite(self).map(Statement::Query)
    }

    /// `describe TABLE`, or a look at how a query is done.
    fn describe(&self, mut cursor: Cursor<'_, '_>) -> Result<Statement, SessionError> {
        let mut table = cursor.clone();
        let name = self.table_name(&mut table)?;
        if table.is_at_end() {
            return Ok(Statement::Show(Show::Columns { table: name, filter: Filter::All }));
        }
        match cursor.one_of(&["select", "with", "insert", "update", "delete", "replace"]) {
            Some(_) => self.query(),
            None => Err(self.error_at(cursor.at)),
        }
    }

    fn definition(&self, mut cursor: Cursor<'_, '_>) -> Result<Statement, SessionError> {
        let first = &self.tokens.all[0];
        let temporary = cursor.word("temporary");
        let unique = cursor.word("unique");
        let what = cursor.peek().map_or("", |token| token.text).to_ascii_lowercase();
        match (first.text.to_ascii_lowercase().as_str(), what.as_str()) {
            _ if temporary => Err(unsupported("temporary tables")),
            ("create", "table") => create::table(self).map(Statement::Query),
            ("create", "index" | "view") | ("analyze", _) => self.query(),
            ("drop", "table" | "view") => self.query(),
            ("drop", "index") => create::drop_index(self, cursor).map(Statement::Query),
            ("alter", "table") => create::alter(self).map(Statement::Query),
            _ if unique => Err(self.error_at(2)),
            (verb, what) => Err(unsupported(&format!("{verb} {what}"))),
        }
    }

    fn call(&self, mut cursor: Cursor<'_, '_>) -> Result<Statement, SessionError> {
        let mut name = cursor.name().ok_or_else(|| self.error_at(cursor.at))?;
        if cursor.symbol(".") {
            name = name + "." + &cursor.name().ok_or_else(|| self.error_at(cursor.at))?;
        }
        if !name.eq_ignore_ascii_case("xrpc.perf_hist") {
            let text = format!("PROCEDURE {name} does not exist");
            return Err(SessionError::new(1305, b"42000", text));
        }
        let open = cursor.symbol("(");
        let argument = cursor.string();
        if open && argument.is_none() && cursor.symbol(")") {
            return self.whole(&cursor, Some(Statement::Histograms("all".to_owned())));
        }
        let closed = open && cursor.symbol(")");
        self.whole(&cursor, argument.filter(|_| closed).map(Statement::Histograms))
    }
}

#[cfg(test)]
mod tests;

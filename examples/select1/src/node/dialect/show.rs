//! `SHOW`: lists of what there is.

use epoll_group::session::SessionError;

use super::cursor::Cursor;
use super::set::Scope;
use super::{Reader, Statement};
use crate::node::errors::unsupported;

/// Content of a `SHOW` statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Show {
    Variables(Scope, Filter),
    Status(Filter),
    Warnings { limit: Option<u64> },
    Databases(Filter),
    Tables { full: bool, filter: Filter },
    Columns { table: String, filter: Filter },
    Indexes { table: String },
    CreateTable { table: String },
}

/// Selection of names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    All,
    Like(String),
    /// One of these, in any case.
    Named(Vec<String>),
}

impl Filter {
    pub fn accepts(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Like(pattern) => like(pattern, Some('\\'), name, || true) == Some(true),
            Self::Named(names) => names.iter().any(|known| known.eq_ignore_ascii_case(name)),
        }
    }

    /// Returns the text that `SHOW` adds to the name of a column.
    pub fn in_label(&self) -> String {
        match self {
            Self::Like(pattern) => format!(" ({pattern})"),
            Self::All | Self::Named(_) => String::new(),
        }
    }
}

pub(super) fn read(
    reader: &Reader<'_, '_>,
    mut cursor: Cursor<'_, '_>,
) -> Result<Statement, SessionError> {
    let full = cursor.word("full") || cursor.word("extended");
    let scope = match cursor.one_of(&["global", "session", "local"]) {
        Some("global") => Scope::Global,
        Some(_) => Scope::Session,
        None => Scope::Unnamed,
    };
    let words = [
        "variables",
        "status",
        "warnings",
        "databases",
        "schemas",
        "tables",
        "columns",
        "fields",
        "index",
        "indexes",
        "keys",
        "create",
    ];
    let Some(word) = cursor.one_of(&words) else {
        let what = cursor.peek().map_or("", |token| token.text);
        return Err(unsupported(&format!("show {what}")));
    };
    let show = match word {
        "variables" => filter(&mut cursor).map(|filter| Show::Variables(scope, filter)),
        "status" => filter(&mut cursor).map(Show::Status),
        "warnings" => {
            let limit = if cursor.word("limit") { cursor.number().map(Some) } else { Some(None) };
            limit.map(|limit| Show::Warnings { limit })
        }
        "databases" | "schemas" => filter(&mut cursor).map(Show::Databases),
        "tables" => {
            in_schema(reader, &mut cursor)?;
            filter(&mut cursor).map(|filter| Show::Tables { full, filter })
        }
        "create" => {
            let is_table = cursor.word("table") || cursor.word("view");
            let table = reader.table_name(&mut cursor)?;
            is_table.then_some(Show::CreateTable { table })
        }
        _ => {
            let behind_from = cursor.word("from") || cursor.word("in");
            let table = behind_from.then_some(reader.table_name(&mut cursor)?);
            in_schema(reader, &mut cursor)?;
            if matches!(word, "columns" | "fields") {
                let filter = filter(&mut cursor);
                table.zip(filter).map(|(table, filter)| Show::Columns { table, filter })
            } else {
                table.map(|table| Show::Indexes { table })
            }
        }
    };
    reader.whole(&cursor, show.map(Statement::Show))
}

/// Reads `from schema`, if it comes next.
fn in_schema(reader: &Reader<'_, '_>, cursor: &mut Cursor<'_, '_>) -> Result<(), SessionError> {
    if !cursor.word("from") && !cursor.word("in") {
        return Ok(());
    }
    let schema = cursor.name().ok_or_else(|| reader.error_at(cursor.at))?;
    reader.own_schema(&schema)
}

/// `like '…'`, or `where` the name is something; None if it is neither.
fn filter(cursor: &mut Cursor<'_, '_>) -> Option<Filter> {
    if cursor.is_at_end() {
        return Some(Filter::All);
    }
    if cursor.word("like") {
        return cursor.string().map(Filter::Like);
    }
    if !cursor.word("where") {
        return None;
    }
    cursor.name()?;
    if cursor.word("like") {
        return cursor.string().map(Filter::Like);
    }
    if cursor.symbol("=") {
        return cursor.string().map(|name| Filter::Named(vec![name]));
    }
    if !cursor.word("in") || !cursor.symbol("(") {
        return None;
    }
    let mut names = vec![cursor.string()?];
    while cursor.symbol(",") {
        names.push(cursor.string()?);
    }
    cursor.symbol(")").then_some(Filter::Named(names))
}

/// Part of a pattern.
enum Part {
    /// `%`
    Any,
    /// `_`
    One,
    Char(char),
}

/// Steps of [`like`] between two looks at whether to stop.
const STEPS: u32 = 1 << 16;

/// Does `text` match the pattern of a LIKE? Case does not matter. Behind `escape` a character is
/// itself. Returns `None` if `goes_on` says no, which is asked from time to time.
pub fn like(
    pattern: &str,
    escape: Option<char>,
    text: &str,
    mut goes_on: impl FnMut() -> bool,
) -> Option<bool> {
    let mut parts = Vec::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        let escaped = if Some(char) == escape { chars.next() } else { None };
        match (escaped, char) {
            (None, '%') => parts.push(Part::Any),
            (None, '_') => parts.push(Part::One),
            _ => parts.extend(escaped.unwrap_or(char).to_lowercase().map(Part::Char)),
        }
    }
    let text: Vec<char> = text.chars().flat_map(char::to_lowercase).collect();
    // `last` is the position of the last `%`, and the end of the text that it stands for so far.
    let (mut at, mut from) = (0, 0);
    let mut last: Option<(usize, usize)> = None;
    let mut steps = 0_u32;
    while from < text.len() {
        steps += 1;
        if steps == STEPS {
            steps = 0;
            if !goes_on() {
                return None;
            }
        }
        let fits = match parts.get(at) {
            Some(Part::Any) => {
                last = Some((at, from));
                at += 1;
                continue;
            }
            Some(Part::One) => true,
            Some(Part::Char(char)) => *char == text[from],
            None => false,
        };
        if fits {
            at += 1;
            from += 1;
        } else if let Some((wild, start)) = last {
            at = wild + 1;
            from = start + 1;
            last = Some((wild, start + 1));
        } else {
            return Some(false);
        }
    }
    Some(parts[at..].iter().all(|part| matches!(part, Part::Any)))
}

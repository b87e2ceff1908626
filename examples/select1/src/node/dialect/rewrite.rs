//! The text of a query for SQLite: what MySQL writes differently is replaced, the rest stays.

mod clauses;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write;
use std::ops::Range;

use epoll_group::session::SessionError;

use super::cursor::Cursor;
use super::scan::{Kind, Token, scan};
use super::set::Scope;
use super::{Query, Reader, Variable, create, items};
use crate::node::errors::{no_table, syntax, unsupported};
use crate::node::sequence::Sequence;

/// Replacements for parts of a text.
struct Rewrite<'t, 'a> {
    reader: &'t Reader<'t, 'a>,
    tokens: &'t [Token<'a>],
    edits: Vec<(Range<usize>, String)>,
    /// Places of the query's variables.
    places: HashMap<Variable, usize>,
    /// First `from`.
    first_from: Option<usize>,
    /// True for each token that begins the name of a table. Present if a table or column may have the
    /// name of the schema.
    tables: Option<Vec<bool>>,
    query: Query,
}

/// Begin of the names of parameters for variables. The number of the variable is behind it.
pub const PLACE: &str = "@v";
/// Table function of SQLite that gives the numbers of a sequence.
const SEQUENCES: &str = "generate_series";
/// Most variables of a statement, because SQLite looks for a parameter by its name in a list of all.
const MOST_VARIABLES: usize = 1024;

/// Makes a query of the statement.
pub(super) fn rewrite(reader: &Reader<'_, '_>) -> Result<Query, SessionError> {
    let tokens = &reader.tokens.all;
    if create::levels(tokens.iter().map(|token| token.text)) > create::MOST_IN_STATEMENT {
        return Err(unsupported("so deep a statement"));
    }
    let mut edits: Vec<_> =
        reader.tokens.removed.iter().map(|range| (range.clone(), " ".to_owned())).collect();
    // Removes what follows the last token: semicolons, and what may stand between them.
    if let Some(last) = tokens.last() {
        edits.retain(|(range, _)| range.end <= last.end());
        if last.end() < reader.text.len() {
            edits.push((last.end()..reader.text.len(), String::new()));
        }
    }
    let first_from = tokens.iter().position(|token| token.is_word("from"));
    let tables = is_ambiguous(tokens, reader.schema).then(|| tables(tokens));
    let (places, query) = Default::default();
    let mut rewrite = Rewrite { reader, tokens, edits, places, first_from, tables, query };
    rewrite.verb()?;
    rewrite.locks();
    rewrite.parentheses();
    let mut at = 0;
    while at < tokens.len() {
        at = rewrite.token(at)?;
    }
    rewrite.duplicates();
    Ok(rewrite.finish())
}

/// True if a table or column may have the name of the schema.
fn is_ambiguous(tokens: &[Token<'_>], schema: &str) -> bool {
    let is_dot = |at: usize| tokens.get(at).is_some_and(|token| token.is_symbol("."));
    let is_name =
        |at: usize| tokens[at].name().is_some_and(|name| name.eq_ignore_ascii_case(schema));
    (0..tokens.len()).any(|at| {
        let is_column = at >= 2 && is_dot(at - 1) && !is_name(at - 2);
        is_name(at) && !is_dot(at + 1) && !is_column
    })
}

/// Place at which the name of a table comes next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TableAhead {
    None,
    /// The first name with a dot is that of a table.
    Qualified,
    Next,
}

/// Returns, for each token, true if it begins the qualified name of a table.
fn tables(tokens: &[Token<'_>]) -> Vec<bool> {
    let is_one = |token: &Token<'_>, words: &[&str]| words.iter().any(|word| token.is_word(word));
    let explains = ["explain", "describe", "desc"];
    let mut ahead = TableAhead::None;
    // True if a comma separates tables. The stack is that of the outer parentheses.
    let (mut lists_tables, mut outer) = (false, Vec::new());
    let mut before: Option<&Token<'_>> = None;
    let mut table = |at: usize| {
        let token = &tokens[at];
        let has_dot = tokens.get(at + 1).is_some_and(|next| next.is_symbol("."));
        let last = before.replace(token);
        let begins = last.is_none_or(|last| last.is_symbol(")") || is_one(last, &explains));
        if last.is_some_and(|last| last.is_symbol(".")) {
            // A keyword in the place of a column is a name.
        } else if has_dot {
            return std::mem::replace(&mut ahead, TableAhead::None) != TableAhead::None;
        } else if token.is_symbol("(") {
            outer.push(lists_tables);
            lists_tables = ahead == TableAhead::Next;
            if !lists_tables {
                ahead = TableAhead::None;
            }
        } else if token.is_symbol(")") {
            lists_tables = outer.pop().unwrap_or_default();
            ahead = TableAhead::None;
        } else if token.is_symbol(",") {
            ahead = if lists_tables { TableAhead::Next } else { TableAhead::None };
        } else if begins && is_one(token, &VERBS) {
            (lists_tables, ahead) = (true, TableAhead::Qualified);
        } else if is_one(token, &["from", "join"]) || lists_tables && token.is_word("straight_join")
        {
            (lists_tables, ahead) = (true, TableAhead::Next);
        } else if is_one(token, &CLAUSES) {
            (lists_tables, ahead) = (false, TableAhead::None);
        } else if ahead == TableAhead::Next {
            ahead = TableAhead::None;
        }
        false
    };
    (0..tokens.len()).map(&mut table).collect()
}

/// Verbs of statements whose first name with a dot is that of a table.
const VERBS: [&str; 8] =
    ["insert", "replace", "update", "truncate", "create", "drop", "alter", "analyze"];
/// Words at which a list of tables ends.
const CLAUSES: [&str; 10] =
    ["select", "where", "group", "having", "order", "limit", "set", "values", "value", "window"];

impl Rewrite<'_, '_> {
    fn replace(&mut self, range: Range<usize>, with: impl Into<String>) {
        self.edits.push((range, with.into()));
    }

    /// Removes the tokens `from..to`.
    fn remove(&mut self, from: usize, to: usize) {
        self.replace(self.tokens[from].start..self.tokens[to - 1].end(), " ");
    }

    fn is_word(&self, at: usize, word: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is_word(word))
    }

    fn is_symbol(&self, at: usize, symbol: &str) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is_symbol(symbol))
    }

    /// Rewrites the token at index `at`, if it needs that. Returns the index of the next token.
    fn token(&mut self, at: usize) -> Result<usize, SessionError> {
        let token = self.tokens[at];
        let range = token.start..token.end();
        match token.kind {
            Kind::Text => {
                // Strings that follow each other are one.
                let more = self.tokens[at + 1..].iter();
                let count = 1 + more.take_while(|token| token.kind == Kind::Text).count();
                if count > 1 {
                    let parts = &self.tokens[at..at + count];
                    let all: String = parts.iter().filter_map(Token::string).collect();
                    self.replace(range.start..parts[count - 1].end(), literal(&all));
                    return Ok(at + count);
                }
                if token.text.starts_with('"') || token.text.contains(['\\', '\0']) {
                    let literal = literal(&token.string().unwrap_or_default());
                    self.replace(range, literal);
                }
            }
            Kind::Number => {
                if let Some(digits) = token.text.get(2..)
                    && token.text[..2].eq_ignore_ascii_case("0x")
                {
                    let pad = if digits.len() % 2 == 0 { "" } else { "0" };
                    self.replace(range, format!("x'{pad}{digits}'"));
                } else if let Some(digits) = token.text.strip_prefix(['b', 'B']) {
                    let bits = bits(digits.trim_matches('\''));
                    let bits = bits.ok_or_else(|| self.reader.error_at(at))?;
                    // Without a sign, which could begin a comment.
                    self.replace(range, format!("{bits:#x}"));
                }
            }
            Kind::Mark => {
                // `?1` is a numbered parameter of SQLite.
                if self.tokens.get(at + 1).is_some_and(|next| next.start == token.end())
                    && matches!(self.tokens[at + 1].kind, Kind::Number | Kind::Word)
                {
                    return Err(self.reader.error_at(at + 1));
                }
                self.query.marks += 1;
            }
            Kind::UserVariable => self.user_variable(token)?,
            Kind::SystemVariable => self.system_variable(at, token)?,
            Kind::Symbol => self.symbol(at, token)?,
            Kind::Word | Kind::Quoted => return self.name(at, token),
        }
        Ok(at + 1)
    }

    fn user_variable(&mut self, token: Token<'_>) -> Result<(), SessionError> {
        let name = variable_name(&token.text[1..]).to_lowercase();
        if name.is_empty() {
            return Err(unsupported("@"));
        }
        let place = self.place(Variable::User(name))?;
        self.replace(token.start..token.end(), place);
        Ok(())
    }

    fn system_variable(&mut self, at: usize, token: Token<'_>) -> Result<(), SessionError> {
        let (scope, name) =
            Scope::of_variable(token.text).ok_or_else(|| self.reader.error_at(at))?;
        let place = self.place(Variable::System(scope, name))?;
        self.replace(token.start..token.end(), place);
        Ok(())
    }

    /// The parameter that stands for a variable.
    fn place(&mut self, variable: Variable) -> Result<String, SessionError> {
        let variables = &mut self.query.variables;
        let number = match self.places.entry(variable) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(_) if variables.len() == MOST_VARIABLES => {
                return Err(unsupported(&format!("more than {MOST_VARIABLES} variables")));
            }
            Entry::Vacant(new) => {
                variables.push(new.key().clone());
                *new.insert(variables.len() - 1)
            }
        };
        Ok(format!("{PLACE}{number}"))
    }

    fn symbol(&mut self, at: usize, token: Token<'_>) -> Result<(), SessionError> {
        let with = match token.text {
            "||" => " or ",
            "&&" => " and ",
            // In SQLite `5 is true` holds: it tests for truth.
            "<=>" if self.is_word(at + 1, "true") || self.is_word(at + 1, "false") => " is +",
            "<=>" => " is ",
            // In MySQL the quotient of integers may have a fraction.
            "/" => " * 1.0 / ",
            // Two of them would be a comment.
            "-" if self.is_symbol(at + 1, "-") => "- ",
            // They begin parameters and names in SQLite.
            ":" | ":=" | "[" | "]" | "#" => return Err(self.reader.error_at(at)),
            _ => return Ok(()),
        };
        self.replace(token.start..token.end(), with);
        Ok(())
    }

    fn name(&mut self, at: usize, token: Token<'_>) -> Result<usize, SessionError> {
        let behind_dot = at > 0 && self.is_symbol(at - 1, ".");
        let before_dot = self.is_symbol(at + 1, ".");
        let name = token.name().unwrap_or_default();
        if name.eq_ignore_ascii_case(SEQUENCES) {
            // Hidden: its last step may overflow.
            return Err(no_table(self.reader.schema, &name));
        }
        if before_dot
            && !behind_dot
            && name.eq_ignore_ascii_case(self.reader.schema)
            && self.is_schema(at)
        {
            self.remove(at, at + 2);
            return Ok(at + 2);
        }
        // A name of SQLite does not begin with `$`. sqlparser, which reads views, ends a name at
        // `$` and at characters above U+FFFF.
        if token.kind == Kind::Word && token.text.contains(|c| c == '$' || c > '\u{ffff}') {
            self.replace(token.start..token.end(), format!("`{}`", token.text));
        }
        if behind_dot || before_dot {
            return Ok(at + 1);
        }
        if let Some(sequence) = Sequence::named(&name)
            && self.is_table(at)
        {
            self.sequence(at, token, sequence)?;
        }
        if token.kind != Kind::Word {
            return Ok(at + 1);
        }
        if let Some(to) = self.index_hint(at) {
            self.remove(at, to);
            return Ok(to);
        }
        let next_is = |kind| self.tokens.get(at + 1).is_some_and(|next| next.kind == kind);
        match token.text.to_ascii_lowercase().as_str() {
            "from" if self.is_word(at + 1, "dual") => {
                self.remove(at, at + 2);
                return Ok(at + 2);
            }
            "mod" if at > 0 && !self.is_symbol(at + 1, "(") => {
                self.replace(token.start..token.end(), "%");
            }
            "sql_no_cache" | "sql_calc_found_rows" | "straight_join" if at == 1 => {
                self.remove(at, at + 1);
            }
            "distinctrow" if at == 1 => self.replace(token.start..token.end(), "distinct"),
            "_utf8mb4" | "_utf8" | "_ascii" | "_latin1" | "_binary" if next_is(Kind::Text) => {
                self.remove(at, at + 1);
            }
            // A function in MySQL, a keyword without parentheses in SQLite.
            "current_timestamp" | "localtime" | "localtimestamp" if self.is_symbol(at + 1, "(") => {
                self.replace(token.start..token.end(), "now");
            }
            "current_date" if self.is_symbol(at + 1, "(") => {
                self.replace(token.start..token.end(), "curdate");
            }
            "current_time" if self.is_symbol(at + 1, "(") => {
                self.replace(token.start..token.end(), "curtime");
            }
            // SQLite has a keyword of this name.
            "if" | "left" | "right" | "replace" if at > 0 && self.is_symbol(at + 1, "(") => {
                self.replace(token.start..token.end(), format!("`{}`", token.text));
            }
            "current_user" if !self.is_symbol(at + 1, "(") => {
                self.replace(token.start..token.end(), "current_user()");
            }
            _ => {}
        }
        Ok(at + 1)
    }

    /// True if the name at `at`, which equals the schema's and has a dot behind it, means the
    /// schema. It does in front of a table, and everywhere else unless a table may have that name.
    fn is_schema(&self, at: usize) -> bool {
        self.is_symbol(at + 3, ".") || self.tables.as_ref().is_none_or(|tables| tables[at])
    }

    /// True if a table stands there.
    fn is_table(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else { return false };
        // A comma is one of the from clause if that has begun; a sequence elsewhere is unlikely.
        let behind_comma =
            || self.is_symbol(before, ",") && self.first_from.is_some_and(|from| from < before);
        self.is_word(before, "from") || self.is_word(before, "join") || behind_comma()
    }

    /// Replaces a sequence by a table with one column. Without an alias, its name becomes the
    /// alias.
    fn sequence(
        &mut self,
        at: usize,
        token: Token<'_>,
        sequence: Sequence,
    ) -> Result<(), SessionError> {
        let Sequence { first, last, step } = sequence;
        if last.checked_add(step).is_none() {
            return Err(unsupported("a sequence whose last step overflows, in a query"));
        }
        let mut table = format!("(select value as seq from {SEQUENCES}({first}, {last}, {step}))");
        let no_alias = [
            "where",
            "group",
            "having",
            "order",
            "limit",
            "union",
            "join",
            "inner",
            "left",
            "right",
            "cross",
            "natural",
            "on",
            "using",
            "for",
            "lock",
            "straight_join",
            "intersect",
            "except",
            "window",
            "full",
            "outer",
            "force",
            "use",
            "ignore",
        ];
        let aliased = self.tokens.get(at + 1).is_some_and(|next| match next.kind {
            Kind::Word => !no_alias.iter().any(|word| next.is_word(word)),
            Kind::Quoted => true,
            _ => false,
        });
        if !aliased {
            write!(table, " as `{}`", token.name().unwrap_or_default())
                .expect("a String takes everything");
        }
        self.replace(token.start..token.end(), table);
        Ok(())
    }

    /// The end of `force index (…)` and its like, if one begins there.
    fn index_hint(&self, at: usize) -> Option<usize> {
        let mut cursor = Cursor::new(self.tokens);
        cursor.at = at;
        cursor.one_of(&["force", "use", "ignore"])?;
        cursor.one_of(&["index", "key"])?;
        if cursor.word("for") && !cursor.word("join") {
            cursor.one_of(&["order", "group"])?;
            cursor.word("by");
        }
        if !cursor.symbol("(") {
            return None;
        }
        while !cursor.symbol(")") {
            cursor.next().filter(|token| !token.is_symbol("("))?;
        }
        Some(cursor.at)
    }

    fn finish(mut self) -> Query {
        let text = self.reader.text;
        self.query.sql = edited(text, &mut self.edits);
        let edits = &self.edits;
        let is_changed = |from: usize, to: usize| {
            let before = edits.partition_point(|(range, _)| range.start < to);
            edits[..before].last().is_some_and(|(range, _)| range.end > from)
        };
        self.query.items = items::items(text, self.tokens, is_changed);
        self.query
    }
}

/// Returns the text with these edits, which it sorts. Of two that overlap, it keeps the one that
/// starts first.
pub(super) fn edited(text: &str, edits: &mut Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(range, _)| (range.start, range.end));
    let mut edited = String::with_capacity(text.len() + 16);
    let mut copied = 0;
    edits.retain(|(range, with)| {
        let holds = range.start >= copied;
        if holds {
            edited.extend([&text[copied..range.start], with]);
            copied = range.end;
        }
        holds
    });
    edited.push_str(&text[copied..]);
    edited
}

/// Begin of the statement that selects an expression.
pub(super) const SELECT: &str = "select ";

/// Makes a query that selects this expression.
pub(super) fn expression(text: &str, schema: &str) -> Result<Query, SessionError> {
    let text = format!("{SELECT}{text}");
    let tokens = scan(&text).map_err(|_| syntax(&text))?;
    rewrite(&Reader { text: &text, schema, tokens: &tokens })
}

/// The name behind `@`, which may be quoted.
pub(super) fn variable_name(text: &str) -> String {
    let inner = |quote| text.strip_prefix(quote).and_then(|text: &str| text.strip_suffix(quote));
    ['`', '\'', '"'].into_iter().find_map(inner).unwrap_or(text).to_owned()
}

/// The number of a literal such as `b'101'`, without its quotes. As in SQLite's integers, the
/// highest of 64 bits is the sign.
pub(super) fn bits(digits: &str) -> Option<i64> {
    let is_digits = digits.bytes().all(|digit| digit.is_ascii_digit());
    let bits = u64::from_str_radix(digits, 2).ok().filter(|_| is_digits);
    bits.map(u64::cast_signed)
}

/// A string as a literal of SQLite.
pub fn literal(string: &str) -> String {
    if string.contains('\0') {
        let mut bytes = String::from("cast(x'");
        for byte in string.bytes() {
            write!(bytes, "{byte:02x}").expect("a String takes everything");
        }
        return bytes + "' as text)";
    }
    format!("'{}'", string.replace('\'', "''"))
}

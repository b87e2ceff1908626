//! The effect of a statement, and clauses that SQLite writes otherwise or not at all.

use epoll_group::session::SessionError;

use super::Rewrite;
use crate::node::dialect::cursor::Cursor;
use crate::node::dialect::scan::{Kind, Token};
use crate::node::dialect::{Effect, Expected, Inserted};
use crate::node::errors::unsupported;

impl Rewrite<'_, '_> {
    /// Finds the effect of the statement by its first words.
    pub(super) fn verb(&mut self) -> Result<(), SessionError> {
        let first = self.tokens[0];
        let mut cursor = Cursor::new(self.tokens);
        cursor.next();
        let mut verb = first.text.to_ascii_lowercase();
        if verb == "with" || verb == "(" {
            verb = self.verb_behind_with();
        }
        self.query.effect = match verb.as_str() {
            "explain" | "describe" | "desc" => {
                self.replace(first.start..first.end(), "explain query plan");
                Effect::Read
            }
            "insert" | "replace" | "update" | "delete" => {
                self.change(&verb, cursor);
                Effect::Write
            }
            "truncate" => {
                let to = if cursor.word("table") { 2 } else { 1 };
                self.replace(first.start..self.tokens[to - 1].end(), "delete from");
                Effect::Write
            }
            "drop" => {
                self.drop(cursor)?;
                Effect::Define
            }
            "create" => {
                self.query.makes_view = cursor.word("view");
                Effect::Define
            }
            "alter" | "analyze" => Effect::Define,
            _ => Effect::Read,
        };
        Ok(())
    }

    /// Returns the verb of a statement that begins with `WITH`, after its common table expressions.
    fn verb_behind_with(&self) -> String {
        let mut depth = 0_i32;
        for token in self.tokens {
            match token.text {
                "(" => depth += 1,
                ")" => depth -= 1,
                _ => {}
            }
            let verbs = ["select", "insert", "replace", "update", "delete"];
            if depth == 0 && verbs.iter().any(|verb| token.is_word(verb)) {
                return token.text.to_ascii_lowercase();
            }
        }
        "select".to_owned()
    }

    /// Modifiers of a change, and what it inserts into.
    fn change(&mut self, verb: &str, mut cursor: Cursor<'_, '_>) {
        if !self.tokens[0].is_word(verb) {
            return;
        }
        let modifiers = ["low_priority", "high_priority", "delayed", "quick"];
        loop {
            let at = cursor.at;
            if cursor.one_of(&modifiers).is_some() {
                self.remove(at, at + 1);
            } else if cursor.word("ignore") {
                let token = self.tokens[at];
                self.query.ignores = true;
                self.replace(token.start..token.end(), "or ignore");
            } else {
                break;
            }
        }
        if verb == "insert" || verb == "replace" {
            if !cursor.word("into")
                && let Some(table) = cursor.peek()
            {
                self.replace(table.start..table.start, "into ");
            }
            let name = cursor.name();
            let name = if cursor.symbol(".") { cursor.name() } else { name };
            self.query.inserts_into = name;
            self.query.inserts_columns = columns(&mut cursor);
            self.query.first_row = first_row(cursor);
        }
    }

    /// `drop table` or `drop view`, and the table of `if exists`, for the note that it is missing.
    fn drop(&mut self, mut cursor: Cursor<'_, '_>) -> Result<(), SessionError> {
        let is_table = cursor.one_of(&["table", "view"]) == Some("table");
        let is_conditional = cursor.words(&["if", "exists"]);
        let name = self.reader.table_name(&mut cursor)?;
        if cursor.symbol(",") {
            return Err(unsupported("drop of several tables"));
        }
        let at = cursor.at;
        // They mean nothing in MySQL either.
        if cursor.one_of(&["restrict", "cascade"]).is_some() {
            self.remove(at, at + 1);
        }
        if !cursor.is_at_end() {
            return Err(self.reader.error_at(cursor.at));
        }
        if is_table && is_conditional {
            self.query.conditional = Some((name, Expected::There));
        }
        Ok(())
    }

    /// Queries in parentheses, which SQLite takes in a FROM only.
    pub(super) fn parentheses(&mut self) {
        if !self.is_symbol(0, "(") {
            return;
        }
        let opens = ["union", "all", "distinct", "intersect", "except"];
        for at in 0..self.tokens.len() {
            let token = self.tokens[at];
            let begins = at.checked_sub(1).is_none_or(|before| {
                let before = &self.tokens[before];
                before.is_symbol("(") || opens.iter().any(|word| before.is_word(word))
            });
            let holds = self.is_word(at + 1, "select") || self.is_symbol(at + 1, "(");
            if token.is_symbol("(") && begins && holds {
                self.replace(token.start..token.end(), "select * from (");
            }
        }
    }

    /// `for update` and its like, at the end. A change locks anyway.
    pub(super) fn locks(&mut self) {
        let phrases: [&[&str]; 6] = [
            &["for", "update"],
            &["for", "share"],
            &["for", "update", "nowait"],
            &["for", "update", "skip", "locked"],
            &["for", "share", "nowait"],
            &["lock", "in", "share", "mode"],
        ];
        for phrase in phrases {
            let Some(from) = self.tokens.len().checked_sub(phrase.len()) else { continue };
            if phrase.iter().enumerate().all(|(at, word)| self.is_word(from + at, word)) {
                self.remove(from, self.tokens.len());
                if self.query.effect == Effect::Read {
                    self.query.effect = Effect::Lock;
                }
            }
        }
    }

    /// `on duplicate key update`, and the values that would have been inserted.
    pub(super) fn duplicates(&mut self) {
        let is_conflict = |pair: &[Token<'_>]| pair[0].is_word("on") && pair[1].is_word("conflict");
        self.query.updates = self.tokens.windows(2).any(is_conflict);
        let phrase = ["on", "duplicate", "key", "update"];
        let found = (0..self.tokens.len()).find(|&from| {
            phrase.iter().enumerate().all(|(at, word)| self.is_word(from + at, word))
        });
        let Some(from) = found else { return };
        self.query.updates = true;
        let range = self.tokens[from].start..self.tokens[from + 3].end();
        self.replace(range, "on conflict do update set");
        for at in from + 4..self.tokens.len() {
            if self.is_word(at, "values") && self.is_symbol(at + 1, "(") {
                self.replace(self.tokens[at].start..self.tokens[at + 1].end(), "(excluded.");
            }
        }
    }
}

/// Reads a list of columns, if one comes next.
fn columns(cursor: &mut Cursor<'_, '_>) -> Vec<String> {
    let mut list = cursor.clone();
    let mut columns = Vec::new();
    while list.symbol(if columns.is_empty() { "(" } else { "," }) {
        columns.extend(list.name());
    }
    if !list.symbol(")") {
        // It may be a query in parentheses.
        return Vec::new();
    }
    *cursor = list;
    columns
}

/// Reads the first row behind `values`.
fn first_row(mut cursor: Cursor<'_, '_>) -> Vec<Inserted> {
    let mut row = Vec::new();
    if cursor.one_of(&["values", "value"]).is_none() {
        return row;
    }
    let (mut depth, mut marks, mut tokens) = (0, 0, 0);
    let mut value = Inserted::Other;
    while let Some(token) = cursor.next() {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        if depth == 0 || depth == 1 && matches!(token.text, "(" | ",") {
            if token.text != "(" {
                row.push(if tokens == 1 { value } else { Inserted::Other });
            }
            if depth == 0 {
                break;
            }
            tokens = 0;
            continue;
        }
        tokens += 1;
        value = match token.kind {
            Kind::Mark => Inserted::Argument(marks),
            _ if token.is_word("null") => Inserted::Null,
            _ => Inserted::Other,
        };
        marks += usize::from(token.kind == Kind::Mark);
    }
    row
}

//! [`Splitter`]: lines in, statements and commands out.
//!
//! A statement ends with `;`, or with `\G` to have its rows one below the other; outside of quotes and
//! comments, that is. A command starts with `\` at the beginning of a line, outside of a statement, and
//! ends with its line.

/// A statement or a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Input {
    Statement {
        /// Without what ends it.
        text: String,
        /// Show rows one below the other.
        vertical: bool,
    },
    /// Without its backslash.
    Command(String),
}

/// Cuts lines into statements. It keeps what is not complete.
#[derive(Debug, Default)]
pub(crate) struct Splitter {
    text: String,
    inside: Inside,
    /// The text has more than comments. An executable comment, `/*! … */`, is a statement.
    has_begun: bool,
}

/// Where the next character stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Inside {
    #[default]
    Plain,
    /// Until this character, unless it is doubled.
    Quotes(char),
    /// `/* … */`.
    Comment,
}

impl Splitter {
    /// Takes lines that were typed, pasted or remembered, without the end of the last one; returns
    /// what is complete with them.
    pub(crate) fn push_lines(&mut self, lines: &str) -> Vec<Input> {
        lines.split('\n').flat_map(|line| self.push(line)).collect()
    }

    /// Takes a line, without its end; returns what is complete with it.
    pub(crate) fn push(&mut self, line: &str) -> Vec<Input> {
        let command = line.trim().strip_prefix('\\').filter(|_| self.is_empty());
        if let Some(command) = command {
            self.clear();
            return vec![Input::Command(command.trim_end_matches(';').trim().to_owned())];
        }
        let mut done = Vec::new();
        let mut rest = line;
        while let Some(first) = rest.chars().next() {
            let next = rest[first.len_utf8()..].chars().next();
            let bytes = match (self.inside, first, next) {
                (Inside::Plain, ';', _) => {
                    self.end(false, &mut done);
                    1
                }
                (Inside::Plain, '\\', Some('G')) => {
                    self.end(true, &mut done);
                    2
                }
                (Inside::Plain, '#', _) => rest.len(),
                (Inside::Plain, '-', Some('-')) if is_line_comment(rest) => rest.len(),
                _ => self.keep(rest, first, next),
            };
            rest = &rest[bytes..];
        }
        // The end of a line is kept only behind other text, or inside quotes and comments.
        if !self.text.trim().is_empty() || self.inside != Inside::Plain {
            self.text.push('\n');
        }
        done
    }

    /// Keeps one or two characters; returns their length.
    fn keep(&mut self, rest: &str, first: char, next: Option<char>) -> usize {
        let mut bytes = first.len_utf8();
        let both = bytes + next.map_or(0, char::len_utf8);
        match (self.inside, first) {
            (Inside::Plain, '/') if next == Some('*') => {
                self.inside = Inside::Comment;
                self.has_begun |= rest.starts_with("/*!");
                bytes = both;
            }
            (Inside::Comment, '*') if next == Some('/') => {
                self.inside = Inside::Plain;
                bytes = both;
            }
            (Inside::Plain, _) => {
                self.has_begun |= !first.is_whitespace();
                if matches!(first, '\'' | '"' | '`') {
                    self.inside = Inside::Quotes(first);
                }
            }
            // A name in backticks has no escapes.
            (Inside::Quotes(quote), '\\') if quote != '`' => bytes = both,
            (Inside::Quotes(quote), _) if first == quote => {
                if next == Some(quote) {
                    bytes = both;
                } else {
                    self.inside = Inside::Plain;
                }
            }
            _ => {}
        }
        self.text.push_str(&rest[..bytes]);
        bytes
    }

    fn end(&mut self, vertical: bool, done: &mut Vec<Input>) {
        if self.has_begun {
            done.push(Input::Statement { text: self.text.trim().to_owned(), vertical });
        }
        self.clear();
    }

    /// The statement at the end of the input, which nothing ends. A comment that is still open counts as
    /// one, so that the server refuses it: it may have swallowed statements.
    pub(crate) fn finish(&mut self) -> Option<Input> {
        let mut done = Vec::new();
        self.has_begun |= self.inside == Inside::Comment;
        self.end(false, &mut done);
        done.pop()
    }

    /// Forgets what is not complete.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// True if no statement has begun.
    pub(crate) fn is_empty(&self) -> bool {
        self.inside == Inside::Plain && !self.has_begun
    }

    pub(crate) fn inside(&self) -> Inside {
        self.inside
    }
}

/// Adds lines to a text that is remembered as one entry, and can be pushed again.
pub(crate) fn remember(entry: &mut String, lines: &str) {
    if !entry.is_empty() {
        entry.push('\n');
    }
    entry.push_str(lines);
}

/// Two dashes with a space behind them, or at the end: `5--3` is a number.
fn is_line_comment(rest: &str) -> bool {
    rest[2..].chars().next().is_none_or(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(text: &str) -> Input {
        Input::Statement { text: text.to_owned(), vertical: false }
    }

    /// All inputs of the lines, with the last one, which has no end.
    fn split(text: &str) -> Vec<Input> {
        let mut splitter = Splitter::default();
        let mut done: Vec<_> = text.split('\n').flat_map(|line| splitter.push(line)).collect();
        done.extend(splitter.finish());
        done
    }

    #[test]
    fn a_statement_ends_at_a_semicolon_and_spans_lines() {
        assert_eq!(split("select 1; select 2"), [statement("select 1"), statement("select 2")]);
        assert_eq!(split("select\n  1\n;"), [statement("select\n  1")]);
        assert_eq!(split(";;\n ;"), []);
        let vertical = Input::Statement { text: "select 1".to_owned(), vertical: true };
        assert_eq!(split("select 1\\G select 2;"), [vertical, statement("select 2")]);
    }

    #[test]
    fn what_stands_in_quotes_ends_nothing() {
        for text in [
            "select ';'",
            "select \"a;\"\"b;\"",
            "select 'it''s;'",
            r"select 'it\';s'",
            r"select '\\'",
            r"select `a\`",
            "select 'two\nlines; # no comment -- none'",
            "select '/*;'",
            "select 'ä;€'",
        ] {
            assert_eq!(
                split(&format!("{text};select 2;")),
                [statement(text), statement("select 2")]
            );
        }
        assert_eq!(split("select 'a\n\nb';"), [statement("select 'a\n\nb'")]);
    }

    #[test]
    fn comments_end_nothing() {
        assert_eq!(split("select 1 -- one; two\n;"), [statement("select 1")]);
        assert_eq!(split("select 1 # it's one;\n+ 2;"), [statement("select 1 \n+ 2")]);
        assert_eq!(split("select 5--3;"), [statement("select 5--3")]);
        let hint = "select /*+ a; b' */ 1";
        assert_eq!(split(&format!("{hint};")), [statement(hint)]);
        let long = "select /* a;\n b; */ 1";
        assert_eq!(split(&format!("{long};")), [statement(long)]);
        assert_eq!(split("-- nothing\n# at all"), []);
    }

    #[test]
    fn comments_alone_are_no_statement() {
        for text in ["/* a; */", "/* a\n*/ /*+ b */;", "select 1;\n/* done */\n", "/* a */ -- b\n;"]
        {
            let mut splitter = Splitter::default();
            let done = splitter.push_lines(text);
            assert!(done.len() <= 1 && splitter.is_empty(), "{text}: {done:?}");
            assert_eq!(splitter.finish(), None, "{text}");
        }
        let command = Input::Command("timing off".to_owned());
        let header = "/* header */\n\\timing off\nselect 1;";
        assert_eq!(split(header), [command, statement("select 1")]);
        for text in ["/*!50000 select 1 */", "/*+ hint */\nselect 1", "/* a */ select 1"] {
            assert_eq!(split(&format!("{text};")), [statement(text)]);
        }
        assert_eq!(split("/* open\nselect 1;"), [statement("/* open\nselect 1;")]);
    }

    #[test]
    fn a_command_is_a_line_of_its_own() {
        assert_eq!(
            split("\\status\n \\chunks on ;"),
            [Input::Command("status".to_owned()), Input::Command("chunks on".to_owned()),]
        );
        // Inside a statement, a backslash begins no command.
        assert_eq!(split("select\n\\status;"), [statement("select\n\\status")]);
    }

    #[test]
    fn pasted_lines_are_the_same_as_typed_ones() {
        let command = |text: &str| Input::Command(text.to_owned());
        for (pasted, inputs) in [
            ("select 1; -- one\nselect 2;", vec![statement("select 1"), statement("select 2")]),
            ("\\timing off\nselect 1;", vec![command("timing off"), statement("select 1")]),
            (
                "delete from t -- old\nwhere id = 5;",
                vec![statement("delete from t \nwhere id = 5")],
            ),
            (
                "select 1; # one\r\nselect 'a\nb';",
                vec![statement("select 1"), statement("select 'a\nb'")],
            ),
        ] {
            let mut splitter = Splitter::default();
            assert_eq!(splitter.push_lines(pasted), inputs, "{pasted}");
            // The remembered lines, fed again.
            let mut entry = String::new();
            pasted.split('\n').for_each(|line| remember(&mut entry, line));
            assert_eq!(splitter.push_lines(&entry), inputs, "{entry}");
            assert!(splitter.is_empty());
        }
    }

    #[test]
    fn what_is_begun_can_be_forgotten() {
        let mut splitter = Splitter::default();
        assert_eq!(splitter.push("select 'a"), []);
        assert_eq!((splitter.is_empty(), splitter.inside()), (false, Inside::Quotes('\'')));
        splitter.clear();
        assert_eq!(splitter.push("select 2;"), [statement("select 2")]);
    }
}

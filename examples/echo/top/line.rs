//! Lines of styled text, cut to a terminal's size.

/// How a piece of text looks on a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Heading,
    Faint,
    Good,
    Busy,
    Bad,
}

/// Columns and rows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

/// Whether styles become escape codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Plain,
    Ansi,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Line(Vec<(Style, String)>);

impl Default for Size {
    fn default() -> Self {
        Self { columns: 80, rows: 24 }
    }
}

impl Style {
    const fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Heading => "\x1b[1m",
            Self::Faint => "\x1b[2m",
            Self::Good => "\x1b[32m",
            Self::Busy => "\x1b[33m",
            Self::Bad => "\x1b[1;31m",
        }
    }
}

impl Line {
    /// A line that begins with the name of what it shows.
    pub(super) fn named(name: &str) -> Self {
        Self::default().with(Style::Heading, format!("{name:<13}"))
    }

    pub(super) fn with(mut self, style: Style, text: impl Into<String>) -> Self {
        self.0.push((style, text.into()));
        self
    }

    pub(super) fn plain(self, text: impl Into<String>) -> Self {
        self.with(Style::Plain, text)
    }

    /// A word and a count that is there only if it is not what it should be, zero.
    pub(super) fn problem(self, word: &str, count: f64) -> Self {
        if count > 0.0 { self.with(Style::Bad, format!("  {word} {count:.0}")) } else { self }
    }

    pub(super) fn chars(&self) -> usize {
        self.0.iter().map(|(_, text)| text.chars().count()).sum()
    }

    /// The line in no more than so many columns; every character takes one.
    pub(super) fn text(&self, columns: usize, look: Look) -> String {
        let mut left = columns;
        let mut line = String::new();
        for (style, text) in &self.0 {
            let cut: String = text.chars().take(left).collect();
            left -= cut.chars().count();
            match (look, style.code()) {
                (Look::Plain, _) | (Look::Ansi, "") => line.push_str(&cut),
                (Look::Ansi, code) => line.extend([code, &cut, "\x1b[0m"]),
            }
        }
        if look == Look::Plain { line.trim_end().to_owned() } else { line }
    }
}

//! The text of a statement as tokens, by MySQL's rules.

/// Kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A keyword or a name.
    Word,
    /// A name in back-ticks.
    Quoted,
    /// A string, in single or double quotes.
    Text,
    /// A number, also `0x1f`, `x'1f'` and `b'101'`.
    Number,
    /// `@name`.
    UserVariable,
    /// `@@name`; a scope and its dot are part of it.
    SystemVariable,
    /// `?`.
    Mark,
    /// An operator or a punctuation mark.
    Symbol,
}

/// One token, as it stands in the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    pub start: usize,
}

impl<'a> Token<'a> {
    pub const fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Is it this keyword, in any case?
    pub fn is_word(&self, word: &str) -> bool {
        self.kind == Kind::Word && self.text.eq_ignore_ascii_case(word)
    }

    pub fn is_symbol(&self, symbol: &str) -> bool {
        self.kind == Kind::Symbol && self.text == symbol
    }

    /// Returns the name without back-ticks, if the token is a name.
    pub fn name(&self) -> Option<String> {
        match self.kind {
            Kind::Word => Some(self.text.to_owned()),
            Kind::Quoted => Some(self.inner().replace("``", "`")),
            _ => None,
        }
    }

    /// Returns the content of a string, with its escapes undone.
    pub fn string(&self) -> Option<String> {
        (self.kind == Kind::Text).then(|| unescape(self.inner(), self.text.as_bytes()[0]))
    }

    /// Without the first and the last byte, which are quotes.
    fn inner(&self) -> &'a str {
        self.text.get(1..self.text.len().saturating_sub(1)).unwrap_or_default()
    }
}

/// The tokens of a statement.
#[derive(Debug)]
pub struct Tokens<'a> {
    pub all: Vec<Token<'a>>,
    /// Comments that SQLite would not skip: marks of executable comments, and comments that begin
    /// with `#` or have a zero in them.
    pub removed: Vec<std::ops::Range<usize>>,
}

/// Place at which a text cannot be read: a quote or a comment without an end, a zero, at which
/// SQLite would stop reading, or a token too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unterminated(pub usize);

/// The version that comments such as `/*!50000 … */` are compared with.
const VERSION: u32 = 80_032;

/// Most tokens of a statement. Each one, and what is read from it, takes some 100 bytes.
const MOST_TOKENS: usize = 1 << 21;

pub fn scan(text: &str) -> Result<Tokens<'_>, Unterminated> {
    let mut tokens = Tokens { all: Vec::with_capacity(16), removed: Vec::new() };
    let bytes = text.as_bytes();
    let mut executable = 0;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if tokens.all.len() + tokens.removed.len() > MOST_TOKENS {
            return Err(Unterminated(at));
        }
        if byte.is_ascii_whitespace() {
            at += 1;
        } else if byte == 0 {
            return Err(Unterminated(at));
        } else if let Some(end) = line_comment(bytes, at) {
            if byte == b'#' || bytes[at..end].contains(&0) {
                tokens.removed.push(at..end);
            }
            at = end;
        } else if bytes[at..].starts_with(b"/*!") {
            let digits = bytes[at + 3..].iter().take(6).take_while(|b| b.is_ascii_digit()).count();
            // Five digits or six; fewer are part of what is executed.
            let digits = if digits >= 5 { digits } else { 0 };
            let version = text[at + 3..at + 3 + digits].parse().unwrap_or(0);
            if version > VERSION {
                let end = comment_end(bytes, at)?;
                tokens.removed.push(at..end);
                at = end;
            } else {
                tokens.removed.push(at..at + 3 + digits);
                at += 3 + digits;
                executable += 1;
            }
        } else if bytes[at..].starts_with(b"/*") {
            let end = comment_end(bytes, at)?;
            if bytes[at..end].contains(&0) {
                tokens.removed.push(at..end);
            }
            at = end;
        } else if executable > 0 && bytes[at..].starts_with(b"*/") {
            tokens.removed.push(at..at + 2);
            executable -= 1;
            at += 2;
        } else {
            let (kind, end) = token(bytes, at)?;
            // A zero may stand only in a string, which is written anew for SQLite.
            if kind != Kind::Text && bytes[at..end].contains(&0) {
                return Err(Unterminated(at));
            }
            tokens.all.push(Token { kind, text: &text[at..end], start: at });
            at = end;
        }
    }
    if executable > 0 { Err(Unterminated(0)) } else { Ok(tokens) }
}

/// The end of the line comment that begins at this place, if one does.
fn line_comment(bytes: &[u8], at: usize) -> Option<usize> {
    let begins = match &bytes[at..] {
        [b'#', ..] | [b'-', b'-'] => true,
        [b'-', b'-', next, ..] => next.is_ascii_whitespace() || next.is_ascii_control(),
        _ => false,
    };
    let length = || bytes[at..].iter().position(|&b| b == b'\n');
    begins.then(|| length().map_or(bytes.len(), |length| at + length))
}

fn comment_end(bytes: &[u8], at: usize) -> Result<usize, Unterminated> {
    let length = bytes[at + 2..].windows(2).position(|two| two == b"*/");
    length.map(|length| at + 2 + length + 2).ok_or(Unterminated(at))
}

fn token(bytes: &[u8], at: usize) -> Result<(Kind, usize), Unterminated> {
    let next = bytes.get(at + 1).copied();
    Ok(match bytes[at] {
        b'`' => (Kind::Quoted, quote_end(bytes, at)?),
        b'\'' | b'"' => (Kind::Text, quote_end(bytes, at)?),
        b'x' | b'X' | b'b' | b'B' if next == Some(b'\'') => {
            (Kind::Number, quote_end(bytes, at + 1)?)
        }
        b'?' => (Kind::Mark, at + 1),
        b'@' if next == Some(b'@') => (Kind::SystemVariable, system_variable_end(bytes, at + 2)?),
        b'@' if matches!(next, Some(b'`' | b'\'' | b'"')) => {
            (Kind::UserVariable, quote_end(bytes, at + 1)?)
        }
        b'@' => (Kind::UserVariable, word_end(bytes, at + 1, b".")),
        byte if byte.is_ascii_digit() => number(bytes, at),
        b'.' if next.is_some_and(|next| next.is_ascii_digit()) && !after_name(bytes, at) => {
            number(bytes, at)
        }
        byte if is_name(byte) => (Kind::Word, word_end(bytes, at, b"")),
        _ => (Kind::Symbol, at + symbol_length(&bytes[at..])),
    })
}

/// True behind a name, where a dot begins no number.
fn after_name(bytes: &[u8], at: usize) -> bool {
    at > 0 && (is_name(bytes[at - 1]) || bytes[at - 1] == b'`')
}

const fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$') || byte >= 0x80
}

fn word_end(bytes: &[u8], at: usize, also: &[u8]) -> usize {
    let belongs = |b: &u8| is_name(*b) || also.contains(b);
    at + bytes[at..].iter().take_while(|b| belongs(b)).count()
}

/// `name`, `global.name`, also with back-ticks around the name.
fn system_variable_end(bytes: &[u8], at: usize) -> Result<usize, Unterminated> {
    let mut end = at;
    loop {
        end = if bytes.get(end) == Some(&b'`') {
            quote_end(bytes, end)?
        } else {
            word_end(bytes, end, b"")
        };
        if bytes.get(end) != Some(&b'.') {
            return Ok(end);
        }
        end += 1;
    }
}

/// A number; or a name that begins with digits.
fn number(bytes: &[u8], at: usize) -> (Kind, usize) {
    if bytes[at] == b'0' && matches!(bytes.get(at + 1), Some(b'x' | b'X')) {
        return (Kind::Number, word_end(bytes, at, b""));
    }
    let digits =
        |from: usize| from + bytes[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = digits(at);
    if bytes.get(end) == Some(&b'.') {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > end + 1 + sign {
            end = exponent;
        }
    }
    let word = word_end(bytes, end, b"");
    if word > end { (Kind::Word, word) } else { (Kind::Number, end) }
}

fn symbol_length(rest: &[u8]) -> usize {
    const LONG: [&[u8]; 12] =
        [b"<=>", b"->>", b":=", b"||", b"&&", b"<=", b">=", b"<>", b"!=", b"<<", b">>", b"->"];
    LONG.iter().find(|symbol| rest.starts_with(symbol)).map_or(1, |symbol| symbol.len())
}

/// Returns the place behind the closing quote. A doubled quote does not close. Outside of names,
/// neither does a quote behind a backslash.
fn quote_end(bytes: &[u8], at: usize) -> Result<usize, Unterminated> {
    let quote = bytes[at];
    let mut end = at + 1;
    while let Some(&byte) = bytes.get(end) {
        if byte == b'\\' && quote != b'`' {
            end += 2;
        } else if byte != quote {
            end += 1;
        } else if bytes.get(end + 1) == Some(&quote) {
            end += 2;
        } else {
            return Ok(end + 1);
        }
    }
    Err(Unterminated(at))
}

fn unescape(inner: &str, quote: u8) -> String {
    let mut chars = inner.chars();
    let mut string = String::with_capacity(inner.len());
    while let Some(char) = chars.next() {
        if char == char::from(quote) {
            chars.next();
        }
        if char != '\\' {
            string.push(char);
            continue;
        }
        match chars.next() {
            Some('0') => string.push('\0'),
            Some('b') => string.push('\x08'),
            Some('n') => string.push('\n'),
            Some('r') => string.push('\r'),
            Some('t') => string.push('\t'),
            Some('Z') => string.push('\x1a'),
            // They stay as they are, for LIKE.
            Some(wild @ ('%' | '_')) => string.extend(['\\', wild]),
            Some(other) => string.push(other),
            None => {}
        }
    }
    string
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<&str> {
        scan(text).expect("it is terminated").all.iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_no_tokens_and_executable_ones_are() {
        assert_eq!(texts("/* a */ select -- b\n 1 # c\n+2"), ["select", "1", "+", "2"]);
        assert_eq!(texts("/*+ hint */select/*!50000 1 */"), ["select", "1"]);
        assert_eq!(texts("/*!99999 select 2 */ select 1"), ["select", "1"]);
        assert_eq!(texts("/*! select */ 1"), ["select", "1"]);
        assert_eq!(texts("5--3"), ["5", "-", "-", "3"]);
        assert_eq!(texts(""), [""; 0]);
    }

    #[test]
    fn a_zero_stands_in_strings_and_comments_only() {
        assert_eq!(texts("'a\0b' /* \0 */ 1 -- \0\n+ 2 # \0"), ["'a\0b'", "1", "+", "2"]);
        assert_eq!(scan("/* \0 */ 1 -- \0").expect("it is terminated").removed.len(), 2);
        for zero in ["\0", "select 1\0", "`a\0`", "a\0b", "@`\0`", "@@`\0`", "x'\0'"] {
            assert!(scan(zero).is_err(), "{zero:?}");
        }
    }

    #[test]
    fn tokens_have_a_limit() {
        assert!(scan(&",".repeat(MOST_TOKENS)).is_ok());
        for text in [",", "/*!*/"] {
            assert!(scan(&text.repeat(MOST_TOKENS + 2)).is_err(), "{text}");
        }
    }

    #[test]
    fn quotes_hide_what_is_in_them() {
        assert_eq!(texts("'a?''b' \"c\\\"?\" `d``?`"), ["'a?''b'", "\"c\\\"?\"", "`d``?`"]);
        let tokens = scan("'a''b\\n\\\\' `d``e`").expect("it is terminated").all;
        assert_eq!(tokens[0].string().as_deref(), Some("a'b\n\\"));
        assert_eq!(tokens[1].name().as_deref(), Some("d`e"));
        for open in
            ["'a", "`a", "\"a'", "/* a", "/*! a", "'a\\'", "x'1", "@`a", "@@`a", "/*", "'\\"]
        {
            assert!(scan(open).is_err(), "{open}");
        }
    }

    #[test]
    fn numbers_variables_and_names_are_told_apart() {
        let kinds = |text| -> Vec<Kind> {
            scan(text).expect("it is terminated").all.iter().map(|token| token.kind).collect()
        };
        assert_eq!(kinds("1 1.5 .5 1e9 1.e-3 0x1F x'00' b'01'"), [Kind::Number; 8]);
        assert_eq!(kinds("a 1a ä $b 1e"), [Kind::Word; 5]);
        assert_eq!(kinds("@a @`a b` @'c' @a.b"), [Kind::UserVariable; 4]);
        assert_eq!(kinds("@@a @@global.a @@session.`a`"), [Kind::SystemVariable; 3]);
        assert_eq!(
            texts("a.b t.1 a>=1 a<=>b"),
            ["a", ".", "b", "t", ".", "1", "a", ">=", "1", "a", "<=>", "b"]
        );
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_scanned_without_a_panic(text: String) {
            if let Ok(tokens) = scan(&text) {
                for token in tokens.all {
                    assert_eq!(&text[token.start..token.end()], token.text);
                    let _ = (token.name(), token.string());
                }
            }
        }

        #[test]
        fn what_looks_like_sql_is_scanned_without_a_panic(text in "[-a1 '`\"@?.,()/*!#\\\\;\n]{0,40}") {
            if let Ok(tokens) = scan(&text) {
                for token in tokens.all {
                    let _ = (token.name(), token.string());
                }
            }
        }
    }
}

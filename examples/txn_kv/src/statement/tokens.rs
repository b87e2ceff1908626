//! [`Tokens`]: a text, cut into words, marks, literals and signs.

use super::error::StatementError;

/// A piece of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Word(&'a [u8]),
    Number(&'a [u8]),
    /// `?`
    Mark,
    /// Text between quotes, with doubled quotes still doubled.
    Text(&'a [u8]),
    /// Text in `x''`.
    Hex(&'a [u8]),
    Comma,
    Equal,
    NotEqual,
    Less,
    Greater,
    /// Byte that has no meaning in a statement.
    Other(u8),
    End,
}

/// Cuts a text.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(super) const fn new(text: &'a [u8]) -> Self {
        Self { text, at: 0 }
    }

    /// The next token, and where it begins, from 0.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, usize), StatementError> {
        let rest = &self.text[self.at..];
        let rest = rest.trim_ascii_start();
        let at = self.text.len() - rest.len();
        let [first, behind @ ..] = rest else {
            self.at = at;
            return Ok((Token::End, at));
        };
        let (token, length) = match (first, behind) {
            (b'x' | b'X', [b'\'', behind @ ..]) => {
                let digits = until_quote(behind).ok_or(StatementError::Unclosed { at: at + 1 })?;
                (Token::Hex(digits), digits.len() + 3)
            }
            (b'\'', behind) => {
                let text = quoted(behind).ok_or(StatementError::Unclosed { at: at + 1 })?;
                (Token::Text(text), text.len() + 2)
            }
            (b'?', _) => (Token::Mark, 1),
            (b',', _) => (Token::Comma, 1),
            (b'=', _) => (Token::Equal, 1),
            (b'!', [b'=', ..]) => (Token::NotEqual, 2),
            (b'<', _) => (Token::Less, 1),
            (b'>', _) => (Token::Greater, 1),
            (b'0'..=b'9', _) => {
                let digits = leading(rest, u8::is_ascii_digit);
                (Token::Number(digits), digits.len())
            }
            (b'a'..=b'z' | b'A'..=b'Z', _) => {
                let word = leading(rest, u8::is_ascii_alphabetic);
                (Token::Word(word), word.len())
            }
            (&other, _) => (Token::Other(other), 1),
        };
        self.at = at + length;
        Ok((token, at))
    }
}

fn leading(bytes: &[u8], belongs: impl Fn(&u8) -> bool) -> &[u8] {
    let length = bytes.iter().position(|byte| !belongs(byte)).unwrap_or(bytes.len());
    &bytes[..length]
}

fn until_quote(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes.iter().position(|&byte| byte == b'\'')?;
    Some(&bytes[..length])
}

/// Up to a quote that is not doubled.
fn quoted(bytes: &[u8]) -> Option<&[u8]> {
    let mut length = 0;
    loop {
        length += until_quote(&bytes[length..])?.len();
        if bytes.get(length + 1) != Some(&b'\'') {
            return Some(&bytes[..length]);
        }
        length += 2;
    }
}

impl Token<'_> {
    /// Describes the token in an error text.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Word(word) => shortened(word),
            Self::Number(digits) => format!("the number {}", shortened(digits)),
            Self::Mark => "?".to_owned(),
            Self::Text(text) => format!("the text '{}'", shortened(text)),
            Self::Hex(digits) => format!("x'{}'", shortened(digits)),
            Self::Comma => ",".to_owned(),
            Self::Equal => "=".to_owned(),
            Self::NotEqual => "!=".to_owned(),
            Self::Less => "<".to_owned(),
            Self::Greater => ">".to_owned(),
            Self::Other(byte) => [byte].escape_ascii().to_string(),
            Self::End => "the end".to_owned(),
        }
    }
}

/// Longest part of a text that an error repeats, in bytes.
const SHOWN: usize = 32;

fn shortened(bytes: &[u8]) -> String {
    match bytes.get(..SHOWN) {
        Some(start) if bytes.len() > SHOWN => format!("{}…", start.escape_ascii()),
        _ => bytes.escape_ascii().to_string(),
    }
}

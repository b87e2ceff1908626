//! [`Cursor`]: goes through the tokens of a statement.

use super::scan::{Kind, Token};

/// A place between tokens.
#[derive(Clone, Debug)]
pub struct Cursor<'t, 'a> {
    tokens: &'t [Token<'a>],
    pub at: usize,
}

impl<'t, 'a> Cursor<'t, 'a> {
    pub const fn new(tokens: &'t [Token<'a>]) -> Self {
        Self { tokens, at: 0 }
    }

    pub fn peek(&self) -> Option<&'t Token<'a>> {
        self.tokens.get(self.at)
    }

    pub fn next(&mut self) -> Option<&'t Token<'a>> {
        let token = self.peek()?;
        self.at += 1;
        Some(token)
    }

    pub fn is_at_end(&self) -> bool {
        self.at >= self.tokens.len()
    }

    /// Goes over this keyword, if it comes next.
    pub fn word(&mut self, word: &str) -> bool {
        self.take(|token| token.is_word(word))
    }

    /// Goes over these keywords, if all of them come next.
    pub fn words(&mut self, words: &[&str]) -> bool {
        let start = self.at;
        let all = words.iter().all(|word| self.word(word));
        if !all {
            self.at = start;
        }
        all
    }

    /// Goes over one of these keywords and says which.
    pub fn one_of<'w>(&mut self, words: &[&'w str]) -> Option<&'w str> {
        words.iter().copied().find(|word| self.word(word))
    }

    pub fn symbol(&mut self, symbol: &str) -> bool {
        self.take(|token| token.is_symbol(symbol))
    }

    pub fn name(&mut self) -> Option<String> {
        let name = self.peek()?.name()?;
        self.at += 1;
        Some(name)
    }

    pub fn string(&mut self) -> Option<String> {
        let string = self.peek()?.string()?;
        self.at += 1;
        Some(string)
    }

    pub fn kind(&mut self, kind: Kind) -> Option<&'t Token<'a>> {
        let token = self.peek().filter(|token| token.kind == kind)?;
        self.at += 1;
        Some(token)
    }

    pub fn number<T: std::str::FromStr>(&mut self) -> Option<T> {
        let number = self.peek().filter(|token| token.kind == Kind::Number)?.text.parse().ok()?;
        self.at += 1;
        Some(number)
    }

    fn take(&mut self, is: impl FnOnce(&Token<'a>) -> bool) -> bool {
        let taken = self.peek().is_some_and(is);
        self.at += usize::from(taken);
        taken
    }
}

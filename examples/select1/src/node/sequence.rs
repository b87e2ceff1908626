//! Tables that hold a sequence of numbers, by their names: `seq_1_to_100`, `seq_1_to_9_step_2`.

use crate::node::dialect::{Cursor, Token};
use crate::node::dialect::{Kind, Statement};

/// The numbers of such a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub first: i64,
    pub last: i64,
    /// At least 1.
    pub step: i64,
}

impl Sequence {
    /// The sequence of this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let (first, rest) = name.strip_prefix("seq_")?.split_once("_to_")?;
        let (last, step) = rest.split_once("_step_").unwrap_or((rest, "1"));
        let number = |text: &str| -> Option<i64> {
            text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
        };
        let step = number(step).filter(|&step| step > 0)?;
        Some(Self { first: number(first)?, last: number(last)?, step })
    }

    /// The numbers.
    pub fn numbers(self) -> impl Iterator<Item = i64> + Send + 'static {
        let next = move |&number: &i64| {
            number.checked_add(self.step).filter(|&number| number <= self.last)
        };
        std::iter::successors(Some(self.first).filter(|&first| first <= self.last), next)
    }
}

/// Reads `select * from seq_… [limit n]`.
pub fn select(tokens: &[Token<'_>]) -> Option<Statement> {
    let mut cursor = Cursor::new(tokens);
    let all = |cursor: &mut Cursor<'_, '_>| cursor.symbol("*") || cursor.word("seq");
    if !cursor.word("select") || !all(&mut cursor) || !cursor.word("from") {
        return None;
    }
    let sequence = Sequence::named(&cursor.name()?)?;
    let limit = if cursor.word("limit") {
        let token = cursor.kind(Kind::Number)?;
        Some(token.text.parse().ok()?)
    } else {
        None
    };
    cursor.is_at_end().then_some(Statement::Sequence { sequence, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_sequence_or_it_is_none() {
        let numbers = |name| Sequence::named(name).map(|all| all.numbers().collect::<Vec<_>>());
        assert_eq!(numbers("seq_1_to_3"), Some(vec![1, 2, 3]));
        assert_eq!(numbers("SEQ_3_TO_9_STEP_3"), Some(vec![3, 6, 9]));
        assert_eq!(numbers("seq_2_to_1"), Some(vec![]));
        let top = "seq_9223372036854775806_to_9223372036854775807";
        assert_eq!(numbers(top), Some(vec![i64::MAX - 1, i64::MAX]));
        for other in ["seq_1_to_", "seq__to_1", "seq_1_to_2_step_0", "seq_-1_to_1", "seq", "t"] {
            assert_eq!(numbers(other), None, "{other}");
        }
        assert_eq!(numbers("seq_1_to_99999999999999999999"), None);
    }
}

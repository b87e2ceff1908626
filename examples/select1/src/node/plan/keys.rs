//! Bounds of keys, as conditions on the columns of an index.
//!
//! In an index NULL comes before everything, as in MySQL. So a bound on several columns is spelled
//! out column by column: a comparison of row values would pass over rows with NULL.

/// One column of a key.
#[derive(Clone, Debug)]
pub(super) struct KeyColumn {
    /// Text of the column in a statement.
    pub(super) name: String,
    pub(super) not_null: bool,
    /// Number of the bound value; `None` for NULL.
    pub(super) value: Option<usize>,
}

/// The entries that have this key.
pub(super) fn equal(key: &[KeyColumn]) -> String {
    let column = |KeyColumn { name, not_null, value }: &KeyColumn| match value {
        Some(value) => format!("{name} = ?{value}"),
        None if *not_null => "0".to_owned(),
        None => format!("{name} is null"),
    };
    key.iter().map(column).collect::<Vec<_>>().join(" and ")
}

/// The entries that do not come before this key.
pub(super) fn from(key: &[KeyColumn]) -> String {
    let Some((column, rest)) = key.split_first() else { return "1".to_owned() };
    let KeyColumn { name, value, .. } = column;
    match (value, rest.is_empty()) {
        (None, true) => "1".to_owned(),
        (None, false) => format!("({name} is not null or {})", from(rest)),
        (Some(value), true) => format!("{name} >= ?{value}"),
        // The first condition follows from the second, but an index can begin at it.
        (Some(value), false) => {
            format!("({name} >= ?{value} and ({name} > ?{value} or {}))", from(rest))
        }
    }
}

/// The entries that do not come behind this key.
pub(super) fn to(key: &[KeyColumn]) -> String {
    let Some((column, rest)) = key.split_first() else { return "1".to_owned() };
    let KeyColumn { name, value, not_null } = column;
    match (value, rest.is_empty()) {
        (None, _) if *not_null => "0".to_owned(),
        (None, true) => format!("{name} is null"),
        (None, false) => format!("({name} is null and {})", to(rest)),
        (Some(value), true) if *not_null => format!("{name} <= ?{value}"),
        (Some(value), true) => format!("({name} <= ?{value} or {name} is null)"),
        (Some(value), false) if *not_null => {
            format!("({name} <= ?{value} and ({name} < ?{value} or {}))", to(rest))
        }
        (Some(value), false) => {
            let same = format!("{name} = ?{value} and {}", to(rest));
            format!("({name} < ?{value} or ({same}) or {name} is null)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(columns: &[(&str, bool, Option<usize>)]) -> Vec<KeyColumn> {
        let column = |(name, not_null, value): &(&str, bool, Option<usize>)| KeyColumn {
            name: (*name).to_owned(),
            not_null: *not_null,
            value: *value,
        };
        columns.iter().map(column).collect()
    }

    #[test]
    fn conditions_are_spelled_out_column_by_column() {
        let one = key(&[("a", true, Some(1))]);
        assert_eq!(
            (equal(&one), from(&one), to(&one)),
            ("a = ?1".to_owned(), "a >= ?1".to_owned(), "a <= ?1".to_owned())
        );
        let two = key(&[("a", true, Some(1)), ("b", false, Some(2))]);
        assert_eq!(from(&two), "(a >= ?1 and (a > ?1 or b >= ?2))");
        assert_eq!(to(&two), "(a <= ?1 and (a < ?1 or (b <= ?2 or b is null)))");
        let null = key(&[("a", false, None)]);
        assert_eq!(
            (equal(&null), from(&null), to(&null)),
            ("a is null".to_owned(), "1".to_owned(), "a is null".to_owned())
        );
        let never = key(&[("a", true, None)]);
        assert_eq!((equal(&never), to(&never)), ("0".to_owned(), "0".to_owned()));
    }
}

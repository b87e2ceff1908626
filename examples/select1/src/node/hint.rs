//! The text in front of a statement.

use std::borrow::Cow;

use epoll_group::session::SessionError;

use crate::node::dialect;
use crate::node::errors::{not_utf8, syntax, unsupported};

/// Returns the statement with its hint, if the hint means something here.
///
/// A comment leaves the text of the statement as it was, so that the cache finds it.
/// `returning fields(a, b)` makes a change give back these columns.
pub fn apply<'a>(hint: &[u8], text: &'a str) -> Result<Cow<'a, str>, SessionError> {
    if hint.is_empty() {
        return Ok(Cow::Borrowed(text));
    }
    let hint = std::str::from_utf8(hint).map_err(|_| not_utf8())?;
    if let Some(fields) = returned(hint)? {
        let text = dialect::without_end(text);
        return Ok(Cow::Owned(format!("{text} returning {fields}")));
    }
    if dialect::is_comment(hint) {
        return Ok(Cow::Borrowed(text));
    }
    Ok(Cow::Owned(format!("{hint}{text}")))
}

/// The names in `returning fields(a, b)`, in quotes. Other comments may have these words, too.
fn returned(hint: &str) -> Result<Option<String>, SessionError> {
    let lower = hint.to_ascii_lowercase();
    let fields = |word: &str| {
        let start = lower.find(word)?;
        let open = lower[start..].find("fields(")?;
        Some(start + open + "fields(".len())
    };
    if fields("backfill").is_some() {
        return Err(unsupported("backfill"));
    }
    let Some(open) = fields("returning") else { return Ok(None) };
    let close = lower[open..].find(')').ok_or_else(|| syntax(hint))?;
    let names = hint[open..open + close].split(',').map(|name| match name.trim() {
        "*" => "*".to_owned(),
        name => format!("`{}`", name.trim_matches('`').replace('`', "``")),
    });
    Ok(Some(names.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_comment_or_part_of_the_statement() {
        let applied = |hint: &str, text| apply(hint.as_bytes(), text).map(Cow::into_owned);
        assert_eq!(applied("", "select 1").as_deref(), Ok("select 1"));
        assert_eq!(applied("/*hint*/", "select 1").as_deref(), Ok("select 1"));
        assert_eq!(applied("/*+ a */ -- b\n", "select 1").as_deref(), Ok("select 1"));
        assert_eq!(applied("explain ", "select 1").as_deref(), Ok("explain select 1"));
        assert_eq!(
            applied("/* +returning fields(a, `b`) */ ", "delete from t").as_deref(),
            Ok("delete from t returning `a`, `b`")
        );
        assert_eq!(
            applied("/* +returning fields(a) */", "delete from t ; -- all").as_deref(),
            Ok("delete from t returning `a`")
        );
        assert_eq!(
            applied("/* +returning fields(a) */", "delete from t /*! where a */;").as_deref(),
            Ok("delete from t /*! where a */ returning `a`")
        );
        assert_eq!(applied("/* a returning backfill */", "select 1").as_deref(), Ok("select 1"));
        assert!(applied("/* +backfill fields(a) */", "select 1").is_err());
        assert!(applied("/* +returning fields(a", "delete from t").is_err());
        assert!(apply(b"\xff", "select 1").is_err());
    }
}

//! Facts on the columns of a result from the select list.

use super::cursor::Cursor;
use super::scan::{Kind, Token};
use super::{Item, Seconds, Statement};

/// Reads `select sleep(n)`, with an alias or without.
pub(super) fn sleep(text: &str, tokens: &[Token<'_>]) -> Option<Statement> {
    let mut cursor = Cursor::new(tokens);
    if !cursor.words(&["select", "sleep"]) || !cursor.symbol("(") {
        return None;
    }
    let seconds = if cursor.kind(Kind::Mark).is_some() {
        Seconds::Argument
    } else {
        Seconds::Number(cursor.number()?)
    };
    if !cursor.symbol(")") {
        return None;
    }
    let mut label = text[tokens[1].start..tokens[cursor.at - 1].end()].to_owned();
    let expected = cursor.word("as");
    if let Some(alias) = cursor.name().or_else(|| cursor.string()) {
        label = alias;
    } else if expected {
        return None;
    }
    // `from dual` and anything else is left to SQLite.
    cursor.is_at_end().then_some(Statement::Sleep { label, seconds })
}

/// Returns the items of the select list with which a query begins, or none if it is unclear which item is
/// which column.
///
/// Of a compound query it returns the labels alone, because the rows have values of other select lists
/// too. `is_changed` returns true if a part of the text is another one for SQLite.
pub(super) fn items(
    text: &str,
    tokens: &[Token<'_>],
    is_changed: impl Fn(usize, usize) -> bool,
) -> Vec<Item> {
    if !tokens.first().is_some_and(|token| token.is_word("select")) {
        return Vec::new();
    }
    let modifiers = ["distinct", "all", "distinctrow", "sql_no_cache", "sql_calc_found_rows"];
    let mut from = 1;
    while tokens.get(from).is_some_and(|token| modifiers.iter().any(|word| token.is_word(word))) {
        from += 1;
    }
    let mut items = Vec::new();
    let mut marks = tokens[..from].iter().filter(|token| token.kind == Kind::Mark).count();
    let mut useful = false;
    let mut depth = 0_usize;
    let mut start = from;
    for at in from..=tokens.len() {
        let token = tokens.get(at);
        let ends_list = depth == 0 && token.is_none_or(ends_select_list);
        if ends_list || depth == 0 && token.is_some_and(|token| token.is_symbol(",")) {
            let part = &tokens[start..at];
            if is_star(part) {
                return Vec::new();
            }
            let item = item(text, part, marks, &is_changed);
            useful |= item != Item::default();
            items.push(item);
            marks += part.iter().filter(|token| token.kind == Kind::Mark).count();
            start = at + 1;
        }
        if ends_list {
            if is_compound(&tokens[at..]) {
                items.iter_mut().for_each(|item| {
                    *item = Item { label: item.label.take(), ..Item::default() };
                });
            }
            break;
        }
        match token.map_or("", |token| token.text) {
            "(" => depth += 1,
            ")" => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if useful { items } else { Vec::new() }
}

/// Returns true if a set operator is outside of parentheses.
fn is_compound(tokens: &[Token<'_>]) -> bool {
    let mut depth = 0_i32;
    tokens.iter().any(|token| {
        match token.text {
            "(" => depth += 1,
            ")" => depth -= 1,
            _ => {}
        }
        let operators = ["union", "intersect", "except"];
        depth == 0 && operators.iter().any(|operator| token.is_word(operator))
    })
}

fn ends_select_list(token: &Token<'_>) -> bool {
    let words = [
        "from",
        "where",
        "group",
        "having",
        "order",
        "limit",
        "union",
        "intersect",
        "except",
        "for",
        "into",
        "window",
        "lock",
    ];
    words.iter().any(|word| token.is_word(word))
}

/// `*` or `t.*`, which is several columns.
fn is_star(part: &[Token<'_>]) -> bool {
    let star = part.last().is_some_and(|token| token.is_symbol("*"));
    star && (part.len() == 1 || part[part.len() - 2].is_symbol("."))
}

fn item(
    text: &str,
    part: &[Token<'_>],
    marks: usize,
    is_changed: impl Fn(usize, usize) -> bool,
) -> Item {
    let (Some(first), Some(last)) = (part.first(), part.last()) else { return Item::default() };
    let named = named_from(part);
    let value = &part[..named.unwrap_or(part.len())];
    let mut item = Item::default();
    match value {
        [only] if only.kind == Kind::Mark => item.argument = Some(marks),
        [only] if only.kind == Kind::Number && only.text.bytes().all(|b| b.is_ascii_digit()) => {
            item.literal_integer = u32::try_from(only.text.len()).ok();
        }
        _ => {}
    }
    if let Some(named) = named {
        // SQLite would keep the quotes of a string out as well, but not undo its escapes.
        item.label = part[named..].last().and_then(Token::string);
    } else if let [only] = value
        && let Some(string) = only.string()
    {
        item.label = Some(string);
    } else if is_changed(first.start, last.end()) && !is_column(part) {
        item.label = Some(text[first.start..last.end()].to_owned());
    }
    item
}

/// `a`, `t.a` or `s.t.a`: the column's own name is its label.
fn is_column(part: &[Token<'_>]) -> bool {
    let is_name = |token: &Token<'_>| matches!(token.kind, Kind::Word | Kind::Quoted);
    part.iter().enumerate().all(|(at, token)| match at % 2 {
        0 => is_name(token),
        _ => token.is_symbol("."),
    })
}

/// Returns the token at which the alias begins, with its `as` or without.
fn named_from(part: &[Token<'_>]) -> Option<usize> {
    let [.., before, last] = part else { return None };
    let can_name = matches!(last.kind, Kind::Word | Kind::Quoted | Kind::Text);
    if !can_name {
        return None;
    }
    if before.is_word("as") {
        return Some(part.len() - 2);
    }
    if last.kind == Kind::Word && OPERATORS.iter().any(|word| last.is_word(word)) {
        return None;
    }
    let ends_value = match before.kind {
        Kind::Word => !OPERATORS.iter().any(|word| before.is_word(word)) || before.is_word("end"),
        Kind::Symbol => before.text == ")",
        // Two strings are one.
        Kind::Text => last.kind != Kind::Text,
        _ => true,
    };
    // `_utf8mb4'text'` is one value.
    let introduced = last.kind == Kind::Text && before.text.starts_with('_');
    (ends_value && !introduced).then_some(part.len() - 1)
}

/// Words that are part of an expression, in front of what follows or at its end.
const OPERATORS: [&str; 22] = [
    "and", "or", "not", "is", "like", "in", "between", "div", "mod", "xor", "case", "when", "then",
    "else", "end", "binary", "interval", "distinct", "collate", "exists", "null", "escape",
];

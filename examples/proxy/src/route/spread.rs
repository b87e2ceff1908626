//! How a select is asked of several data nodes, and how their answers become one.
//!
//! ```text
//!   select k, avg(c) from t group by k order by k desc limit 10, 5
//!                    │ to each node
//!                    ▼
//!   select k, avg(c), sum(c) as _hidden_1, count(c) as _hidden_2 from t
//!       group by k order by k desc limit 15
//! ```
//!
//! Each node sends its rows in the order of the client. So the proxy merges them with one row of each
//! node in memory: it takes the least row, or folds all rows of the least group into one. A select
//! whose answers cannot be merged this way is refused.
//!
//! The text for the nodes is the client's text with insertions. It is not written anew from the parsed
//! statement, which would lose escapes and comments.

use std::ops::Range;

use sqlparser::ast::{
    Distinct, DuplicateTreatment, Expr, Function, FunctionArguments, GroupByExpr, Ident,
    OrderByExpr, OrderByKind, OrderBySort, Query, Select, SelectItem, SelectModifiers, TableFactor,
    UnaryOperator, Value,
};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use super::keys::KeyColumn;
use super::read::{Facts, path, tokens, word};
use super::{Amount, Combine, Key, Limit, Merge, Place};

/// Reason why answers cannot become one.
type Reason = String;

/// The text of a statement and its tokens.
struct Source<'a> {
    text: &'a str,
    tokens: Vec<Piece>,
}

/// A token, and its place in the text. White space and comments are left out.
struct Piece {
    token: Token,
    location: Location,
    bytes: Range<usize>,
}

/// The clauses of a select, as ranges of tokens.
struct Clauses {
    items: Vec<Range<usize>>,
    groups: Vec<Range<usize>>,
    having: bool,
    orders: Vec<Range<usize>>,
    /// From the word LIMIT on.
    limit: Range<usize>,
}

/// A column of the select, or an expression that becomes a hidden column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Item(usize),
    Hidden(usize),
}

/// A select that is rewritten for the nodes.
struct Rewrite<'a> {
    source: &'a Source<'a>,
    clauses: Clauses,
    items: &'a [SelectItem],
    groups: &'a [Expr],
    orders: &'a [OrderByExpr],
    /// Expressions of the hidden columns.
    hidden: Vec<String>,
    /// Expressions that the nodes order by, behind those of the client.
    more_orders: Vec<String>,
}

/// A key of the order, and whether it is descending.
type Sorted = (Column, bool);

/// Functions whose result depends on one row alone, and words that may stand before a parenthesis.
/// Any other name may be that of an aggregate.
const OF_ONE_ROW: &[&str] = &[
    "abs",
    "and",
    "as",
    "ascii",
    "between",
    "binary",
    "by",
    "case",
    "cast",
    "ceil",
    "ceiling",
    "char",
    "char_length",
    "character_length",
    "coalesce",
    "concat",
    "concat_ws",
    "convert",
    "crc32",
    "date",
    "date_add",
    "date_format",
    "date_sub",
    "datediff",
    "day",
    "dayofmonth",
    "dayofweek",
    "dayofyear",
    "decimal",
    "distinct",
    "div",
    "else",
    "exp",
    "extract",
    "field",
    "find_in_set",
    "floor",
    "format",
    "from_unixtime",
    "greatest",
    "hex",
    "hour",
    "if",
    "ifnull",
    "in",
    "instr",
    "interval",
    "is",
    "json_extract",
    "json_unquote",
    "lcase",
    "least",
    "left",
    "length",
    "like",
    "ln",
    "locate",
    "log",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "minute",
    "mod",
    "month",
    "not",
    "nullif",
    "or",
    "pow",
    "power",
    "quarter",
    "replace",
    "reverse",
    "right",
    "round",
    "rpad",
    "rtrim",
    "second",
    "sign",
    "sqrt",
    "substr",
    "substring",
    "substring_index",
    "then",
    "trim",
    "truncate",
    "ucase",
    "unhex",
    "upper",
    "week",
    "weekday",
    "when",
    "year",
];

/// Words that are the time without parentheses.
const TIMES: [Keyword; 5] = [
    Keyword::CURRENT_DATE,
    Keyword::CURRENT_TIME,
    Keyword::CURRENT_TIMESTAMP,
    Keyword::LOCALTIME,
    Keyword::LOCALTIMESTAMP,
];

/// Aggregates whose results for parts of the rows give the result for all.
const MERGED: [&str; 5] = ["avg", "count", "max", "min", "sum"];

impl<'a> Source<'a> {
    fn new(text: &'a str, tokens: &[TokenWithSpan]) -> Self {
        let (mut at, mut offset) = (Location::new(1, 1), 0);
        let mut chars = text.chars();
        let mut offset_of = |wanted: Location| {
            while (at.line, at.column) < (wanted.line, wanted.column) {
                let Some(next) = chars.next() else { break };
                offset += next.len_utf8();
                at = match next {
                    '\n' => Location::new(at.line + 1, 1),
                    _ => Location::new(at.line, at.column + 1),
                };
            }
            offset
        };
        let is_seen = |token: &&TokenWithSpan| !matches!(token.token, Token::Whitespace(_));
        let piece = |token: &TokenWithSpan| {
            let location = token.span.start;
            let bytes = offset_of(location)..offset_of(token.span.end);
            Piece { token: token.token.clone(), location, bytes }
        };
        Self { text, tokens: tokens.iter().filter(is_seen).map(piece).collect() }
    }

    fn keyword(&self, at: usize) -> Option<Keyword> {
        self.tokens.get(at).and_then(|piece| word(&piece.token)).map(|word| word.keyword)
    }

    /// Text of these tokens.
    fn text(&self, tokens: &Range<usize>) -> &'a str {
        let bytes = self.start(tokens.start)..self.end(tokens.end);
        self.text.get(bytes).unwrap_or_default()
    }

    fn start(&self, token: usize) -> usize {
        self.tokens.get(token).map_or(self.text.len(), |piece| piece.bytes.start)
    }

    /// End of the last token before this one.
    fn end(&self, token: usize) -> usize {
        let before = token.checked_sub(1).and_then(|last| self.tokens.get(last));
        before.map_or(0, |piece| piece.bytes.end)
    }

    /// True if both ranges have the same tokens and no argument, whose value may differ.
    fn is_same(&self, one: &Range<usize>, other: &Range<usize>) -> bool {
        let same = |(one, other): (&Piece, &Piece)| match (&one.token, &other.token) {
            (Token::Word(one), Token::Word(other)) => {
                one.quote_style == other.quote_style && one.value.eq_ignore_ascii_case(&other.value)
            }
            (Token::Placeholder(_), _) => false,
            (one, other) => one == other,
        };
        one.len() == other.len()
            && self.tokens[one.clone()].iter().zip(&self.tokens[other.clone()]).all(same)
    }

    /// The parts between commas that are in no parentheses.
    fn parts(&self, tokens: Range<usize>) -> Vec<Range<usize>> {
        let (mut parts, mut start, mut depth) = (Vec::new(), tokens.start, 0);
        for at in tokens.clone() {
            match self.tokens[at].token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                Token::Comma if depth == 0 => {
                    parts.push(start..at);
                    start = at + 1;
                }
                _ => {}
            }
        }
        parts.push(start..tokens.end);
        parts
    }

    /// Number of `?` in these tokens.
    fn marks(&self, tokens: Range<usize>) -> usize {
        let is_mark = |piece: &&Piece| matches!(piece.token, Token::Placeholder(_));
        self.tokens[tokens].iter().filter(is_mark).count()
    }

    /// Names that are called in these tokens: each word before a parenthesis, in lower case.
    fn calls(&self, tokens: Range<usize>) -> impl Iterator<Item = String> {
        let called = |pair: &[Piece]| match &pair[0].token {
            Token::Word(word) if pair[1].token == Token::LParen => {
                Some(word.value.to_ascii_lowercase())
            }
            _ => None,
        };
        self.tokens[tokens].windows(2).filter_map(called)
    }
}

impl Clauses {
    /// Finds the clauses of a select of one table. `None` if their words are not where the parsed
    /// statement says.
    fn find(source: &Source<'_>, query: &Query, select: &Select) -> Option<Self> {
        let [from] = &select.from[..] else { return None };
        let TableFactor::Table { name, .. } = &from.relation else { return None };
        let table = name.0.first()?.as_ident()?.span.start;
        let end = match source.tokens.iter().rposition(|piece| piece.token != Token::SemiColon) {
            Some(last) => last + 1,
            None => 0,
        };
        let (mut depth, mut from, mut group, mut having, mut order, mut limit) =
            (0, None, None, None, None, None);
        for at in 0..end {
            match source.tokens[at].token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ => {}
            }
            if depth > 0 {
                continue;
            }
            let by = source.keyword(at + 1) == Some(Keyword::BY);
            let is_before_table = source.tokens[at].location < table;
            match source.keyword(at) {
                Some(Keyword::FROM) if is_before_table => from = Some(at),
                _ if is_before_table => {}
                // A hint for an index may have an ORDER BY.
                Some(Keyword::FOR) => return None,
                Some(Keyword::GROUP) if by => group = Some(at),
                Some(Keyword::HAVING) => having = Some(at),
                Some(Keyword::ORDER) if by => order = Some(at),
                Some(Keyword::LIMIT) => limit = Some(at),
                _ => {}
            }
        }
        let first = (0..end).find(|at| source.keyword(*at) == Some(Keyword::SELECT))? + 1;
        let is_modifier = matches!(
            source.keyword(first),
            Some(Keyword::DISTINCT | Keyword::DISTINCTROW | Keyword::ALL)
        );
        let limit = limit.unwrap_or(end);
        let by = |word: Option<usize>, end: usize| {
            word.map_or_else(Vec::new, |word| source.parts(word + 2..end))
        };
        let clauses = Self {
            items: source.parts(first + usize::from(is_modifier)..from?),
            groups: by(group, having.or(order).unwrap_or(limit)),
            having: having.is_some(),
            orders: by(order, limit),
            limit: limit..end,
        };
        let orders = match query.order_by.as_ref().map(|order| &order.kind) {
            None => 0,
            Some(OrderByKind::Expressions(orders)) => orders.len(),
            Some(OrderByKind::All(_)) => return None,
        };
        let groups = match &select.group_by {
            GroupByExpr::Expressions(groups, with) if with.is_empty() => groups.len(),
            _ => return None,
        };
        let is_as_parsed = clauses.items.len() == select.projection.len()
            && clauses.groups.len() == groups
            && clauses.orders.len() == orders
            && clauses.having == select.having.is_some()
            && clauses.limit.is_empty() == query.limit_clause.is_none()
            && clauses.all().all(|part| !part.is_empty());
        is_as_parsed.then_some(clauses)
    }

    fn all(&self) -> impl Iterator<Item = &Range<usize>> {
        self.items.iter().chain(&self.groups).chain(&self.orders)
    }
}

/// Returns the rule by which the answers of several nodes to this select become one.
pub(super) fn merge(
    query: &Query,
    select: &Select,
    key: &KeyColumn<'_>,
    facts: &Facts<'_>,
) -> Result<Merge, Reason> {
    let tokens = tokens(facts.text).map_err(|error| error.to_string())?;
    let source = &Source::new(facts.text, &tokens);
    let has_word = |wanted: Keyword| {
        let mut tokens = 0..source.tokens.len();
        tokens.any(|at| source.keyword(at) == Some(wanted))
    };
    if has_word(Keyword::OVER) {
        return Err("a window function sees the rows of one node only".to_owned());
    }
    let is_plain = select.qualify.is_none()
        && select.named_window.is_empty()
        && query.fetch.is_none()
        && select.select_modifiers.as_ref().is_none_or(|own| *own == SelectModifiers::default());
    let clauses = Clauses::find(source, query, select).filter(|_| is_plain);
    let clauses = clauses.ok_or("the proxy does not know one of its clauses")?;
    let GroupByExpr::Expressions(groups, _) = &select.group_by else {
        return Err("GROUP BY ALL is unknown to MySQL".to_owned());
    };
    let orders = match query.order_by.as_ref().map(|order| &order.kind) {
        Some(OrderByKind::Expressions(orders)) => &orders[..],
        _ => &[],
    };
    let is_distinct = match &select.distinct {
        None | Some(Distinct::All) => false,
        Some(Distinct::Distinct) => true,
        Some(Distinct::On(_)) => return Err("DISTINCT ON is unknown to MySQL".to_owned()),
    };
    let (items, more_orders) = (&select.projection[..], Vec::new());
    let hidden = Vec::new();
    let mut rewrite = Rewrite { source, clauses, items, groups, orders, hidden, more_orders };
    rewrite.check_wrapped()?;
    rewrite.check_aliases_in_groups()?;
    let shows_key = items.iter().any(|item| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => key.is(expr),
        SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..) => true,
        SelectItem::ExprWithAliases { .. } => false,
    });
    // Rows with the same sharding column are on one node, and so is each group by it.
    let is_by_key = groups.iter().any(|group| key.is(rewrite.ordinal(group).unwrap_or(group)));
    if !is_by_key {
        rewrite.check_calls(select.having.is_some())?;
    }
    let is_grouped = !groups.is_empty() || rewrite.has_aggregates();
    if is_distinct && is_grouped && !(is_by_key && shows_key) {
        return Err("DISTINCT of groups needs all groups at once".to_owned());
    }
    let is_combined = !is_by_key && (is_grouped || is_distinct && !shows_key);
    let (order, combine) = if is_combined {
        if TIMES.into_iter().any(has_word) {
            return Err("the clocks of the data nodes differ, and so would its groups".to_owned());
        }
        let (order, combine) = rewrite.combined(is_distinct)?;
        (order, Some(combine))
    } else {
        (rewrite.ordered(is_distinct)?, None)
    };
    if (!order.is_empty() || combine.is_some()) && has_word(Keyword::COLLATE) {
        return Err("the proxy does not know the order of a COLLATE".to_owned());
    }
    let limit = rewrite.limit()?;
    Ok(Merge {
        text: rewrite.text(),
        hidden: rewrite.hidden.len(),
        order: order
            .into_iter()
            .map(|(column, is_descending)| Key { column: rewrite.place(column), is_descending })
            .collect(),
        combine: combine.map(|columns| {
            let combine = |column: Folded| match column {
                Folded::Average { sum, count } => {
                    Combine::Average { sum: rewrite.place(sum), count: rewrite.place(count) }
                }
                Folded::Plain(combine) => combine,
            };
            columns.into_iter().map(combine).collect()
        }),
        limit,
        texts_by_bytes: facts.catalogue.texts_by_bytes,
    })
}

/// Rule for one column of a group, before the places of hidden columns are known.
enum Folded {
    Plain(Combine),
    Average { sum: Column, count: Column },
}

impl Rewrite<'_> {
    /// The item that a number in GROUP BY means. The number of columns of a `*` is unknown.
    fn ordinal(&self, expr: &Expr) -> Option<&Expr> {
        let at = ordinal_of(expr)?.checked_sub(1)?;
        match self.items.get(at)? {
            _ if self.is_behind_wildcard(at) => None,
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => Some(expr),
            _ => None,
        }
    }

    /// Tokens of an item, without its alias.
    fn item(&self, at: usize) -> Range<usize> {
        let Range { start, mut end } = self.clauses.items[at];
        if matches!(self.items[at], SelectItem::ExprWithAlias { .. }) {
            end -= 1;
            if self.source.keyword(end - 1) == Some(Keyword::AS) {
                end -= 1;
            }
        }
        start..end
    }

    /// Item with this alias.
    fn aliased(&self, name: &str) -> Option<usize> {
        self.items.iter().position(|item| match item {
            SelectItem::ExprWithAlias { alias, .. } => alias.value.eq_ignore_ascii_case(name),
            _ => false,
        })
    }

    /// Item whose alias is this expression.
    fn named_by(&self, expr: &Expr) -> Option<usize> {
        let Expr::Identifier(name) = expr else { return None };
        self.aliased(&name.value)
    }

    /// True if an item without an alias is a column with this name.
    fn is_called(&self, at: usize, name: &Expr) -> bool {
        let SelectItem::UnnamedExpr(item) = &self.items[at] else { return false };
        let (Expr::Identifier(name), Some(item)) = (name, column_name(item)) else { return false };
        name.value.eq_ignore_ascii_case(&item.value)
    }

    /// Item with these tokens.
    fn item_like(&self, tokens: &Range<usize>) -> Option<usize> {
        (0..self.items.len()).find(|at| self.source.is_same(&self.item(*at), tokens))
    }

    /// Item with this number, from 1.
    fn numbered(&self, number: usize) -> Option<usize> {
        number.checked_sub(1).filter(|at| *at < self.items.len())
    }

    /// Refuses an argument in tokens that the text for the nodes repeats.
    fn check_repeatable(&self, tokens: &Range<usize>) -> Result<(), Reason> {
        if self.source.marks(tokens.clone()) == 0 {
            return Ok(());
        }
        Err(format!("the argument in {} would be needed twice", self.source.text(tokens)))
    }

    fn is_wildcard(&self, at: usize) -> bool {
        matches!(self.items[at], SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..))
    }

    fn is_behind_wildcard(&self, at: usize) -> bool {
        (0..at).any(|at| self.is_wildcard(at))
    }

    fn has_wildcard(&self) -> bool {
        self.is_behind_wildcard(self.items.len())
    }

    fn has_aggregates(&self) -> bool {
        self.items.iter().any(|item| aggregate(item).is_some())
    }

    /// Refuses a number or a name in parentheses or behind a plus in GROUP BY and ORDER BY. Servers
    /// take some of them for a number of a column or for an alias.
    fn check_wrapped(&self) -> Result<(), Reason> {
        let orders = self.orders.iter().map(|order| &order.expr).zip(&self.clauses.orders);
        for (expr, tokens) in self.groups.iter().zip(&self.clauses.groups).chain(orders) {
            let inner = unwrapped(expr);
            let is_name = matches!(inner, Expr::Identifier(_)) || ordinal_of(inner).is_some();
            if is_name && !std::ptr::eq(inner, expr) {
                let text = self.source.text(tokens);
                return Err(format!("{text} means another column to some servers; write {inner}"));
            }
        }
        Ok(())
    }

    /// Refuses an alias in GROUP BY: a column of this name would win.
    fn check_aliases_in_groups(&self) -> Result<(), Reason> {
        for (group, tokens) in self.groups.iter().zip(&self.clauses.groups) {
            if let Some(at) = self.named_by(group)
                && !self.source.is_same(&self.item(at), tokens)
            {
                let name = self.source.text(tokens);
                return Err(format!("GROUP BY names the alias {name}; write its expression"));
            }
        }
        Ok(())
    }

    /// Refuses calls whose result may depend on the rows of other nodes.
    fn check_calls(&self, has_having: bool) -> Result<(), Reason> {
        if has_having {
            return Err("HAVING needs all rows of a group at once".to_owned());
        }
        let mut aggregates = 0;
        for name in self.clauses.all().flat_map(|part| self.source.calls(part.clone())) {
            if MERGED.contains(&name.as_str()) {
                aggregates += 1;
            } else if !OF_ONE_ROW.contains(&name.as_str()) {
                return Err(format!("{name}() may depend on the rows of other nodes"));
            }
        }
        if aggregates > self.items.iter().filter(|item| aggregate(item).is_some()).count() {
            return Err(format!("{} are merged as columns of their own only", MERGED.join(", ")));
        }
        Ok(())
    }

    /// Item that ORDER BY means, if it is one.
    fn item_of_order(&self, at: usize) -> Result<Option<usize>, Reason> {
        let (expr, tokens) = (&self.orders[at].expr, self.order(at));
        if let Some(number) = ordinal_of(expr) {
            let item = self.numbered(number).filter(|_| !self.has_wildcard());
            return item.map(Some).ok_or_else(|| format!("ORDER BY {number} is no known column"));
        }
        let item = match self.named_by(expr) {
            Some(item) if (0..item).any(|at| self.is_wildcard(at) || self.is_called(at, expr)) => {
                let name = self.source.text(&tokens);
                return Err(format!(
                    "ORDER BY names the alias {name}, and a column before it may be called so; write \
                     its expression"
                ));
            }
            Some(item) => Some(item),
            None => self.item_like(&tokens),
        };
        let is_between = |at: usize| {
            self.is_behind_wildcard(at) && (at..self.items.len()).any(|at| self.is_wildcard(at))
        };
        if item.is_some_and(is_between) {
            return Err("ORDER BY names a column between two `*`".to_owned());
        }
        Ok(item)
    }

    /// Tokens of an expression of ORDER BY, without its direction.
    fn order(&self, at: usize) -> Range<usize> {
        let Range { start, end } = self.clauses.orders[at];
        let has_direction =
            matches!(self.source.keyword(end - 1), Some(Keyword::ASC | Keyword::DESC));
        start..end - usize::from(has_direction)
    }

    fn is_descending(&self, at: usize) -> Result<bool, Reason> {
        let options = &self.orders[at].options;
        match (&options.sort, options.nulls_first) {
            (None | Some(OrderBySort::Asc), None) => Ok(false),
            (Some(OrderBySort::Desc), None) => Ok(true),
            _ => Err("MySQL has ASC and DESC in ORDER BY only".to_owned()),
        }
    }

    fn hide(&mut self, text: impl Into<String>) -> Column {
        self.hidden.push(text.into());
        Column::Hidden(self.hidden.len() - 1)
    }

    /// A hidden column with the value of these tokens.
    fn hide_tokens(&mut self, tokens: &Range<usize>) -> Result<Column, Reason> {
        self.check_repeatable(tokens)?;
        let text = self.source.text(tokens);
        let is_alias = |piece: &Piece| matches!(&piece.token, Token::Word(word) if self.aliased(&word.value).is_some());
        if self.source.tokens[tokens.clone()].iter().any(is_alias) {
            return Err(format!("{text} names an alias, or a column that is called like one"));
        }
        Ok(self.hide(text))
    }

    /// The order of rows that stay as they are.
    fn ordered(&mut self, is_distinct: bool) -> Result<Vec<Sorted>, Reason> {
        let mut order = Vec::new();
        for at in 0..self.orders.len() {
            let column = match self.item_of_order(at)? {
                Some(item) => Column::Item(item),
                None if is_distinct => {
                    return Err("DISTINCT has ORDER BY another column than it selects".to_owned());
                }
                None => self.hide_tokens(&self.order(at))?,
            };
            order.push((column, self.is_descending(at)?));
        }
        Ok(order)
    }

    /// The order of the groups, which is by all their keys, and how a group becomes one row.
    fn combined(&mut self, is_distinct: bool) -> Result<(Vec<Sorted>, Vec<Folded>), Reason> {
        if self.has_wildcard() {
            return Err("`*` beside groups is no key of them".to_owned());
        }
        let keys = self.keys(is_distinct)?;
        let combine = (0..self.items.len()).map(|at| self.folded(at, &keys)).collect::<Vec<_>>();
        let combine = combine.into_iter().collect::<Result<Vec<_>, _>>()?;
        let mut order: Vec<Sorted> = Vec::new();
        for at in 0..self.orders.len() {
            let item = self.item_of_order(at)?;
            if keys.is_empty() {
                // All rows are one group: there is no order.
                continue;
            }
            let column = match item {
                Some(item) => Some(Column::Item(item)),
                None => {
                    let tokens = self.order(at);
                    let same = |group| self.source.is_same(group, &tokens);
                    self.clauses.groups.iter().position(same).map(|at| keys[at])
                }
            };
            let column = column.filter(|column| keys.contains(column)).ok_or_else(|| {
                let name = self.source.text(&self.order(at));
                format!("ORDER BY {name}, which is no key of the groups, needs all groups at once")
            })?;
            order.push((column, self.is_descending(at)?));
        }
        for key in keys {
            if order.iter().any(|(column, _)| *column == key) {
                continue;
            }
            order.push((key, false));
            self.more_orders.push(match key {
                Column::Item(at) => (at + 1).to_string(),
                Column::Hidden(at) => self.hidden[at].clone(),
            });
        }
        Ok((order, combine))
    }

    /// Keys of the groups.
    fn keys(&mut self, is_distinct: bool) -> Result<Vec<Column>, Reason> {
        if is_distinct {
            return Ok((0..self.items.len()).map(Column::Item).collect());
        }
        let mut keys = Vec::new();
        for (group, tokens) in self.groups.iter().zip(self.clauses.groups.clone()) {
            let item = match ordinal_of(group) {
                Some(number) => {
                    let at = self.numbered(number);
                    let at = at.filter(|at| aggregate(&self.items[*at]).is_none());
                    Some(at.ok_or_else(|| format!("GROUP BY {number} is no known column"))?)
                }
                None => self.item_like(&tokens),
            };
            keys.push(match item {
                Some(item) => Column::Item(item),
                None => self.hide_tokens(&tokens)?,
            });
        }
        Ok(keys)
    }

    /// The rule for the values of an item.
    fn folded(&mut self, at: usize, keys: &[Column]) -> Result<Folded, Reason> {
        let tokens = self.item(at);
        let is_key = keys.contains(&Column::Item(at))
            || self.clauses.groups.iter().any(|group| self.source.is_same(group, &tokens));
        if is_key {
            return Ok(Folded::Plain(Combine::Key));
        }
        Ok(match aggregate(&self.items[at]) {
            Some(Aggregate::Sum) => Folded::Plain(Combine::Sum),
            Some(Aggregate::Least) => Folded::Plain(Combine::Least),
            Some(Aggregate::Greatest) => Folded::Plain(Combine::Greatest),
            Some(Aggregate::Average) => {
                self.check_repeatable(&tokens)?;
                // Without the name and both parentheses.
                let text = self.source.text(&(tokens.start + 2..tokens.end - 1));
                let sum = self.hide(format!("sum({text})"));
                Folded::Average { sum, count: self.hide(format!("count({text})")) }
            }
            None => {
                let (text, merged) = (self.source.text(&tokens), MERGED.join(", "));
                return Err(format!("{text} is neither a key of the groups nor {merged}"));
            }
        })
    }

    /// Place of a column in the rows of the nodes.
    fn place(&self, column: Column) -> Place {
        match column {
            Column::Hidden(at) => Place::FromEnd(self.hidden.len() - at),
            Column::Item(at) if self.is_behind_wildcard(at) => {
                Place::FromEnd(self.hidden.len() + self.items.len() - at)
            }
            Column::Item(at) => Place::FromStart(at),
        }
    }

    fn limit(&self) -> Result<Option<Limit>, Reason> {
        let tokens = self.clauses.limit.clone();
        if tokens.is_empty() {
            return Ok(None);
        }
        let mut marks = self.source.marks(0..tokens.start);
        let mut amount = |piece: &Piece| match &piece.token {
            Token::Number(number, _) => number.parse().ok().map(Amount::Number),
            Token::Placeholder(_) => {
                marks += 1;
                Some(Amount::Argument(marks - 1))
            }
            _ => None,
        };
        let is_offset = self.source.keyword(tokens.start + 2) == Some(Keyword::OFFSET);
        let limit = match &self.source.tokens[tokens.start + 1..tokens.end] {
            [rows] => amount(rows).map(|rows| (Amount::Number(0), rows)),
            [rows, _, skip] if is_offset => {
                let rows = amount(rows);
                amount(skip).zip(rows)
            }
            [skip, Piece { token: Token::Comma, .. }, rows] => {
                let skip = amount(skip);
                skip.zip(amount(rows))
            }
            _ => None,
        };
        let (skip, rows) = limit.ok_or("its LIMIT is no number and no argument")?;
        Ok(Some(Limit { rows, skip }))
    }

    /// The text for the nodes, without LIMIT.
    fn text(&self) -> String {
        let (source, limit) = (self.source, self.clauses.limit.start);
        let items = self.clauses.items.last().map_or(0, |item| source.end(item.end));
        let mut text = source.text[..items].to_owned();
        for (at, hidden) in self.hidden.iter().enumerate() {
            text.push_str(&format!(", {hidden} as _hidden_{}", at + 1));
        }
        if !self.hidden.is_empty() && !source.text[items..].starts_with(char::is_whitespace) {
            text.push(' ');
        }
        text.push_str(&source.text[items..source.end(limit)]);
        for (at, order) in self.more_orders.iter().enumerate() {
            let is_first = at == 0 && self.orders.is_empty();
            text.push_str(if is_first { " order by " } else { ", " });
            text.push_str(order);
        }
        text
    }
}

/// An aggregate that can be merged.
enum Aggregate {
    Sum,
    Least,
    Greatest,
    Average,
}

/// The aggregate that an item is.
fn aggregate(item: &SelectItem) -> Option<Aggregate> {
    let (SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }) = item else {
        return None;
    };
    let Expr::Function(function) = expr else { return None };
    let Function {
        name, args: FunctionArguments::List(arguments), over: None, filter: None, ..
    } = function
    else {
        return None;
    };
    let name = path(name)?;
    let ([name], [_]) = (&name[..], &arguments.args[..]) else { return None };
    let is_plain = arguments.duplicate_treatment.is_none() && arguments.clauses.is_empty();
    let is_distinct = arguments.duplicate_treatment == Some(DuplicateTreatment::Distinct);
    match name.as_str() {
        "count" | "sum" if is_plain => Some(Aggregate::Sum),
        "avg" if is_plain => Some(Aggregate::Average),
        "min" if is_plain || is_distinct => Some(Aggregate::Least),
        "max" if is_plain || is_distinct => Some(Aggregate::Greatest),
        _ => None,
    }
}

/// The expression without parentheses and plus signs around it.
fn unwrapped(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => {
            unwrapped(inner)
        }
        other => other,
    }
}

/// The name of a column, without its table.
fn column_name(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        Expr::Nested(inner) => column_name(inner),
        _ => None,
    }
}

/// The number of a column, if the expression is a plain number.
fn ordinal_of(expr: &Expr) -> Option<usize> {
    let Expr::Value(value) = expr else { return None };
    let Value::Number(number, _) = &value.value else { return None };
    number.parse().ok()
}

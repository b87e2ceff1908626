//! How a select is asked of several nodes.

use super::super::read::read;
use super::super::{Merge, Statement};
use super::catalogue;

/// How it is asked, or the reason why it is not.
fn merged(text: &str) -> Result<Merge, String> {
    match read(text.as_bytes(), &catalogue()) {
        Ok(Statement::Rows(rows)) => rows.merge.map(|merge| Merge::clone(&merge)),
        other => panic!("{text}: {other:?}"),
    }
}

/// The text for the nodes without LIMIT, and what becomes of their rows.
fn described(text: &str) -> String {
    use super::super::{Combine, Place};
    let place = |place: Place| match place {
        Place::FromStart(at) => format!("{at}"),
        Place::FromEnd(at) => format!("-{at}"),
    };
    let merge = match merged(text) {
        Ok(merge) => merge,
        Err(reason) => return format!("refused: {reason}"),
    };
    let mut text = merge.text;
    if !merge.order.is_empty() {
        text.push_str(" | by");
        for key in merge.order {
            text.push_str(&format!(" {}", place(key.column)));
            text.push_str(if key.is_descending { " desc" } else { "" });
        }
    }
    if let Some(combine) = merge.combine {
        text.push_str(" | fold");
        for combine in combine {
            text.push_str(&match combine {
                Combine::Key => " key".to_owned(),
                Combine::Sum => " sum".to_owned(),
                Combine::Least => " least".to_owned(),
                Combine::Greatest => " greatest".to_owned(),
                Combine::Average { sum, count } => format!(" {}/{}", place(sum), place(count)),
            });
        }
    }
    text
}

fn check(cases: &[(&str, &str)]) {
    for (text, expected) in cases {
        assert_eq!(described(text), *expected, "{text}");
    }
}

#[test]
fn rows_are_asked_for_as_the_client_does() {
    check(&[
        ("select * from sbtest1", "select * from sbtest1"),
        ("select * from sbtest1;", "select * from sbtest1"),
        (
            "/* one */ select c -- two\n from sbtest1 # three",
            "/* one */ select c -- two\n from sbtest1",
        ),
        (
            "select k + 1, upper(c) from sbtest1 where k > 3",
            "select k + 1, upper(c) from sbtest1 where k > 3",
        ),
        // All rows of such a group are on one node.
        (
            "select id, group_concat(c) from sbtest1 group by id having count(*) > 1",
            "select id, group_concat(c) from sbtest1 group by id having count(*) > 1",
        ),
        ("select distinct id, k from sbtest1", "select distinct id, k from sbtest1"),
        ("select distinct * from sbtest1", "select distinct * from sbtest1"),
    ]);
}

#[test]
fn an_order_that_is_not_selected_becomes_a_hidden_column() {
    check(&[
        ("select k from sbtest1 order by k", "select k from sbtest1 order by k | by 0"),
        (
            "select k, c from sbtest1 order by 2 desc",
            "select k, c from sbtest1 order by 2 desc | by 1 desc",
        ),
        ("select k x from sbtest1 order by X asc", "select k x from sbtest1 order by X asc | by 0"),
        ("select K from sbtest1 order by k", "select K from sbtest1 order by k | by 0"),
        (
            "select c from sbtest1 order by k desc, id",
            "select c, k as _hidden_1, id as _hidden_2 from sbtest1 order by k desc, id | by -2 desc -1",
        ),
        (
            "select * from sbtest1 order by k + (1, 2), c",
            "select *, k + (1, 2) as _hidden_1, c as _hidden_2 from sbtest1 order by k + (1, 2), c | by -2 -1",
        ),
        (
            "select *, k * 2 as d from sbtest1 order by k * 2, c",
            "select *, k * 2 as d, c as _hidden_1 from sbtest1 order by k * 2, c | by -2 -1",
        ),
        (
            "select *from sbtest1 order by k",
            "select *, k as _hidden_1 from sbtest1 order by k | by -1",
        ),
        (
            "select distinctrow k from sbtest1 order by k",
            "select distinctrow k from sbtest1 order by k | by 0 | fold key",
        ),
        // The text of the client stays as it is, with its escapes.
        (
            r"select 'ä\'', c /* c */ from sbtest1 /* t */ order by concat(c, 'ö\'') limit 3",
            r"select 'ä\'', c, concat(c, 'ö\'') as _hidden_1 /* c */ from sbtest1 /* t */ order by concat(c, 'ö\'') | by -1",
        ),
    ]);
}

#[test]
fn groups_are_asked_for_in_the_order_of_their_keys() {
    check(&[
        ("select count(*) from sbtest1", "select count(*) from sbtest1 | fold sum"),
        (
            "select COUNT(k), min(id), max(distinct id), sum(k) from sbtest1",
            "select COUNT(k), min(id), max(distinct id), sum(k) from sbtest1 | fold sum least greatest sum",
        ),
        (
            "select avg(k) as a from sbtest1 where k > ?",
            "select avg(k) as a, sum(k) as _hidden_1, count(k) as _hidden_2 from sbtest1 where k > ? | fold -2/-1",
        ),
        (
            "select k, count(*) from sbtest1 group by k",
            "select k, count(*) from sbtest1 group by k order by 1 | by 0 | fold key sum",
        ),
        (
            "select count(*) from sbtest1 group by k, c limit 3",
            "select count(*), k as _hidden_1, c as _hidden_2 from sbtest1 group by k, c order by k, c | by -2 -1 | fold sum",
        ),
        (
            "select c x, k, count(*) from sbtest1 group by 2, c order by x desc",
            "select c x, k, count(*) from sbtest1 group by 2, c order by x desc, 2 | by 0 desc 1 | fold key key sum",
        ),
        (
            "select avg(k), c from sbtest1 group by c order by c",
            "select avg(k), c, sum(k) as _hidden_1, count(k) as _hidden_2 from sbtest1 group by c order by c | by 1 | fold -2/-1 key",
        ),
        (
            "select distinct c, k from sbtest1 order by k desc",
            "select distinct c, k from sbtest1 order by k desc, 1 | by 1 desc 0 | fold key key",
        ),
        (
            "select count(*) from sbtest1 order by 1",
            "select count(*) from sbtest1 order by 1 | fold sum",
        ),
    ]);
}

#[test]
fn what_cannot_be_merged_is_refused_with_the_reason() {
    let cases = [
        ("select group_concat(c) from sbtest1", "group_concat() may depend on"),
        ("select count(distinct k) from sbtest1", "are merged as columns of their own only"),
        ("select avg(distinct k) from sbtest1", "are merged as columns of their own only"),
        ("select sum(k) / count(k) from sbtest1", "are merged as columns of their own only"),
        ("select c from sbtest1 order by max(k)", "are merged as columns of their own only"),
        ("select k, count(*) from sbtest1", "k is neither a key of the groups nor"),
        ("select c, count(*) from sbtest1 group by k", "c is neither a key of the groups nor"),
        ("select k, count(*) from sbtest1 group by k having k > 3", "HAVING needs all rows"),
        ("select k, count(*) n from sbtest1 group by k order by n", "ORDER BY n, which is no key"),
        ("select k, c x from sbtest1 group by k, x", "GROUP BY names the alias x"),
        ("select c as id, count(*) from sbtest1 group by id", "GROUP BY names the alias id"),
        ("select count(*) from sbtest1 group by 1", "GROUP BY 1 is no known column"),
        ("select k from sbtest1 group by k with rollup", "does not know one of its clauses"),
        ("select *, count(*) from sbtest1 group by k", "`*` beside groups"),
        ("select distinct k from sbtest1 order by c", "ORDER BY c, which is no key"),
        ("select distinct count(*) from sbtest1 group by k", "DISTINCT of groups"),
        ("select distinct count(*) from sbtest1 group by id", "DISTINCT of groups"),
        ("select row_number() over (order by k) from sbtest1", "a window function"),
        ("select k from sbtest1 order by (1)", "(1) means another column"),
        ("select k from sbtest1 order by +1 desc", "+1 desc means another column"),
        ("select (k), -c as k from sbtest1 order by (k)", "(k) means another column"),
        ("select *, id from sbtest1 group by 2", "`*` beside groups"),
        ("select *, -k as c from sbtest1 order by c", "names the alias c"),
        ("select t.C, -k as c from sbtest1 t order by c desc", "names the alias c"),
        ("select max(c collate nocase) from sbtest1", "COLLATE"),
        ("select distinct current_timestamp, k from sbtest1", "the clocks of the data nodes"),
        ("select count(*) from sbtest1 group by unix_timestamp()", "unix_timestamp() may depend"),
        ("select c as x from sbtest1 order by x + 1", "names an alias"),
        ("select k from sbtest1 order by 2", "ORDER BY 2 is no known column"),
        ("select * from sbtest1 order by 1", "ORDER BY 1 is no known column"),
        ("select c from sbtest1 order by field(k, ?)", "would be needed twice"),
        ("select avg(k + ?) from sbtest1", "would be needed twice"),
        ("select c from sbtest1 order by c collate nocase", "COLLATE"),
        ("select c from sbtest1 order by rand()", "rand() may depend on"),
        ("select c from sbtest1 order by k nulls last", "ASC and DESC"),
        ("select c from sbtest1 limit 1 + 1", "its LIMIT is no number"),
        ("select c from sbtest1 for update", "a lock is on one data node only"),
        ("select c from sbtest1 force index for order by (k) where k > 1", "one of its clauses"),
        ("select sql_calc_found_rows c from sbtest1", "one of its clauses"),
    ];
    for (text, expected) in cases {
        let reason = merged(text).expect_err(text);
        assert!(reason.contains(expected), "{text}: {reason}");
    }
}

#[test]
fn nodes_send_the_rows_before_the_range_too() {
    use epoll_group::codec::proto::value::{Any, Scalar};
    let number = |number: i64| Any::from(Scalar::signed(number));
    // Text of LIMIT, arguments, skipped rows, wanted rows, text and arguments for the nodes.
    type Case = (&'static str, &'static [i64], (u64, u64), &'static str, &'static [i64]);
    let cases: [Case; 8] = [
        ("limit 5", &[7], (0, 5), " limit 5", &[7]),
        ("limit 3, 5", &[7], (3, 5), " limit 8", &[7]),
        ("limit 5 offset 3", &[7], (3, 5), " limit 8", &[7]),
        ("limit ?", &[7, 5], (0, 5), " limit ?", &[7, 5]),
        ("limit ?, ?", &[7, 3, 5], (3, 5), " limit ?", &[7, 8]),
        ("limit ? offset ?", &[7, 5, 3], (3, 5), " limit ?", &[7, 8]),
        ("limit 5 offset ?", &[7, 3], (3, 5), " limit ?", &[7, 8]),
        ("limit 3, 18446744073709551615", &[7], (3, u64::MAX), " limit 9223372036854775807", &[7]),
    ];
    for (limit, arguments, (skip, rows), text, expected) in cases {
        let merge = merged(&format!("select c from sbtest1 where k > ? {limit}")).expect(limit);
        let mut arguments: Vec<_> = arguments.iter().copied().map(number).collect();
        let range = merge.range(&arguments[..]).expect(limit);
        assert_eq!((range.skip, range.rows), (skip, rows), "{limit}");
        let expected_text = format!("select c from sbtest1 where k > ?{text}");
        assert_eq!(merge.text_for_nodes(range), expected_text, "{limit}");
        merge.limit_arguments(range, &mut arguments);
        let numbers: Vec<_> = arguments
            .iter()
            .map(|argument| {
                let scalar = argument.scalar.as_ref().expect("a scalar");
                scalar
                    .v_signed_int
                    .or_else(|| scalar.v_unsigned_int.map(u64::cast_signed))
                    .expect("a number")
            })
            .collect();
        assert_eq!(numbers, expected, "{limit}");
    }
    let merge = merged("select c from sbtest1 limit ?").expect("it can be merged");
    for wrong in [vec![], vec![number(-1)], vec![Any::from(Scalar::null())]] {
        assert_eq!(merge.range(&wrong[..]).expect_err("no number").code, 1210);
    }
}

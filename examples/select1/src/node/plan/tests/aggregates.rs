//! Aggregates against sums of one's own.

use std::collections::BTreeSet;

use epoll_group::codec::proto::plan::AggrType;
use epoll_group::codec::proto::plan::Expr;
use proptest::prelude::*;

use super::*;

const ALL: [AggrType; 8] = [
    AggrType::CountFunc,
    AggrType::CountDistinctFunc,
    AggrType::SumFunc,
    AggrType::SumDistinctFunc,
    AggrType::AvgFunc,
    AggrType::AvgDistinctFunc,
    AggrType::MinFunc,
    AggrType::MaxFunc,
];

fn all_of(db: &Arc<Pool>, plan: &AnyPlan, column: u32) -> Vec<String> {
    let one = |function| {
        let plan = plan.clone().aggregate(function, text("r"), Expr::reference(column));
        rows(db, plan).join(" ")
    };
    ALL.map(one).to_vec()
}

#[test]
fn an_aggregate_is_one_row_of_the_type_that_mysql_gives_it() {
    let db = database(
        "create table t (i int, u bigint unsigned, d double, m decimal(10,2), s varchar(9), z date);
         insert into t values (1, 1, 0.5, '1.50', 'b', '2024-01-02'),
            (3, 1, 0.5, 1.5, 'a', '2024-01-01'), (null, null, null, null, null, null),
            (3, 2, -1, -0.25, 'a', '2023-01-01')",
    );
    let all = |column| all_of(&db, &scan("t"), column).join(" ");
    assert_eq!(all(0), "3 2 7m 4m 2.3333m 2.0000m 1 3");
    assert_eq!(all(1), "3 2 4m 3m 1.3333m 1.5000m 1u 2u");
    assert_eq!(all(2), "3 2 0.0 -0.5 0.0 -0.25 -1.0 0.5");
    assert_eq!(all(3), "3 2 2.75m 1.25m 0.916667m 0.625000m -0.25m 1.50m");
    assert_eq!(all(4), "3 2 0.0 0.0 0.0 0.0 'a' 'b'");
    let none = scan("t").filter(Expr::literal(Scalar::bool(false)));
    assert_eq!(all_of(&db, &none, 0).join(" "), "0 0 NULL NULL NULL NULL NULL NULL");
    let least = scan("t").aggregate(AggrType::MinFunc, text("r"), Expr::reference(5));
    assert_eq!(rows(&db, least), ["2023-01-01"]);
    let sum = scan("t").aggregate(AggrType::SumFunc, text("r"), Expr::reference(5));
    assert_eq!(refusal(&db, sum, Vec::new()), "AGGR: the sum of points in time");
    let count = scan("t").aggregate(AggrType::CountFunc, text("n"), Expr::reference(0));
    let above =
        count.filter(Expr::operator(">", [Expr::reference(0), Expr::literal(Scalar::signed(2))]));
    let again = above.table_project([text("N")]).aggregate(
        AggrType::MaxFunc,
        text("m"),
        Expr::reference(0),
    );
    let result = run(&db, again, Vec::new()).expect("a row");
    assert_eq!(
        (result.columns, result.rows),
        (vec!["m Sint".to_owned()], vec![vec!["3".to_owned()]])
    );
}

#[test]
fn different_values_are_kept_up_to_64_mib() {
    let db = database(
        "create table t (s longtext);
         with n (x) as (values (1), (2), (3), (4)) insert into t select printf('%020000000d', x) from n",
    );
    let count =
        |plan: AnyPlan| plan.aggregate(AggrType::CountDistinctFunc, text("n"), Expr::reference(0));
    let text = refusal(&db, count(scan("t")), Vec::new());
    assert_eq!(text, "AGGR: more than 67108864 bytes of different values");
    connection(&db).execute("update t set s = replace(s, '4', '3')", []).expect("rows");
    assert_eq!(rows(&db, count(scan("t"))), ["3"]);
}

/// Results of all functions over values in hundredths.
fn naive(values: &[Option<i64>]) -> Vec<String> {
    let mut all: Vec<i128> = values.iter().flatten().map(|value| i128::from(*value)).collect();
    let different: BTreeSet<i128> = all.iter().copied().collect();
    let number = |value: i128, scale: u32| {
        let sign = if value < 0 { "-" } else { "" };
        let unit = 10_u128.pow(scale);
        let (whole, fraction) = (value.unsigned_abs() / unit, value.unsigned_abs() % unit);
        format!("{sign}{whole}.{fraction:0width$}m", width = scale as usize)
    };
    let mean = |sum: i128, count: usize| {
        if count == 0 {
            return "NULL".to_owned();
        }
        // In millionths, a half away from zero.
        let (sum, count) = (sum * 10_000, count as i128);
        let rounded = (2 * sum.abs() + count) / (2 * count);
        number(rounded * sum.signum(), 6)
    };
    let sum = |values: &mut dyn Iterator<Item = i128>| -> Option<i128> {
        values.fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
    };
    let shown = |value: Option<i128>| value.map_or_else(|| "NULL".to_owned(), |v| number(v, 2));
    all.sort_unstable();
    let (total, total_different) =
        (sum(&mut all.iter().copied()), sum(&mut different.iter().copied()));
    vec![
        all.len().to_string(),
        different.len().to_string(),
        shown(total),
        shown(total_different),
        mean(total.unwrap_or(0), all.len()),
        mean(total_different.unwrap_or(0), different.len()),
        shown(all.first().copied()),
        shown(all.last().copied()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn aggregates_are_what_one_adds_up_oneself(
        values in proptest::collection::vec(
            proptest::option::weighted(0.8, prop_oneof![-300_i64..300, -1_i64 << 53..1 << 53]),
            0..12,
        ),
    ) {
        let db = database("create table t (m decimal(20,2))");
        for value in &values {
            // Text, because SQLite makes a number of it, which is exact up to 15 digits.
            let text = value.map(|value| {
                let short = value % 10_000_000;
                format!("{}{}.{:02}", if short < 0 { "-" } else { "" }, short.abs() / 100, short.abs() % 100)
            });
            connection(&db).execute("insert into t values (?1)", [text]).expect("a row");
        }
        let short: Vec<_> = values.iter().map(|value| value.map(|value| value % 10_000_000)).collect();
        prop_assert_eq!(all_of(&db, &scan("t"), 0), naive(&short));
    }
}

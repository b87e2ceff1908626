//! Ranges and gets by random keys, NULL among them, against a sorted list.

use proptest::prelude::*;

use super::*;

/// A part of a key. `None` is NULL, which comes first in the index and in the list.
type Part = Option<i64>;

fn part() -> impl Strategy<Value = Part> {
    proptest::option::weighted(0.8, 0_i64..4)
}

fn bound(parts: &[Part]) -> GetExpr {
    let value = |part: &Part| part.map_or_else(Scalar::null, Scalar::signed);
    GetExpr::new(["a", "b", "c"].into_iter().map(text).zip(parts.iter().map(value)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ranges_and_gets_find_what_a_sorted_list_has(
        data in proptest::collection::vec([part(), part(), part()], 0..30),
        first in proptest::collection::vec(part(), 0..4),
        last in proptest::collection::vec(part(), 0..4),
    ) {
        let db = database("create table t (a int, b int, c int); create index k on t (a, b, c)");
        for row in &data {
            connection(&db).execute("insert into t values (?1, ?2, ?3)", *row).expect("a row");
        }
        let mut sorted = data;
        sorted.sort_unstable();
        let listed = |keep: &dyn Fn(&[Part; 3]) -> bool| -> Vec<String> {
            let show = |part: &Part| part.map_or_else(|| "NULL".to_owned(), |p| p.to_string());
            let kept = sorted.iter().filter(|row| keep(row));
            kept.map(|row| row.iter().map(show).collect::<Vec<_>>().join(",")).collect()
        };
        let range = AnyPlan::range_scan(table("t"), index("k"), bound(&first), bound(&last));
        let between =
            |row: &[Part; 3]| row[..first.len()] >= first[..] && row[..last.len()] <= last[..];
        prop_assert_eq!(rows(&db, range), listed(&between));
        if !first.is_empty() {
            let get = AnyPlan::get(table("t"), index("k"), [bound(&first)]);
            prop_assert_eq!(rows(&db, get), listed(&|row| row[..first.len()] == first[..]));
        }
    }
}

//! Statements and their parsed forms.

use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Statement {
    Statement::parse(text, "test").unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn query(text: &str) -> Query {
    match read(text) {
        Statement::Query(query) => query,
        other => panic!("{text} is {other:?}"),
    }
}

#[test]
fn what_sqlite_knows_stays_as_it_is() {
    for text in [
        "select 1",
        "select a, `b` from t where c = 'x' and d <> ? order by e desc limit 3, 4",
        "insert into t (a) values (1), (?)",
        "update t set a = a - 1 where b between 1 and 2",
        "select /*+ hint */ a -- comment\n from t",
        "select seq_1_to_3 from t",
    ] {
        assert_eq!(query(text).sql, text);
    }
}

#[test]
fn the_rest_is_written_anew() {
    let cases = [
        ("select \"a'b\"", "select 'a''b'"),
        ("select a from test.t", "select a from  t"),
        ("select 0x1f, x'00'", "select x'1f', x'00'"),
        ("select 1-b'101', B'0'", "select 1-0x5, 0x0"),
        ("insert ignore t values (1)", "insert or ignore into t values (1)"),
        ("select 1--1", "select 1- -1"),
        ("truncate table t", "delete from t"),
        ("explain select 1", "explain query plan select 1"),
        ("select 1 # x\n;", "select 1"),
    ];
    for (text, sql) in cases {
        assert_eq!(query(text).sql, sql, "{text}");
    }
}

#[test]
fn effects_are_told_from_the_words() {
    for (text, effect) in [
        ("select 1", Effect::Read),
        ("select 1 for update", Effect::Lock),
        ("select 'for update'", Effect::Read),
        ("WITH x AS (SELECT 1) SELECT * FROM x", Effect::Read),
        ("with x as (select 1) delete from t", Effect::Write),
        ("replace into t values (1)", Effect::Write),
        ("insert into t select * from u for update", Effect::Write),
        ("create table t as select 1 lock in share mode", Effect::Define),
        ("create index i on t (a)", Effect::Define),
        ("create table t (a int)", Effect::Define),
    ] {
        assert_eq!(query(text).effect, effect, "{text}");
    }
}

#[test]
fn sleep_alone_is_told_from_sleep_in_a_query() {
    for text in [
        "select sleep(5)",
        "SELECT  Sleep ( 5 )",
        "select/**/sleep(5.0) as a;",
        "select sleep(?) b",
    ] {
        assert!(matches!(read(text), Statement::Sleep { .. }), "{text}");
    }
    for text in ["select sleep(5), 1", "select sleep(5) from t", "select sleep(a)", "select sleep"]
    {
        assert!(matches!(read(text), Statement::Query(_)), "{text}");
    }
}

#[test]
fn a_mark_in_the_list_is_the_column_of_its_number() {
    let arguments = |text: &str| -> Vec<Option<usize>> {
        query(text).items.iter().map(|item| item.argument).collect()
    };
    assert_eq!(arguments("select ?"), [Some(0)]);
    assert_eq!(arguments("select a, ? as b, ? + ?, ? c from t"), [None, Some(0), None, Some(3)]);
    assert_eq!(arguments("select (select ?), ?"), [None, Some(1)]);
    assert_eq!(arguments("select *, ? from t"), [] as [Option<usize>; 0]);
    assert_eq!(arguments("select ?, (select 1 union select 2)"), [Some(0), None]);
    // Rows of other select lists have other values.
    for operator in ["union all", "union", "intersect", "except"] {
        let text = format!("select ?, \"a\", 1 from t {operator} select ?, ?, null");
        let labels = query(&text).items;
        let of = |label: Option<&str>| Item { label: label.map(str::to_owned), ..Item::default() };
        assert_eq!(labels, [of(None), of(Some("a")), of(None)], "{text}");
        assert_eq!(arguments(&format!("select ? {operator} select ?")), [None]);
    }
    assert_eq!(query("select a from t where b = ? and c = '?'").marks, 1);
}

#[test]
fn tables_are_defined_as_sqlite_wants_them() {
    let sysbench = "CREATE TABLE sbtest2(
          id INTEGER NOT NULL AUTO_INCREMENT,
          k INTEGER DEFAULT '0' NOT NULL,
          c CHAR(120) DEFAULT '' NOT NULL,
          pad CHAR(60) DEFAULT '' NOT NULL,
          PRIMARY KEY (id)
        ) /*! ENGINE = innodb */";
    let defined = query(sysbench);
    assert!(defined.sql.contains("\"id\" integer primary key autoincrement"), "{}", defined.sql);
    let keys =
        query("create table if not exists `t`(a int, b int, key k (a, b desc), unique u (b))");
    assert_eq!(
        keys.then,
        [r#"create index "k" on "t" ("a", "b" desc)"#, r#"create unique index "u" on "t" ("b")"#]
    );
    assert_eq!(keys.conditional, Some(("t".to_owned(), Expected::Missing)));
}

/// The process ends if one of the trees is dropped by a recursion without a limit.
#[test]
fn a_chain_of_operators_has_a_limit() {
    let statements = |count: usize| {
        let chain = |first: &str, more: &str| first.to_owned() + &more.repeat(count);
        let sum = chain("1", "+1");
        let calls = chain("f(1, 1)", "+f(1, 1)");
        let [inner, outer] = [count / 2, count / 2].map(|count| "+1".repeat(count));
        let nested = format!("(1{inner}){outer}");
        [
            format!("create table t (a int default ({sum}))"),
            format!("create table t (a int default ({calls}))"),
            format!("create table t (a int default ({nested}))"),
            format!("create table t (a int, check ({}))", chain("a", " is null")),
            format!("create table t (a int, check (a{}", " is null".repeat(count)),
            format!("create table t (a int, check ({}))", chain("1", " div 1")),
            format!("create table t (a int) as {}", chain("select 1, 1", " union select 1, 1")),
            format!("alter table t add c bit(9) default ({sum})"),
        ]
    };
    for text in statements(20_000) {
        // Expressions in parentheses are for SQLite, which has a limit of its own.
        let code = Statement::parse(&text, "test").map_or_else(|error| error.code, |_| 0);
        assert!([0, 1064, 1067, 1235].contains(&code), "{}: {code}", &text[..60]);
    }
    for text in [
        format!("create table t (a int default 1{})", "+1".repeat(20_000)),
        format!("create table t (a int) as select 1{}", " union select 1, 1".repeat(20_000)),
        format!("alter table t add c bit(9) default 1{}", "+1".repeat(20_000)),
    ] {
        let error = Statement::parse(&text, "test").expect_err(&text[..60]);
        assert_eq!(error.code, 1235, "{}: {error}", &text[..60]);
    }
    let within = format!("create table t (a int default 1{})", "+1".repeat(120));
    assert_eq!(query(&within).effect, Effect::Define);
    let unions = vec!["select 1, 1"; 400].join(" union ");
    assert_eq!(query(&format!("create table t as {unions}")).effect, Effect::Define);
    let columns = vec!["`c` int default (1+1)"; 10_000].join(", ");
    let _ = query(&format!("create table t ({columns})"));
    let values = vec!["'x'"; 10_000].join(", ");
    let _ = query(&format!("create table t (a int, check (a in ({values})))"));
}

#[test]
fn operators_without_spaces_are_levels_of_their_own() {
    let view = |count| ("v".to_owned(), format!("create view v as select {}1", "~".repeat(count)));
    assert_eq!(check_views(&[view(900)]), Ok(()));
    assert_eq!(check_views(&[view(1000)]).expect_err("too deep").code, 1235);
}

#[test]
fn sequences_that_overflow_are_left_to_no_query() {
    for (text, code) in [
        ("select count(*) from seq_9223372036854775806_to_9223372036854775807", 1235),
        ("select 1 from t, seq_1_to_9223372036854775800_step_8", 1235),
        ("select * from generate_series(1, 9223372036854775807)", 1146),
        ("select 1 in `Generate_Series`", 1146),
    ] {
        assert_eq!(Statement::parse(text, "test").expect_err(text).code, code, "{text}");
    }
    query("select count(*) from seq_1_to_9223372036854775806");
}

#[test]
fn patterns_match_as_like_does() {
    for (pattern, text, expected) in [
        ("%perf_hist%", "polarx_rpc_enable_perf_hist", true),
        ("A%", "abc", true),
        ("a_c", "abc", true),
        ("a\\_c", "abc", false),
        ("a\\_c", "a_c", true),
        ("%b%b%", "abcb", true),
        ("%b%b", "abc", false),
        ("", "", true),
        ("", "a", false),
        ("%", "", true),
    ] {
        let found = like(pattern, Some('\\'), text, || true);
        assert_eq!(found, Some(expected), "{pattern} {text}");
    }
    for (pattern, text, expected) in
        [("aX%", "a%", true), ("aX%", "ab", false), ("aXB", "ab", true), ("aX", "ax", true)]
    {
        assert_eq!(like(pattern, Some('X'), text, || true), Some(expected), "{pattern} {text}");
    }
}

#[test]
fn a_search_for_a_pattern_stops() {
    let (pattern, text) = (format!("%{}b", "a".repeat(1000)), "a".repeat(100_000));
    let mut asked = 0;
    let stopped = like(&pattern, None, &text, || {
        asked += 1;
        asked < 3
    });
    assert_eq!((stopped, asked), (None, 3));
}

proptest! {
    #[test]
    fn nothing_that_is_sent_panics(text: String) {
        let _ = Statement::parse(&text, "test");
    }

    #[test]
    fn nothing_that_looks_like_sql_panics(
        words in prop::collection::vec(
            prop::sample::select(vec![
                "select", "set", "show", "create", "table", "from", "test", ".", ",", "(", ")", "?",
                "'a'", "@a", "@@b", "=", "1", "global", "variables", "like", "transaction", "insert",
                "values", "update", "as", "*", "-", "||", "seq_1_to_2", "begin", "xa", "sleep",
                "alter", "add", "index", "drop", "call", "xrpc", "names", "with", "for", "into",
            ]),
            0..14,
        )
    ) {
        let _ = Statement::parse(&words.join(" "), "test");
    }
}

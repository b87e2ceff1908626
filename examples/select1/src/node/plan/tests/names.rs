//! Names: where they come from, and that they never become more than names.

use epoll_group::codec::proto::plan::Expr;

use super::*;

#[test]
fn names_come_from_parameters_however_they_are_tagged() {
    let db = database("create table t_1 (id bigint primary key); insert into t_1 values (7)");
    let get = |table: Scalar| {
        let table = TableInfo::new(table, Some(Scalar::placeholder(1)));
        let part = (Scalar::placeholder(2), Scalar::placeholder(3));
        let get = AnyPlan::get(table, index("PRIMARY"), [GetExpr::new([part])]);
        get.table_project([Scalar::placeholder(2)])
    };
    let parameters = |table: Scalar| vec![table, text("D"), text("Id"), Scalar::signed(7)];
    for name in [
        Scalar::plan_identifier("T_1"),
        Scalar::identifier("t_1"),
        Scalar::string("t_1", None),
        Scalar::raw_string("t_1"),
    ] {
        let rows = run(&db, get(Scalar::placeholder(0)), parameters(name.clone())).expect("a row");
        assert_eq!(rows.rows, [["7"]]);
        let rows = run(&db, get(name), parameters(Scalar::null())).expect("a row");
        assert_eq!(rows.rows, [["7"]]);
    }
}

#[test]
fn placeholders_without_a_parameter_are_refused() {
    let db = database("create table t (id bigint primary key)");
    let table_of = |at| TableInfo::new(Scalar::placeholder(at), None);
    let part = |field, value| GetExpr::new([(field, value)]);
    let id = || text("id");
    let get = |key| AnyPlan::get(table("t"), None, [key]);
    let beyond = u32::MAX;
    let index = IndexInfo { name: Scalar::placeholder(beyond), use_parts: None };
    let plans = [
        AnyPlan::table_scan(table_of(beyond), None),
        AnyPlan::table_scan(TableInfo::new(text("t"), Some(Scalar::placeholder(beyond))), None),
        AnyPlan::table_scan(table("t"), Some(index)),
        get(part(Scalar::placeholder(beyond), Scalar::signed(1))),
        get(part(id(), Scalar::placeholder(beyond))),
        AnyPlan::range_scan(table("t"), None, key(&[]), part(id(), Scalar::placeholder(beyond))),
        scan("t").table_project([Scalar::placeholder(beyond)]),
        scan("t").filter(Expr::placeholder(beyond)),
        scan("t").filter(Expr::literal(Scalar::placeholder(beyond))),
        scan("t").project([(Scalar::placeholder(beyond), Expr::reference(0))]),
    ];
    for plan in plans {
        for count in [0, 1, 4] {
            let text = refusal(&db, plan.clone(), vec![Scalar::signed(1); count]);
            let expected = format!("placeholder {beyond} exceeds {count} parameters, from 0");
            assert_eq!(text, expected);
        }
    }
    let nested = scan("t").filter(Expr::placeholder(0));
    assert_eq!(refusal(&db, nested, vec![Scalar::placeholder(0)]), "V_PLACEHOLDER is no value");
}

#[test]
fn a_name_is_never_more_than_a_name() {
    let odd =
        ["a\"b", "a'b", "a`b", "a]b", "a b", "a;b", "select", "a--b", "?1", "ö", "\u{1f600}", ""];
    for name in odd {
        let quoted = format!("\"{}\"", name.replace('"', "\"\""));
        let db = database(&format!(
            "create table {quoted} ({quoted} int primary key, x int);
             create index \"i{0}\" on {quoted} (x);
             insert into {quoted} values (1, 2)",
            name.replace('"', "\"\"")
        ));
        let get = |table: TableInfo| {
            let part = (text(name), Scalar::signed(1));
            AnyPlan::get(table, None, [GetExpr::new([part])]).table_project([text(name)])
        };
        assert_eq!(rows(&db, get(table(name))), ["1"], "{name:?}");
        let by = AnyPlan::table_scan(table(name), index(&format!("i{name}")));
        assert_eq!(rows(&db, by), ["1,2"], "{name:?}");
    }
}

#[test]
fn what_is_no_name_of_a_table_gets_nothing() {
    let db = database(
        "create table t (id integer primary key autoincrement, secret text);
         insert into t values (1, 'secret'); create view v as select * from t;
         create temp table hidden (id int)",
    );
    let attempts = [
        "t; drop table t",
        "t\" union select secret from t --",
        "main.t",
        "t'",
        "t as u",
        "(select 1)",
        "sqlite_master",
        "sqlite_schema",
        "sqlite_sequence",
        "pragma_table_info",
        "v",
        "hidden",
        "user",
        "%",
        "_",
        "",
    ];
    for name in attempts {
        assert_eq!(refusal(&db, scan(name), Vec::new()), format!("no table '{name}'"));
        let by = AnyPlan::table_scan(table("t"), index(name));
        assert!(refusal(&db, by, Vec::new()).starts_with("no index"));
        let get = scan("t").table_project([text(name)]);
        assert!(refusal(&db, get, Vec::new()).starts_with("TABLE_PROJECT: no column"));
    }
    let broken = AnyPlan::table_scan(TableInfo::new(Scalar::string(*b"\xff", None), None), None);
    assert_eq!(refusal(&db, broken, Vec::new()), "'\\xff' is no name");
    let count: i64 =
        connection(&db).query_row("select count(*) from t", [], |row| row.get(0)).expect("t");
    assert_eq!(count, 1);
}

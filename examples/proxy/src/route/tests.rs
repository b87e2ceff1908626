//! Where statements go, on four nodes.

mod plans;
mod spread;

use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::{Any, Scalar};
use proptest::prelude::*;

use super::read::read;
use super::*;

const NODES: usize = 4;

fn catalogue() -> Catalogue {
    let tables = [
        ("sbtest1", Home::Sharded("id".to_owned())),
        ("settings", Home::Node(2)),
        ("countries", Home::Copies),
    ];
    let tables = tables.map(|(name, home)| (name.to_owned(), home)).into();
    Catalogue { schema: "sbtest".to_owned(), tables, texts_by_bytes: true }
}

/// Where it goes: `n1`, `n0 n2` for those that have its rows, `any`, `all`; or what it is.
fn routed(text: &str, arguments: &[Any]) -> String {
    let statement = match read(text.as_bytes(), &catalogue()) {
        Ok(statement) => statement,
        Err(error) => return format!("{}", error.code),
    };
    let Statement::Rows(rows) = statement else { return format!("{statement:?}") };
    let place = match &rows.ids {
        None if rows.merge.is_err() => return "1235".to_owned(),
        None => "all".to_owned(),
        Some(ids) => match ids.nodes(arguments, NODES) {
            Err(error) => return format!("{}", error.code),
            Ok(nodes) if nodes.is_empty() => "any".to_owned(),
            Ok(nodes) => nodes.iter().map(|node| format!("n{node}")).collect::<Vec<_>>().join(" "),
        },
    };
    format!("{place}{}", if rows.effect == Effect::Write { " write" } else { "" })
}

fn check(cases: &[(&str, &str)]) {
    let wrong = cases.iter().filter_map(|(text, expected)| {
        let routed = routed(text, &[]);
        (routed != *expected).then(|| format!("{text}: {routed}, not {expected}"))
    });
    let wrong: Vec<_> = wrong.collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn rows_are_read_where_they_are() {
    check(&[
        ("select c from sbtest1 where id = 5", "n1"),
        ("SELECT c FROM sbtest1 WHERE id=5;", "n1"),
        ("select * from sbtest.sbtest1 where sbtest1.id = 6", "n2"),
        ("select * from `sbtest1` where `id` = 7", "n3"),
        ("select * from SBTEST1 where ID = 8", "n0"),
        ("select t.c from sbtest1 as t where t.id = 9", "n1"),
        ("select t.c from sbtest1 t where 9 = t.id", "n1"),
        ("select c from sbtest1 where (id = 5)", "n1"),
        ("select c from sbtest1 where id = (5)", "n1"),
        ("select c from sbtest1 where id = '5'", "n1"),
        ("select c from sbtest1 where id = \"5\"", "n1"),
        ("select c from sbtest1 where id = -1", "n3"),
        ("select c from sbtest1 where id = 18446744073709551615", "n3"),
        ("select c from sbtest1 where k > 3 and id = 5 and c like '%id = 6%'", "n1"),
        ("select c from sbtest1 where id = 5 and (k = 1 or k = 2)", "n1"),
        ("select c from sbtest1 where id in (1, 5, 9)", "n1"),
        ("select c from sbtest1 where id in (1, 2, 5)", "n1 n2"),
        ("select c from sbtest1 where id = 1 or id = 5", "n1"),
        ("select c from sbtest1 where (id = 1 and k = 3) or (id = 2 and k = 4)", "n1 n2"),
        ("select c from sbtest1 where id in (1, 2, 3) and id = 2", "n2"),
        ("select c from sbtest1 where id = null", "any"),
        ("select c from sbtest1 where id = 5 limit 1", "n1"),
        ("select c from sbtest1 where id = 5 order by k limit 3, 4", "n1"),
        ("select distinct c from sbtest1 where id = 5", "n1"),
        ("select k, count(*) from sbtest1 where id = 5 group by k having k > 3", "n1"),
        ("select c from sbtest1 force index (k_1) where id = 5", "n1"),
        ("select c from sbtest1 where id = 5 for update", "n1 write"),
    ]);
}

#[test]
fn comments_and_quotes_do_not_deceive() {
    check(&[
        ("/* id = 2 */ select c from sbtest1 where id = 5", "n1"),
        ("select c from sbtest1 where id = 5 -- or id = 6", "n1"),
        ("select c from sbtest1 where id = 5 # or id = 6", "n1"),
        ("select c from sbtest1 where id = /* 6 */ 5", "n1"),
        ("select 'where id = 6', c from sbtest1 where id = 5", "n1"),
        ("select c from sbtest1 where c = 'it''s' and id = 5", "n1"),
        (r"select c from sbtest1 where c = 'a\' or id = 6 -- ' and id = 5", "n1"),
        (r#"select c from sbtest1 where c = "x' or id = 6" and id = 5"#, "n1"),
        // The meaning of this depends on the server.
        ("select c from sbtest1 where id = 5 /*! or id = 6 */", "1235"),
        ("select c from sbtest1 where id = 5 /*!50000 or 1 = 1 */", "1235"),
        ("select c from sbtest1 where id = 5 and c = '/*! no comment */'", "n1"),
        ("delete from sbtest1 where k = 10 # it's\n/*!99999 and id = 6 */ # it's", "1235"),
        ("select c from sbtest1 where id = 5 # /*! no comment */", "n1"),
        ("delete from sbtest1 where id = 5 and k = b\"\\\" or id = 6 -- \"", "1235"),
        ("delete from sbtest1 where id = 5 and k = B'\\' or id = 6 -- '", "1235"),
        ("select c from sbtest1 where id = 5 and k = b'101'", "n1"),
        ("select /*+ NO_MERGE(`*/ c /* ` */) */ from sbtest1 where id = 5", "1235"),
        ("select /*+ NO_MERGE(t) */ c from sbtest1 t where id = 5", "n1"),
        ("select c from sbtest1 where id = 5 --\u{a0}1 or id = 6", "1235"),
        // Minus minus five.
        ("select c from sbtest1 where id = 0--5", "all"),
        ("select c from sbtest1 where `i``d` = 5", "all"),
        ("select c from sbtest1 where \"id\" = 5", "all"),
        ("select c from sbtest1 where 'id' = 5", "all"),
    ]);
}

#[test]
fn what_may_be_elsewhere_goes_to_all_nodes_or_is_refused() {
    check(&[
        ("select c from sbtest1", "all"),
        ("select c from sbtest1 where k = 5", "all"),
        ("select c from sbtest1 where id > 5", "all"),
        ("select c from sbtest1 where id between 5 and 5", "all"),
        ("select c from sbtest1 where not id = 5", "all"),
        ("select c from sbtest1 where id != 5", "all"),
        ("select c from sbtest1 where id not in (5)", "all"),
        ("select c from sbtest1 where id = 5 or k = 5", "all"),
        ("select c from sbtest1 where id = 5 xor k = 5", "1235"),
        ("select c from sbtest1 where id = 5 || k = 5", "1235"),
        // MySQL reads these operators after `=` and `and`, the parser before.
        ("delete from sbtest1 where id = 5 and k = 10 || k = 20", "1235"),
        ("delete from sbtest1 where id = 5 and k = 10 XOR k = 20", "1235"),
        ("select c from sbtest1 where id = 5 and (k = 10 || k = 20)", "1235"),
        ("select 1 = 1 || 2", "1235"),
        ("select `xor` from sbtest1 where id = 5 and c = '||'", "n1"),
        ("select c from sbtest1 where id = 2 + 3", "all"),
        ("select c from sbtest1 where id = 5 = 1", "all"),
        ("select c from sbtest1 where id = 5.0", "all"),
        ("select c from sbtest1 where id = '5 apples'", "all"),
        ("select c from sbtest1 where id = 0x5", "all"),
        ("select c from sbtest1 where id + 0 = 5", "all"),
        ("select c from sbtest1 where other.id = 5", "all"),
        ("select c from sbtest1 t where sbtest1.id = 5", "all"),
        ("select c from sbtest1 where id = (select 5)", "1235"),
        ("select c from sbtest1 where id = 5 and k in (select k from sbtest1)", "1235"),
        ("select c from sbtest1 where id = 5 and exists (table sbtest.other)", "1235"),
        ("select c from sbtest1 where id = 5 and k in (Table sbtest.sbtest1)", "1235"),
        ("select exists (table sbtest.sbtest1)", "1235"),
        ("delete from sbtest1 where id = 5 and exists (table sbtest.other)", "1235"),
        ("update sbtest1 set k = 1 where id = 5 and exists (table sbtest.other)", "1235"),
        ("insert into sbtest1 (id, k) values (5, exists (table sbtest.other))", "1235"),
        ("select c from sbtest1 where id = 5 and exists (table other)", "1064"),
        ("create table sbtest1 as table other", "1235"),
        ("select `table` from sbtest1 where id = 5", "n1"),
        ("select c, (select max(id) from sbtest1) from sbtest1 where id = 5", "1235"),
        ("select a.c from sbtest1 a join sbtest1 b on a.id = b.id where a.id = 5", "1235"),
        ("select a.c from sbtest1 a, sbtest1 b where a.id = 5", "1235"),
        ("select c from (select * from sbtest1) t where id = 5", "1235"),
        ("select c from sbtest1 where id = 5 union select c from sbtest1 where id = 9", "1235"),
        ("with t as (select 5) select c from sbtest1 where id = 5", "1235"),
        ("select c from sbtest1 where id = 5 into outfile '/tmp/x'", "1064"),
        ("select 1; drop table sbtest1", "1235"),
        ("select c from other where id = 5", "1235"),
        ("select c from other.sbtest1 where id = 5", "1049"),
        ("select * from information_schema.tables", "1049"),
        ("select", "1064"),
        ("", "1064"),
        ("this is no sql", "1064"),
        ("select 'a", "1064"),
        ("call p()", "1235"),
        ("explain select 1", "1235"),
        ("kill query 5", "1235"),
        ("lock tables sbtest1 read", "1235"),
        ("xa start 'a'", "1235"),
        ("xa commit 'a'", "1235"),
    ]);
    assert_eq!(read(b"\xff", &catalogue()).expect_err("no text").code, 1300);
}

#[test]
fn what_is_nested_too_deep_does_not_end_the_process() {
    let deep = [
        format!("select {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("select 1{}", " + 1".repeat(100_000)),
        format!("select {}1", "- ".repeat(100_000)),
        format!("select c from sbtest1 where id = 5{}", " and k = 1".repeat(100_000)),
        format!("select {}1", "not ".repeat(100_000)),
        format!("select 1{}", " union select 1".repeat(50_000)),
        "(".repeat(1_000_000),
    ];
    for text in deep {
        let error = read(text.as_bytes(), &catalogue()).expect_err("it is refused");
        assert!([1064, 1235].contains(&error.code), "{error}");
    }
    let wide = format!("select c from sbtest1 where id in (5{})", ", 5".repeat(100_000));
    assert_eq!(routed(&wide, &[]), "n1");
}

/// The parser stops at this word, and calls the rest no error.
#[test]
fn what_stands_behind_the_alias_end_is_not_passed_on_unread() {
    for text in [
        "select k end from sbtest1",
        "select user end from mysql.user",
        "select k from sbtest1 end, settings",
        "select k end from settings into @a",
        "select k from settings end; drop table settings",
        "update settings set k = 1 end, sbtest1",
    ] {
        assert_eq!(routed(text, &[]), "1064", "{text}");
    }
    let case = "select case k when 1 then 2 end from sbtest1 where id = 5";
    assert_eq!(routed(case, &[]), "n1");
}

#[test]
fn an_insert_names_the_column_of_the_node_once() {
    check(&[
        ("insert into sbtest1 (id, k, ID) values (1, 2, 4)", "1235"),
        ("insert into sbtest1 (k, id) values (1, 2)", "n2 write"),
    ]);
}

#[test]
fn a_commit_never_begins_the_next_transaction() {
    for value in ["1", "2", "'CHAIN'", "release", "?", "-1"] {
        assert_eq!(routed(&format!("set completion_type = {value}"), &[]), "1235", "{value}");
    }
    for value in ["0", "NO_CHAIN", "'no_chain'", "default"] {
        let routed = routed(&format!("set @@session.completion_type = {value}"), &[]);
        assert!(routed.starts_with("Own(Set"), "{value}: {routed}");
    }
}

#[test]
fn a_text_above_a_mebibyte_is_not_read() {
    let text = format!("select c from sbtest1 where id = 5 and c = '{}'", "x".repeat(1 << 20));
    assert_eq!(routed(&text, &[]), "1153");
    assert_eq!(routed(&text.replacen("xxxxx", "", 10), &[]), "n1");
}

#[test]
fn arguments_say_where_a_row_is() {
    let any = |scalar: Scalar| Any::from(scalar);
    let by = "select c from sbtest1 where k = ? and id = ?";
    let of = |scalar: Scalar| routed(by, &[any(Scalar::signed(2)), any(scalar)]);
    assert_eq!(of(Scalar::signed(5)), "n1");
    assert_eq!(of(Scalar::signed(-1)), "n3");
    assert_eq!(of(Scalar::unsigned(u64::MAX)), "n3");
    assert_eq!(of(Scalar::string("5", None)), "n1");
    assert_eq!(of(Scalar::octets("5")), "n1");
    assert_eq!(of(Scalar::raw_string("6")), "n2");
    assert_eq!(of(Scalar::bool(true)), "n1");
    assert_eq!(of(Scalar::null()), "any");
    for bad in [
        Scalar::double(5.0),
        Scalar::string("5.0", None),
        Scalar::string(" 5", None),
        Scalar::string("", None),
        Scalar::string("-", None),
        Scalar::identifier("k"),
        Scalar::placeholder(0),
    ] {
        assert_eq!(of(bad.clone()), "1210", "{bad:?}");
    }
    assert_eq!(routed(by, &[any(Scalar::signed(2))]), "1210");
    // A mark in a string or a comment is none.
    let quoted = "select '?' /* ? */, c from sbtest1 where c = '?' and id in (?, ?) and k = ?";
    let arguments = [5, 9, 2].map(|number| any(Scalar::signed(number)));
    assert_eq!(routed(quoted, &arguments), "n1");
    let lines = "select c\nfrom sbtest1 -- ?\nwhere k = ?\n  and id = ?";
    let arguments = [2, 7].map(|number| any(Scalar::signed(number)));
    assert_eq!(routed(lines, &arguments), "n3");
}

#[test]
fn what_can_be_merged_goes_to_all() {
    check(&[
        ("select count(*) from sbtest1", "all"),
        ("select COUNT(k), min(id), max(id), sum(k) from sbtest1", "all"),
        ("select count(*) as n from sbtest1 t where k > 5", "all"),
        ("select sum(k * 2) from sbtest1 where id > 5", "all"),
        ("select max(distinct k) from sbtest1", "all"),
        ("select count(*) from sbtest1 where id = 5", "n1"),
        ("select count(*) from sbtest1 where id in (1, 2)", "n1 n2"),
        ("select avg(k) from sbtest1", "all"),
        ("select count(distinct k) from sbtest1", "1235"),
        ("select sum(distinct k) from sbtest1", "1235"),
        ("select count(*) + 1 from sbtest1", "1235"),
        ("select count(*), k from sbtest1", "1235"),
        ("select count(*) from sbtest1 group by k", "all"),
        ("select count(*) from sbtest1 having count(*) > 3", "1235"),
        ("select count(*) from sbtest1 limit 1", "all"),
        ("select count(*) over () from sbtest1", "1235"),
        ("select count(*) from sbtest1 for update", "1235"),
        ("select count(*), (select 1) from sbtest1", "1235"),
    ]);
}

#[test]
fn changes_go_to_the_node_of_their_rows() {
    check(&[
        ("update sbtest1 set k = k + 1 where id = 5", "n1 write"),
        ("update sbtest1 set k = 1 where id in (5, 9) limit 1", "n1 write"),
        ("update sbtest1 set k = 1 where id in (5, 6)", "n1 n2 write"),
        ("update sbtest1 set k = 1", "1235"),
        ("update sbtest1 set id = 6 where id = 5", "1235"),
        ("update sbtest1 t set t.id = 6 where t.id = 5", "1235"),
        ("update sbtest1 set k = (select 1) where id = 5", "1235"),
        ("delete from sbtest1 where id = 5", "n1 write"),
        ("delete from sbtest1", "1235"),
        ("delete a from sbtest1 a join sbtest1 b where a.id = 5", "1235"),
        ("insert into sbtest1 (id, k, c, pad) values (5, 1, 'a', 'b')", "n1 write"),
        ("insert into sbtest1 (k, id) values (6, 5), (7, 9)", "n1 write"),
        ("insert into sbtest1 (k, id) values (6, 5), (7, 6)", "n1 n2 write"),
        ("insert into sbtest.sbtest1 (`k`, `ID`) values (6, 5)", "n1 write"),
        ("insert into sbtest1 set k = 3, id = 5", "n1 write"),
        ("insert ignore into sbtest1 (id) values (5)", "n1 write"),
        ("replace into sbtest1 (id, k) values (5, 1)", "n1 write"),
        ("insert into sbtest1 (id, k) values (5, 1) on duplicate key update k = 2", "n1 write"),
        ("insert into sbtest1 (id, k) values (5, 1) on duplicate key update id = 2", "1235"),
        ("insert into sbtest1 (k) values (5)", "1235"),
        ("insert into sbtest1 values (5, 1, 'a', 'b')", "1235"),
        ("insert into sbtest1 (id) values (null)", "1235"),
        ("insert into sbtest1 (id) values (default)", "1235"),
        ("insert into sbtest1 (id) values (2 + 3)", "1235"),
        ("insert into sbtest1 (id) select 5", "1235"),
        ("insert into sbtest1 (id) select id + 1 from sbtest1 where id = 5", "1235"),
    ]);
    let null = [Any::from(Scalar::null())];
    assert_eq!(routed("insert into sbtest1 (id) values (?)", &null), "1210");
}

#[test]
fn definitions_go_everywhere() {
    check(&[
        ("create table sbtest1 (id int primary key)", "Define(None)"),
        ("create table if not exists sbtest1 (id int primary key)", "Define(None)"),
        ("drop table sbtest1", "Define(None)"),
        ("truncate table sbtest1", "Define(None)"),
        ("create index i on sbtest1 (k)", "Define(None)"),
        ("alter table sbtest1 add column n int", "Define(None)"),
        ("create table other (id int)", "1235"),
        ("create temporary table sbtest1 (id int)", "1235"),
        ("create table sbtest1 as select 1", "1235"),
        ("drop table sbtest1, other", "1235"),
        ("drop database sbtest", "1235"),
        ("create view v as select 1", "1235"),
    ]);
}

#[test]
fn tables_that_are_not_sharded_have_a_node_or_a_copy_on_each() {
    check(&[
        ("select * from settings", "At(Some(2), Read)"),
        (
            "select group_concat(c) from sbtest.Settings t group by k having k > 1",
            "At(Some(2), Read)",
        ),
        ("select c from settings where id = 5 for update", "At(Some(2), Write)"),
        ("insert into settings values (1, 2)", "At(Some(2), Write)"),
        ("insert into settings select * from sbtest1", "1235"),
        ("update settings set id = 6 where k = 5", "At(Some(2), Write)"),
        ("delete from settings", "At(Some(2), Write)"),
        ("drop table settings", "Define(Some(2))"),
        ("select * from countries order by c", "At(None, Read)"),
        ("select * from countries for update", "1235"),
        ("insert into countries values (1, 2)", "1235"),
        ("update countries set k = 1", "1235"),
        ("delete from countries", "1235"),
        ("create table countries (id int)", "Define(None)"),
        ("select s.c from settings s, sbtest1 t where t.id = 5", "1235"),
        ("show columns from settings", "At(Some(2), Read)"),
        ("show full columns from Settings from sbtest like 'k%'", "At(Some(2), Read)"),
        ("show create table sbtest.settings", "At(Some(2), Read)"),
        ("show columns from sbtest1", "At(None, Read)"),
        ("show create table countries", "At(None, Read)"),
        ("show columns from other", "1235"),
        ("show create table other.settings", "1049"),
    ]);
}

#[test]
fn what_any_node_can_answer_goes_anywhere() {
    for text in [
        "select 1",
        "select 1 + 1, 'a' as b",
        "select 1 from dual",
        "select @@version",
        "select @a",
        "select now()",
        "select sleep(1)",
        "show variables",
        "show global variables",
        "show variables like 'a%'",
        "show variables like 'max_error_count'",
        "show global variables like 'autocommit'",
        "select @@global.autocommit, @autocommit, @@session.time_zone",
        "show tables",
    ] {
        assert_eq!(
            read(text.as_bytes(), &catalogue()),
            Ok(Statement::At(None, Effect::Read)),
            "{text}"
        );
    }
    check(&[
        ("select get_lock('a', 1)", "1235"),
        ("select `get_lock`('a', 1)", "1235"),
        ("select 1 + last_insert_id()", "1235"),
        ("select found_rows()", "1235"),
        ("select @@autocommit + 1", "1235"),
        ("select @@session . `AutoCommit`, 1", "1235"),
        ("select @@last_insert_id", "1235"),
        ("select @@IDENTITY", "1235"),
        ("select @@warning_count, @@local.error_count", "1235"),
        ("select @@pseudo_thread_id", "1235"),
        ("insert into sbtest1 (id, k) values (5, @@identity)", "1235"),
        ("show variables like 'autocommit'", "1235"),
        ("show session variables where variable_name in ('a', 'Autocommit')", "1235"),
        ("select @a := 1", "1235"),
        ("select 1 into @a", "1235"),
        ("select *", "1064"),
    ]);
}

fn set_of(names: &[&str], mode: Option<usize>, is_default: bool, is_utf8: Option<bool>) -> Own {
    let names = names.iter().copied().map(str::to_owned).collect();
    Own::Set { names, mode, is_default, is_utf8 }
}

#[test]
fn the_session_is_the_proxys() {
    let is = |text: &str, expected: Own| {
        let expected = Ok(Statement::Own(expected));
        assert_eq!(read(text.as_bytes(), &catalogue()), expected, "{text}");
    };
    for text in ["begin", "BEGIN;", "begin work", "start transaction"] {
        is(text, Own::Begin);
    }
    is("start transaction read only", Own::Begin);
    is("start transaction with consistent snapshot", Own::Begin);
    is("commit", Own::Commit);
    is("commit work", Own::Commit);
    is("rollback", Own::Rollback);
    is("savepoint a", Own::Savepoint("a".to_owned(), Operation::Set));
    is("release savepoint a", Own::Savepoint("a".to_owned(), Operation::Release));
    is("rollback to a", Own::Savepoint("a".to_owned(), Operation::Rollback));
    is("rollback to savepoint a", Own::Savepoint("a".to_owned(), Operation::Rollback));
    for text in ["set autocommit=0", "SET @@autocommit = off", "set session autocommit = false"] {
        is(text, Own::Autocommit(false));
    }
    is("set autocommit=1", Own::Autocommit(true));
    is("set @@session.autocommit=1", Own::Autocommit(true));
    is("use sbtest", Own::Nothing);
    is("set sql_select_limit = default", Own::Nothing);
    let set = |names: &[&str], mode| set_of(names, mode, false, None);
    let texts = |names: &[&str], is_utf8| set_of(names, None, false, Some(is_utf8));
    let default = |names: &[&str]| {
        set_of(names, None, true, names.contains(&"character_set_results").then_some(true))
    };
    let connection = ["character_set_connection", "collation_connection"];
    let all = [["character_set_client", "character_set_results"], connection].concat();
    for text in ["set names utf8mb4", "set names 'utf8'", "set names default"] {
        is(text, default(&all));
    }
    is("set character_set_results = 'utf8mb4'", default(&["character_set_results"]));
    is("set character_set_connection = utf8", default(&connection));
    is("set collation_connection = utf8mb4_bin", set(&connection, None));
    is("set names utf8mb4 collate 'utf8mb4_bin'", texts(&all, true));
    is("set names latin1", texts(&all, false));
    is("set character_set_results = gbk", texts(&["character_set_results"], false));
    is("set character_set_results = ?", texts(&["character_set_results"], false));
    is("set @a = 1", set(&["@a"], None));
    is("set time_zone = '+00:00'", set(&["time_zone"], None));
    let both = set(&["sql_mode", "max_execution_time"], Some(0));
    is("SET `sql_mode`=? , `max_execution_time`=5000", both);
    is("set @a = ?, sql_mode = ?", set(&["@a", "sql_mode"], Some(1)));
    is("set sql_mode = '', @a = ?", set(&["sql_mode", "@a"], None));
    is("show warnings", Own::Warnings(Level::Note));
    is("show errors", Own::Warnings(Level::Error));
    is("set transaction isolation level read committed", Own::NextTransaction);
    is("set session transaction read only", set(&["transaction_read_only"], None));
    is("set session transaction read write", default(&["transaction_read_only"]));
    let both = ["transaction_isolation", "transaction_read_only"];
    is("set session transaction isolation level read committed, read write", default(&both));
    is("set session transaction isolation level read committed, read only", set(&both, None));
    let both = set(&["transaction_isolation", "transaction_read_only"], None);
    is("SET /* */ LOCAL TRANSACTION isolation level read committed, read only", both);
    let told = vec![Told { label: "connection_id()".to_owned(), what: What::ConnectionId }];
    is("select connection_id()", Own::Told(told));
    for name in ["@@autocommit", "@@SESSION.Autocommit", "@@local.autocommit"] {
        let told = vec![Told { label: name.to_owned(), what: What::Autocommit }];
        is(&format!("select {name}"), Own::Told(told));
    }
    check(&[
        ("select connection_id() into @a", "1235"),
        ("select connection_id() having 1 = 0", "1235"),
        ("select connection_id() group by 1", "1235"),
        ("with t as (select 1) select connection_id()", "1235"),
        ("select connection_id() limit 0", "1235"),
        ("commit and chain", "1235"),
        ("show warnings; (select 1)", "1235"),
        ("start; transaction with consistent snapshot", "1064"),
        ("start transaction with consistent snapshot, read only", "1064"),
        ("set autocommit=?", "1235"),
        ("set autocommit=0, @a=1", "1235"),
        ("set global max_connections = 1", "1235"),
        ("set @@global.max_connections = 1", "1235"),
        ("set global transaction read only", "1235"),
        ("set names GBK", "1235"),
        ("set names 'sjis' collate 'sjis_bin'", "1235"),
        ("set @a = 1, character_set_client = big5", "1235"),
        ("set character_set_client = ?", "1235"),
        ("set persist max_connections = 1", "1064"),
        ("set @a = -?, sql_mode = ?", "1235"),
        ("set @a = now()", "1235"),
        ("set @a = @b", "1235"),
        ("set @a = (select max(id) from sbtest1)", "1235"),
        ("set sql_mode = 'ANSI_QUOTES'", "1235"),
        ("set sql_mode = 'NO_BACKSLASH_ESCAPES,STRICT_TRANS_TABLES'", "1235"),
        ("use other", "1049"),
    ]);
}

#[test]
fn a_text_is_read_once() {
    let cache = Cache::new(catalogue());
    let first = cache.read(b"select 1");
    let second = cache.read(b"select 1");
    assert!(!first.is_frequent && second.is_frequent);
    assert_eq!((&first.statement, first.digest), (&second.statement, second.digest));
    assert!(Arc::ptr_eq(&second, &cache.read(b"select 1")));
    assert_eq!(cache.read(b"no sql").statement, cache.read(b"no sql").statement);
    for (ids, is_kept) in [(512, true), (513, false)] {
        let text = format!("select c from sbtest1 where id in ({})", vec!["1"; ids].join(","));
        cache.read(text.as_bytes());
        assert_eq!(cache.read(text.as_bytes()).is_frequent, is_kept, "{ids} ids");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "[ -~\n]{0,80}") {
        let _ = read(text.as_bytes(), &catalogue());
    }

    #[test]
    fn no_mixture_of_words_panics(words in proptest::collection::vec(
        prop_oneof![
            Just("select"), Just("from"), Just("sbtest1"), Just("where"), Just("id"), Just("="),
            Just("5"), Just("?"), Just("("), Just(")"), Just("and"), Just("or"), Just("in"),
            Just(","), Just("*"), Just("'a'"), Just("set"), Just("insert"), Just("into"),
            Just("values"), Just("update"), Just("delete"), Just("not"), Just("-"), Just(";"),
            Just("@a"), Just("count"), Just("--"), Just("/*"), Just("*/"), Just("union"),
        ], 0..24)) {
        let _ = routed(&words.join(" "), &[]);
    }
}

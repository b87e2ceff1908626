//! One test for each bug that was found by trying.

use std::thread;
use std::time::{Duration, Instant};

use epoll_group::codec::proto::value::Scalar;

use super::{Server, change, failure, rows, text};
use lab::xrpc::datum::Datum;
use lab::xrpc::request;

#[test]
fn a_zero_does_not_end_a_statement() {
    let server = Server::start();
    let mut client = server.client();
    // SQLite would stop reading at the zero, and change all rows.
    let error = failure(&mut client, "update sbtest1 set k = -1\0 where id = 3");
    assert_eq!(error.code, 1064);
    assert_eq!(rows(&mut client, "select count(*) from sbtest1 where k = -1"), "0;");
    let sql = "select 'a\0b', hex('\\0\0') /* \0 */ -- \0\n, 2 # \0";
    assert_eq!(rows(&mut client, sql), "a\0b|0000|2;");
    assert_eq!(failure(&mut client, "create table t (a int default 1\0)").code, 1064);
    change(&mut client, "create table t (a varchar(9) default 'a\0b', b int)");
    change(&mut client, "insert into t (b) values (1)");
    assert_eq!(rows(&mut client, "select a from t"), "a\0b;");
}

#[test]
fn names_in_definitions_stay_names() {
    let server = Server::start();
    let mut client = server.client();
    let name = Scalar::identifier("x\\`); drop table sbtest1; --");
    let sql = "create table t (a int, `x\\` int, key k (?))";
    let error = client.run(2, request::query_with(sql, [name.clone()])).failure();
    assert_eq!(error.code, 1054);
    assert_eq!(error.text, "Unknown column 'x\\`); drop table sbtest1; --' in 'field list'");
    let sql = "create table t (? int, unique u (?), key (?(10)), primary key (?))";
    client.run(2, request::query_with(sql, [0; 4].map(|_| name.clone()))).good();
    let reply = client.execute(2, "select * from t").good();
    assert_eq!(reply.labels(), ["x\\`); drop table sbtest1; --"]);
    assert_eq!(failure(&mut client, "create table u (a int, key ((a + 1)))").code, 1235);
    let sql = r"create table v (a varchar(9) default 'it\'s', b varchar(9) default '\\\'', c int)";
    change(&mut client, sql);
    change(&mut client, "insert into v (c) values (1)");
    assert_eq!(rows(&mut client, "select a, b from v"), "it's|\\';");
    assert_eq!(rows(&mut client, "select count(*) from sbtest1"), "100;");
}

#[test]
fn a_time_without_end_is_waited_for_and_harms_nobody() {
    let server = Server::start();
    let [mut holder, mut waiting] = [server.client(), server.client()];
    change(&mut holder, "begin");
    change(&mut holder, "update sbtest1 set k = 1");
    change(&mut waiting, "set innodb_lock_wait_timeout = 9223372036854775807");
    let ticket = waiting.send_sql(2, request::update("update sbtest1 set k = 2"));
    thread::sleep(Duration::from_millis(50));
    change(&mut holder, "commit");
    assert_eq!(waiting.reply_to(ticket).good().affected, Some(100));
    change(&mut holder, "update sbtest1 set k = 3");
    change(&mut waiting, "set innodb_lock_wait_timeout = -5");
    assert_eq!(rows(&mut waiting, "select @@innodb_lock_wait_timeout"), "0;");
    for sql in ["select sleep(1e19)", "select sleep(1e19), 1"] {
        let ticket = waiting.send_sql(2, request::query(sql));
        thread::sleep(Duration::from_millis(50));
        waiting.kill_query(2);
        assert_eq!(waiting.reply_to(ticket).failure().code, 1317, "{sql}");
    }
    for sql in ["select sleep(null)", "select sleep('a')", "select 1, sleep(-1)"] {
        assert_eq!(failure(&mut waiting, sql).code, 1210, "{sql}");
    }
    assert_eq!(rows(&mut waiting, "select sleep('0.001')"), "0;");
    for argument in [Scalar::float(0.001), Scalar::bool(false)] {
        waiting.run(2, request::query_with("select sleep(?)", [argument])).good();
    }
}

#[test]
fn a_transaction_that_an_interrupted_change_took_along_is_not_forgotten() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (a int)");
    let endless = "insert into t select seq from seq_1_to_1000000000000";
    let look = "select count(*) from sbtest1 where k = -1";
    for (end, code) in [("rollback", None), ("commit", Some(1213)), ("begin", Some(1213))] {
        change(&mut client, "begin");
        change(&mut client, "update sbtest1 set k = -1");
        let ticket = client.send_sql(2, request::update(endless));
        thread::sleep(Duration::from_millis(30));
        client.kill_query(2);
        assert_eq!(client.reply_to(ticket).failure().code, 1317);
        // The next statements were meant as part of the transaction and must not be executed alone.
        for sql in ["update sbtest1 set k = -1", look, "savepoint a"] {
            assert_eq!(failure(&mut client, sql).code, 1213, "{sql}");
        }
        let ended = client.execute(2, end);
        assert_eq!(ended.error.map(|error| error.code), code, "{end}");
        assert_eq!(rows(&mut client, look), "0;");
    }
    // An interrupted read does not end the transaction.
    change(&mut client, "begin");
    change(&mut client, "update sbtest1 set k = -1");
    let ticket = client.send_sql(2, request::query("select count(*) from seq_1_to_1000000000000"));
    thread::sleep(Duration::from_millis(30));
    client.kill_query(2);
    assert_eq!(client.reply_to(ticket).failure().code, 1317);
    assert_eq!(rows(&mut client, look), "100;");
    change(&mut client, "commit");
    assert_eq!(rows(&mut client, look), "100;");
}

#[test]
fn names_that_are_too_many_are_refused_as_values_are() {
    let server = Server::start();
    let mut client = server.client();
    let [name, one] = [Scalar::identifier("id"), Scalar::signed(1)];
    for (sql, args) in [
        ("select 1", vec![name.clone()]),
        ("select ?", vec![one.clone(), name.clone()]),
        ("select ? from sbtest1", vec![name, one]),
    ] {
        let error = client.run(2, request::query_with(sql, args)).failure();
        assert_eq!((error.code, &*error.text), (8001, "Too many arguments"), "{sql}");
    }
}

#[test]
fn variables_keep_what_they_are_set_to() {
    let server = Server::start();
    let mut client = server.client();
    for (value, expected) in [
        ("'007'", "007"),
        ("\"1\"", "1"),
        ("true", "1"),
        ("-5", "-5"),
        ("1.5", "1.5d"),
        ("null", "NULL"),
        ("(select max(id) from sbtest1)", "100"),
    ] {
        change(&mut client, &format!("set @a = {value}"));
        assert_eq!(rows(&mut client, "select @a"), format!("{expected};"), "{value}");
    }
    change(&mut client, "set @a = current_date");
    assert_eq!(rows(&mut client, "select @a = curdate()"), "1;");
    for word in ["abc", "default", "on"] {
        let error = failure(&mut client, &format!("set @a = {word}"));
        assert!([1054, 1064].contains(&error.code), "{word}: {error:?}");
    }
    change(&mut client, "set sql_mode = ansi, autocommit = on, sql_mode = default");
}

#[test]
fn operators_give_what_they_give_in_mysql() {
    let server = Server::start();
    let mut client = server.client();
    for (sql, expected) in [
        (r"select 'a%' like 'a\%', 'ab' like 'a\%', 'a_b' like 'A\_B', 'ab' like 'a_'", "1|0|1|1;"),
        (r"select 'a%' like 'a|%' escape '|', 'a\\b' like 'a|\\b' escape '|'", "1|1;"),
        ("select null like 'a', 'a' like null, 12 like '1%', 'a' not like 'b'", "NULL|NULL|1|1;"),
        ("select 5/2, 10 / 4 / 2, 1/3*3, 1/0, 7/2.0", "2.5d|1.25d|1.0d|NULL|3.5d;"),
        ("select 'a' 'b', 'it' /* */ \"'s\"", "ab|it's;"),
    ] {
        assert_eq!(rows(&mut client, sql), expected, "{sql}");
    }
    assert_eq!(client.execute(2, "select 5/2, 3 / 1 x").good().labels(), ["5/2", "x"]);
}

#[test]
fn a_change_that_sleeps_is_not_done_when_it_is_interrupted() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "begin");
    change(&mut client, "update sbtest1 set k = -1 where id = 1");
    let ticket = client.send_sql(2, request::update("update sbtest1 set k = sleep(1000) - 2"));
    thread::sleep(Duration::from_millis(50));
    client.kill_query(2);
    assert_eq!(client.reply_to(ticket).failure().code, 1317);
    assert_eq!(rows(&mut client, "select count(*), min(k) from sbtest1 where k < 0"), "1|-1;");
    change(&mut client, "commit");
}

#[test]
fn the_number_of_a_row_is_told_to_who_inserted_it() {
    let server = Server::start();
    let mut client = server.client();
    let inserted = client.run(2, request::update("insert into sbtest1 (k) values (1)")).good();
    assert_eq!(inserted.insert_id, Some(101));
    client.new_session(4).good();
    let sql = "insert into sbtest1 (id, k) values (1, 7) on duplicate key update k = k + 1";
    let changed = client.run(4, request::update(sql)).good();
    assert_eq!((changed.affected, changed.insert_id), (Some(1), None));
    assert_eq!(client.execute(4, "select last_insert_id()").good().rows, [[Datum::Signed(0)]]);
}

#[test]
fn the_number_of_a_row_is_one_that_was_inserted() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table a (u char(1) unique, id int auto_increment primary key)");
    for (sql, number, generated) in [
        ("insert into a (id, u) values (100, 'p'), (50, 'q')", 50, 0),
        ("insert into a (u) values ('r'), ('s')", 101, 101),
        ("insert into a values ('t', 70)", 70, 101),
        ("insert into a select 'u', 71", 71, 101),
        ("insert a values (concat('v', ''), null), ('w', null)", 103, 103),
        ("insert into a (`U`, ID) values ('x', 80)", 80, 103),
        ("insert into a (u) values ('y'), ('p') on duplicate key update u = 'z'", 105, 105),
    ] {
        let reply = client.run(2, request::update(sql)).good();
        assert_eq!(reply.insert_id, Some(number), "{sql}");
        let last = rows(&mut client, "select last_insert_id()");
        assert_eq!(last, format!("{generated};"), "{sql}");
    }
    let sql = "insert into a values (?, ?)";
    for (id, number) in [(Scalar::null(), 107), (Scalar::signed(90), 90)] {
        let letter = Scalar::string(format!("{}", number % 10), None);
        let reply = client.run(2, request::query_with(sql, [letter, id])).good();
        assert_eq!(reply.insert_id, Some(number));
        assert_eq!(rows(&mut client, "select last_insert_id()"), "107;");
    }
}

#[test]
fn a_column_called_conflict_makes_no_upsert() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (id int auto_increment primary key, conflict int)");
    let sql = "insert into t (conflict) values (1), (2)";
    assert_eq!(client.run(2, request::update(sql)).good().insert_id, Some(1));
}

#[test]
fn a_text_that_is_no_utf8_is_sent_as_it_is() {
    let server = Server::start();
    let mut client = server.client();
    let one = "select cast(x'ff' as text) as x";
    for count in 1..=4 {
        let reply = client.execute(2, &vec![one; count].join(" union all ")).good();
        assert_eq!(reply.rows, vec![[Datum::Bytes(vec![0xff])]; count]);
    }
}

/// Long rows must not end the search for the type of a column early.
#[test]
fn a_column_that_begins_with_nulls_has_the_type_of_its_first_value() {
    let server = Server::start();
    let mut client = server.client();
    let sql = "select printf('%01000d', id) as c, case when id > 90 then id end as x \
               from sbtest1 order by id";
    let reply = client.execute(2, sql).good();
    assert_eq!(reply.rows.len(), 100);
    assert_eq!([&reply.rows[89][1], &reply.rows[90][1]], [&Datum::Null, &Datum::Signed(91)]);
}

#[test]
fn slow_rows_do_not_wait_for_many_more() {
    let server = Server::start();
    let mut client = server.client();
    let began = Instant::now();
    let ticket = client.send_sql(2, request::query("select sleep(0.02) from sbtest1, seq_1_to_3"));
    client.wait_for(ticket, |reply| !reply.rows.is_empty());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    client.kill_query(2);
    assert_eq!(client.reply_to(ticket).failure().code, 1317);
}

#[test]
fn a_column_of_several_types_loses_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let reply = client.execute(2, "select 1 as x union all select x'ff'").good();
    assert_eq!((text(&reply).as_str(), reply.columns[0].collation), ("1;\u{fffd};", Some(63)));
    assert_eq!(rows(&mut client, "select 9007199254740992 union all select 0.5").len(), 25);
    let large = "select 9007199254740993 as x union all select 0.5";
    assert_eq!(failure(&mut client, large).code, 1366);
}

#[test]
fn each_row_of_a_union_has_its_own_argument() {
    let server = Server::start();
    let mut client = server.client();
    let sql = "select ? union all select ?";
    let both = [Scalar::signed(1), Scalar::signed(2)];
    let reply = client.run(2, request::query_with(sql, both)).good();
    assert_eq!(text(&reply), "1;2;");
    let reply = client.execute(2, "select 1 union all select null").good();
    assert_eq!(text(&reply), "1;NULL;");
    assert_eq!(reply.columns[0].flags.unwrap_or_default() & 0x10, 0);
}

#[test]
fn two_tables_that_give_the_same_number_both_tell_it() {
    let server = Server::start();
    let mut client = server.client();
    for table in ["one", "two"] {
        let sql = "(id int auto_increment primary key, u int unique)";
        change(&mut client, &format!("create table {table} {sql}"));
    }
    for (table, id) in [("one", 1), ("two", 1), ("one", 2), ("two", 2)] {
        let sql = format!("insert into {table} (u) values ({id})");
        let inserted = client.run(2, request::update(&sql)).good();
        assert_eq!((inserted.affected, inserted.insert_id), (Some(1), Some(id)), "{sql}");
    }
    for sql in ["insert ignore into two (u) values (2)", "update one set u = 7 where id = 2"] {
        assert_eq!(client.run(2, request::update(sql)).good().insert_id, None, "{sql}");
    }
    let sql = "insert into one (u) values (7) on conflict (u) do update set u = 8";
    assert_eq!(client.run(2, request::update(sql)).good().insert_id, None);
}

#[test]
fn a_change_that_reads_with_a_lock_is_a_change() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (a int)");
    let sql = "insert into t select id from sbtest1 for update";
    assert_eq!(change(&mut client, sql), 100);
    change(&mut client, "set transaction read only");
    change(&mut client, "begin");
    assert_eq!(failure(&mut client, sql).code, 1792);
}

#[test]
fn a_table_that_is_there_gets_no_more_keys() {
    let server = Server::start();
    let mut client = server.client();
    let sql = "create table if not exists t (a int, key k (a))";
    change(&mut client, sql);
    change(&mut client, sql);
    assert_eq!(rows(&mut client, "show warnings"), "Note|1050u|Table 't' already exists;");
    change(&mut client, "drop index k on t");
    change(&mut client, sql);
    assert_eq!(rows(&mut client, "show index from t"), "");
    change(&mut client, "drop table if exists t");
    change(&mut client, "drop table if exists t");
    assert_eq!(rows(&mut client, "show warnings"), "Note|1051u|Unknown table 'test.t';");
    // The name of an index is no table.
    change(&mut client, "create index i on sbtest1 (pad)");
    assert_eq!(change(&mut client, "drop table if exists i"), 0);
}

#[test]
fn an_old_snapshot_describes_columns_for_itself_alone() {
    let server = Server::start();
    let [mut old, mut new] = [server.client(), server.client()];
    change(&mut new, "create table t (a int)");
    change(&mut new, "insert into t values (1)");
    let sql = "select a from t";
    change(&mut old, "set transaction isolation level repeatable read");
    change(&mut old, "begin");
    assert_eq!(rows(&mut old, sql), "1;");
    change(&mut new, "drop table t");
    change(&mut new, "create table t (a varchar(9))");
    change(&mut new, "insert into t values ('x')");
    assert_eq!(rows(&mut old, sql), "1;");
    assert_eq!(rows(&mut new, sql), "x;");
    assert_eq!(rows(&mut old, sql), "1;");
}

#[test]
fn a_table_may_be_called_as_the_schema() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table test.test (id int, k int)");
    change(&mut client, "insert into test.test values (1, 7)");
    for sql in [
        "select test.k from test join sbtest1 t on t.id = test.id",
        "select test.k from test.test join test.sbtest1 t on t.id = test.id",
        "select test.test.k from test.test join test.sbtest1 t on t.id = test.test.id",
        "select test.k from test x join (select 1 as id, 7 as k) as test on x.id = test.id",
    ] {
        assert_eq!(rows(&mut client, sql), "7;", "{sql}");
    }
    assert_eq!(rows(&mut client, "select test.sbtest1.id from test.sbtest1 where id = 2"), "2;");
    assert_eq!(
        rows(&mut client, "select 1 from sbtest1 t, test.sbtest1 u where u.id + t.id = 2"),
        "1;"
    );
    for sql in [
        "create index i on test.test (k)",
        "insert test.test values (2, 7)",
        "insert ignore test.test values (3, 7)",
        "replace test.test values (4, 7)",
        "update ignore test.test set k = 8 where test.id = 1",
        "update test.test set k = 7 where test.test.id = 1",
        "create table u (value int, test int)",
        "insert into u values (1, 7)",
    ] {
        change(&mut client, sql);
    }
    for sql in [
        "select test.k from sbtest1 t, test.test where t.id = 1 and test.id = 1",
        "select test.k from (test.test) where test.id = 1",
        "select test.k from (u, test.test) where test.id = 1",
        "select test.k from u t join u on t.value = u.value, test.test where test.id = 1",
        "select test from sbtest1 t, test.u where t.id = 1",
        "select x.k from (select test.k, test.id from test.test) x where x.id = 1",
        "select k from test.test group by test.id, test.k having test.id = 1",
    ] {
        assert_eq!(rows(&mut client, sql), "7;", "{sql}");
    }
    change(&mut client, "truncate test.test");
    assert_eq!(rows(&mut client, "select count(*) from test.test"), "0;");
    change(&mut client, "drop table if exists test.test");
    assert_eq!(rows(&mut client, "show tables like 'test'"), "");
}

#[test]
fn definitions_may_call_functions() {
    let server = Server::start();
    let mut client = server.client();
    change(
        &mut client,
        "create table t (a int, d varchar(9) default (concat('a', 1)), u varchar(99) \
         default (user()), check (char_length(d) < 9 and d like 'a%'))",
    );
    change(&mut client, "insert into t (a) values (1)");
    change(
        &mut client,
        "create view v as select if(a, left(d, 1), 0) as x, database() as y from t",
    );
    assert_eq!(rows(&mut client, "select d, u, x, y from t, v"), "a1|root@%|a|test;");
    change(&mut client, "create view w as select sleep(0) as x");
    assert_eq!(failure(&mut client, "select * from w").code, 1105);
}

#[test]
fn expressions_in_definitions_mean_what_they_mean_in_queries() {
    let server = Server::start();
    let mut client = server.client();
    change(
        &mut client,
        r#"create table t (
            a int default (0 || 7 / 2), b varchar(9) default (concat("it's", 'a\'\\')),
            c int /*! default (1 /* one */ && /*!50000 1 */) */ check (/*!c*/ < 3 || c in (7, 8)),
            check (b <> "x" "y" and b <> 'a''b\\'), check (a <=> 1 -- '
            ), constraint named check (test.t.c <> 9))"#,
    );
    change(&mut client, "insert into t (c) values (8)");
    change(&mut client, "insert into t (b) values ('b')");
    assert_eq!(rows(&mut client, "select * from t"), "1|it'sa'\\|8;1|b|1;");
    for row in ["1, 'b', 5", "1, 'xy', 1", "1, 'a''b\\\\', 1", "2, 'b', 1"] {
        let error = failure(&mut client, &format!("insert into t values ({row})"));
        assert_eq!(error.code, 3819, "{row}");
    }
    change(&mut client, "alter table t add d bit(3) default 5 check (d / 2 <> 3.5)");
    assert_eq!(failure(&mut client, "update t set d = 7").code, 3819);
    for sql in
        ["check (?)", "check (? = a)", "check (@a = a)", "default (1 + @a)", "check (a) + 1)"]
    {
        let code = failure(&mut client, &format!("create table u (a int {sql})")).code;
        assert!([1064, 1105].contains(&code), "{sql}: {code}");
    }
    let deep = format!("create table u (a int default (1{}))", "+1".repeat(200_000));
    assert_eq!(failure(&mut client, &deep).code, 1105);
}

#[test]
fn warnings_end_with_their_statement() {
    let server = Server::start();
    let mut client = server.client();
    let long = "a".repeat(1 << 20);
    change(&mut client, "drop table if exists missing");
    for sql in ["no statement", &format!("select {long}"), "show columns from missing"] {
        let error = failure(&mut client, sql);
        let mut expected = format!("Error|{}u|{}", error.code, error.text);
        expected.truncate("Error|1054u|".len() + 2048);
        assert_eq!(rows(&mut client, "show warnings"), expected + ";");
    }
}

#[test]
fn values_have_a_limit() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(rows(&mut client, "select length(zeroblob(67108864))"), "67108864;");
    let parts = ["@a"; 100].join(", ");
    change(&mut client, "set @a = hex(zeroblob(500000))");
    for sql in [
        "select length(zeroblob(67108865))",
        &format!("select length(concat({parts}))"),
        &format!("select length(concat_ws(', ', {parts}))"),
    ] {
        assert_eq!(failure(&mut client, sql).code, 1153, "{sql}");
    }
    let sql = "set @b = zeroblob(40000000), @c = @b";
    assert_eq!(failure(&mut client, sql).code, 1037);
    assert_eq!(rows(&mut client, "select length(@a), @b"), "1000000|NULL;");
}

#[test]
fn primary_keys_take_no_null() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (a int, B int null, primary key (A, b))");
    for values in ["(null, 1)", "(1, null)"] {
        let error = failure(&mut client, &format!("insert into t values {values}"));
        assert_eq!(error.code, 1048, "{values}");
    }
    change(&mut client, "create table u (Id int auto_increment, primary key (iD))");
    change(&mut client, "insert into u values (null)");
    assert_eq!(rows(&mut client, "select id from u"), "1;");
}

#[test]
fn functions_take_what_they_take_in_mysql() {
    let server = Server::start();
    let mut client = server.client();
    for (sql, expected) in [
        ("select left(123, 2), right(123, 2), char_length(123)", "12|23|3;"),
        ("select left('a', null), left(null, 1), char_length(null)", "NULL|NULL|NULL;"),
        ("select concat_ws(1, 'a', null, 2), concat_ws(null, 'a')", "a12|NULL;"),
        ("select if('1x', 1, 2), if('inf', 1, 2), if(' 0.5', 1, 2)", "1|2|1;"),
    ] {
        assert_eq!(rows(&mut client, sql), expected, "{sql}");
    }
    for sql in ["select concat()", "select concat_ws()"] {
        assert_eq!(failure(&mut client, sql).code, 1582, "{sql}");
    }
    change(&mut client, "set character_set_results = NULL");
    assert_eq!(rows(&mut client, "select @@character_set_results"), "NULL;");
    assert_eq!(failure(&mut client, "set character_set_connection = null").code, 1115);
    let table = "create table t (a int default null, b varchar(9) default 'null', \
                 c varchar(9) default 'it''s)')";
    change(&mut client, table);
    assert_eq!(
        rows(&mut client, "show columns from t"),
        "a|int|YES||NULL|;b|varchar(9)|YES||null|;c|varchar(9)|YES||it's)|;"
    );
}

/// A server that looks at all tokens for each of them would need minutes for each of these.
#[test]
fn long_statements_are_read_once() {
    let server = Server::start();
    let mut client = server.client();
    let began = Instant::now();
    for (text, count, code) in [
        ("a || b, ", 200_000, 1146),
        ("seq_1_to_2, ", 160_000, 1146),
        ("use index (", 180_000, 1064),
    ] {
        let sql = format!("select {}1 from missing", text.repeat(count));
        assert_eq!(failure(&mut client, &sql).code, code, "{text}");
    }
    let sql = format!("create table t (a int {})", "/*!*/".repeat(400_000));
    change(&mut client, &sql);
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    let variables = |count: usize| {
        let variables: Vec<_> = (0..count).map(|number| format!("@a{number} is null")).collect();
        format!("select {}", variables.join(" and "))
    };
    change(&mut client, "set @a3 = 1");
    assert_eq!(rows(&mut client, &variables(900)), "0;");
    assert_eq!(failure(&mut client, &variables(1025)).code, 1235);
}

#[test]
fn one_table_is_dropped_or_none() {
    let server = Server::start();
    let mut client = server.client();
    for (sql, code) in [
        ("drop table if exists missing, sbtest1", 1235),
        ("drop table if exists missing now", 1064),
        ("drop view if exists v, w", 1235),
        ("drop table if exists missing cascade now", 1064),
    ] {
        assert_eq!(failure(&mut client, sql).code, code, "{sql}");
    }
    let missing = request::update("drop table if exists missing cascade");
    assert_eq!(client.run(2, missing).good().warnings[0].code, 1051);
    change(&mut client, "drop table sbtest1 restrict");
    assert_eq!(failure(&mut client, "select * from sbtest1").code, 1146);
}

#[test]
fn an_index_is_dropped_from_its_own_table() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (a int)");
    let error = failure(&mut client, "drop index k_1 on t");
    assert_eq!(
        (error.code, &*error.text),
        (1091, "Can't DROP 'k_1'; check that column/key exists")
    );
    change(&mut client, "drop index K_1 on SBTEST1");
}

#[test]
fn an_upsert_tells_its_number_whatever_number_came_last() {
    let server = Server::start();
    let mut client = server.client();
    for table in ["one", "two"] {
        let sql = "(id int auto_increment primary key, u int unique)";
        change(&mut client, &format!("create table {table} {sql}"));
    }
    change(&mut client, "insert into one (u) values (1)");
    let upsert = "insert into two (u) values (1) on duplicate key update u = 2";
    for number in [Some(1), None, Some(3)] {
        assert_eq!(client.run(2, request::update(upsert)).good().insert_id, number);
    }
}

#[test]
fn a_column_of_integers_takes_no_other_value() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (n int(10) unsigned not null, b bigint default 1, y year)");
    change(&mut client, "insert into t (n) values (0)");
    let error = failure(&mut client, "update t set n = n - 1");
    let text = "Out of range value for a column of integers: -1";
    assert_eq!((error.code, &*error.text), (1264, text));
    for sql in [
        "insert ignore into t (n) values (-1)",
        "insert ignore into t (n) values (1), (2.5)",
        "update ignore t set n = n - 1",
        "update t set b = 9223372036854775808",
        "insert into t values (1, 18446744073709551615, 1)",
        "update t set b = 0.5",
        "update t set b = 'x'",
        "insert into t (n, y) values (1, -1)",
    ] {
        assert_eq!(failure(&mut client, sql).code, 1264, "{sql}");
    }
    let large = [Scalar::raw_string("18446744073709551615")];
    let error = client.run(2, request::query_with("update t set b = ?", large)).failure();
    assert_eq!(error.code, 1264);
    change(&mut client, "insert into t values ('2', -9223372036854775808, 2024)");
    change(&mut client, "alter table t add m smallint unsigned default 7");
    assert_eq!(failure(&mut client, "update t set m = -1").code, 1264);
    let generated = "alter table t add g text generated always as (n + 1)";
    assert_eq!(failure(&mut client, generated).code, 1235);
    change(&mut client, "alter table t rename column n to o");
    let all = "0u|1|NULL|7u;2u|-9223372036854775808|2024u|7u;";
    assert_eq!(rows(&mut client, "select * from t"), all);
    let definition = rows(&mut client, "show create table t");
    assert!(!definition.to_lowercase().contains("check"), "{definition}");
}

#[test]
fn only_a_row_that_is_passed_over_gives_a_warning() {
    let server = Server::start();
    let mut client = server.client();
    for sql in [
        "update ignore sbtest1 set k = 1 where id = -1",
        "insert ignore into sbtest1 select * from sbtest1 where false",
    ] {
        assert_eq!(client.run(2, request::update(sql)).good().warnings.len(), 0, "{sql}");
    }
    let mut returning = request::update("insert ignore into sbtest1 (k) values (1)");
    returning.hint = Some(b"/* +returning fields(id) */".to_vec());
    let reply = client.run(2, returning).good();
    assert_eq!((text(&reply).as_str(), reply.warnings.len()), ("101;", 0));
}

#[test]
fn an_index_of_an_expression_is_shown() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create index i on sbtest1 ((k + 1))");
    let shown = rows(&mut client, "show index from sbtest1");
    assert!(shown.contains("sbtest1|1|i|1|;"), "{shown}");
}

#[test]
fn a_number_equals_true_if_it_is_one() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(rows(&mut client, "select 5 <=> true, 1 <=> TRUE, 5 <=> false"), "0|1|0;");
}

/// SQLite's own functions would need minutes for these, and nothing could interrupt them.
#[test]
fn searches_in_texts_have_limits() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "set @a = hex(zeroblob(4000000)), @b = concat(hex(zeroblob(2000000)), 1)");
    let sql = "select instr(@a, @b), length(replace(@a, @b, 2)) = length(@a)";
    assert_eq!(rows(&mut client, sql), "0|1;");
    assert_eq!(failure(&mut client, "select length(replace(@a, 0, @b))").code, 1153);
    for (sql, code) in [("select 'a' glob 'a'", 1582), ("select trim('a', 'a')", 1582)] {
        assert_eq!(failure(&mut client, sql).code, code, "{sql}");
    }
    assert_eq!(rows(&mut client, "select trim(' a ')"), "a;");
}

#[test]
fn names_and_texts_that_a_session_keeps_have_limits() {
    let server = Server::start();
    let mut client = server.client();
    let [longest, longer] = [64, 65].map(|length| "ä".repeat(length));
    change(&mut client, "begin");
    change(&mut client, &format!("savepoint {longest}"));
    assert_eq!(failure(&mut client, &format!("savepoint {longer}")).code, 1059);
    change(&mut client, &format!("rollback to {longest}"));
    let [longest, longer] = [1024, 1025].map(|length| "a".repeat(length));
    change(&mut client, &format!("set sql_mode = '{longest}'"));
    let error = failure(&mut client, &format!("set sql_mode = '{longer}'"));
    assert_eq!((error.code, &*error.text), (1231, "Variable 'sql_mode' has at most 1024 bytes"));
}

/// SQLite writes one query into another, and its recursion would overflow the stack.
#[test]
fn expressions_of_queries_and_views_have_a_limit_together() {
    let server = Server::start();
    let mut client = server.client();
    let sum = |length: usize| "+1".repeat(length);
    let nested = |count: usize, length: usize| {
        let start = format!("select a{} as a from (", sum(length)).repeat(count);
        format!("{start}select id as a from sbtest1 where id = 1{}", ")".repeat(count))
    };
    assert_eq!(rows(&mut client, &nested(1, 900)), "901;");
    assert_eq!(rows(&mut client, &nested(100, 3)), "301;");
    assert_eq!(failure(&mut client, &nested(5, 900)).code, 1235);
    // The views that a view names may come later.
    let view = |number: usize| {
        // Without quotes, sqlparser would not read the end of the name.
        let (name, next) = (format!("V{number}$😀"), format!("v{}$😀", number + 1));
        format!("create view {name} as select a{} as a from {next}", sum(90))
    };
    for number in (1..6).rev() {
        change(&mut client, &view(number));
    }
    let error = failure(&mut client, "create view v6$😀 as select a from v1$😀, v7");
    assert_eq!(error.code, 1235, "it names itself");
    let last = format!("create view v6$😀 as select k{} as a from sbtest1 where id = 1", sum(49));
    assert_eq!(failure(&mut client, &last).code, 1235);
    change(&mut client, "create view v6$😀 as select 1 as a");
    let within = format!("select a{} as a from v1$😀", sum(900));
    assert_eq!(rows(&mut client, &within), "1351;");
}

#[test]
fn joined_queries_are_as_deep_as_the_deepest() {
    let server = Server::start();
    let mut client = server.client();
    let joined = |query: &str, count: usize| vec![query; count].join(" union all ");
    let flat = joined("select 1, 2", 400);
    assert_eq!(rows(&mut client, &format!("select count(*) from ({flat})")), "400;");
    assert_eq!(change(&mut client, &format!("insert into sbtest1 (k, c) {flat}")), 400);
    let sum = |length: usize| format!("select id{} as id", "+1".repeat(length));
    let reports = joined(&format!("{} from sbtest1", sum(400)), 64);
    assert_eq!(rows(&mut client, &format!("select count(*) from ({reports})")), "32000;");
    let first = joined("select id from a", 3);
    let common = format!("with a as ({} from sbtest1)", sum(400));
    assert_eq!(rows(&mut client, &format!("{common} select count(*) from ({first})")), "1500;");
    for first in ["select 1", "values (1)"] {
        let deep = format!("{first} union {} from a", sum(400));
        assert_eq!(failure(&mut client, &format!("{common} {deep}")).code, 1235, "{first}");
    }
    let nested =
        format!("{} from ({})", sum(400), joined(&format!("{} from sbtest1", sum(400)), 2));
    assert_eq!(failure(&mut client, &nested).code, 1235);
    // 2250 operators overflow the stack.
    let nested = |mut text: String, count: usize| {
        for _ in 0..count {
            text = format!("select a from ({text}){}", " except select 1 as a".repeat(450));
        }
        text
    };
    change(&mut client, &format!("create view v as {}", nested("select 2 as a".to_owned(), 1)));
    let view = "select a from v".to_owned();
    assert_eq!(rows(&mut client, &nested(view.clone(), 1)), "2;");
    assert_eq!(failure(&mut client, &nested(view, 4)).code, 1235);
}

#[test]
fn only_names_of_tables_make_a_view_deeper() {
    let server = Server::start();
    let mut client = server.client();
    let customers = "create view customers as select k, (select count(*) from sbtest1) as orders, \
                     'orders' as kind from sbtest1 where 'orders' in ('orders', 'x')";
    let orders = "create view orders as select customers.k, kind as customers from customers";
    for [first, second] in [[customers, orders], [orders, customers]] {
        change(&mut client, first);
        change(&mut client, second);
        assert_eq!(rows(&mut client, "select count(*) from orders"), "100;");
        change(&mut client, "drop view customers");
        change(&mut client, "drop view orders");
    }
    change(&mut client, "create view n as select 1 as a from m");
    for table in ["n", "'n'", "main.n", "n 'x'", "n'x'", "(sbtest1, (n))", "sbtest1 value, n"] {
        let view = format!("create view m as select 1 as a from {table}");
        assert_eq!(failure(&mut client, &view).code, 1235, "{table}");
    }
    let view = "create view m as select 1 in n as a, 2";
    assert_eq!(failure(&mut client, view).code, 1235);
}

#[test]
fn references_behind_a_column_are_ignored() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (a int references p (id) on delete cascade)");
    change(&mut client, "alter table t add column b int references p (id)");
    change(&mut client, "insert into t values (1, 2)");
}

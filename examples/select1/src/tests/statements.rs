//! Statements and their results.

use std::time::{Duration, Instant};

use epoll_group::codec::proto::resultset::OriginalType;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::Scalar;

use super::{Server, change, failure, rows, text};
use lab::xrpc::{AUTO, request};

#[test]
fn a_client_finds_what_it_looks_for_at_the_start() {
    let server = Server::start();
    let mut client = server.client();
    for (at, sql) in ["show variables", "SHOW GLOBAL VARIABLES;", "/*x*/show session variables"]
        .into_iter()
        .enumerate()
    {
        let reply = client.execute(AUTO + 10 + at as u64, sql).good();
        let value = |name: &str| {
            let row = reply.rows.iter().find(|row| row[0].text() == Some(name));
            row.and_then(|row| row[1].text()).unwrap_or_else(|| panic!("{name} is missing"))
        };
        assert_eq!(value("new_rpc"), "ON");
        assert!(value("version").starts_with("8.0.32-X-Cluster"));
        assert_eq!(value("autocommit"), "ON");
        assert_eq!(value("character_set_client"), "utf8mb4");
        assert_eq!(reply.columns[0].collation, Some(45));
    }
    let id = rows(&mut client, "select connection_id()");
    assert_eq!(id, rows(&mut client, " SELECT  Connection_Id ( ) "));
    assert_eq!(rows(&mut client, "/*X pre alloc*/ select 1"), "1;");
    change(&mut client, "set names `utf8mb4`");
    change(&mut client, "SET autocommit=1");
}

#[test]
fn one_statement_has_many_spellings() {
    let server = Server::start();
    let mut client = server.client();
    let ones = [
        "select 1",
        "SELECT 1;",
        " select\n1 ; ",
        "select/**/1",
        "/*+ hint */ select 1 from dual",
        "/*!50000 select */ 1",
        "select 1 -- comment",
        "select 1 # comment",
        "(select 1)",
        "((select 1))",
        "(select 1) union (select 1) limit 1",
        "select 5--4 = 9",
        "select (1)",
        "select `a` from (select 1 as `a`) t",
        "select 1 as \"b\"",
        "select distinct 1",
        "select 0 || 1",
        "select 1 && 1",
        "select null <=> null",
        "select 7 mod 2",
        "select if(0, 2, 1)",
        "select id from test.sbtest1 where id = 1",
        "select `test`.`sbtest1`.`id` from `test`.`sbtest1` force index (k_1) where id = 1",
        "select t.id from sbtest1 as t where t.id = 1 for update",
        "select id from sbtest1 where id = 1 lock in share mode",
        "select seq from seq_1_to_5 limit 1",
        "select s.seq from seq_1_to_5 s where s.seq = 1",
        "select min(seq) from `seq_1_to_5`",
        "select seq_1_to_5.seq from seq_1_to_5 order by 1 limit 1",
        "select * from seq_1_to_3 where seq < 2",
        "with x as (select 1 as y) select y from x",
        "select length('a')",
        "select @@autocommit",
        "select @@session.autocommit",
        "select length(@@version) > 5",
    ];
    for sql in ones {
        assert_eq!(rows(&mut client, sql), "1;", "{sql}");
    }
    let texts = [
        (r"select 'it''s', 'a\'b', 'c\\d', 'e\nf'", "it's|a'b|c\\d|e\nf;"),
        (r#"select "double ""quoted""", "it's""#, "double \"quoted\"|it's;"),
        ("select concat('a', 1, 'b')", "a1b;"),
        ("select database(), schema()", "test|test;"),
        ("select user()", "root@%;"),
        ("select '你好😀'", "你好😀;"),
        ("select 'a?b' as `?`", "a?b;"),
    ];
    for (sql, expected) in texts {
        assert_eq!(rows(&mut client, sql), expected, "{sql}");
    }
}

#[test]
fn labels_are_those_of_mysql() {
    let server = Server::start();
    let mut client = server.client();
    let cases = [
        ("select 1", "1"),
        ("select 1 as `a b`", "a b"),
        ("select 1 b", "b"),
        ("select 'abc'", "abc"),
        ("select \"abc\"", "abc"),
        ("select @@version", "@@version"),
        ("select @@global.autocommit x", "x"),
        ("select @a", "@a"),
        ("select  1 || 0", "1 || 0"),
        ("select connection_id()", "connection_id()"),
        ("select id from sbtest1 limit 1", "id"),
        ("select t.`id` from test.sbtest1 t limit 1", "id"),
        ("select sleep(0)", "sleep(0)"),
        ("select Sleep( 0.0 ) as s", "s"),
        ("select * from seq_1_to_1", "seq"),
        ("select case when 1 then 2 end", "case when 1 then 2 end"),
    ];
    for (sql, label) in cases {
        assert_eq!(client.execute(2, sql).good().labels(), [label], "{sql}");
    }
}

#[test]
fn columns_are_described_as_mysql_does() {
    let server = Server::start();
    let mut client = server.client();
    change(
        &mut client,
        "create table `kinds` (id bigint not null auto_increment, a tinyint unsigned, b char(7), \
         d decimal(10,2), e datetime(3), f date, g time, h text, i double, j varbinary(9), \
         u varchar(5) default 'x' not null comment 'a', primary key (id), unique key u (u), \
         key a (a)) engine=innodb default charset=utf8mb4",
    );
    let insert = "insert into kinds (a, b, d, e, f, g, h, i, j) values \
                  (200, 'c', 1.5, '2024-02-29 12:34:56.789', '2024-02-29', '-23:59:58', 't', 2, \
                  x'00ff')";
    assert_eq!(change(&mut client, insert), 1);
    let reply = client.execute(2, "select * from kinds").good();
    assert_eq!(reply.rows.len(), 1);
    let column = |name: &str| {
        reply
            .columns
            .iter()
            .find(|column| column.name.as_deref() == Some(name.as_bytes()))
            .expect("it is there")
    };
    let id = column("id");
    assert_eq!(id.flags, Some(0x10 | 0x20 | 0x100));
    assert_eq!(
        (id.table.as_deref(), id.schema.as_deref()),
        (Some(&b"kinds"[..]), Some(&b"test"[..]))
    );
    assert_eq!((column("b").length, column("b").collation), (Some(28), Some(45)));
    assert_eq!(column("a").original_type, OriginalType::MysqlTypeTiny);
    assert_eq!(column("a").flags, Some(0x80));
    assert_eq!(column("u").flags, Some(0x10 | 0x40));
    assert_eq!(column("d").original_type, OriginalType::MysqlTypeNewdecimal);
    assert_eq!(column("h").original_type, OriginalType::MysqlTypeBlob);
    assert_eq!(column("j").collation, Some(63));
    let expected = "200u|c|1.50m";
    assert_eq!(rows(&mut client, "select a, b, d from kinds"), format!("{expected};"));
    // An expression has a type that fits its first values.
    let mixed = "select x from (select null as x union all select 3 union all select null)";
    assert_eq!(rows(&mut client, mixed), "NULL;3;NULL;");
    let mixed = "select x from (select 3 as x union all select 'three')";
    assert_eq!(rows(&mut client, mixed), "3;three;");
    change(&mut client, "create table prices (price decimal(10,2))");
    change(&mut client, "insert into prices values (10.00), (null), (12.50), (7.00)");
    assert_eq!(rows(&mut client, "select price * 2 from prices"), "20.0d;NULL;25.0d;14.0d;");
    let wrong = "select if(seq < 1000, seq, 'x') from seq_1_to_1000";
    assert_eq!(failure(&mut client, wrong).code, 1366);
}

#[test]
fn arguments_of_every_kind_are_values() {
    let server = Server::start();
    let mut client = server.client();
    let cases = [
        (Scalar::signed(-5), "-5;"),
        (Scalar::signed(i64::MIN), "-9223372036854775808;"),
        (Scalar::unsigned(u64::MAX), "18446744073709551615u;"),
        (Scalar::null(), "NULL;"),
        (Scalar::bool(true), "1;"),
        (Scalar::float(1.5), "1.5f;"),
        (Scalar::double(-2.25e100), "-2.25e100d;"),
        (Scalar::string("hello", None), "hello;"),
        (Scalar::string("'; drop table sbtest1; -- ?", Some(45)), "'; drop table sbtest1; -- ?;"),
        (Scalar::string("", None), ";"),
        (Scalar::octets(*b"a\0b"), "a\0b;"),
        (
            Scalar::raw_string("-12345678901234567890.123456789"),
            "-12345678901234567890.123456789m;",
        ),
    ];
    for (scalar, expected) in cases {
        let reply = client.run(2, request::query_with("select ?", [scalar.clone()])).good();
        assert_eq!(text(&reply), expected, "{scalar:?}");
        assert_eq!(reply.labels(), ["?"]);
    }
    let args = [Scalar::identifier("sbtest1"), Scalar::signed(3)];
    let reply = client.run(2, request::query_with("select id from ? where id = ?", args)).good();
    assert_eq!(text(&reply), "3;");
    let odd = [Scalar::identifier("a`b"), Scalar::signed(4)];
    let reply = client.run(2, request::query_with("select 1 as ?, ? as c", odd)).good();
    assert_eq!((reply.labels(), text(&reply)), (vec!["a`b".into(), "c".into()], "1|4;".into()));
    for (sql, scalars, code) in [
        ("select 1", vec![Scalar::signed(1)], 8001),
        ("select ?", vec![], 1064),
        ("select ? + ?", vec![Scalar::signed(1)], 1064),
        ("select ?", vec![Scalar::raw_string("1; drop table sbtest1")], 8001),
        ("select ?", vec![Scalar::placeholder(0)], 8001),
        ("set @a = ?", vec![], 1064),
        ("show variables", vec![Scalar::signed(1)], 8001),
        ("select ? + 1", vec![Scalar::unsigned(u64::MAX)], 1264),
    ] {
        let error = client.run(2, request::query_with(sql, scalars)).failure();
        assert_eq!(error.code, code, "{sql}: {}", error.text);
    }
}

#[test]
fn mistakes_have_the_numbers_of_mysql() {
    let server = Server::start();
    let mut client = server.client();
    let cases = [
        ("this is no sql", 1064, "42000"),
        ("", 1065, "42000"),
        ("/* nothing */", 1065, "42000"),
        ("select 1; drop table sbtest1", 1064, "42000"),
        ("select 'open", 1064, "42000"),
        ("select ?1", 1064, "42000"),
        ("select :a", 1064, "42000"),
        ("select $a", 1054, "42S22"),
        ("pragma journal_mode", 1064, "42000"),
        ("attach 'x' as y", 1064, "42000"),
        ("vacuum", 1064, "42000"),
        ("create temporary table t (a int)", 1235, "42000"),
        ("create trigger t", 1235, "42000"),
        ("select * from missing", 1146, "42S02"),
        ("select missing from sbtest1", 1054, "42S22"),
        ("insert into sbtest1 (id) values (1)", 1062, "23000"),
        ("insert into sbtest1 (k) values (null)", 1048, "23000"),
        ("create table sbtest1 (a int)", 1050, "42S01"),
        ("create table t (a int auto_increment)", 1075, "42000"),
        ("use other", 1049, "42000"),
        ("set missing = 1", 1193, "HY000"),
        ("set version = 1", 1238, "HY000"),
        ("select @@missing", 1193, "HY000"),
        ("rollback to a", 1305, "42000"),
        ("call other()", 1305, "42000"),
        ("xa commit 'a'", 1397, "XAE04"),
        ("show processlist", 1235, "42000"),
        ("show tables like", 1064, "42000"),
        ("select sleep(-1)", 1210, "HY000"),
    ];
    for (sql, code, state) in cases {
        let error = failure(&mut client, sql);
        assert_eq!((error.code, error.state.as_str()), (code, state), "{sql}: {}", error.text);
        assert!(!error.fatal, "{sql}");
    }
    assert_eq!(rows(&mut client, "select count(*) from sbtest1"), "100;");
}

#[test]
fn changes_tell_what_they_changed() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(change(&mut client, "create table t (a int)"), 0);
    let inserted = client.run(2, request::update("insert into t values (1), (2)")).good();
    assert_eq!((inserted.affected, inserted.insert_id), (Some(2), None));
    let numbered = client.run(2, request::update("insert sbtest1 (k) values (1), (2)")).good();
    assert_eq!((numbered.affected, numbered.insert_id), (Some(2), Some(101)));
    assert_eq!(rows(&mut client, "select last_insert_id()"), "101;");
    assert_eq!(change(&mut client, "update t set a = 0"), 2);
    assert_eq!(rows(&mut client, "select row_count()"), "2;");
    let upsert = "insert into sbtest1 (id, k) values (1, 7) on duplicate key update k = values(k)";
    assert_eq!(change(&mut client, upsert), 1);
    assert_eq!(rows(&mut client, "select k from sbtest1 where id = 1"), "7;");
    let ignored = client.run(2, request::update("insert ignore into sbtest1 (id) values (1)"));
    let ignored = ignored.good();
    assert_eq!((ignored.affected, ignored.warnings.len()), (Some(0), 1));
    assert!(rows(&mut client, "show warnings").starts_with("Warning|1062u|"));
    let dropped = client.run(2, request::update("drop table if exists missing")).good();
    assert_eq!(dropped.warnings[0].code, 1051);
    let made = client.run(2, request::update("create table if not exists t (a int)")).good();
    assert_eq!(made.warnings[0].code, 1050);
    failure(&mut client, "select missing");
    assert!(rows(&mut client, "show warnings").starts_with("Error|1054u|"));
    assert_eq!(rows(&mut client, "select 1"), "1;");
    assert_eq!(rows(&mut client, "show warnings"), "");
    assert_eq!(change(&mut client, "truncate table t"), 2);
    let hint = b"/* +returning fields(id, k) */ ".to_vec();
    let mut returning = request::update("update sbtest1 set k = 9 where id in (1, 2)");
    returning.hint = Some(hint);
    assert_eq!(text(&client.run(2, returning).good()), "1|9;2|9;");
}

#[test]
fn variables_belong_to_their_session() {
    let server = Server::start();
    let mut client = server.client();
    client.new_session(4).good();
    change(&mut client, "set @a = 1, @`b c` = 'x', @D := 1 + 2 * 3");
    assert_eq!(rows(&mut client, "select @a, @A, @'b c', @d + 1, @none"), "1|1|x|8|NULL;");
    assert_eq!(text(&client.execute(4, "select @a").good()), "NULL;");
    let sql =
        "SET `sql_mode`=? , `sql_mode`=? , `max_execution_time`=5000 , `max_execution_time`=5000";
    let mode = || Scalar::string("STRICT_TRANS_TABLES,ANSI", None);
    client.run(2, request::query_with(sql, [mode(), mode()])).good();
    assert_eq!(
        rows(&mut client, "select @@sql_mode, @@max_execution_time, @@global.max_execution_time"),
        "STRICT_TRANS_TABLES,ANSI|5000|0;"
    );
    let filtered = "show variables where variable_name in ('sql_mode', 'TIME_ZONE')";
    assert_eq!(rows(&mut client, filtered), "sql_mode|STRICT_TRANS_TABLES,ANSI;time_zone|SYSTEM;");
    change(&mut client, "set session transaction isolation level repeatable read, read only");
    assert_eq!(rows(&mut client, "select @@tx_isolation"), "REPEATABLE-READ;");
    assert_eq!(failure(&mut client, "update sbtest1 set k = 1").code, 1792);
    assert_eq!(rows(&mut client, "show variables like 'tx\\_read%'"), "tx_read_only|ON;");
}

#[test]
fn a_set_that_fails_changes_nothing_of_its_session() {
    let server = Server::start();
    let mut client = server.client();
    client.new_session(4).good();
    let k = "select k from sbtest1 where id = 1";
    let before = rows(&mut client, k);
    change(&mut client, "set @a = 1, autocommit = 0");
    change(&mut client, "update sbtest1 set k = -1 where id = 1");
    let partial = "set @a = 2, @b = 3, sql_mode = 'ansi', autocommit = 1, missing = 1";
    assert_eq!(failure(&mut client, partial).code, 1193);
    assert_eq!(
        rows(&mut client, "select @a, @b, @@sql_mode, @@autocommit"),
        "1|NULL|STRICT_TRANS_TABLES|0;"
    );
    assert_eq!(text(&client.execute(4, k).good()), before);
    change(&mut client, "rollback");
    assert_eq!(rows(&mut client, k), before);
    // A transaction that an expression has begun ends too, so the next statement commits itself.
    change(&mut client, "set autocommit = 1");
    let begins = "set autocommit = 0, @a = @a + 1, missing = 1";
    assert_eq!(failure(&mut client, begins).code, 1193);
    change(&mut client, "update sbtest1 set k = -1 where id = 1");
    assert_eq!(text(&client.execute(4, k).good()), "-1;");
}

#[test]
fn transactions_end_as_they_are_told() {
    let server = Server::start();
    let mut client = server.client();
    let k = "select k from sbtest1 where id = 1";
    let before = rows(&mut client, k);
    for (begin, end) in [
        ("begin", "rollback"),
        ("start transaction", "ROLLBACK WORK"),
        ("set autocommit=0", "rollback"),
    ] {
        change(&mut client, begin);
        change(&mut client, "update sbtest1 set k = -1 where id = 1");
        assert_eq!(rows(&mut client, k), "-1;");
        change(&mut client, end);
        assert_eq!(rows(&mut client, k), before);
        change(&mut client, "set autocommit=1");
    }
    change(&mut client, "begin");
    change(&mut client, "savepoint empty");
    change(&mut client, "update sbtest1 set k = -2 where id = 1");
    change(&mut client, "savepoint a");
    change(&mut client, "update sbtest1 set k = -3 where id = 1");
    client.savepoint(2, Operation::Set, "b").good();
    change(&mut client, "update sbtest1 set k = -4 where id = 1");
    client.savepoint(2, Operation::Rollback, "B").good();
    assert_eq!(rows(&mut client, k), "-3;");
    change(&mut client, "rollback to savepoint a");
    assert_eq!(rows(&mut client, k), "-2;");
    assert_eq!(failure(&mut client, "release savepoint b").code, 1305);
    change(&mut client, "rollback to empty");
    assert_eq!(rows(&mut client, k), before);
    change(&mut client, "release savepoint empty");
    change(&mut client, "update sbtest1 set k = -5 where id = 1");
    change(&mut client, "commit and no chain");
    change(&mut client, "rollback");
    assert_eq!(rows(&mut client, k), "-5;");
}

#[test]
fn a_session_that_ends_takes_its_transaction_along() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "begin");
    change(&mut client, "delete from sbtest1");
    client.close(2);
    client.new_session(4).good();
    assert_eq!(text(&client.execute(4, "select count(*) from sbtest1").good()), "100;");
    client.run(4, request::update("update sbtest1 set k = 1")).good();
}

#[test]
fn sleeping_takes_time_and_no_thread_and_can_be_interrupted() {
    let server = Server::start();
    let mut client = server.client();
    let began = Instant::now();
    assert_eq!(rows(&mut client, "SELECT sleep ( 0.05 ) `s`"), "0;");
    assert!(began.elapsed() >= Duration::from_millis(50));
    assert_eq!(rows(&mut client, "select sleep(0.01), 1"), "0|1;");
    for sql in [
        "select sleep(1000)",
        "select sleep(1000), 1",
        "select count(*) from seq_1_to_1000000000000",
    ] {
        let ticket = client.send_sql(2, request::query(sql));
        std::thread::sleep(Duration::from_millis(30));
        client.kill_query(2);
        let error = client.reply_to(ticket).failure();
        assert_eq!((error.code, error.state.as_str()), (1317, "70100"), "{sql}");
        assert_eq!(rows(&mut client, "select 1"), "1;");
    }
}

#[test]
fn a_result_can_be_chunks_or_without_names_or_large() {
    let server = Server::start();
    let mut client = server.client();
    let mut chunked = request::query("select id, c from sbtest1 order by id");
    chunked.chunk_result = Some(true);
    let reply = client.run(2, chunked).good();
    assert!(reply.chunks > 0);
    assert_eq!((reply.rows.len(), reply.rows[99][0].integer()), (100, Some(100)));
    let mut compact = request::query("select 1");
    compact.compact_metadata = Some(true);
    assert_eq!(client.run(2, compact).good().columns[0].name, None);
    let large = client.execute(2, "select a.seq, b.c from seq_1_to_300 a, sbtest1 b").good();
    assert_eq!(large.rows.len(), 30_000);
    let mut slow = request::query("select * from seq_1_to_300");
    slow.token = Some(1);
    assert_eq!(client.run(2, slow).good().rows.len(), 300);
}

#[test]
fn tables_are_listed_and_described() {
    let server = Server::start();
    let mut client = server.client();
    assert_eq!(rows(&mut client, "show tables"), "sbtest1;");
    assert_eq!(rows(&mut client, "SHOW FULL TABLES FROM test LIKE 'sb%'"), "sbtest1|BASE TABLE;");
    assert_eq!(rows(&mut client, "show databases"), "test;");
    assert_eq!(
        rows(&mut client, "desc sbtest1"),
        "id|integer|NO|PRI|NULL|auto_increment;k|int|NO|MUL|0|;c|char(120)|NO|||;pad|char(60)|NO|||;"
    );
    assert_eq!(
        rows(&mut client, "show index from sbtest1"),
        "sbtest1|0|PRIMARY|1|id;sbtest1|1|k_1|1|k;"
    );
    assert!(rows(&mut client, "show create table sbtest1").starts_with("sbtest1|CREATE TABLE"));
    assert_eq!(failure(&mut client, "describe missing").code, 1146);
    change(&mut client, "create table u (a int(10) unsigned, b decimal(9,2) unsigned)");
    let shown = "u|CREATE TABLE \"u\" (\"a\" INT(10) UNSIGNED, \"b\" DECIMAL(9,2) UNSIGNED);";
    assert_eq!(rows(&mut client, "show create table u"), shown);
    change(&mut client, "insert into u values (4000000000, 1.5)");
    assert_eq!(rows(&mut client, "select * from u"), "4000000000u|1.50m;");
    change(&mut client, "drop table u");
    // Tables that change are described anew.
    assert_eq!(client.execute(2, "select * from sbtest1 limit 1").good().columns.len(), 4);
    change(&mut client, "alter table sbtest1 add column extra int");
    assert_eq!(client.execute(2, "select * from sbtest1 limit 1").good().columns.len(), 5);
    change(&mut client, "alter table sbtest1 add unique index e (extra)");
    change(&mut client, "drop index e on sbtest1");
    change(&mut client, "drop table sbtest1");
    assert_eq!(rows(&mut client, "show tables"), "");
}

#[test]
fn timestamps_rise() {
    let server = Server::start();
    let mut client = server.client();
    let mut last = 0;
    for count in [1, 10, 1, 3, 1] {
        let first = client.timestamps(2, count).good().timestamp.expect("it has one");
        assert!(first > last);
        last = first + count as u64 - 1;
    }
}

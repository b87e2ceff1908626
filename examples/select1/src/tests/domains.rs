//! Columns of types BIT, ENUM and SET.

use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, Expr, GetExpr, IndexInfo, TableInfo};
use epoll_group::codec::proto::resultset::{FieldType, OriginalType};
use epoll_group::codec::proto::value::Scalar;

use super::*;

/// A table with a column of each type. The members contain words that SQLite knows as types.
const TABLE: &str = r"create table t (id int primary key, b bit(4) default b'101', e enum('1','Point','it''s','c\\d') default 'POINT' comment 'x', s set('text','b','') not null default 'b,TEXT', key k (e))";

fn enumerated(name: &str) -> Datum {
    Datum::Enum(name.into())
}

fn set(names: &[&str]) -> Datum {
    Datum::Set(names.iter().map(|name| name.as_bytes().to_vec()).collect())
}

/// The columns `b`, `e` and `s` of the row with this number.
fn row(client: &mut Client, id: i64) -> Vec<Datum> {
    let mut reply = client.execute(2, &format!("select b, e, s from t where id = {id}")).good();
    reply.rows.remove(0)
}

#[test]
fn definitions_come_back_as_they_were_given() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, TABLE);
    let types = [r"bit(4)", r"enum('1','Point','it''s','c\\d')", r"set('text','b','')"];
    let columns = client.execute(2, "show columns from t").good();
    let shown: Vec<_> = columns.rows[1..].iter().map(|row| row[1].text().expect("text")).collect();
    assert_eq!(shown, types);
    let shown = rows(&mut client, "show create table t");
    assert!(types.iter().all(|kind| shown.contains(&format!("\" {kind} "))), "{shown}");
    change(&mut client, "insert into t (id) values (1)");
    let reply = client.execute(2, "select b, e, s from t").good();
    let described = |column: usize| {
        let column = &reply.columns[column];
        (column.r#type, column.original_type, column.length, column.collation)
    };
    assert_eq!(described(0), (FieldType::Bit, OriginalType::MysqlTypeBit, Some(4), Some(63)));
    assert_eq!(described(1), (FieldType::Enum, OriginalType::MysqlTypeEnum, Some(20), Some(45)));
    assert_eq!(described(2), (FieldType::Set, OriginalType::MysqlTypeSet, Some(28), Some(45)));
    assert_eq!(reply.columns[2].flags, Some(0x11));
    assert_eq!(reply.rows, [[Datum::Bit(5), enumerated("Point"), set(&["text", "b"])]]);
}

#[test]
fn values_arrive_in_rows_and_chunks_and_from_plans() {
    let server = Server::start();
    let mut client = server.client();
    change(
        &mut client,
        "create table t (id int primary key, b bit(64), e enum('a','b'), s set('x','y'))",
    );
    let all = "insert into t values (1, b'1', 'a', 'y'), (2, null, null, null), (3, x'ffffffffffffffff', 'b', ''), (4, 1 << 63, 2, 3)";
    assert_eq!(change(&mut client, all), 4);
    let null = || Datum::Null;
    let expected = [
        [Datum::Bit(1), enumerated("a"), set(&["y"])],
        [null(), null(), null()],
        [Datum::Bit(u64::MAX), enumerated("b"), set(&[])],
        [Datum::Bit(1 << 63), enumerated("b"), set(&["x", "y"])],
    ];
    let sql = "select b, e, s from t order by id";
    let [table, schema] = ["t", "test"].map(|name| Scalar::string(name, None));
    let table = TableInfo::new(table, Some(schema));
    let names = ["b", "e", "s"].map(|name| Scalar::string(name, None));
    for chunks in [false, true] {
        let mut query = request::query(sql);
        query.chunk_result = Some(chunks);
        let reply = client.run(2, query).good();
        assert_eq!(
            (reply.rows, reply.chunks > 0),
            (expected.clone().map(Vec::from).to_vec(), chunks)
        );
        let plan = AnyPlan::table_scan(table.clone(), None).table_project(names.clone());
        let plan = ExecPlan { plan: Some(plan), chunk_result: Some(chunks), ..ExecPlan::default() };
        let scanned = client.run_plan(2, plan).good();
        assert_eq!(
            (scanned.columns, scanned.rows),
            (reply.columns, expected.clone().map(Vec::from).to_vec())
        );
    }
    let octets = [Scalar::octets([0xff; 8])];
    client.run(2, request::query_with("update t set b = ? where id = 1", octets)).good();
    assert_eq!(rows(&mut client, "select count(*) from t where b = -1"), "2;");
}

#[test]
fn a_value_has_many_spellings() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, TABLE);
    let cases = [
        ("1, 15, 'point', 'b'", Datum::Bit(15), "Point", &["b"][..]),
        ("2, b'0101', 2, 3", Datum::Bit(5), "Point", &["text", "b"]),
        ("3, B'0', '1', 'b,Text,b,TEXT '", Datum::Bit(0), "1", &["text", "b"]),
        ("4, x'0007', 1, 0", Datum::Bit(7), "1", &[]),
        ("5, true, '4', ''", Datum::Bit(1), "c\\d", &[]),
        ("6, '\\n', 'IT''S  ', '2'", Datum::Bit(10), "it's", &["b"]),
    ];
    for (at, (values, bit, member, members)) in cases.into_iter().enumerate() {
        change(&mut client, &format!("insert into t values ({values})"));
        let expected = [bit, enumerated(member), set(members)];
        assert_eq!(row(&mut client, at as i64 + 1), expected, "{values}");
    }
    let sql = "insert into t values (?, ?, ?, ?)";
    let text = |text: &str| Scalar::string(text, Some(45));
    let values =
        [Scalar::signed(7), Scalar::unsigned(9), Scalar::octets(*b"POINT"), text("b,text")];
    client.run(2, request::query_with(sql, values)).good();
    assert_eq!(row(&mut client, 7), [Datum::Bit(9), enumerated("Point"), set(&["text", "b"])]);
    assert_eq!(rows(&mut client, "select id from t where e = 'POINT' and b > 8"), "1;7;");
    assert_eq!(rows(&mut client, "select b'1000', e + 0 from t where id = 3"), "8|1;");
    let highest = format!("select 0-b'1{}', 7", "0".repeat(62));
    assert_eq!(rows(&mut client, &highest), "-4611686018427387904|7;");
    let all = format!("select 1-b'{}', 7", "1".repeat(64));
    assert_eq!(rows(&mut client, &all), "2|7;");
    for change in [
        "insert into t values (8, x'05', 2, 3)",
        "update t set b = x'0005', e = 'POINT', s = 'B,text' where id = 3",
    ] {
        let mut returning = request::update(change);
        returning.hint = Some(b"/* +returning fields(b, e, s) */".to_vec());
        let expected = [Datum::Bit(5), enumerated("Point"), set(&["text", "b"])];
        assert_eq!(client.run(2, returning).good().rows, [expected], "{change}");
    }
}

#[test]
fn a_value_outside_of_the_type_is_an_error_of_any_statement() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, TABLE);
    change(&mut client, "insert into t (id) values (1)");
    change(&mut client, "create table other (id int, x text)");
    change(&mut client, "insert into other values (2, 'q'), (3, 'B')");
    let truncated = (1265, "01000");
    let too_long = (1406, "22001");
    let cases = [
        ("insert into t (id, e) values (9, 'x')", truncated),
        ("insert into t (id, e) values (9, 0)", truncated),
        ("insert into t (id, e) values (9, 5)", truncated),
        ("insert into t (id, e) values (9, '')", truncated),
        ("insert into t (id, s) values (9, 'b,x')", truncated),
        ("insert into t (id, s) values (9, 8)", truncated),
        ("insert into t (id, s) values (9, -1)", truncated),
        ("insert into t (id, s) values (9, null)", (1048, "23000")),
        ("insert into t (id, b) values (9, 16)", too_long),
        ("insert into t (id, b) values (9, -1)", too_long),
        ("insert into t (id, b) values (9, '1')", too_long),
        ("insert into t (id, b) values (9, 0.5)", too_long),
        ("insert into t (id, b) values (9, b'2')", (1064, "42000")),
        ("insert ignore into t (id, e) values (9, 'x')", truncated),
        ("replace into t (id, e) values (1, 'x')", truncated),
        ("update t set e = 'x'", truncated),
        ("update t set b = b + 11", too_long),
        ("insert into t (id, e) select id, x from other", truncated),
        ("insert into t (id, s) select id, x from other", truncated),
        ("insert into t (id) values (1) on duplicate key update e = 'x'", truncated),
        ("insert into t (id, e) values (1, 'x') on duplicate key update e = values(e)", truncated),
    ];
    for (sql, expected) in cases {
        let error = failure(&mut client, sql);
        assert_eq!((error.code, error.state.as_str()), expected, "{sql}: {}", error.text);
    }
    let error = failure(&mut client, "update t set e = 'x'");
    let text = r"Data truncated for column 'e': 'x' is not in enum('1','Point','it''s','c\\d')";
    assert_eq!(error.text, text);
    let error = failure(&mut client, "update t set b = 16");
    assert_eq!(error.text, "Data too long for column 'b': 16 is not in bit(4)");
    let hostile = "update t set e = 'x\\0 has no column named \ty'";
    let error = failure(&mut client, hostile);
    let text = r"Data truncated for column 'e': 'x\0 has no column named \ty' is not in enum(";
    assert!(error.code == 1265 && error.text.starts_with(text), "{}", error.text);
    assert_eq!(failure(&mut client, "update t set b = 'x values for y'").code, 1406);
    assert_eq!(rows(&mut client, "select count(*) from t"), "1;");
    // The stored form also comes from a select and from a duplicate.
    change(&mut client, "insert into t (id, s) select id, x from other where id = 3");
    assert_eq!(row(&mut client, 3)[2], set(&["b"]));
    let upsert = "insert into t (id, e) values (3, 'POINT') on duplicate key update e = '3', s = 3";
    assert_eq!(change(&mut client, upsert), 1);
    assert_eq!(row(&mut client, 3)[1..], [enumerated("it's"), set(&["text", "b"])]);
}

#[test]
fn definitions_that_mysql_refuses_are_refused() {
    let server = Server::start();
    let mut client = server.client();
    let many = (0..65).map(|member| format!("'m{member}'")).collect::<Vec<_>>().join(",");
    let cases = [
        ("bit(0)", 3013),
        ("bit(65)", 1439),
        ("bit(1) default 2", 1067),
        ("bit(1) default b'10'", 1067),
        ("bit(1) default -1", 1067),
        ("bit(1) default -18446744073709551615", 1067),
        ("bit(1) default (1 + 0)", 1067),
        ("bit(4) default 0x10", 1067),
        ("bit(4) default '5'", 1067),
        ("enum('a','b') default ('zzz')", 1067),
        ("enum('a','b') default (5)", 1067),
        ("enum('a','b') default (current_timestamp)", 1067),
        ("enum()", 1064),
        ("enum('a','A ')", 1291),
        ("enum('a') default 'b'", 1067),
        ("enum('a') default 1", 1067),
        ("set('a','a')", 1291),
        ("set('a,b')", 1367),
        ("set('a\\0b')", 1367),
        ("enum('a\\0b')", 1367),
        ("set('a') default 'a,b'", 1067),
        (&format!("set({many})"), 1097),
    ];
    change(&mut client, "create table t (id int)");
    for (kind, code) in cases {
        for sql in
            [format!("create table u (a {kind})"), format!("alter table t add column a {kind}")]
        {
            assert_eq!(failure(&mut client, &sql).code, code, "{sql}");
        }
    }
    let error = failure(&mut client, "create table u (a enum('a') default 'b')");
    assert_eq!(error.text, "Invalid default value for 'a': 'b' is not in enum('a')");
    let most = many.replace(",'m64'", "");
    change(&mut client, &format!("create table u (s set({most}))"));
    change(&mut client, "insert into u values ('m63,m0'), (-1)");
    assert_eq!(rows(&mut client, "select length(s) from u where s = 'm0,m63'"), "6;");
}

#[test]
fn a_table_can_be_altered() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (id int)");
    change(&mut client, "insert into t values (1)");
    change(&mut client, "alter table t add column e enum('a','b') not null comment 'x'");
    change(&mut client, "alter table t add s set('x','y') default 'y,x'");
    assert_eq!(rows(&mut client, "select concat(e, s) from t"), "ax,y;");
    change(&mut client, "alter table t rename to u");
    change(&mut client, "alter table u rename column e to f");
    let error = failure(&mut client, "update u set f = 'x'");
    assert_eq!(error.text, "Data truncated for column 'f': 'x' is not in enum('a','b')");
    change(&mut client, "alter table u drop column f");
    change(&mut client, "update u set s = 'y,x'");
    assert_eq!(rows(&mut client, "select concat(s, '') from u"), "x,y;");
    assert_eq!(failure(&mut client, "alter table u drop column missing").code, 1054);
    assert_eq!(failure(&mut client, "update u set s = 'z'").code, 1265);
    change(&mut client, "create table if not exists u (s set('q'))");
    assert_eq!(failure(&mut client, "update u set s = 'q'").code, 1265);
    change(&mut client, "drop table u");
}

#[test]
fn names_may_have_quotes_and_rows_are_numbered() {
    let server = Server::start();
    let mut client = server.client();
    let table = r#"`a 'b' "c" _rowid_`"#;
    let column = r#"`d 'e' "f"`"#;
    let sql =
        format!("create table {table} (id int auto_increment primary key, {column} enum('x\"'))");
    change(&mut client, &sql);
    let sql = format!("insert into {table} ({column}) values ('X\"'), (1), (null)");
    let reply = client.run(2, request::update(&sql)).good();
    assert_eq!((reply.affected, reply.insert_id), (Some(3), Some(1)));
    let found = rows(&mut client, &format!("select id, concat({column}, '') from {table}"));
    assert_eq!(found, "1|x\";2|x\";3|NULL;");
    assert_eq!(failure(&mut client, &format!("update {table} set {column} = 'z'")).code, 1265);
    assert_eq!(failure(&mut client, "select stored_value('int', 'a', 1)").code, 1105);
}

#[test]
fn a_default_is_stored_as_a_value_is() {
    let server = Server::start();
    let mut client = server.client();
    let cases = [
        ("bit(4) default (0x05)", "5|5;"),
        ("bit(4) default x'0005'", "5|5;"),
        ("bit(4) default +(5)", "5|5;"),
        ("bit(4) default true", "1|1;"),
        ("bit(64) default 18446744073709551615", "-1|-1;"),
        ("enum('a','b') default ('B')", "b|b;"),
        ("enum('a','b') default x'42'", "b|b;"),
        ("enum('a','b') default (null)", "NULL|NULL;"),
        ("set('x','y') default (('Y,x'))", "x,y|x,y;"),
    ];
    let value = |column| format!("if({column} + 0 = 0, concat({column}, ''), {column} + 0)");
    for (kind, expected) in cases {
        change(&mut client, &format!("create table t (id int, a {kind})"));
        change(&mut client, "insert into t (id) values (1)");
        change(&mut client, &format!("alter table t add column b {kind}"));
        let sql = format!("select {}, {} from t", value("a"), value("b"));
        assert_eq!(rows(&mut client, &sql), expected, "{kind}");
        change(&mut client, "drop table t");
    }
    let error = failure(&mut client, "create table t (a bit(1) default (1 + 0))");
    assert_eq!(error.text, "Invalid default value for 'a': an expression is no literal");
}

#[test]
fn columns_may_have_names_of_the_row_number() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (_rowid_ int, OID int, e enum('a','b'))");
    change(&mut client, "insert into t values (7, 7, 2), (7, 7, 'A')");
    assert_eq!(rows(&mut client, "select concat(e, '') from t order by 1"), "a;b;");
    assert_eq!(failure(&mut client, "update t set e = 'x'").code, 1265);
    let create = "create table u (_rowid_ int, rowid int, oid int, e enum('a'))";
    let error = failure(&mut client, create);
    assert!(error.text.contains("'_rowid_', 'rowid' and 'oid'"), "{}", error.text);
    assert_eq!(failure(&mut client, "select * from u").code, 1146);
}

#[test]
fn a_key_on_an_enum_ignores_case() {
    let server = Server::start();
    let mut client = server.client();
    change(&mut client, "create table t (e enum('a','b') primary key, n int)");
    change(&mut client, "insert into t values ('A', 1)");
    for duplicate in ["'a'", "'A'", "1"] {
        let sql = format!("insert into t values ({duplicate}, 2)");
        assert_eq!(failure(&mut client, &sql).code, 1062, "{sql}");
    }
    change(&mut client, "insert ignore into t values ('A', 2)");
    assert_eq!(failure(&mut client, "insert ignore into t values (1, 2)").code, 1062);
    change(&mut client, "replace into t values (1, 3)");
    change(&mut client, "insert into t values ('B', 4), ('A', 5) on duplicate key update n = 6");
    assert_eq!(rows(&mut client, "select concat(e, n) from t order by e"), "a6;b4;");
    let key = GetExpr::new([(Scalar::string("e", None), Scalar::string("B", None))]);
    let index = IndexInfo { name: Scalar::string("PRIMARY", None), use_parts: None };
    let plan = AnyPlan::get(TableInfo::new(Scalar::string("t", None), None), Some(index), [key]);
    let is_b = Expr::operator("==", [Expr::reference(0), Expr::literal(Scalar::string("b", None))]);
    let plan = ExecPlan { plan: Some(plan.filter(is_b)), ..ExecPlan::default() };
    assert_eq!(client.run_plan(2, plan).good().rows, [[enumerated("b"), Datum::Signed(4)]]);
}

//! Several accounts and several databases.

use epoll_group::Config;
use epoll_group::codec::proto::sql::StmtExecute;
use lab::xrpc::{AUTO, Client, request};
use select1::node::{AccountOptions, Engine, Options, Schema};

use super::plans::row_of;
use super::{Server, change, failure, rows, runtime};

fn account(user: &str, schemas: &[&str]) -> AccountOptions {
    let schemas = schemas.iter().map(|&name| name.to_owned()).collect();
    AccountOptions { schemas, ..AccountOptions::new(user, &format!("{user}'s")) }
}

/// Two databases; `root` may use both, the others one each.
fn server() -> Server {
    let accounts =
        vec![account("root", &[]), account("orders", &["orders"]), account("stock", &["stock"])];
    Server::start_for(accounts, &["orders", "stock"])
}

fn client(server: &Server, user: &str) -> Client {
    let mut client = Client::logged_in(server.address(), user, &format!("{user}'s"));
    client.new_session(2).good();
    client
}

/// A query that names its schema.
fn in_schema(sql: &str, schema: &str) -> StmtExecute {
    StmtExecute { schema_name: Some(schema.into()), ..request::query(sql) }
}

#[test]
fn each_account_has_its_password_and_begins_in_its_first_schema() {
    let server = server();
    let mut wrong = Client::connect(server.address());
    assert_eq!(wrong.try_login("stock", "orders's").expect_err("another's password").code, 1045);
    for (user, schema, all) in [
        ("root", "orders", "orders;stock;"),
        ("orders", "orders", "orders;"),
        ("stock", "stock", "stock;"),
    ] {
        let mut client = client(&server, user);
        assert_eq!(rows(&mut client, "select database()"), format!("{schema};"));
        assert_eq!(rows(&mut client, "show databases"), all);
        assert_eq!(rows(&mut client, "show databases like 'o%'"), all.replace("stock;", ""));
    }
}

#[test]
fn an_account_uses_no_schema_of_others() {
    let server = server();
    let mut client = client(&server, "stock");
    let denied = failure(&mut client, "use orders");
    assert_eq!((denied.code, denied.state.as_str()), (1044, "42000"));
    assert_eq!(denied.text, "Access denied for user 'stock'@'%' to database 'orders'");
    assert_eq!(failure(&mut client, "use none").code, 1049);
    assert_eq!(failure(&mut client, "select * from orders.sbtest1").code, 1146);
    assert_eq!(failure(&mut client, "select * from sbtest1").code, 1146);
    let sql = in_schema("select 1", "orders");
    let fatal = client.run(AUTO, sql).failure();
    assert_eq!((fatal.code, fatal.fatal), (1044, true));
    let plan = row_of("orders", "sbtest1", 1);
    assert_eq!(client.run_plan(2, plan).failure().code, 1044);
}

#[test]
fn use_changes_the_database_of_the_session_alone() {
    let server = server();
    let mut client = client(&server, "root");
    client.new_session(4).good();
    change(&mut client, "USE `Stock`");
    assert_eq!(rows(&mut client, "select schema()"), "stock;");
    change(&mut client, "create table item (id int primary key, n int)");
    change(&mut client, "insert into stock.item values (1, 10)");
    assert_eq!(rows(&mut client, "show tables"), "item;");
    assert_eq!(client.execute(4, "show tables").good().rows.len(), 1, "sbtest1 alone");
    // A statement that names a schema runs there, and so do those behind it.
    client.run(4, in_schema("select n from item", "stock")).good();
    assert_eq!(client.execute(4, "select n from item").good().one().integer(), Some(10));
    // A plan names the schema of its table, whatever that of the session is.
    let plan = row_of("orders", "sbtest1", 1);
    assert_eq!(client.run_plan(2, plan).good().rows.len(), 1);
}

#[test]
fn databases_have_writers_of_their_own() {
    let server = server();
    let [mut orders, mut stock] = ["orders", "stock"].map(|user| client(&server, user));
    change(&mut stock, "create table item (id int primary key)");
    change(&mut orders, "begin");
    change(&mut orders, "update sbtest1 set k = 0 where id = 1");
    change(&mut stock, "set innodb_lock_wait_timeout = 0");
    change(&mut stock, "insert into item values (1)");
    change(&mut orders, "rollback");
}

#[test]
fn an_account_sees_and_ends_no_branch_of_others() {
    let server = server();
    let [mut orders, mut root] = ["orders", "root"].map(|user| client(&server, user));
    for step in ["xa start 'a'", "update sbtest1 set k = -7 where id = 1", "xa end 'a'"] {
        change(&mut orders, step);
    }
    change(&mut orders, "xa prepare 'a'");
    assert_eq!(rows(&mut root, "xa recover"), "");
    for end in ["xa commit 'a'", "xa rollback 'a'"] {
        assert_eq!(failure(&mut root, end).code, 1397);
    }
    // Names belong to accounts, too.
    for step in ["xa start 'a'", "xa end 'a'", "xa prepare 'a'", "xa rollback 'a'"] {
        change(&mut root, step);
    }
    change(&mut orders, "xa commit 'a'");
    assert_eq!(rows(&mut root, "select k from sbtest1 where id = 1"), "-7;");
}

#[test]
fn accounts_and_schemas_that_make_no_sense_are_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let schema = |name: &str, file: &str| {
        let path = if file == ":memory:" { file.into() } else { folder.path().join(file) };
        Schema { name: name.to_owned(), path }
    };
    std::os::unix::fs::symlink(folder.path().join("a.db"), folder.path().join("link.db"))
        .expect("a link");
    let runtime = runtime(Config::default());
    for (accounts, schemas, text) in [
        (vec![account("u", &[])], vec![("a", "a.db"), ("A", "b.db")], "schema A is named twice"),
        (vec![account("u", &[]); 2], vec![("a", "a.db")], "account u is named twice"),
        (vec![account("u", &["b"])], vec![("a", "a.db")], "account u: unknown schema b"),
        (
            vec![account("u", &["a", "A"])],
            vec![("a", "a.db")],
            "account u: schema a is named twice",
        ),
        (vec![account("u", &[])], vec![("a", "a.db"), ("b", "link.db")], "a and b are one file"),
        (vec![account("u", &[])], vec![("a", ":memory:")], "schema a: :memory:"),
        (vec![account("u", &[])], vec![("a", "none/a.db")], "schema a: "),
        (vec![account("u", &[])], vec![], "there is no schema"),
    ] {
        let schemas = schemas.iter().map(|(name, file)| schema(name, file)).collect();
        let error = Engine::open(&Options { accounts, schemas }, runtime.handle());
        let error = error.expect_err(text).to_string();
        assert!(error.contains(text), "{error}");
    }
}

#[test]
fn a_transaction_stays_in_its_database() {
    let server = server();
    let mut client = client(&server, "root");
    change(&mut client, "begin");
    change(&mut client, "update sbtest1 set k = -9 where id = 1");
    assert_eq!(failure(&mut client, "use stock").code, 1235);
    change(&mut client, "use orders");
    // The session and its transaction go on, as after `use`.
    let refused = client.run(2, in_schema("select 1", "stock")).failure();
    assert_eq!((refused.code, refused.fatal), (1235, false));
    let plan = row_of("stock", "item", 1);
    assert_eq!(client.run_plan(2, plan).failure().code, 1235);
    change(&mut client, "commit");
    assert_eq!(rows(&mut client, "select k from sbtest1 where id = 1"), "-9;");
    change(&mut client, "use stock");
}

#[test]
fn definitions_and_lists_are_of_the_schema_of_the_session() {
    let server = server();
    let mut client = client(&server, "root");
    for sql in [
        "create table stock.t (a int)",
        "create table if not exists stock.t as select 1",
        "alter table stock.sbtest1 add b bit",
        "alter table stock.sbtest1 add index i (k)",
        "drop index k_1 on stock.sbtest1",
        "drop table if exists stock.missing",
        "desc stock.sbtest1",
        "show create table stock.sbtest1",
        "show index from stock.sbtest1",
        "show columns from sbtest1 from stock",
        "show tables in stock",
    ] {
        let error = failure(&mut client, sql);
        assert_eq!(error.code, 1235, "{sql}: {}", error.text);
        assert!(error.text.contains("the schema 'stock' here: use it first"), "{}", error.text);
    }
    assert_eq!(rows(&mut client, "show tables in `Orders`"), "sbtest1;");
    change(&mut client, "drop index k_1 on orders.sbtest1");
}

//! Get, scan, range, and the columns that are taken of them.

use super::*;
use crate::node::database::{AccountOptions, Database, Schema, User};
use crate::node::state::EngineSession;
use crate::node::variables::{Globals, Locals};

const TABLES: &str = "
    create table t (id bigint primary key, a int, b varchar(20), c text not null);
    create index k_ab on t (a, b);
    create unique index u_c on t (c);
    insert into t values (1, 5, 'x', 'c1'), (2, null, 'y', 'c2'), (3, 5, null, 'c3'),
        (4, 5, 'a', 'c4'), (5, 7, 'z', 'c5');
    create table w (p varchar(9), q int, primary key (p, q)) without rowid;
    insert into w values ('b', 1), ('a', 2), ('a', 1);
    create table n (x int);
    insert into n values (3), (1), (2);
";

fn ids(db: &Arc<Pool>, plan: AnyPlan) -> Vec<String> {
    rows(db, plan.table_project([text("id")]))
}

#[test]
fn a_key_gets_its_rows() {
    let db = database(TABLES);
    let get =
        |name: &str, parts: &[(&str, Scalar)]| AnyPlan::get(table("t"), index(name), [key(parts)]);
    let int = Scalar::signed;
    assert_eq!(rows(&db, get("PRIMARY", &[("id", int(4))])), ["4,5,'a','c4'"]);
    assert_eq!(ids(&db, get("primary", &[("ID", text("4"))])), ["4"]);
    assert_eq!(ids(&db, get("k_ab", &[("a", int(5))])), ["3", "4", "1"]);
    assert_eq!(ids(&db, get("k_ab", &[("a", int(5)), ("b", text("x"))])), ["1"]);
    assert_eq!(ids(&db, get("k_ab", &[("a", int(5)), ("b", Scalar::null())])), ["3"]);
    assert_eq!(ids(&db, get("k_ab", &[("a", Scalar::null())])), ["2"]);
    assert_eq!(ids(&db, get("u_c", &[("c", text("c5"))])), ["5"]);
    assert_eq!(ids(&db, get("PRIMARY", &[("id", Scalar::double(2.5))])), [""; 0]);
    assert_eq!(ids(&db, get("PRIMARY", &[("id", Scalar::bool(true))])), ["1"]);
    assert_eq!(ids(&db, get("PRIMARY", &[("id", Scalar::unsigned(u64::MAX))])), [""; 0]);
    let unnamed = AnyPlan::get(table("T"), None, [key(&[("id", int(5))])]);
    assert_eq!(ids(&db, unnamed), ["5"]);
    let prefix = AnyPlan::get(table("w"), None, [key(&[("p", text("a"))])]);
    assert_eq!(rows(&db, prefix), ["'a',1", "'a',2"]);
}

#[test]
fn null_for_a_column_that_has_none_gets_nothing() {
    let db = database(TABLES);
    for (name, column) in [("PRIMARY", "id"), ("u_c", "c")] {
        let get = AnyPlan::get(table("t"), index(name), [key(&[(column, Scalar::null())])]);
        let result = run(&db, get, Vec::new()).expect("no error");
        assert_eq!((result.columns.len(), result.rows.len()), (4, 0));
    }
}

#[test]
fn keys_that_are_no_prefix_of_the_index_are_refused() {
    let db = database(TABLES);
    let get = |name: &str, parts: &[(&str, Scalar)]| {
        refusal(&db, AnyPlan::get(table("t"), index(name), [key(parts)]), Vec::new())
    };
    let one = || Scalar::signed(1);
    assert_eq!(get("k_ab", &[("b", one())]), "GET: 'b' is not column 0 of index 'k_ab'");
    assert_eq!(
        get("PRIMARY", &[("id", one()), ("a", one())]),
        "GET: 'a' is not column 1 of index 'PRIMARY'"
    );
    assert_eq!(get("PRIMARY", &[]), "GET without a key");
    assert_eq!(get("k", &[("a", one())]), "no index 'k' on table 't'");
    assert_eq!(get("PRIMARY", &[("id", Scalar::octets(*b"1"))]), "GET: V_OCTETS in a key");
    let none = AnyPlan::get(table("t"), None, []);
    assert_eq!(refusal(&db, none, Vec::new()), "GET without a key");
}

#[test]
fn a_scan_goes_through_the_index_either_way() {
    let db = database(TABLES);
    let scan = |name: &str, reverse| {
        let mut plan = AnyPlan::table_scan(table("t"), index(name));
        plan.table_scan_plan.as_mut().expect("a scan").reverse = Some(reverse);
        ids(&db, plan)
    };
    assert_eq!(scan("PRIMARY", false), ["1", "2", "3", "4", "5"]);
    assert_eq!(scan("PRIMARY", true), ["5", "4", "3", "2", "1"]);
    assert_eq!(scan("k_ab", false), ["2", "3", "4", "1", "5"]);
    assert_eq!(scan("k_ab", true), ["5", "1", "4", "3", "2"]);
    assert_eq!(rows(&db, super::scan("w")), ["'a',1", "'a',2", "'b',1"]);
    assert_eq!(rows(&db, super::scan("n")), ["3", "1", "2"]);
}

#[test]
fn a_range_has_both_its_ends() {
    let db = database(TABLES);
    let range = |name: &str, first: &[(&str, Scalar)], last: &[(&str, Scalar)]| {
        ids(&db, AnyPlan::range_scan(table("t"), index(name), key(first), key(last)))
    };
    let int = Scalar::signed;
    let (a, b) = (|value| ("a", value), |value: &'static str| ("b", text(value)));
    assert_eq!(range("PRIMARY", &[("id", int(2))], &[("id", int(4))]), ["2", "3", "4"]);
    assert_eq!(range("PRIMARY", &[("id", int(4))], &[("id", int(2))]), [""; 0]);
    assert_eq!(range("PRIMARY", &[], &[("id", int(2))]), ["1", "2"]);
    assert_eq!(range("PRIMARY", &[], &[]), ["1", "2", "3", "4", "5"]);
    assert_eq!(range("k_ab", &[a(int(5))], &[a(int(5))]), ["3", "4", "1"]);
    assert_eq!(range("k_ab", &[a(int(5)), b("a")], &[a(int(7)), b("m")]), ["4", "1"]);
    assert_eq!(range("k_ab", &[], &[a(int(5)), b("a")]), ["2", "3", "4"]);
    assert_eq!(range("k_ab", &[a(Scalar::null())], &[a(int(5))]), ["2", "3", "4", "1"]);
    assert_eq!(range("k_ab", &[], &[a(Scalar::null())]), ["2"]);
}

#[test]
fn a_range_is_read_back_from_its_last_key_to_its_first() {
    let db = database(TABLES);
    let range = |reverse, name: &str, field: &str, first, last| {
        let [first, last] = [first, last].map(|value| key(&[(field, Scalar::signed(value))]));
        let mut plan = AnyPlan::range_scan(table("t"), index(name), first, last);
        plan.range_scan.as_mut().expect("a range").reverse = Some(reverse);
        ids(&db, plan)
    };
    assert_eq!(range(true, "PRIMARY", "id", 2, 4), ["4", "3", "2"]);
    assert_eq!(range(false, "PRIMARY", "id", 2, 4), ["2", "3", "4"]);
    assert_eq!(range(true, "PRIMARY", "id", 4, 2), [""; 0]);
    assert_eq!(range(true, "k_ab", "a", 5, 5), ["1", "4", "3"]);
}

#[test]
fn columns_are_taken_by_number_and_by_name() {
    let db = database(TABLES);
    let get = || AnyPlan::get(table("t"), None, [key(&[("id", Scalar::signed(1))])]);
    let project = get().table_project([Scalar::unsigned(3), text("B"), Scalar::unsigned(3)]);
    let result = run(&db, project, Vec::new()).expect("columns");
    assert_eq!(result.columns, ["c Bytes", "b Bytes", "c Bytes"]);
    assert_eq!(result.rows, [["'c1'", "'x'", "'c1'"]]);
    let twice = get().table_project([text("b"), text("id")]).table_project([Scalar::unsigned(1)]);
    assert_eq!(rows(&db, twice), ["1"]);
    let refused = |field: Scalar| refusal(&db, get().table_project([field]), Vec::new());
    assert_eq!(refused(Scalar::unsigned(4)), "TABLE_PROJECT: no column 4 in table 't'");
    assert_eq!(refused(text("x")), "TABLE_PROJECT: no column 'x' in table 't'");
    assert_eq!(refused(Scalar::signed(0)), "value of type 1 is no name");
    assert_eq!(refusal(&db, get().table_project([]), Vec::new()), "TABLE_PROJECT without columns");
}

#[test]
fn tables_that_change_are_noticed() {
    let db = database("create table t (id int primary key, a int); insert into t values (1, 2)");
    let get = || AnyPlan::get(table("t"), None, [key(&[("id", Scalar::signed(1))])]);
    let look = || run(&db, get(), Vec::new());
    assert_eq!(look().expect("a row").columns, ["id Sint", "a Sint"]);
    assert_eq!(look().expect("a row").rows, [["1", "2"]]);
    connection(&db).execute_batch("alter table t add column b text default 'x'").expect("a column");
    assert_eq!(look().expect("a row").rows, [["1", "2", "'x'"]]);
    connection(&db)
        .execute_batch("drop table t; create table t (id int primary key, a double)")
        .expect("ddl");
    assert_eq!(look().expect("no row").columns, ["id Sint", "a Double"]);
    connection(&db).execute_batch("drop table t").expect("ddl");
    assert!(look().is_err());
    connection(&db)
        .execute_batch("create table t (b text, id varchar(9) primary key)")
        .expect("ddl");
    assert_eq!(look().expect("no row").columns, ["b Bytes", "id Bytes"]);
}

#[test]
fn shapes_that_are_seen_again_are_kept_and_their_number_is_bounded() {
    let db = database(TABLES);
    let kept = || connection(&db).plans().statements().len();
    for id in 0..2_000_u64 {
        let get = AnyPlan::get(table("t"), None, [key(&[("id", Scalar::unsigned(id))])]);
        let fields = (0..=id % 1_000).map(|field| Scalar::unsigned(field % 4));
        run(&db, get.table_project(fields), Vec::new()).expect("a row or none");
        assert!(kept() <= 512);
    }
    let before = kept();
    for id in 0..10 {
        let get = AnyPlan::get(table("t"), None, [key(&[("id", Scalar::signed(id))])]);
        run(&db, get, Vec::new()).expect("a row or none");
    }
    assert!(kept() <= before + 1, "the values are no part of the shape");
}

#[test]
fn indexes_are_walked_and_nothing_is_sorted() {
    let db = database(
        "create table s (id integer primary key, k integer not null default 0, n int, x text);
         create index k_1 on s (k); create index n_1 on s (n, k)",
    );
    let one = |name: &'static str| key(&[(name, Scalar::signed(1))]);
    let two = || key(&[("n", Scalar::signed(1)), ("k", Scalar::signed(1))]);
    let none = || key(&[]);
    let (id, k, n) = (|| index("PRIMARY"), || index("k_1"), || index("n_1"));
    let get = |index, key| AnyPlan::get(table("s"), index, [key]);
    let range = |index, first, last| AnyPlan::range_scan(table("s"), index, first, last);
    let plans = [
        (get(id(), one("id")), "SEARCH t USING INTEGER PRIMARY KEY (rowid=?)"),
        (get(k(), one("k")), "SEARCH t USING INDEX k_1 (k=?)"),
        (get(n(), one("n")), "SEARCH t USING INDEX n_1 (n=?)"),
        (get(n(), two()), "SEARCH t USING INDEX n_1 (n=? AND k=?)"),
        (
            range(id(), one("id"), one("id")),
            "SEARCH t USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
        ),
        (range(k(), one("k"), one("k")), "SEARCH t USING INDEX k_1 (k>? AND k<?)"),
        (range(n(), two(), two()), "SEARCH t USING INDEX n_1 (n>? AND n<?)"),
        (range(k(), none(), one("k")), "SEARCH t USING INDEX k_1 (k<?)"),
        (AnyPlan::table_scan(table("s"), id()), "SCAN t"),
        (AnyPlan::table_scan(table("s"), n()), "SCAN t USING INDEX n_1"),
    ];
    for (plan, expected) in plans {
        *connection(&db).plans() = Cache::default();
        run(&db, plan, Vec::new()).expect("no rows");
        let db = connection(&db);
        let plans = db.plans();
        let [statement] = plans.statements()[..] else { panic!("one shape") };
        let mut explain = db.prepare(&format!("explain query plan {statement}")).expect(statement);
        let steps =
            explain.raw_query().mapped(|row| row.get(3)).collect::<Result<Vec<String>, _>>();
        assert_eq!(steps.expect("steps"), [expected], "{statement}");
    }
}

#[test]
fn a_long_scan_that_finds_nothing_can_be_cancelled() {
    let db = database("create table t (x int)");
    let insert = "with recursive n (x) as (select 1 union all select x + 1 from n where x < 10000)
        insert into t select x from n";
    connection(&db).execute(insert, []).expect("rows");
    let never = epoll_group::codec::proto::plan::Expr::literal(Scalar::bool(false));
    let folder = tempfile::tempdir().expect("a folder");
    let schema = Schema { name: "d".to_owned(), path: folder.path().join("d.db") };
    let database = Database::open(&schema).map(Arc::new).expect("it opens");
    let account = AccountOptions::new("u", "");
    let user = User::new(&account, &[database]).map(Arc::new).expect("a user");
    let session = EngineSession::new(1, user, Locals::new(&Arc::new(Globals::new())), None);
    let mut db = connection(&db);
    db.run_for(&session);
    let (message, plan) = (ExecPlan::default(), scan("t").filter(never));
    let mut rows =
        PlanRequest::read(&message, &plan).and_then(|plan| plan.run(db)).expect("a plan");
    session.interrupt().cancel();
    assert_eq!(rows.next_row(&mut |_| ()), Err(SessionError::interrupted()));
}

#[test]
fn a_decimal_of_too_many_digits_is_refused_and_not_null() {
    let db = database(
        "create table t (id int, m decimal(65,2));
         insert into t values (1, 1e35), (2, 2.5)",
    );
    assert_eq!(refusal(&db, scan("t"), Vec::new()), "DECIMAL is out of range");
    assert_eq!(ids(&db, scan("t")), ["1", "2"]);
}

#[test]
fn a_float_key_gets_what_its_text_has_stored() {
    let db = database(
        "create table t (id int, f float);
         create index k_f on t (f);
         insert into t values (1, 0.1), (2, '0.1'), (3, 0.25)",
    );
    let get = |f| AnyPlan::get(table("t"), index("k_f"), [key(&[("f", Scalar::float(f))])]);
    assert_eq!(ids(&db, get(0.1)), ["1", "2"]);
    assert_eq!(ids(&db, get(0.25)), ["3"]);
}

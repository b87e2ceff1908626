//! Selects over all nodes. The same rows are in a table that is on one node, which says what is right.

use epoll_group::client::{Request, Session};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::value::Value;

use super::{World, insert_long_rows, refused, rows, until};

/// A proxy with rows that repeat, in the sharded table and in `settings`.
fn filled() -> World {
    let world = World::new();
    let mut session = world.session();
    session.run("drop table sbtest1").expect("it is dropped");
    let columns = "(id int primary key, k int, c varchar(20), d double, u int)";
    for table in ["sbtest1", "settings"] {
        session.run(format!("create table {table} {columns}")).expect("it is made");
        for id in 0..60_i64 {
            let text = ["ab", "Ab", "b", "ä", "", "abc"][(id * 7 % 6) as usize];
            let insert = Request::sql(format!(
                "insert into {table} (id, k, c, d, u) values (?, ?, ?, ?, ?)"
            ));
            let insert = insert.args([
                Scalar::signed(id),
                if id % 11 == 3 { Scalar::null() } else { Scalar::signed(id * 13 % 7 - 3) },
                Scalar::string(text, None),
                Scalar::double((id * 5 % 9) as f64 / 4.0),
                // All on one node.
                if id % 2 == 0 { Scalar::null() } else { Scalar::signed(id) },
            ]);
            session.run(insert).expect("it is inserted");
        }
    }
    world
}

/// Rows of a select of the table on one node, and of the sharded one.
fn both(session: &mut Session, text: &str, form: fn(Request) -> Request) -> [String; 2] {
    ["settings", "sbtest1"].map(|table| {
        let request = Request::sql(text.replace("{}", table));
        rows(session, form(request))
    })
}

fn sorted(text: &str) -> Vec<&str> {
    let mut rows: Vec<_> = text.split(';').collect();
    rows.sort_unstable();
    rows
}

#[test]
fn selects_over_all_nodes_say_what_one_node_would() {
    let world = filled();
    let mut session = world.session();
    let ordered = [
        "select id, c from {} order by id",
        "select * from {} order by k desc, id",
        "select c from {} order by c, id desc",
        "select id from {} order by c desc, d, id limit 7",
        "select id from {} order by d, id limit 5, 9",
        "select id from {} order by d, id limit 9 offset 55",
        "select id from {} order by id limit 3, 9223372036854775807",
        "select id from {} order by id limit 0",
        "select id * 2 as n, k from {} where k > 0 order by n desc",
        "select u from {} order by u, id",
        "select id from {} where id in (1, 2, 5, 44) order by 1 desc",
        "select count(*), sum(k), min(k), max(k), avg(k), avg(d), min(c), max(c), sum(u) from {}",
        "select count(*), avg(k), sum(d) from {} where k > 100",
        "select k, count(*), avg(k), sum(d), min(c) from {} group by k order by k",
        "select count(*), max(id) from {} group by k, c order by c desc, k limit 4, 5",
        "select c, k from {} group by 1, 2 order by 2 desc, 1",
        "select distinct c, k from {} order by k, c",
        "select distinct k from {} order by k desc limit 3",
        "select id, group_concat(c), count(*) from {} group by id having count(*) > 0 order by id",
    ];
    for text in ordered {
        let [expected, seen] = both(&mut session, text, |request| request);
        assert_eq!(seen, expected, "{text}");
    }
    let unordered = [
        "select * from {}",
        "select k, c from {} where d > 1",
        "select k, count(*) from {} group by k",
        "select distinct c from {}",
        "select u, upper(c) from {} where id in (1, 2, 3)",
        "select c from {} where k > 1000",
    ];
    for text in unordered {
        // The client may ask for chunks and metadata without names.
        let [expected, seen] = both(&mut session, text, |request| request.chunks().compact());
        assert_eq!(sorted(&seen), sorted(&expected), "{text}");
    }
    assert_eq!(sorted(&rows(&mut session, "select id from sbtest1 limit 5")).len(), 6);
    let limited = |rows: i64, skip: i64| {
        let request =
            Request::sql("select id from sbtest1 where id > ? order by id limit ? offset ?");
        request.args([Scalar::signed(10), Scalar::signed(rows), Scalar::signed(skip)])
    };
    assert_eq!(rows(&mut session, limited(3, 2)), "13;14;15;");
    assert_eq!(refused(&mut session, limited(-1, 2)).0, 1210);
    world.settled();
}

#[test]
fn select_over_all_nodes_is_one_statement_of_its_session() {
    let world = filled();
    let mut session = world.session();
    session.run("set @a = 1").expect("it is set");
    assert_eq!(rows(&mut session, "select id from sbtest1 order by id limit 2"), "0;1;");
    let answer = session.execute("select id from sbtest1 order by id desc").expect("it begins");
    // The rest is given up.
    drop(answer);
    assert_eq!(rows(&mut session, "select @a, count(*) from sbtest1 group by 1"), "1|60;");
    session.run("begin").expect("it begins");
    assert_eq!(refused(&mut session, "select id from sbtest1").0, 1235);
    assert_eq!(rows(&mut session, "select id from sbtest1 where id in (1, 3) order by id"), "1;3;");
    session.run("rollback").expect("it is undone");
    // An error of one node is that of the statement.
    assert_eq!(refused(&mut session, "select none from sbtest1 order by id").0, 1054);
    let error = refused(&mut session, "select k, count(*) n from sbtest1 group by k order by n");
    assert!(error.1.contains("needs all groups at once"), "{error:?}");
    drop(session);
    world.settled();
}

#[test]
fn one_slow_reader_of_all_rows_holds_little() {
    const ROWS: i64 = 400;
    let world = World::new();
    let mut session = world.session();
    insert_long_rows(&mut session, 100..100 + ROWS);
    let client = world.client_with_small_window();
    for text in [
        "select id, c from sbtest1 where id >= 100 order by id",
        "select id, c, count(*) from sbtest1 where id >= 100 group by c, id order by id",
        "select min(id), c from sbtest1 where id >= 100 group by c, pad",
    ] {
        let mut slow = client.session().expect("the proxy is there");
        let mut answer = slow.execute(text).expect("it begins");
        let mut read = 0;
        while let Some(row) = answer.next_row().expect(text) {
            if !text.contains("min") {
                assert_eq!(row.get(0).expect("a number"), Value::Signed(100 + read), "{text}");
            }
            read += 1;
            if read == 3 {
                // Others go on meanwhile.
                for _ in 0..50 {
                    assert_eq!(rows(&mut session, "select k from sbtest1 where id = 2"), "20;");
                }
                let held = world.fleet.proxy.stats().buffered_bytes;
                assert!(held < 4 << 20, "{held} bytes wait in the proxy: {text}");
            }
        }
        assert_eq!(read, if text.contains("min") { 1 } else { ROWS }, "{text}");
        world.settled();
    }
}

#[test]
fn killing_a_select_over_all_nodes_ends_it_at_each() {
    let world = filled();
    let mut session = world.session();
    for _ in 0..10 {
        let text = "select id, k from sbtest1 where 0 = sleep(600) order by id";
        let pending = session.send(text).expect("it is sent");
        until("it runs", || world.fleet.in_use() == 2);
        session.canceller().cancel();
        let error = pending.wait().and_then(super::text).expect_err("it is killed");
        assert_eq!(error.server_error().map(|said| said.code), Some(1317), "{error}");
        world.settled();
    }
    assert_eq!(rows(&mut session, "select id from sbtest1 order by id limit 1"), "0;");
}

/// A select of columns, groups, orders and limits, and whether its rows have one order only.
fn any_select(random: &mut fastrand::Rng) -> (String, bool) {
    let mut some = |from: &[&str], most: usize| {
        let count = random.usize(0..=most);
        let chosen = (0..count).map(|_| from[random.usize(..from.len())].to_owned());
        chosen.collect::<Vec<_>>().join(", ")
    };
    let columns = some(&["k", "c", "d", "u", "id", "k + 1", "upper(c) as x", "k * d as y", "*"], 3);
    let folded = ["count(*)", "sum(k)", "avg(k)", "min(d)", "max(c)", "avg(d) as a", "count(u)"];
    let folded = some(&folded, 3);
    let groups = some(&["k", "c", "d", "id", "1", "k + 1", "upper(c)"], 2);
    let orders =
        ["k", "c desc", "d", "id desc", "u", "1", "2 desc", "x", "y", "k + 1", "count(*)", "(1)"];
    let orders = some(&orders, 3);
    let limit = some(&[" limit 5", " limit 2, 7", " limit 100 offset 3"], 1);
    let items: Vec<_> = [columns, folded].into_iter().filter(|items| !items.is_empty()).collect();
    let items = if items.is_empty() { "*".to_owned() } else { items.join(", ") };
    let distinct = if random.u32(..4) == 0 { "distinct " } else { "" };
    let condition = ["", " where k > 0", " where id in (3, 4, 9, 17)", " where d < 1 or c = 'ab'"];
    let mut text = format!("select {distinct}{items} from {{}}{}", condition[random.usize(..4)]);
    for (word, list) in [(" group by ", &groups), (" order by ", &orders)] {
        if !list.is_empty() {
            text.push_str(word);
            text.push_str(list);
        }
    }
    let orders: Vec<_> = orders.split(", ").collect();
    // The keys of the groups, or the id, decide the order.
    let is_total = match &groups[..] {
        "" => orders.contains(&"id desc"),
        keys => keys.split(", ").all(|key| {
            orders.iter().any(|order| order.strip_suffix(" desc").unwrap_or(order) == key)
        }),
    };
    if is_total {
        text.push_str(&limit);
    }
    (text, is_total)
}

#[test]
fn any_select_over_all_nodes_says_what_one_node_would_or_is_refused() {
    let world = filled();
    let mut session = world.session();
    let mut random = fastrand::Rng::with_seed(42);
    let (mut merged, mut refused) = (0, 0);
    for _ in 0..1000 {
        let (text, is_total) = any_select(&mut random);
        let [expected, seen] = both(&mut session, &text, |request| request);
        if seen.starts_with("error 1235") {
            refused += 1;
            continue;
        }
        merged += usize::from(!seen.starts_with("error"));
        if is_total || seen.starts_with("error") {
            assert_eq!(seen, expected, "{text}");
        } else {
            assert_eq!(sorted(&seen), sorted(&expected), "{text}");
        }
    }
    assert!(merged > 100 && refused > 50, "{merged} merged, {refused} refused");
}

/// Two statements that each held the last session that the other waits for would wait for ever.
#[test]
fn many_selects_over_all_nodes_share_one_session_of_each() {
    let world = World::with_one_session(2);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut session = world.session();
                for _ in 0..50 {
                    let text = "select id from sbtest1 order by id limit 3";
                    assert_eq!(rows(&mut session, text), "1;2;3;");
                }
            });
        }
    });
    world.settled();
}

#[test]
fn nodes_may_give_integers_and_fractions_for_one_expression() {
    let world = World::new();
    let mut session = world.session();
    for (text, expected) in [
        (
            "select case when id % 2 then id else id * 1.25 end as n from sbtest1 order by n",
            "Double(1.0);Double(2.5);Double(3.0);Double(5.0);Double(5.0);Double(7.0);Double(7.5);\
             Double(10.0);",
        ),
        ("select max(case when id % 2 then id else id * 1.25 end) from sbtest1", "Double(10.0);"),
        (
            "select case when id % 2 then null else id * 0.5 end as n, id from sbtest1 \
             where id < 3 order by n",
            "NULL|1;Double(1.0)|2;",
        ),
    ] {
        assert_eq!(rows(&mut session, text), expected, "{text}");
    }
    let large = "select case when id % 2 then 9007199254740993 else id * 0.5 end from sbtest1";
    assert_eq!(refused(&mut session, large).0, 1235);
}

//! Changes of one client's session are invisible to other clients.

use epoll_group::client::Request;
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::tso::Operation;
use epoll_group::codec::proto::value::Scalar;

use super::{World, discarded, limits, refused, rows};
use crate::fleet::Fleet;

#[test]
fn settings_stay_with_the_client_that_made_them() {
    let world = World::new();
    let (mut one, mut other) = (world.session(), world.session());
    one.run("set @a = 7").expect("it is set");
    one.run("set @b = 'text', time_zone = '+03:00'").expect("they are set");
    for _ in 0..20 {
        // At whichever node it is.
        assert_eq!(rows(&mut one, "select @a, @b, @@time_zone"), "7|text|+03:00;");
        assert_eq!(rows(&mut other, "select @a, @b, @@time_zone"), "NULL|NULL|SYSTEM;");
    }
    for id in 1..=4 {
        let with = format!("select k + @a from sbtest1 where id = {id}");
        assert_eq!(rows(&mut one, with.as_str()), format!("{};", id * 10 + 7));
        assert_eq!(rows(&mut other, with.as_str()), "NULL;");
    }
    assert_eq!(rows(&mut one, "select count(*) from sbtest1 where k > @a"), "8;");
    // The later one counts, also where the first one was made.
    one.run("set @a = 8").expect("it is set");
    for _ in 0..4 {
        assert_eq!(rows(&mut one, "select @a, @b"), "8|text;");
    }
    drop(one);
    world.settled();
    for _ in 0..20 {
        assert_eq!(rows(&mut other, "select @a, @b, @@time_zone"), "NULL|NULL|SYSTEM;");
    }
}

#[test]
fn transactions_of_one_client_alone_are_read_only() {
    let world = World::with_one_session(1);
    let (mut one, mut other) = (world.session(), world.session());
    let change = "update sbtest1 set k = 0 where id = 1";
    for text in ["set session transaction read only", "begin"] {
        one.run(text).expect(text);
    }
    assert_eq!(rows(&mut one, "select k from sbtest1 where id = 1"), "10;");
    one.run("commit").expect("it ends");
    assert_eq!(refused(&mut one, change).0, 1792);
    // Its session of the data node is the only one.
    drop(one);
    other.run(change).expect("it is changed");
}

#[test]
fn the_last_character_set_counts() {
    let world = World::new();
    let mut session = world.session();
    for (text, expected) in [
        ("set character_set_results = latin1", "latin1;"),
        ("set names utf8mb4", "utf8mb4;"),
        ("set names latin1", "latin1;"),
        ("set character_set_results = utf8mb4", "utf8mb4;"),
    ] {
        session.run(text).expect(text);
        for _ in 0..4 {
            // At whichever node it is.
            assert_eq!(rows(&mut session, "select @@character_set_results"), expected, "{text}");
        }
    }
}

#[test]
fn a_setting_that_fails_is_not_kept() {
    let world = World::new();
    let mut session = world.session();
    assert_eq!(refused(&mut session, "set no_such_variable = 1").0, 1193);
    assert_eq!(rows(&mut session, "select 1"), "1;");
    session.run("set @a = 1").expect("it is set");
    assert_eq!(rows(&mut session, "select @a"), "1;");
    let mut both = Scalar::octets(*b"ansi_quotes");
    both.v_string = Scalar::string("", None).v_string;
    for mode in [Scalar::string("ansi_quotes", None), both, Scalar::unsigned(4)] {
        let arguments = Request::sql("set sql_mode = ?").arg(mode);
        assert_eq!(refused(&mut session, arguments).0, 1235);
    }
    for mode in ["4", "+4", "x'616e7369'", "0x616e7369", "n'ansi'", "'ANSI'"] {
        assert_eq!(refused(&mut session, format!("set sql_mode = {mode}")).0, 1235, "{mode}");
    }
    let beside = Request::sql("set sql_mode = '', @a = ?").arg(Scalar::signed(1));
    world.session().run(beside).expect("the number is no mode");
    for number in 1..64 {
        session.run(format!("set @a{number} = 1")).expect("there is room");
    }
    let (code, text) = refused(&mut session, "set @b = 1");
    assert_eq!(code, 1235, "{text}");
    // Replaces a setting.
    session.run("set @a = 2").expect("it is set");
    assert_eq!(rows(&mut session, "select @a, @b"), "2|NULL;");
    drop(session);
    world.settled();
}

#[test]
fn the_session_of_a_refused_set_is_discarded() {
    let world = World::with(|| Fleet::start(1, limits().max(1)).expect("they start"));
    let (mut one, mut other) = (world.session(), world.session());
    let partial = "set @a = 7, no_such_variable = 1";
    assert_eq!(refused(&mut one, partial).0, 1193);
    assert_eq!(rows(&mut other, "select @a"), "NULL;");
    assert_eq!(discarded(&world), 1);
    // The transaction keeps its session until it ends.
    one.run("begin").expect("it begins");
    one.run("update sbtest1 set k = 0 where id = 1").expect("it is changed");
    assert_eq!(refused(&mut one, partial).0, 1193);
    assert_eq!(rows(&mut one, "select k from sbtest1 where id = 1"), "0;");
    assert_eq!(discarded(&world), 1);
    one.run("commit").expect("it is kept");
    assert_eq!(rows(&mut other, "select @a, k from sbtest1 where id = 1"), "NULL|0;");
    assert_eq!(discarded(&world), 2);
    // The settings before it stay.
    one.run("set @b = 1").expect("it is set");
    assert_eq!(refused(&mut one, partial).0, 1193);
    assert_eq!(rows(&mut one, "select @a, @b"), "NULL|1;");
    assert_eq!(discarded(&world), 3);
}

#[test]
fn what_would_stay_in_a_shared_session_is_refused() {
    let world = World::new();
    let mut session = world.session();
    for text in [
        "create temporary table sbtest1 (id int)",
        "select get_lock('a', 1)",
        "select @a := 5",
        "select last_insert_id() + 1",
        "set global max_connections = 5",
        "lock tables sbtest1 read",
    ] {
        let (code, said) = refused(&mut session, text);
        assert_eq!(code, 1235, "{text}: {said}");
        assert!(said.contains("cannot route"), "{said}");
    }
    assert_eq!(refused(&mut session, "use other").0, 1049);
    assert_eq!(rows(&mut session, "select @a"), "NULL;");
    assert_eq!(world.fleet.in_use(), 0);
}

/// Letters that this character set lacks all come as `?`.
#[test]
fn texts_in_another_character_set_are_not_compared() {
    let world = World::new();
    for text in ["set names latin1", "set character_set_results = latin1"] {
        let mut session = world.session();
        session.run(text).expect("it is set");
        for text in ["select c from sbtest1 order by c", "select max(c) from sbtest1"] {
            assert_eq!(refused(&mut session, text).0, 1235, "{text}");
        }
        assert_eq!(rows(&mut session, "select count(*), max(k) from sbtest1"), "8|80;");
        session.run("set character_set_results = utf8mb4").expect("it is set");
        session.run("select max(c) from sbtest1").expect("it is UTF-8 again");
    }
}

#[test]
fn what_a_session_keeps_is_short() {
    let world = World::new();
    let mut session = world.session();
    let long = "x".repeat(16 * 1024);
    for (text, limit) in [
        ("set transaction read only", 1024),
        ("begin", 1024),
        ("savepoint a", 1024),
        ("set @a = 1", 16 * 1024),
    ] {
        let (code, said) = refused(&mut session, format!("{text} /* {} */", &long[..limit]));
        assert_eq!(code, 1235, "{text}: {said}");
        session.run(format!("{text} /* {} */", &long[..limit - 100])).expect(text);
    }
    let argument = Request::sql("set @a = ?").arg(Scalar::string(long.clone(), None));
    assert_eq!(refused(&mut session, argument).0, 1235);
    let savepoint = Request::savepoint(Operation::Set, long + "x");
    assert_eq!(refused(&mut session, savepoint).0, 1235);
}

#[test]
fn a_generated_id_is_the_last_insert_id_also_if_it_equals_the_id_of_the_node() {
    let world = World::new();
    let mut session = world.session();
    for text in [
        "drop table sbtest1",
        "create table sbtest1 (id int, n int primary key auto_increment)",
        "insert into sbtest1 (id) values (1)",
    ] {
        session.run(text).expect(text);
    }
    assert_eq!(rows(&mut session, "select last_insert_id()"), "1u;");
}

#[test]
fn a_hint_is_comments_alone() {
    let world = World::with(|| Fleet::start(1, limits().max(1)).expect("they start"));
    let (mut one, mut other) = (world.session(), world.session());
    let hinted = |hint: &str, text: &str| {
        let (stmt, hint) = (Some(text.into()), Some(hint.into()));
        Request::statement(StmtExecute { stmt, hint, ..StmtExecute::default() })
    };
    for hint in [
        "begin -- ",
        "begin /*",
        "set @a = 7 -- ",
        "/* a */ begin -- ",
        "/* a */ /*! begin */",
        "/*!50000 begin */ -- ",
        "/* a ",
        "-- a\n",
        "explain ",
    ] {
        let (code, said) = refused(&mut one, hinted(hint, "select 1"));
        assert_eq!(code, 1235, "{hint}: {said}");
        other.run("update sbtest1 set k = k + 1 where id = 1").expect("it is changed");
    }
    assert_eq!(rows(&mut one, hinted("", "select k from sbtest1 where id = 1")), "19;");
    assert_eq!(rows(&mut one, hinted("/*+ a */ /*b*/\n", "select 1")), "1;");
    let change = "update sbtest1 set k = 0 where id = 1";
    assert_eq!(rows(&mut one, hinted("/* +returning fields(id) */", change)), "1;");
}

#[test]
fn the_proxy_tells_of_its_own_sessions() {
    let world = World::new();
    let (mut one, mut other) = (world.session(), world.session());
    let number = rows(&mut one, "select connection_id()");
    assert_ne!(number, rows(&mut other, "select connection_id()"));
    assert_eq!(number, rows(&mut one, "select connection_id()"));
    one.run("update sbtest1 set k = k + 1 where id in (1, 3)").expect("it is changed");
    assert_eq!(rows(&mut one, "select row_count() as n, database(), user()"), "2|sbtest|app@%;");
    for (text, code) in [
        ("select missing from sbtest1 where id = 1", 1054),
        ("select missing from sbtest1", 1054),
        ("lock tables sbtest1 read", 1235),
        ("rollback to a", 1305),
        ("drop table missing", 1235),
        ("alter table sbtest1 add column k int", 1060),
    ] {
        one.run("update sbtest1 set k = k + 1 where id in (1, 3)").expect("it is changed");
        let said = refused(&mut one, text);
        assert_eq!(said.0, code, "{said:?}");
        assert_eq!(rows(&mut one, "select row_count()"), "-1;", "{text}");
        for show in ["show warnings", "show errors"] {
            assert_eq!(rows(&mut one, show), format!("Error|{code}u|{};", said.1), "{text}");
        }
    }
    one.run("update sbtest1 set k = k + 1 where id in (1, 3)").expect("it is changed");
    one.run("drop table if exists sbtest1").expect("it is dropped");
    assert_eq!(rows(&mut one, "select row_count()"), "0;");
    assert_eq!(rows(&mut one, "show warnings"), "");
    one.run("drop table if exists sbtest1").expect("it says so");
    one.run("set autocommit = 1").expect("nothing changes");
}

#[test]
fn a_client_becomes_ready() {
    // Statements that drivers send first.
    let world = World::new();
    let mut session = world.session();
    assert!(rows(&mut session, "show variables").contains("version|"));
    assert!(rows(&mut session, "show global variables").contains("autocommit|ON;"));
    for text in ["set names utf8mb4", "SET autocommit=1", "SET character_set_results = utf8mb4"] {
        session.run(text).expect(text);
    }
    let settings = Request::sql("SET `sql_mode`=? , `max_execution_time`=5000")
        .arg(Scalar::string("STRICT_TRANS_TABLES", None));
    session.run(settings).expect("they are set");
    assert_eq!(rows(&mut session, "select @@sql_mode"), "STRICT_TRANS_TABLES;");
    assert_eq!(rows(&mut session, "select 1"), "1;");
    assert!(world.client.timestamps(3).expect("there are some") > 0);
}

#[test]
fn statements_that_the_proxy_answers_end_the_error_before_them() {
    let world = World::new();
    let mut session = world.session();
    for text in ["begin", "commit", "rollback", "set names utf8mb4", "set autocommit = 1"] {
        refused(&mut session, "select nothing from settings");
        assert_eq!(rows(&mut session, "select row_count()"), "-1;", "{text}");
        session.run(text).expect("it runs");
        assert_eq!(rows(&mut session, "select row_count()"), "0;", "{text}");
        assert_eq!(rows(&mut session, "show warnings"), "", "{text}");
    }
    let error = refused(&mut session, "use other").0;
    assert!(rows(&mut session, "show errors").starts_with(&format!("Error|{error}")));
}

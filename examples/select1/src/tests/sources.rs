//! Results that are read slowly, or not at all.

use std::time::Duration;

use epoll_group::codec::message::ClientMessage;
use epoll_group::codec::proto::plan::{AnyPlan, ExecPlan, Expr, TableInfo};
use epoll_group::codec::proto::sql::StmtExecute;
use epoll_group::codec::proto::value::Scalar;
use lab::threads::threads;
use lab::xrpc::legal::Ticket;
use lab::{LONG, eventually, make_room};

use super::*;

/// Rows of the table `big`, and bytes of the text of each.
const ROWS: u64 = 2_000;
const BYTES: usize = 1_000;
/// Watermarks of a connection's backlog.
const HIGH: usize = 64 << 10;
const LOW: usize = 16 << 10;
const ALL: &str = "select id, c from big";

/// A server with the table `big`, and a client of it.
fn server() -> (Server, Client) {
    // Small buffers: most of a result waits in the engine.
    let config = Config::default()
        .tcp_send_buf(16 << 10)
        .write_high_watermark_bytes(HIGH)
        .write_low_watermark_bytes(LOW)
        // A reader that reads nothing stays for as long as the test needs it.
        .net_write_timeout(Duration::from_secs(3600))
        .dynamic_threads_shrink_time(Duration::from_millis(50));
    let server = Server::start_with(config);
    let mut client = server.client();
    change(&mut client, "create table big (id integer primary key, c varchar(1000))");
    let fill =
        format!("insert into big select seq, printf('%0{BYTES}d', seq) from seq_1_to_{ROWS}");
    change(&mut client, &fill);
    (server, client)
}

/// A query that the client grants 1 KiB.
fn slow(sql: &str) -> StmtExecute {
    StmtExecute { token: Some(1), ..request::query(sql) }
}

/// Number of results that sources give, and of connections that are not idle.
fn in_use(client: &mut Client) -> [String; 2] {
    ["Sources", "Connections_lent"]
        .map(|name| rows(client, &format!("show status like '{name}'")).replace([';', '|'], " "))
}

/// Waits until so many sources are there, each with a connection.
#[track_caller]
fn wait_for_sources(client: &mut Client, number: usize) {
    let expected = [format!("Sources {number} "), format!("Connections_lent {number} ")];
    eventually(LONG, || in_use(client) == expected);
}

/// Begins a result in a session, and returns when its credit is spent.
fn begin(client: &mut Client, session: u64, sql: &str) -> Ticket {
    client.set_offers(None);
    let ticket = client.send_sql(session, slow(sql));
    client.wait_for(ticket, |reply| reply.token_done == 1);
    ticket
}

/// Reads the rest of a result.
fn read_rest(client: &mut Client, ticket: Ticket, session: u64) -> Reply {
    client.set_offers(Some(request::TOKEN));
    client.offer(session, request::TOKEN);
    client.reply_to(ticket)
}

/// Asserts that the reply has all rows of `big`, in order.
fn is_all(reply: &Reply) {
    assert_eq!(reply.rows.len() as u64, ROWS);
    for (row, id) in reply.rows.iter().zip(1..) {
        assert_eq!(row[0].integer(), Some(id));
        assert_eq!(row[1].text(), Some(&*format!("{id:0BYTES$}")));
    }
}

/// A scan of `big`.
fn scan() -> AnyPlan {
    let name = |name: &str| Scalar::string(name, Some(45));
    AnyPlan::table_scan(TableInfo::new(name("big"), Some(name("test"))), None)
}

/// Asks for all rows of `big`: a statement or a plan, as rows or as chunks.
fn ask(client: &mut Client, form: usize) -> Ticket {
    let chunk_result = Some(form >= 2);
    if form.is_multiple_of(2) {
        return client.send_sql(2, StmtExecute { chunk_result, ..request::update(ALL) });
    }
    let plan = ExecPlan { chunk_result, token: None, ..request::plan(scan(), []) };
    client.send(2, &ClientMessage::ExecPlan(Box::new(plan))).expect("it is a request")
}

#[test]
fn readers_that_read_nothing_hold_no_thread_and_little_memory() {
    const READERS: usize = 64;
    let (server, mut client) = server();
    let before = threads(&server.stats());
    let mut readers: Vec<_> = (0..READERS).map(|_| server.client()).collect();
    let tickets = readers.iter_mut().enumerate().map(|(at, reader)| ask(reader, at % 4));
    let tickets: Vec<_> = tickets.collect();
    wait_for_sources(&mut client, READERS);
    eventually(LONG, || server.stats().buffered_bytes > (READERS * LOW) as u64);
    eventually(LONG, || server.stats().running_threads == 0);
    for _ in 0..20 {
        assert_eq!(rows(&mut client, "select count(*) from big"), format!("{ROWS};"));
    }
    change(&mut client, "update sbtest1 set k = k + 1");
    // Threads that were added while all began leave, although the readers stay.
    eventually(LONG, || threads(&server.stats()) == before);
    let stats = server.stats();
    assert_eq!((stats.stalled_threads, stats.waiting_writers), (0, 0), "{stats}");
    assert!(stats.buffered_bytes < (3 * READERS * HIGH) as u64, "{stats}");
    wait_for_sources(&mut client, READERS);
    for (reader, ticket) in readers.iter_mut().zip(tickets) {
        is_all(&reader.reply_to(ticket).good());
    }
    wait_for_sources(&mut client, 0);
}

#[test]
fn a_result_is_that_of_its_begin() {
    let (server, mut client) = server();
    let mut reader = server.client();
    let ticket = begin(&mut reader, 2, ALL);
    // The reader does not keep others from writing, and does not see what they write.
    change(&mut client, "update big set c = 'new'");
    change(&mut client, "delete from big where id > 10");
    change(&mut client, "alter table big add column d int");
    is_all(&read_rest(&mut reader, ticket, 2).good());
    assert_eq!(rows(&mut reader, "select count(*), max(c) from big"), "10|new;");
    wait_for_sources(&mut client, 0);
}

#[test]
fn a_reader_that_goes_away_gives_its_connection_back() {
    let (server, mut client) = server();
    for round in 0..3 {
        let mut reader = server.client();
        let sessions = [2, 4, 6, 8];
        for &session in &sessions[1..] {
            reader.new_session(session).good();
        }
        let tickets = sessions.map(|session| begin(&mut reader, session, ALL));
        wait_for_sources(&mut client, sessions.len());
        reader.kill_query(2);
        assert_eq!(reader.reply_to(tickets[0]).failure().code, 1317);
        assert!(rows(&mut reader, "show warnings").starts_with("Error|1317u|"));
        is_all(&reader.execute(2, ALL).good());
        reader.kill_connection(4);
        assert!(reader.reply_to(tickets[1]).failure().fatal);
        wait_for_sources(&mut client, 2);
        if round == 0 {
            drop(reader);
        } else {
            reader.reset();
        }
        wait_for_sources(&mut client, 0);
    }
}

#[test]
fn an_error_among_the_rows_takes_the_place_of_the_end() {
    let (server, mut client) = server();
    // The first is an error of the engine, the other one of a value.
    for (sql, code) in [
        ("select id, c, sleep(case when id = 1500 then -1 else 0 end) from big", 1210),
        ("select id, c, case when id = 1500 then 'x' else id end from big", 1366),
    ] {
        let ticket = begin(&mut client, 2, sql);
        let reply = read_rest(&mut client, ticket, 2);
        assert_eq!(reply.rows.len(), 1499, "{sql}");
        assert_eq!(reply.error.map(|error| error.code), Some(code), "{sql}");
        assert!(rows(&mut client, "show warnings").starts_with(&format!("Error|{code}u|")));
        assert_eq!(rows(&mut client, "select row_count()"), "-1;");
        assert_eq!(rows(&mut client, "select count(*) from big"), format!("{ROWS};"));
    }
    let product = [Expr::reference(0), Expr::literal(Scalar::signed(i64::MAX / 1_499))];
    let project = scan().project([(Scalar::string("p", None), Expr::operator("*", product))]);
    let plan = ClientMessage::ExecPlan(Box::new(request::plan(project, [])));
    let ticket = client.send(2, &plan).expect("it is a request");
    let reply = client.reply_to(ticket);
    assert_eq!(reply.rows.len(), 1499);
    assert_eq!(reply.error.map(|error| error.code), Some(8001));
    is_all(&client.execute(2, ALL).good());
    wait_for_sources(&mut server.client(), 0);
}

#[test]
fn rows_inside_a_transaction_are_those_that_it_has_written() {
    let (server, mut client) = server();
    let mut other = server.client();
    for end in ["rollback", "commit"] {
        change(&mut client, "begin");
        change(&mut client, &format!("insert into big values ({}, '{end}')", ROWS + 1));
        change(&mut client, &format!("update big set c = '{end}' where id > 1"));
        let ticket = begin(&mut client, 2, ALL);
        // Runs behind the result, on the same connection.
        let next = client.send_sql(2, request::query("select count(*) from big where id > 1"));
        wait_for_sources(&mut other, 1);
        is_all(&other.execute(2, ALL).good());
        let reply = read_rest(&mut client, ticket, 2).good();
        let own = reply.rows.iter().filter(|row| row[1].text() == Some(end)).count();
        assert_eq!((reply.rows.len() as u64, own as u64), (ROWS + 1, ROWS));
        assert_eq!(text(&client.reply_to(next).good()), format!("{ROWS};"));
        // A kill ends the result and not the transaction.
        let ticket = begin(&mut client, 2, "select id, c from big for update");
        client.kill_query(2);
        assert_eq!(client.reply_to(ticket).failure().code, 1317);
        assert_eq!(rows(&mut client, "select c from big where id = 2"), format!("{end};"));
        change(&mut client, end);
        wait_for_sources(&mut other, 0);
    }
    assert_eq!(rows(&mut other, "select c from big where id = 2"), "commit;");
    // A session that ends in the middle takes its transaction along.
    change(&mut client, "begin");
    change(&mut client, "delete from big");
    begin(&mut client, 2, "select id, c from sbtest1");
    client.kill_connection(2);
    wait_for_sources(&mut other, 0);
    change(&mut other, "update big set c = 'last'");
    assert_eq!(rows(&mut other, "select c from big where id = 2"), "last;");
}

/// Begins a change that returns the rows it has changed.
fn begin_returning(client: &mut Client, sql: &str) -> Ticket {
    let mut returning = slow(sql);
    returning.hint = Some(b"/* +returning fields(id, c) */ ".to_vec());
    client.set_offers(None);
    let ticket = client.send_sql(2, returning);
    client.wait_for(ticket, |reply| reply.token_done == 1);
    ticket
}

#[test]
fn rows_of_a_change_do_not_keep_others_from_writing_unless_they_are_long() {
    let (server, mut client) = server();
    let mut other = server.client();
    let ticket = begin_returning(&mut client, "update big set c = concat(c, '!') where id <= 500");
    change(&mut other, "delete from big where id > 1500");
    let reply = read_rest(&mut client, ticket, 2).good();
    assert_eq!(reply.rows.len(), 500);
    assert!(reply.rows.iter().all(|row| row[1].text().is_some_and(|text| text.ends_with('!'))));

    // More than 1 MiB.
    let ticket = begin_returning(&mut client, "update big set c = concat(c, '?')");
    let waiting = other.send_sql(2, request::update("delete from big"));
    eventually(LONG, || server.stats().waiting_writers == 1);
    assert_eq!(in_use(&mut server.client())[0], "Sources 0 ");
    let reply = read_rest(&mut client, ticket, 2).good();
    assert_eq!(reply.rows.len(), 1500);
    assert!(reply.rows.iter().all(|row| row[1].text().is_some_and(|text| text.ends_with('?'))));
    assert_eq!(other.reply_to(waiting).good().affected, Some(1500));
}

#[test]
fn results_beyond_the_most_wait_in_their_handlers() {
    const MOST: u64 = 64;
    make_room();
    let (server, mut client) = server();
    let mut reader = server.client();
    let mut sessions: Vec<_> = (2..).step_by(2).take(MOST as usize + 1).collect();
    for &session in &sessions[1..] {
        reader.new_session(session).good();
    }
    let last = sessions.pop().expect("there are some");
    for &session in &sessions {
        begin(&mut reader, session, ALL);
    }
    assert_eq!(server.stats().waiting_writers, 0);
    let ticket = begin(&mut reader, last, ALL);
    eventually(LONG, || server.stats().waiting_writers == 1);
    assert_eq!(in_use(&mut client)[0], format!("Sources {MOST} "));
    is_all(&read_rest(&mut reader, ticket, last).good());
    assert_eq!(rows(&mut client, "select count(*) from big"), format!("{ROWS};"));
    drop(reader);
    wait_for_sources(&mut client, 0);
}

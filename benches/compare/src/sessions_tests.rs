//! The load generator for sessions, and the servers with threads that it loads.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use epoll_group::net::Address;
use epoll_group::{Runtime, session::Server};

use crate::engine::{Constant, Sqlite, Temporary};
use crate::serve_sql::Database;
use crate::sessions::{Load, PASSWORD, Question, Shape, USER, parts};
use crate::statements::{Account, Engine};
use crate::{thread_per_client, thread_per_session};

const WINDOW: Duration = Duration::from_millis(50);
const ROWS: u32 = 100;

fn serve(engine: impl Engine) -> SocketAddr {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    thread_per_session::start(address, Account::new(USER, PASSWORD), engine).unwrap()
}

fn serve_clients(engine: impl Engine) -> SocketAddr {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    thread_per_client::start(address, Account::new(USER, PASSWORD), engine).unwrap()
}

fn shape(question: Question) -> Shape {
    Shape { connections: 2, sessions: 16, question, rows: ROWS, threads: 2 }
}

fn is_answered(address: SocketAddr, shape: &Shape) {
    let mut load = Load::connect(address, shape).unwrap();
    for window in 0..2 {
        let report = load.run_for(WINDOW).unwrap();
        assert_eq!((report.errors, report.first_error), (0, None), "window {window}");
        // Each session asks once at least.
        assert!(report.requests >= 16, "window {window}: {} answers", report.requests);
        assert!(report.client_cpu > Duration::ZERO);
    }
}

#[test]
fn every_session_of_every_connection_is_answered() {
    let address = serve(Constant);
    is_answered(address, &shape(Question::SelectOne));
    is_answered(address, &shape(Question::Text));
}

#[test]
fn sqlite_answers_the_same() {
    let database = Temporary::new();
    let address = serve(Sqlite::open(database.path(), ROWS).unwrap());
    is_answered(address, &shape(Question::SelectOne));
    is_answered(address, &shape(Question::Text));
}

#[test]
fn a_thread_for_each_client_answers_its_one_session() {
    let database = Temporary::new();
    let engine = Sqlite::open(database.path(), ROWS).unwrap();
    for address in [serve_clients(Constant), serve_clients(engine)] {
        for question in [Question::SelectOne, Question::Text] {
            is_answered(address, &Shape { connections: 16, ..shape(question) });
        }
    }
}

#[test]
fn the_library_answers_before_the_same_engines() {
    let runtime = Runtime::builder().name("new").start().unwrap();
    let database = Temporary::new();
    let sqlite = Database::new(USER, PASSWORD, Sqlite::open(database.path(), ROWS).unwrap());
    let constant = Database::new(USER, PASSWORD, Constant);
    for listener in [
        runtime.listen("127.0.0.1:0", Server::new(sqlite)).unwrap(),
        runtime.listen("127.0.0.1:0", Server::new(constant)).unwrap(),
    ] {
        let &Address::Tcp(address) = listener.local_addr() else { panic!("{listener:?}") };
        is_answered(address, &shape(Question::SelectOne));
        is_answered(address, &shape(Question::Text));
    }
}

#[test]
fn a_client_with_a_thread_has_no_second_session() {
    let address = serve_clients(Constant);
    let error = Load::connect(address, &shape(Question::SelectOne)).unwrap_err();
    assert!(error.to_string().contains("One session a connection."), "{error}");
}

#[test]
fn an_error_of_the_server_is_reported_with_its_text() {
    let mut load = Load::connect(serve(Constant), &shape(Question::Plan)).unwrap();
    let report = load.run_for(WINDOW).unwrap();
    assert_eq!((report.requests, report.errors), (0, 2));
    assert!(report.first_error.unwrap().contains("Not support for polarx rpc."));
}

#[test]
fn a_wrong_password_opens_no_session() {
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let address =
        thread_per_session::start(address, Account::new(USER, "another"), Constant).unwrap();
    let error = Load::connect(address, &shape(Question::SelectOne)).unwrap_err();
    assert!(error.to_string().contains("Invalid user or password"), "{error}");
}

#[test]
fn parts_differ_by_one_at_the_most() {
    let parts: Vec<_> = parts(0..10, 4).collect();
    assert_eq!(parts, [0..2, 2..5, 5..7, 7..10]);
}

//! The recorded conversations of the existing client, played to this server.
//!
//! The client sends the recorded frames in the recorded order. A frame waits until the server has
//! done what it had done before that frame in the recording. Each conversation is played once as it
//! was written, and once in small writes that are cut at random. Answers must be legal by the table
//! of what the client accepts, or the player panics. They must have the recorded values. Other
//! values are named here with the reason: the server that was recorded was a toy.

use super::{Server, change, rows};
use lab::xrpc::datum::Datum;
use lab::xrpc::reply::Reply;
use lab::xrpc::{
    Asked, Chop, Client, Conversation, Difference, Pair, Target, Transcript, What, conversations,
    play,
};

/// The tables that the recorded statements need.
fn tables(conversation: &str) -> &'static [&'static str] {
    match conversation {
        // Each update of all rows is said to change three.
        "batch" => &["create table t (a int)", "insert into t values (7), (8), (9)"],
        "update" => &["create table t (a int)", "insert into t values (8), (9)"],
        "plan" => &[
            "create table t (name varchar(20), id bigint primary key)",
            "insert into t values ('six', 6), ('seven', 7), ('eight', 8)",
        ],
        _ => &[],
    }
}

/// A server whose database and isolation are those of the recording.
fn server() -> (Server, Client) {
    let server = Server::start_as("d");
    let mut client = server.client();
    change(&mut client, "set global transaction isolation level repeatable read");
    (server, client)
}

/// Plays a conversation to a server of its own.
fn played(conversation: &Conversation, chop: Chop) -> (Transcript, Server, Client) {
    let (server, mut client) = server();
    for sql in tables(&conversation.name) {
        change(&mut client, sql);
    }
    let target = Target { addr: server.address(), user: "root", password: "secret" };
    let transcript = play(&target, conversation, chop);
    (transcript, server, client)
}

/// A failure prints the seed of the pieces in which the bytes were sent.
#[track_caller]
fn same_values(transcript: &Transcript) {
    let Transcript { name, chop, .. } = transcript;
    let mut differences = transcript.differences();
    differences.retain(|difference| !is_explained(name, difference));
    assert!(differences.is_empty(), "{name}, {chop:?}: {differences:#?}");
}

/// True if a difference comes from the toy.
fn is_explained(name: &str, difference: &Difference) -> bool {
    match (name, difference.what) {
        // It says that it gave a row the number 42, of a table that numbers no rows.
        ("update", What::InsertId) => difference.text == "None, not Some(42)",
        // Transactions here see what others commit, unless they ask for more. Of variables only the
        // first difference is told, so `judge` looks at those behind it.
        (_, What::Rows) => {
            difference.text == r#"transaction_isolation is "READ-COMMITTED", not "REPEATABLE-READ""#
        }
        _ => false,
    }
}

fn check(conversation: &Conversation, chop: Chop) {
    let name = conversation.name.as_str();
    let (transcript, _server, mut client) = played(conversation, chop);
    same_values(&transcript);
    for pair in &transcript.pairs {
        assert!(pair.live.done, "{name}, {chop:?}: {pair:?}");
        judge(name, pair);
    }
    what_was_left(name, &mut client);
}

/// Checks answers of the real server to requests that the toy answers without executing them.
fn judge(name: &str, pair: &Pair) {
    let reply = &pair.live;
    match pair.statement().trim() {
        "show variables" | "show global variables" => {
            let variable = |name: &str| variable(reply, name);
            // By these the client knows what it talks to.
            assert!(variable("version").contains("X-Cluster"), "{name}");
            assert_eq!(variable("new_rpc"), "ON", "{name}");
            assert_eq!(variable("autocommit"), "ON", "{name}");
            for part in ["client", "connection", "results"] {
                assert_eq!(variable(&format!("character_set_{part}")), "utf8mb4", "{name}");
            }
        }
        "select 1" if reply.error.is_none() && reply.chunks == 0 => {
            assert_eq!(reply.rows, [[Datum::Signed(1)]], "{name}");
        }
        "this is no sql" => {
            let error = reply.error.as_ref().expect("it is none");
            assert_eq!((error.code, error.state.as_str()), (1064, "42000"), "{name}");
        }
        "select * from seq_1_to_50" | "select * from seq_1_to_300" => is_sequence(reply),
        "select * from seq_1_to_1000000" => {
            is_sequence(reply);
            assert_eq!(reply.error.as_ref().map(|error| error.code), Some(1317), "{name}");
            assert!(reply.token_done > 0, "{name}");
        }
        _ => {}
    }
    if reply.asked == Asked::Statement && reply.error.is_none() {
        assert!(reply.affected.is_some() || !reply.columns.is_empty(), "{name}: {reply:?}");
    }
}

/// The numbers from 1, in order.
fn is_sequence(reply: &Reply) {
    let numbers = reply.rows.iter().map(|row| row[0].integer());
    for (number, at) in numbers.zip(1..) {
        assert_eq!(number, Some(at));
    }
}

fn variable<'r>(reply: &'r Reply, name: &str) -> &'r str {
    let row = reply.rows.iter().find(|row| row[0].text() == Some(name));
    row.and_then(|row| row[1].text()).unwrap_or_else(|| panic!("no variable {name}"))
}

/// Checks the state that another session sees when the conversation is over.
fn what_was_left(name: &str, client: &mut Client) {
    match name {
        // The last of a hundred updates.
        "batch" => assert_eq!(rows(client, "select a from t"), "99;99;99;"),
        "update" => assert_eq!(rows(client, "select a from t"), "1;1;1;"),
        _ => assert_eq!(rows(client, "select count(*) from sbtest1"), "100;"),
    }
    // No lock is left.
    change(client, "update sbtest1 set k = 1");
}

#[test]
fn recorded_clients_hear_what_they_heard() {
    for conversation in conversations() {
        check(&conversation, Chop::Whole);
    }
}

#[test]
fn recorded_clients_hear_the_same_however_their_bytes_come() {
    for conversation in conversations() {
        check(&conversation, Chop::random());
    }
}

#[test]
fn recorded_clients_are_served_beside_each_other() {
    let (server, _client) = server();
    let all = conversations();
    let names = ["abandon", "cancel", "digest", "pipeline", "prepared", "stream", "token", "trx"];
    let all: Vec<_> =
        all.iter().filter(|conversation| names.contains(&&*conversation.name)).collect();
    assert_eq!(all.len(), names.len());
    let target = Target { addr: server.address(), user: "root", password: "secret" };
    std::thread::scope(|scope| {
        for conversation in all.iter().cycle().take(4 * all.len()) {
            scope.spawn(move || {
                same_values(&play(&target, conversation, Chop::random()));
            });
        }
    });
}

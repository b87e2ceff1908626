//! The recorded clients, played to this server.

use super::{Server, change};
use crate::support::xrpc::{Chop, Target, What, conversations, play};

#[test]
fn recorded_clients_are_served() {
    for conversation in conversations() {
        let tables: &[&str] = match conversation.name.as_str() {
            "plan" => &[
                "create table t (id bigint primary key, name varchar(20))",
                "insert into t values (7, 'seven')",
            ],
            // One row is inserted by the client.
            "update" => &["create table t (a int)", "insert into t values (0), (0)"],
            _ => &["create table t (a int)", "insert into t values (0), (0), (0)"],
        };
        for chop in [Chop::Whole, Chop::random()] {
            let server = Server::start();
            let mut client = server.client();
            change(&mut client, "set global transaction isolation level repeatable read");
            for sql in tables {
                change(&mut client, sql);
            }
            let target = Target { addr: server.address, user: "root", password: "secret" };
            // It panics when a reply is not what a client accepts, or does not come.
            let transcript = play(&target, &conversation, chop);
            let mut differences = transcript.differences();
            // Only a table that numbers its rows tells a number, and no such table has one column.
            differences.retain(|difference| difference.what != What::InsertId);
            assert!(differences.is_empty(), "{}, {chop:?}: {differences:#?}", conversation.name);
        }
    }
}

//! Errors of the proxy itself.
//!
//! The numbers are those of MySQL. A text says what is refused, and why. Errors of data nodes are
//! passed on as they are.

use std::fmt;

use epoll_group::client::{self, ErrorKind, Fate};
use epoll_group::codec::proto::generic::ErrorReply;
use epoll_group::pool::{Cause, GetError};
use epoll_group::session::SessionError;

/// Error for a request that makes sense, but that the proxy cannot route.
pub fn unroutable(what: impl fmt::Display, why: impl fmt::Display) -> SessionError {
    let text = format!("the proxy cannot route {what}: {why}");
    SessionError::new(1235, b"42000", text)
}

/// Error for a text that is no SQL.
pub fn syntax(why: impl fmt::Display) -> SessionError {
    SessionError::new(1064, b"42000", format!("You have an error in your SQL syntax; {why}"))
}

/// The text would take too much memory to read.
pub fn too_long(bytes: usize, limit: usize) -> SessionError {
    let text = format!(
        "the text of the statement has {bytes} bytes, and the proxy reads {limit} at most; send \
         long values as arguments"
    );
    SessionError::new(1153, b"08S01", text)
}

pub fn not_utf8() -> SessionError {
    SessionError::new(1300, b"HY000", "Invalid utf8mb4 character string")
}

pub fn wrong_arguments(why: impl fmt::Display) -> SessionError {
    SessionError::new(1210, b"HY000", format!("Incorrect arguments to the statement: {why}"))
}

pub fn unknown_database(name: &[u8]) -> SessionError {
    let name = String::from_utf8_lossy(name);
    SessionError::new(1049, b"42000", format!("Unknown database '{name}'"))
}

pub fn no_savepoint(name: &str) -> SessionError {
    SessionError::new(1305, b"42000", format!("SAVEPOINT {name} does not exist"))
}

/// A transaction would have to be committed on two nodes, and one may fail.
pub fn second_node(first: impl fmt::Display, second: impl fmt::Display) -> SessionError {
    let text = format!(
        "the proxy has no two-phase commit: the transaction is on data node {first}, and this \
         statement is for data node {second}"
    );
    SessionError::new(1235, b"42000", text)
}

pub fn in_transaction() -> SessionError {
    let text = "Transaction characteristics can't be changed while a transaction is in progress";
    SessionError::new(1568, b"25001", text)
}

/// Error for a transaction that was rolled back at its data node, for example because the node was
/// lost.
pub fn lost_transaction(node: impl fmt::Display) -> SessionError {
    let text =
        format!("the transaction was rolled back at data node {node}; roll back and begin anew");
    SessionError::new(1213, b"40001", text)
}

/// One setting more than the proxy keeps.
pub fn too_many_settings(most: usize) -> SessionError {
    let text = format!("the session has {most} settings already, as many as the proxy keeps");
    SessionError::new(1235, b"42000", text)
}

/// No session of a data node was to be had; nothing was sent.
pub fn no_session(node: impl fmt::Display, error: &GetError) -> SessionError {
    let cause = std::error::Error::source(error).map(|cause| format!(": {cause}"));
    let cause = cause.unwrap_or_default();
    let text = format!("data node {node} has no session for the statement: {error}{cause}");
    let (code, state) = if is_busy(error) { (1040, b"08004") } else { (2003, b"HY000") };
    SessionError::new(code, state, text)
}

/// True if clients have all the sessions, which says nothing about the data node.
pub const fn is_busy(error: &GetError) -> bool {
    matches!(
        error,
        GetError::Timeout { cause: Cause::AllBusy { .. }, .. } | GetError::TooManyWaiting { .. }
    )
}

/// Error of a data node, or the reason why it did not answer.
pub fn of_node(node: impl fmt::Display, error: &client::Error) -> SessionError {
    if let ErrorKind::Server(said) = error.kind() {
        let said = SessionError::from(ErrorReply::clone(said));
        // A session of a data node that dies does not take the client's along.
        return SessionError::new(said.code, &said.state, said.message);
    }
    if let ErrorKind::TooLong { .. } = error.kind() {
        return SessionError::new(1153, b"08S01", error.kind().to_string());
    }
    let fate = match error.fate() {
        Fate::Unknown => "; the statement may have been executed",
        _ => "",
    };
    let text = format!("data node {node} was lost: {}{fate}", error.kind());
    SessionError::new(2013, b"HY000", text)
}

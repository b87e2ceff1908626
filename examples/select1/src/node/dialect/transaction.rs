//! Transactions: how they begin, end, and what is set in between.

use epoll_group::session::SessionError;

use super::cursor::Cursor;
use super::scan::Kind;
use super::{Reader, Statement};
use crate::node::errors::unsupported;

/// Access that a transaction asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// None: as the session says.
    pub read_only: Option<bool>,
    /// It sees what there is now, also later.
    pub snapshot: bool,
}

/// Steps of a distributed transaction, and its name as it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Xa {
    Start(String),
    End(String),
    Prepare(String),
    Commit { name: String, one_phase: bool },
    RollBack(String),
    Recover,
}

pub(super) fn read(
    reader: &Reader<'_, '_>,
    word: &str,
    mut cursor: Cursor<'_, '_>,
) -> Result<Statement, SessionError> {
    let cursor = &mut cursor;
    let statement = match word {
        "begin" => {
            cursor.word("work");
            Some(Statement::Begin(Access::default()))
        }
        "start" => cursor.word("transaction").then(|| access(cursor)).flatten(),
        "commit" => {
            cursor.word("work");
            chain(cursor)?;
            Some(Statement::Commit)
        }
        "rollback" => {
            cursor.word("work");
            if cursor.word("to") {
                cursor.word("savepoint");
                cursor.name().map(Statement::RollBackTo)
            } else {
                chain(cursor)?;
                Some(Statement::Rollback)
            }
        }
        "savepoint" => cursor.name().map(Statement::SetSavepoint),
        "release" if cursor.word("savepoint") => cursor.name().map(Statement::ReleaseSavepoint),
        "xa" => xa(reader, cursor).map(Statement::Xa),
        _ => None,
    };
    reader.whole(cursor, statement)
}

/// `and no chain`, `no release` are what is done anyway.
fn chain(cursor: &mut Cursor<'_, '_>) -> Result<(), SessionError> {
    if cursor.word("and") && !cursor.words(&["no", "chain"]) {
        return Err(unsupported("and chain"));
    }
    if !cursor.words(&["no", "release"]) && cursor.word("release") {
        return Err(unsupported("release"));
    }
    Ok(())
}

fn access(cursor: &mut Cursor<'_, '_>) -> Option<Statement> {
    let mut access = Access::default();
    while !cursor.is_at_end() {
        if cursor.words(&["read", "only"]) {
            access.read_only = Some(true);
        } else if cursor.words(&["read", "write"]) {
            access.read_only = Some(false);
        } else if cursor.words(&["with", "consistent", "snapshot"]) {
            access.snapshot = true;
        } else {
            return None;
        }
        if !cursor.symbol(",") {
            break;
        }
    }
    Some(Statement::Begin(access))
}

fn xa(reader: &Reader<'_, '_>, cursor: &mut Cursor<'_, '_>) -> Option<Xa> {
    let words = ["start", "begin", "end", "prepare", "commit", "rollback", "recover"];
    let step = cursor.one_of(&words)?;
    if step == "recover" {
        cursor.words(&["convert", "xid"]);
        return Some(Xa::Recover);
    }
    // The parts of a name: a string or a number, up to three of them.
    let from = cursor.at;
    loop {
        let part = cursor.next()?;
        if !matches!(part.kind, Kind::Text | Kind::Number) {
            return None;
        }
        if !cursor.symbol(",") {
            break;
        }
    }
    let parts = &reader.tokens.all[from..cursor.at];
    let name: String = parts.iter().map(|part| part.text).collect();
    Some(match step {
        "start" | "begin" => Xa::Start(name),
        "end" => Xa::End(name),
        "prepare" => Xa::Prepare(name),
        "commit" => Xa::Commit { name, one_phase: cursor.words(&["one", "phase"]) },
        _ => Xa::RollBack(name),
    })
}

//! Transactions: how they begin, end, and what is set in between.

use epoll_group::session::SessionError;

use super::cursor::Cursor;
use super::scan::Kind;
use super::{Reader, Statement};
use crate::node::errors::{invalid_branch, unsupported};

/// Access that a transaction asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// None: as the session says.
    pub read_only: Option<bool>,
    /// True if the transaction sees the state of its begin, also later.
    pub snapshot: bool,
}

/// Steps of a branch of a distributed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Xa {
    Start(Xid),
    End(Xid),
    Prepare(Xid),
    Commit { xid: Xid, one_phase: bool },
    RollBack(Xid),
    Recover { in_hex: bool },
}

/// Name of a branch. Its parts are bytes that only their author understands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xid {
    /// At most 64 bytes, and likewise below.
    pub transaction: Vec<u8>,
    pub branch: Vec<u8>,
    pub format: u32,
}

/// Format of a name that gives none.
const FORMAT: u32 = 1;
/// Bytes of a part of a name.
const LONGEST_PART: usize = 64;

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
        "xa" => xa(cursor)?.map(Statement::Xa),
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

fn xa(cursor: &mut Cursor<'_, '_>) -> Result<Option<Xa>, SessionError> {
    let words = ["start", "begin", "end", "prepare", "commit", "rollback", "recover"];
    let Some(step) = cursor.one_of(&words) else { return Ok(None) };
    if step == "recover" {
        return Ok(Some(Xa::Recover { in_hex: cursor.words(&["convert", "xid"]) }));
    }
    let Some(xid) = xid(cursor) else { return Ok(None) };
    if xid.transaction.len().max(xid.branch.len()) > LONGEST_PART {
        return Err(invalid_branch("a part of an XID has at most 64 bytes"));
    }
    Ok(Some(match step {
        "start" | "begin" => Xa::Start(xid),
        "end" => Xa::End(xid),
        "prepare" => Xa::Prepare(xid),
        "commit" => Xa::Commit { xid, one_phase: cursor.words(&["one", "phase"]) },
        _ => Xa::RollBack(xid),
    }))
}

/// Reads `transaction [, branch [, format]]`.
fn xid(cursor: &mut Cursor<'_, '_>) -> Option<Xid> {
    let mut xid = Xid { transaction: part(cursor)?, branch: Vec::new(), format: FORMAT };
    if cursor.symbol(",") {
        xid.branch = part(cursor)?;
        if cursor.symbol(",") {
            xid.format = format(cursor)?;
        }
    }
    Some(xid)
}

/// Reads a string, or bytes in hexadecimal.
fn part(cursor: &mut Cursor<'_, '_>) -> Option<Vec<u8>> {
    if let Some(text) = cursor.string() {
        return Some(text.into_bytes());
    }
    let digits = hex_digits(cursor.kind(Kind::Number)?.text)?;
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(|digit| digit as u8);
    let digits: Vec<u8> = digits.as_bytes().iter().map(digit).collect::<Option<_>>()?;
    // From the end, because an odd number of digits has a zero in front.
    let pairs = digits.rchunks(2);
    Some(pairs.rev().map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

fn format(cursor: &mut Cursor<'_, '_>) -> Option<u32> {
    let text = cursor.kind(Kind::Number)?.text;
    match hex_digits(text) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Returns the digits of `0x1f` and `x'1f'`.
fn hex_digits(text: &str) -> Option<&str> {
    let quoted = text.strip_prefix(['x', 'X']).and_then(|rest| rest.strip_prefix('\''));
    text.strip_prefix("0x").or_else(|| quoted?.strip_suffix('\''))
}

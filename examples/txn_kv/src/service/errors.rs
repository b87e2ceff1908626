//! Errors of the store as clients get them: with the number and the state that MySQL has for the same,
//! where it has one, and with the store's own text.

use epoll_group::session::SessionError;

use crate::error::StoreError;
use crate::statement::StatementError;

/// The numbers of errors.
pub mod code {
    /// The engine could not read.
    pub const READ: u32 = 1024;
    /// The engine could not write. The transaction is not visible; after a crash of the server it may be.
    pub const WRITE: u32 = 1026;
    /// Index and engine do not agree.
    pub const LOST: u32 = 1034;
    /// Too much waits to be written, or to be read by clients.
    pub const BUSY: u32 = 1041;
    /// A transaction writes a key twice.
    pub const WRITTEN_TWICE: u32 = 1062;
    /// The text makes no sense.
    pub const SYNTAX: u32 = 1064;
    /// The arguments are not those that the text needs, or a key is empty.
    pub const ARGUMENTS: u32 = 1210;
    /// The revision is in the future.
    pub const FUTURE: u32 = 1264;
    /// A key, a value, a transaction, or what it would find or delete is too large.
    pub const TOO_LARGE: u32 = 1406;
    /// The library's: the request was interrupted, or dropped without an answer. Its transaction goes on.
    pub const INTERRUPTED: u32 = 1317;
    /// The library's: the request took longer than `request_timeout`. Its transaction goes on.
    pub const TIMED_OUT: u32 = 3024;
    /// The revision was compacted. MySQL has none for it: this one is the store's own.
    pub const COMPACTED: u32 = 9001;
}

pub(super) fn of_statement(error: StatementError) -> SessionError {
    let (number, state) = if error.is_of_arguments() {
        (code::ARGUMENTS, b"HY000")
    } else {
        (code::SYNTAX, b"42000")
    };
    SessionError::new(number, state, error.to_string())
}

pub(super) fn of_store(error: StoreError) -> SessionError {
    let (number, state) = match &error {
        StoreError::TooLarge { .. } => (code::TOO_LARGE, b"22001"),
        StoreError::EmptyKey => (code::ARGUMENTS, b"HY000"),
        StoreError::WrittenTwice { .. } => (code::WRITTEN_TWICE, b"23000"),
        StoreError::Compacted { .. } => (code::COMPACTED, b"72000"),
        StoreError::Future { .. } => (code::FUTURE, b"22003"),
        StoreError::Busy { .. } => (code::BUSY, b"HY000"),
        StoreError::Write(_) => (code::WRITE, b"HY000"),
        StoreError::Read(_) => (code::READ, b"HY000"),
        StoreError::Lost(_) | StoreError::Unknown(_) => (code::LOST, b"HY000"),
    };
    SessionError::new(number, state, error.to_string())
}

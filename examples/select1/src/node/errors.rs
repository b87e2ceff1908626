//! Errors as MySQL numbers them.

use epoll_group::session::SessionError;
use rusqlite::ffi::{self, ErrorCode};
use rusqlite::{Error, types};

use crate::node::columns::{OUT_OF_RANGE, TOO_LONG, TRUNCATED};
use crate::node::functions::{INTERRUPTED, WRONG_SLEEP};

/// Longest part of a statement that an error repeats, in characters.
const NEAR: usize = 80;

/// Error of a statement that makes no sense from `rest` on.
pub fn syntax(rest: &str) -> SessionError {
    let near: String = rest.trim_start().chars().take(NEAR).collect();
    let text = format!(
        "You have an error in your SQL syntax; check what this server understands for the right \
         syntax to use near '{near}'"
    );
    SessionError::new(1064, b"42000", text)
}

/// Number of [`unsupported`].
pub const UNSUPPORTED: u32 = 1235;

/// Error of a statement that makes sense, but that this server does not run.
pub fn unsupported(what: &str) -> SessionError {
    let text = format!("This version of MySQL doesn't yet support '{what}'");
    SessionError::new(UNSUPPORTED, b"42000", text)
}

pub fn unknown_database(name: &str) -> SessionError {
    SessionError::new(1049, b"42000", format!("Unknown database '{name}'"))
}

pub fn denied_database(user: &str, name: &str) -> SessionError {
    let text = format!("Access denied for user '{user}'@'%' to database '{name}'");
    SessionError::new(1044, b"42000", text)
}

pub fn unknown_variable(name: &str) -> SessionError {
    SessionError::new(1193, b"HY000", format!("Unknown system variable '{name}'"))
}

pub fn wrong_value(name: &str, value: &str) -> SessionError {
    let text = format!("Variable '{name}' can't be set to the value of '{value}'");
    SessionError::new(1231, b"42000", text)
}

pub fn no_table(schema: &str, name: &str) -> SessionError {
    SessionError::new(1146, b"42S02", format!("Table '{schema}.{name}' doesn't exist"))
}

pub fn no_index(name: &str) -> SessionError {
    let text = format!("Can't DROP '{name}'; check that column/key exists");
    SessionError::new(1091, b"42000", text)
}

pub fn no_savepoint(name: &str) -> SessionError {
    SessionError::new(1305, b"42000", format!("SAVEPOINT {name} does not exist"))
}

/// A branch of a distributed transaction is named, which the server does not know.
pub fn unknown_branch() -> SessionError {
    SessionError::new(1397, b"XAE04", "XAER_NOTA: Unknown XID")
}

pub fn invalid_branch(why: &str) -> SessionError {
    let text = format!("XAER_INVAL: Invalid arguments (or unsupported command): {why}");
    SessionError::new(1398, b"XAE05", text)
}

/// The branch of the session, or its lack, does not allow the statement.
pub fn wrong_branch_state() -> SessionError {
    let text =
        "XAER_RMFAIL: The command cannot be executed when global transaction is in this state";
    SessionError::new(1399, b"XAE07", text)
}

pub fn outside_of_branch() -> SessionError {
    let text = "XAER_OUTSIDE: Some work is done outside global transaction";
    SessionError::new(1400, b"XAE09", text)
}

pub fn too_many_branches(most: usize) -> SessionError {
    let text =
        format!("XAER_RMERR: {most} branches of this account are prepared, which is the most");
    SessionError::new(1401, b"XAE03", text)
}

pub fn known_branch() -> SessionError {
    SessionError::new(1440, b"XAE08", "XAER_DUPID: The XID already exists")
}

pub fn lock_wait() -> SessionError {
    SessionError::new(1205, b"HY000", "Lock wait timeout exceeded; try restarting transaction")
}

pub fn not_utf8() -> SessionError {
    SessionError::new(1300, b"HY000", "Invalid utf8mb4 character string")
}

pub fn out_of_range(what: &str) -> SessionError {
    SessionError::new(1264, b"22003", format!("Out of range value: {what}"))
}

pub fn read_only_transaction() -> SessionError {
    let text = "Cannot execute statement in a READ ONLY transaction.";
    SessionError::new(1792, b"25006", text)
}

pub fn too_many_arguments() -> SessionError {
    SessionError::unsupported("Too many arguments")
}

/// The transaction has read what others have changed since, and now wants to write.
pub fn deadlock() -> SessionError {
    let text = "Deadlock found when trying to get lock; try restarting transaction";
    SessionError::new(1213, b"40001", text)
}

/// A statement was interrupted, and the transaction went with it.
pub fn lost_transaction() -> SessionError {
    let text =
        "The transaction was rolled back when a statement of it was interrupted; begin it anew";
    SessionError::new(1213, b"40001", text)
}

fn other(text: &str) -> SessionError {
    SessionError::new(1105, b"HY000", text)
}

/// Returns SQLite's error in MySQL's words. `schema` is the name of the database.
pub fn of_sqlite(error: &Error, schema: &str) -> SessionError {
    match error {
        Error::SqlInputError { error, msg, sql, offset } => {
            let rest = usize::try_from(*offset).ok().and_then(|offset| sql.get(offset..));
            of_message(error, msg, rest.unwrap_or(sql), schema)
        }
        Error::SqliteFailure(error, message) => {
            of_message(error, message.as_deref().unwrap_or("unknown error"), "", schema)
        }
        Error::ToSqlConversionFailure(cause) | Error::UserFunctionError(cause) => {
            other(&cause.to_string())
        }
        Error::FromSqlConversionFailure(_, types::Type::Text, _) | Error::Utf8Error(..) => {
            not_utf8()
        }
        error => other(&error.to_string()),
    }
}

fn of_message(error: &ffi::Error, message: &str, rest: &str, schema: &str) -> SessionError {
    match error.code {
        ErrorCode::OperationInterrupted => return SessionError::interrupted(),
        ErrorCode::DatabaseBusy if error.extended_code == ffi::SQLITE_BUSY_SNAPSHOT => {
            return deadlock();
        }
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => return lock_wait(),
        ErrorCode::ReadOnly => {
            let text = "The MySQL server is running with the --read-only option so it cannot \
                        execute this statement";
            return SessionError::new(1290, b"HY000", text);
        }
        ErrorCode::DiskFull => return SessionError::new(1114, b"HY000", "The table is full"),
        ErrorCode::OutOfMemory => return SessionError::new(1037, b"HY001", "Out of memory"),
        ErrorCode::TooBig => return SessionError::new(1153, b"08S01", message),
        ErrorCode::TypeMismatch => {
            return SessionError::new(1366, b"HY000", "Incorrect value for an integer column");
        }
        ErrorCode::ConstraintViolation => return of_constraint(error, message),
        ErrorCode::SystemIoFailure
        | ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::CannotOpen => {
            return SessionError::new(1030, b"HY000", format!("Got error from engine: {message}"));
        }
        _ => {}
    }
    of_text(message, rest, schema).unwrap_or_else(|| other(message))
}

fn of_constraint(error: &ffi::Error, message: &str) -> SessionError {
    let (_, what) = message.split_once("constraint failed: ").unwrap_or(("", message));
    let column = what.rsplit('.').next().unwrap_or(what);
    match error.extended_code {
        ffi::SQLITE_CONSTRAINT_UNIQUE
        | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
        | ffi::SQLITE_CONSTRAINT_ROWID => {
            SessionError::new(1062, b"23000", format!("Duplicate entry for key '{what}'"))
        }
        ffi::SQLITE_CONSTRAINT_NOTNULL => {
            SessionError::new(1048, b"23000", format!("Column '{column}' cannot be null"))
        }
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => {
            let text = "Cannot add, update or delete a row: a foreign key constraint fails";
            SessionError::new(1452, b"23000", text)
        }
        ffi::SQLITE_CONSTRAINT_CHECK => {
            let text = format!("Check constraint '{what}' is violated.");
            SessionError::new(3819, b"HY000", text)
        }
        _ => SessionError::new(1062, b"23000", message),
    }
}

/// Returns errors that SQLite distinguishes by their texts alone.
fn of_text(message: &str, rest: &str, schema: &str) -> Option<SessionError> {
    let behind = |start: &str| message.strip_prefix(start);
    let between = |start: &str, end: &str| behind(start)?.strip_suffix(end);
    // The first three texts repeat values, which may have any words. So they are looked for first.
    let error = if message.starts_with(TRUNCATED) {
        SessionError::new(1265, b"01000", message)
    } else if message.starts_with(TOO_LONG) {
        SessionError::new(1406, b"22001", message)
    } else if message.starts_with(OUT_OF_RANGE) {
        SessionError::new(1264, b"22003", message)
    } else if let Some(name) = behind("no such table: ").or_else(|| behind("no such view: ")) {
        no_table(schema, name.strip_prefix("main.").unwrap_or(name))
    } else if let Some(name) = behind("no such column: ") {
        // A name in double quotes here was in back-ticks in the client's statement.
        let name = name.trim_end_matches(" - should this be a string literal in single-quotes?");
        let name = name.trim_matches('"');
        SessionError::new(1054, b"42S22", format!("Unknown column '{name}' in 'field list'"))
    } else if let Some((_, name)) = message.split_once(" has no column named ") {
        SessionError::new(1054, b"42S22", format!("Unknown column '{name}' in 'field list'"))
    } else if let Some(name) = behind("ambiguous column name: ") {
        SessionError::new(1052, b"23000", format!("Column '{name}' in field list is ambiguous"))
    } else if let Some(name) = behind("duplicate column name: ") {
        SessionError::new(1060, b"42S21", format!("Duplicate column name '{name}'"))
    } else if let Some(name) = between("table ", " already exists") {
        let name = name.trim_matches(['"', '`']);
        SessionError::new(1050, b"42S01", format!("Table '{name}' already exists"))
    } else if let Some(name) = between("index ", " already exists") {
        SessionError::new(1061, b"42000", format!("Duplicate key name '{name}'"))
    } else if let Some(name) = behind("no such index: ") {
        no_index(name)
    } else if let Some(name) = behind("no such function: ") {
        SessionError::new(1305, b"42000", format!("FUNCTION {schema}.{name} does not exist"))
    } else if let Some(name) = behind("wrong number of arguments to function ") {
        let name = name.trim_end_matches("()");
        let text = format!("Incorrect parameter count in the call to native function '{name}'");
        SessionError::new(1582, b"42000", text)
    } else if message == INTERRUPTED {
        SessionError::interrupted()
    } else if message == WRONG_SLEEP {
        SessionError::new(1210, b"HY000", message)
    } else if message.contains(" values for ") || message.contains("values were supplied") {
        SessionError::new(1136, b"21S01", "Column count doesn't match value count at row 1")
    } else if message.contains("syntax error")
        || message.starts_with("incomplete input")
        || message.starts_with("unrecognized token")
    {
        syntax(rest)
    } else {
        return None;
    };
    Some(error)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    #[test]
    fn usual_mistakes_have_the_numbers_of_mysql() {
        let db = Connection::open_in_memory().expect("there is memory");
        db.execute_batch(
            "create table t(id integer primary key, n int not null, u int unique, check (n < 9));
             insert into t values (1, 1, 1); create index i on t(n)",
        )
        .expect("it is SQL");
        let cases = [
            ("this is no sql", 1064, "42000"),
            ("select (", 1064, "42000"),
            ("select 'a", 1064, "42000"),
            ("select * from missing", 1146, "42S02"),
            ("insert into missing values (1)", 1146, "42S02"),
            ("select missing from t", 1054, "42S22"),
            ("insert into t(missing) values (1)", 1054, "42S22"),
            ("insert into t values (1, 1, 2)", 1062, "23000"),
            ("insert into t values (2, 1, 1)", 1062, "23000"),
            ("insert into t values (2, null, 2)", 1048, "23000"),
            ("insert into t values (2, 10, 2)", 3819, "HY000"),
            ("insert into t values (1)", 1136, "21S01"),
            ("insert into t(id, n) values (1)", 1136, "21S01"),
            ("insert into t values ('a', 1, 7)", 1366, "HY000"),
            ("create table t(a)", 1050, "42S01"),
            ("create index i on t(u)", 1061, "42000"),
            ("drop index missing", 1091, "42000"),
            ("drop table missing", 1146, "42S02"),
            ("select missing(1)", 1305, "42000"),
            ("select abs()", 1582, "42000"),
            ("select id from t a join t b", 1052, "23000"),
        ];
        for (sql, code, state) in cases {
            let error = db.execute(sql, []).expect_err(sql);
            let error = of_sqlite(&error, "test");
            let found = (error.code, error.state.escape_ascii().to_string());
            assert_eq!(found, (code, state.to_owned()), "{sql}: {error}");
        }
    }
}

//! Functions of MySQL that SQLite lacks.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use epoll_group::session::SessionError;
use memchr::memmem;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Type, Value, ValueRef};
use rusqlite::{Connection, Error, Result, ffi};

use crate::node::columns::{OUT_OF_RANGE, triggers, written};
use crate::node::dialect::like;
use crate::node::interrupt::Interrupt;
use crate::node::plan::leading_number;
use crate::node::pool::LONGEST_VALUE;
use crate::node::variables::VERSION;

/// State of a session that functions and row sources use.
#[derive(Debug)]
pub struct Facts {
    pub number: u32,
    pub user: String,
    /// Changed between statements.
    pub schema: Mutex<Arc<str>>,
    pub interrupt: Arc<Interrupt>,
    /// Written between statements.
    pub last_insert_id: Mutex<u64>,
    pub row_count: Mutex<i64>,
    /// End of the last result that a source gave, until the session has noted it.
    pub source_end: Mutex<Option<std::result::Result<(), SessionError>>>,
}

/// The session for which a connection runs.
#[derive(Clone, Default)]
pub struct Caller(Arc<Mutex<Option<Arc<Facts>>>>);

impl Caller {
    pub fn become_one(&self, facts: &Arc<Facts>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(facts));
    }

    pub fn forget(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn facts(&self) -> Option<Arc<Facts>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Caller")
    }
}

/// The function changes nothing. So views, defaults and checks may call it, although the pool trusts no schema.
const IMPURE: FunctionFlags = FunctionFlags::SQLITE_UTF8.union(FunctionFlags::SQLITE_INNOCUOUS);
/// Also, the same arguments always give the same value.
const PURE: FunctionFlags = IMPURE.union(FunctionFlags::SQLITE_DETERMINISTIC);
/// Most bytes of a pattern of LIKE, as in SQLite.
const LONGEST_PATTERN: usize = 50_000;

/// Makes the functions known to a connection.
pub fn install(db: &Connection) -> Result<Caller> {
    rusqlite::vtab::series::load_module(db)?;
    let caller = Caller::default();
    of_the_session(db, &caller)?;
    of_time(db)?;
    of_texts(db, &caller)?;
    triggers::install(db)?;
    db.create_scalar_function("out_of_range", 1, PURE, |context| {
        let text = format!("{OUT_OF_RANGE}{}", written(context.get_raw(0)));
        Err::<bool, _>(Error::UserFunctionError(text.into()))
    })?;
    let sleeper = caller.clone();
    db.create_scalar_function("sleep", 1, FunctionFlags::SQLITE_UTF8, move |context| {
        let seconds = match context.get_raw(0) {
            ValueRef::Integer(seconds) => seconds as f64,
            ValueRef::Real(seconds) => seconds,
            ValueRef::Text(text) => {
                std::str::from_utf8(text).map_or(-1.0, |text| text.trim().parse().unwrap_or(-1.0))
            }
            ValueRef::Null | ValueRef::Blob(_) => -1.0,
        };
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| Error::UserFunctionError(WRONG_SLEEP.into()))?;
        let slept = sleeper.facts().is_none_or(|facts| facts.interrupt.sleep(time));
        if slept { Ok(0_i64) } else { Err(Error::UserFunctionError(INTERRUPTED.into())) }
    })?;
    Ok(caller)
}

/// Error message of a function that stops because its statement was cancelled.
pub const INTERRUPTED: &str = "interrupted";
/// Error message of `sleep` if its argument is not a valid time.
pub const WRONG_SLEEP: &str = "Incorrect arguments to sleep";

fn of_the_session(db: &Connection, caller: &Caller) -> Result<()> {
    let tell = |name: &str, what: fn(&Facts) -> Value| {
        let caller = caller.clone();
        db.create_scalar_function(name, 0, IMPURE, move |_| {
            Ok(caller.facts().map_or(Value::Null, |facts| what(&facts)))
        })
    };
    let user = |facts: &Facts| Value::Text(format!("{}@%", facts.user));
    let schema = |facts: &Facts| {
        Value::Text(facts.schema.lock().unwrap_or_else(PoisonError::into_inner).to_string())
    };
    tell("connection_id", |facts| Value::Integer(facts.number.into()))?;
    tell("database", schema)?;
    tell("schema", schema)?;
    for name in ["user", "current_user", "session_user", "system_user"] {
        tell(name, user)?;
    }
    tell("last_insert_id", |facts| {
        let id = *facts.last_insert_id.lock().unwrap_or_else(PoisonError::into_inner);
        Value::Integer(i64::try_from(id).unwrap_or(i64::MAX))
    })?;
    tell("row_count", |facts| {
        Value::Integer(*facts.row_count.lock().unwrap_or_else(PoisonError::into_inner))
    })?;
    db.create_scalar_function("version", 0, PURE, |_| Ok(VERSION))
}

fn of_time(db: &Connection) -> Result<()> {
    let names = [("now", "%F %T"), ("sysdate", "%F %T"), ("curdate", "%F"), ("curtime", "%T")];
    for (name, form) in names {
        db.create_scalar_function(name, 0, IMPURE, move |_| Ok(utc(form)))?;
    }
    db.create_scalar_function("unix_timestamp", 0, IMPURE, |_| Ok(since_epoch().as_secs() as i64))
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The time now, in UTC.
fn utc(form: &str) -> String {
    let seconds = since_epoch().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let time = format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    // Days since 0000-03-01, in eras of 400 years; a year begins in March.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let date = format!("{year:04}-{month:02}-{day:02}");
    match form {
        "%F" => date,
        "%T" => time,
        _ => format!("{date} {time}"),
    }
}

fn of_texts(db: &Connection, caller: &Caller) -> Result<()> {
    db.create_scalar_function("concat", -1, PURE, |context| {
        has_arguments(context, "concat")?;
        concat(context, 0, "")
    })?;
    db.create_scalar_function("concat_ws", -1, PURE, |context| {
        has_arguments(context, "concat_ws")?;
        let separator = text_of(context, 0);
        separator.map_or(Ok(None), |separator| concat(context, 1, &separator))
    })?;
    let characters =
        |context: &Context<'_>| Ok(text_of(context, 0).map(|text| text.chars().count() as i64));
    let caller = caller.clone();
    // SQLite's own `like` has no escape by default, so a pattern with a backslash gives another
    // result.
    let like = move |context: &Context<'_>| {
        let [Some(pattern), Some(text)] = [text_of(context, 0), text_of(context, 1)] else {
            return Ok(None);
        };
        if pattern.len() > LONGEST_PATTERN {
            return Err(Error::UserFunctionError("LIKE pattern too complex".into()));
        }
        let escape = if context.len() > 2 { text_of(context, 2) } else { Some("\\".to_owned()) };
        let Some(escape) = escape else { return Ok(None) };
        let mut escape = escape.chars();
        let (escape, None) = (escape.next(), escape.next()) else {
            return Err(Error::UserFunctionError("Incorrect arguments to ESCAPE".into()));
        };
        // A sleep of no time tells whether the statement was cancelled.
        let goes_on = || caller.facts().is_none_or(|facts| facts.interrupt.sleep(Duration::ZERO));
        let found = like(&pattern, escape, &text, goes_on);
        found.map(Some).ok_or_else(|| Error::UserFunctionError(INTERRUPTED.into()))
    };
    db.create_scalar_function("like", 2, PURE, like.clone())?;
    db.create_scalar_function("like", 3, PURE, like)?;
    db.create_scalar_function("char_length", 1, PURE, characters)?;
    // SQLite's own take quadratic time, and nothing can interrupt them.
    db.create_scalar_function("instr", 2, PURE, |context| {
        let [Some(text), Some(part)] = [0, 1].map(|at| bytes_of(context, at)) else {
            return Ok(None);
        };
        let Some(at) = memmem::find(&text, &part) else { return Ok(Some(0)) };
        let are_blobs = [0, 1].iter().all(|&at| context.get_raw(at).data_type() == Type::Blob);
        let before =
            if are_blobs { at } else { String::from_utf8_lossy(&text[..at]).chars().count() };
        Ok(Some(before as i64 + 1))
    })?;
    db.create_scalar_function("replace", 3, PURE, |context| {
        let [Some(text), Some(from), Some(to)] = [0, 1, 2].map(|at| bytes_of(context, at)) else {
            return Ok(Value::Null);
        };
        replace(&text, &from, &to)
    })?;
    for (name, arguments) in [("glob", 2), ("trim", 2), ("ltrim", 2), ("rtrim", 2), ("unhex", 2)] {
        db.remove_function(name, arguments)?;
    }
    db.create_scalar_function("if", 3, PURE, |context| {
        let is_true: Option<f64> = context.get::<Value>(0).map(|value| match value {
            Value::Integer(number) => Some(number as f64),
            Value::Real(number) => Some(number),
            Value::Text(text) => Some(leading_number(text.as_bytes())),
            Value::Null | Value::Blob(_) => None,
        })?;
        let chosen = if is_true.is_some_and(|number| number != 0.0) { 1 } else { 2 };
        context.get::<Value>(chosen)
    })?;
    for (name, from_left) in [("left", true), ("right", false)] {
        db.create_scalar_function(name, 2, PURE, move |context| {
            let length: Option<i64> = context.get(1)?;
            Ok(text_of(context, 0).zip(length).map(|(text, length)| {
                let length = usize::try_from(length).unwrap_or(0);
                let all = text.chars().count();
                let skipped = if from_left { 0 } else { all.saturating_sub(length) };
                text.chars().skip(skipped).take(length).collect::<String>()
            }))
        })?;
    }
    Ok(())
}

/// An argument as text; None if it is NULL.
fn text_of(context: &Context<'_>, at: usize) -> Option<String> {
    bytes_of(context, at).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// The bytes of an argument as text, which may be no UTF-8; None if it is NULL.
fn bytes_of<'a>(context: &'a Context<'_>, at: usize) -> Option<Cow<'a, [u8]>> {
    Some(match context.get_raw(at) {
        ValueRef::Null => return None,
        ValueRef::Integer(number) => Cow::Owned(number.to_string().into_bytes()),
        ValueRef::Real(number) => Cow::Owned(number.to_string().into_bytes()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => Cow::Borrowed(bytes),
    })
}

/// Refuses a call without arguments, in the words of SQLite.
fn has_arguments(context: &Context<'_>, name: &str) -> Result<()> {
    if !context.is_empty() {
        return Ok(());
    }
    let text = format!("wrong number of arguments to function {name}()");
    Err(Error::UserFunctionError(text.into()))
}

/// All arguments from `first` as one text. A NULL among them makes the result of `concat` NULL;
/// `concat_ws` leaves it out.
fn concat(context: &Context<'_>, first: usize, separator: &str) -> Result<Option<String>> {
    let mut all = String::new();
    let mut begun = false;
    for at in first..context.len() {
        let Some(part) = text_of(context, at) else {
            if first == 0 {
                return Ok(None);
            }
            continue;
        };
        let separator = if begun { separator } else { "" };
        begun = true;
        check_length(all.len() + separator.len() + part.len())?;
        all.extend([separator, &part]);
    }
    Ok(Some(all))
}

/// Returns `text` with `to` in each place of `from`.
fn replace(text: &[u8], from: &[u8], to: &[u8]) -> Result<Value> {
    let mut replaced = Vec::new();
    let mut copied = 0;
    let places = memmem::find_iter(text, from).take_while(|_| !from.is_empty());
    for at in places {
        check_length(replaced.len() + at - copied + to.len())?;
        replaced.extend_from_slice(&text[copied..at]);
        replaced.extend_from_slice(to);
        copied = at + from.len();
    }
    check_length(replaced.len() + text.len() - copied)?;
    replaced.extend_from_slice(&text[copied..]);
    Ok(String::from_utf8(replaced).map_or_else(|error| error.into_bytes().into(), Value::Text))
}

fn check_length(bytes: usize) -> Result<()> {
    let too_big = || Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_TOOBIG), None);
    if bytes > LONGEST_VALUE { Err(too_big()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_find_what_those_of_sqlite_find() {
        let [ours, theirs] =
            [(); 2].map(|()| Connection::open_in_memory().expect("there is memory"));
        install(&ours).expect("they are functions");
        let values = [
            "null",
            "''",
            "'a'",
            "'äaXaXa'",
            "'aX'",
            "12.5",
            "x''",
            "x'ff4100ff41'",
            "x'41'",
            "cast(x'c3' as text)",
        ];
        for (text, part) in values.iter().flat_map(|text| values.map(|part| (text, part))) {
            let sql =
                format!("select instr({text}, {part}), cast(replace({text}, {part}, 'ß') as blob)");
            let found = |db: &Connection| {
                let row = db.query_row(&sql, [], |row| Ok((row.get(0)?, row.get(1)?)));
                row.unwrap_or_else(|error| panic!("{sql}: {error}"))
            };
            let [ours, theirs]: [(Value, Value); 2] = [&ours, &theirs].map(found);
            assert_eq!(ours, theirs, "{sql}");
        }
    }

    #[test]
    fn like_has_limits() {
        let db = Connection::open_in_memory().expect("there is memory");
        let caller = install(&db).expect("they are functions");
        let like = |pattern: &str| {
            let sql = "select hex(zeroblob(100000)) like ?";
            db.query_row(sql, [pattern], |row| row.get::<_, bool>(0)).map_err(|e| e.to_string())
        };
        let interrupt = Arc::<Interrupt>::default();
        caller.become_one(&Arc::new(Facts {
            number: 1,
            user: String::new(),
            schema: Mutex::default(),
            interrupt: Arc::clone(&interrupt),
            last_insert_id: Mutex::default(),
            row_count: Mutex::default(),
            source_end: Mutex::default(),
        }));
        assert_eq!(like("%0"), Ok(true));
        let error = like(&"%".repeat(LONGEST_PATTERN + 1)).expect_err("it is too long");
        assert_eq!(error, "LIKE pattern too complex");
        interrupt.cancel();
        assert_eq!(like("%1").expect_err("it is cancelled"), INTERRUPTED);
    }
}

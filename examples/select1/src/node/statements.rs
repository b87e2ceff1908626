//! Execution of each kind of statement.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use epoll_group::codec::message::ScalarValue;
use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::row::Column;
use epoll_group::session::{Plan, Reply, SessionError};
use rusqlite::types::Value;
use rusqlite::{Connection, params};

use crate::node::dialect::{Effect, Expected, Query, Scope, Seconds, Statement, Variable};
use crate::node::engine::Engine;
use crate::node::errors::{of_sqlite, syntax, too_many_arguments, unknown_variable};
use crate::node::functions::WRONG_SLEEP;
use crate::node::operator::PREFIX;
use crate::node::plan::PlanRequest;
use crate::node::prepared::Prepared;
use crate::node::run::{Outcome, Run};
use crate::node::sequence::Sequence;
use crate::node::state::{EngineSession, Warning};

impl Engine {
    /// Does what a statement wants.
    pub fn statement(
        &self,
        session: &mut EngineSession,
        prepared: &Prepared,
        arguments: &[ScalarValue<'_>],
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let statement = &prepared.statement;
        if !matches!(statement, Statement::Show(_)) {
            session.warnings.clear();
        }
        let takes_arguments =
            matches!(statement, Statement::Query(_) | Statement::Set(_) | Statement::Sleep { .. });
        if !takes_arguments && !arguments.is_empty() {
            return Err(too_many_arguments());
        }
        match statement {
            Statement::Query(query) => self.query(session, prepared, query, arguments, reply),
            Statement::Sleep { label, seconds } => {
                self.sleep(session, label, *seconds, arguments, reply)
            }
            Statement::Sequence { sequence, limit } => write_sequence(*sequence, *limit, reply),
            Statement::Set(settings) => self.set(session, settings, arguments, reply),
            Statement::Show(show) => self.show(session, show, reply),
            Statement::Use(name) => {
                let database = self.database(session, name.as_bytes())?;
                session.change_database(database)
            }
            Statement::Begin(access) => self.begin(session, *access),
            Statement::Commit => self.commit(session),
            Statement::Rollback => self.roll_back(session),
            Statement::SetSavepoint(name) => self.set_savepoint(session, name),
            Statement::ReleaseSavepoint(name) => self.release_savepoint(session, name),
            Statement::RollBackTo(name) => self.roll_back_to(session, name),
            Statement::Xa(step) => self.xa(session, step, reply),
            Statement::Histograms(what) => {
                let found = self.operator.histograms(what)?;
                crate::node::lists::pairs(reply, ["name", "histogram"], found)
            }
        }
    }

    /// Runs an execution plan.
    pub fn plan(
        &self,
        session: &mut EngineSession,
        request: &Plan<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        session.warnings.clear();
        let plan = PlanRequest::read(request.message, request.plan)?;
        let db = self.reader_of(session, plan.schema().as_bytes())?;
        let rows = plan.run(db)?;
        reply.columns(&rows.columns())?;
        self.give_rows(session, rows, reply)
    }

    fn query(
        &self,
        session: &mut EngineSession,
        prepared: &Prepared,
        query: &Query,
        arguments: &[ScalarValue<'_>],
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let variables = query.variables.iter();
        let variables = variables.map(|variable| self.variable(session, variable));
        let database = Arc::clone(&session.database);
        let run = Run {
            query,
            arguments,
            variables: variables.collect::<Result<_, _>>()?,
            schema: &database.schema,
            is_known: prepared.is_known(),
            prepared: Some(prepared),
        };
        let outcome = match query.effect {
            Effect::Read => run.run(self.selecting(session)?, reply)?,
            Effect::Lock if session.transaction.is_none() && self.commits_itself(session) => {
                run.run(self.selecting(session)?, reply)?
            }
            Effect::Lock | Effect::Write => self.writing(session, |session, db| {
                let done = run.run(db, reply)?;
                if query.ignores {
                    warn_of_ignored(session, query, &done, reply);
                }
                Ok(done)
            })?,
            Effect::Define => {
                let mut has_run = false;
                let done = self.defining(session, |session, db| match &query.conditional {
                    Some((table, expected))
                        if !is_met(session, db, table, *expected, &database.schema, reply)? =>
                    {
                        Ok(())
                    }
                    _ => {
                        has_run = true;
                        run.define(db)
                    }
                });
                if has_run {
                    database.pool.tables_changed();
                }
                done?;
                Outcome::default()
            }
        };
        let Outcome { affected, last_insert_id, is_generated, rows } = outcome;
        if let Some(rows) = rows {
            return self.give_rows(session, rows, reply);
        }
        let generated = if is_generated { last_insert_id } else { 0 };
        session.changed(i64::try_from(affected).unwrap_or(i64::MAX), generated);
        let ending = reply.ending();
        ending.affected = affected;
        ending.insert_id = last_insert_id;
        Ok(())
    }

    /// The value of a variable in a query.
    pub fn variable(
        &self,
        session: &EngineSession,
        variable: &Variable,
    ) -> Result<Value, SessionError> {
        let (scope, name) = match variable {
            Variable::User(name) => {
                return Ok(session.variables.get(name).cloned().unwrap_or(Value::Null));
            }
            Variable::System(scope, name) => (*scope, name.as_str()),
        };
        let value = if name.starts_with(PREFIX) {
            self.operator.tunable(name)
        } else if scope == Scope::Global {
            self.globals.get(name)
        } else {
            session.locals.get(name).map(str::to_owned)
        };
        let value = value.ok_or_else(|| unknown_variable(name))?;
        Ok(match value.as_str() {
            "ON" => Value::Integer(1),
            "OFF" => Value::Integer(0),
            "" if name == "character_set_results" => Value::Null,
            text => text.parse().map_or_else(|_| Value::Text(value), Value::Integer),
        })
    }

    /// Answers when the time has passed. No thread waits for that.
    fn sleep(
        &self,
        session: &EngineSession,
        label: &str,
        seconds: Seconds,
        arguments: &[ScalarValue<'_>],
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let seconds = match (seconds, arguments) {
            (Seconds::Number(seconds), []) => seconds,
            (Seconds::Argument, [ScalarValue::Signed(seconds)]) => *seconds as f64,
            (Seconds::Argument, [ScalarValue::Unsigned(seconds)]) => *seconds as f64,
            (Seconds::Argument, [ScalarValue::Double(seconds)]) => *seconds,
            (Seconds::Argument, [ScalarValue::Float(seconds)]) => f64::from(*seconds),
            (Seconds::Argument, [ScalarValue::Bool(one)]) => f64::from(u8::from(*one)),
            (Seconds::Argument, [ScalarValue::RawString(text) | ScalarValue::String(text, _)]) => {
                std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(-1.0)
            }
            (Seconds::Argument, []) => return Err(syntax("?)")),
            (Seconds::Argument, [_]) => -1.0,
            _ => return Err(too_many_arguments()),
        };
        let time = Duration::try_from_secs_f64(seconds)
            .map_err(|_| SessionError::new(1210, b"HY000", WRONG_SLEEP))?;
        let waiting = Arc::new(Mutex::new(Some(reply.defer())));
        let take = |waiting: &Mutex<Option<_>>| {
            waiting.lock().unwrap_or_else(PoisonError::into_inner).take()
        };
        let label = label.to_owned();
        let over = Arc::clone(&waiting);
        let timer = self.operator.handle().after(time, move || {
            if let Some(deferred) = take(&over) {
                deferred.finish(|reply| {
                    reply.columns(&[Column::signed(&label)])?;
                    reply.row(|row| row.int(0))
                });
            }
        });
        session.interrupt().end_by(move || {
            if let Some(deferred) = take(&waiting) {
                deferred.finish(|_| Err(SessionError::interrupted()));
            }
            timer.cancel();
        });
        Ok(())
    }
}

/// Writes the rows of a sequence as a source: no thread waits for a slow reader.
fn write_sequence(
    sequence: Sequence,
    limit: Option<u64>,
    reply: &mut Reply<'_>,
) -> Result<(), SessionError> {
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    reply.columns(&[Column::signed("seq")])?;
    let mut numbers = sequence.numbers().take(limit);
    reply.source(move |row: &mut epoll_group::session::Row<'_>| match numbers.next() {
        Some(number) => {
            row.int(number);
            Ok(true)
        }
        None => Ok(false),
    });
    Ok(())
}

/// Warns if `insert ignore` has inserted none of its values.
fn warn_of_ignored(
    session: &mut EngineSession,
    query: &Query,
    done: &Outcome,
    reply: &mut Reply<'_>,
) {
    if done.affected == 0 && done.rows.is_none() && !query.first_row.is_empty() {
        let table = query.inserts_into.as_deref().unwrap_or("the table");
        let text = format!("Rows were ignored: a key of {table} has them already");
        session.warn(reply, Warning { level: Level::Warning, code: 1062, text });
    }
}

/// Returns true if the condition of `if exists` or `if not exists` holds. Otherwise notes that it does not.
fn is_met(
    session: &mut EngineSession,
    db: &Connection,
    table: &str,
    expected: Expected,
    schema: &str,
    reply: &mut Reply<'_>,
) -> Result<bool, SessionError> {
    let is_there = "select exists(select 1 from sqlite_master where name = ?1 collate nocase \
                    and type in ('table', 'view'))";
    let is_there: bool = db
        .query_row(is_there, params![table], |row| row.get(0))
        .map_err(|error| of_sqlite(&error, schema))?;
    match (expected, is_there) {
        (Expected::There, false) => {
            session.note(reply, 1051, format!("Unknown table '{schema}.{table}'"));
        }
        (Expected::Missing, true) => {
            session.note(reply, 1050, format!("Table '{table}' already exists"));
        }
        _ => return Ok(true),
    }
    Ok(false)
}

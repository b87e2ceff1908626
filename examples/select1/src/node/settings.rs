//! Assignments of `SET`.

use std::sync::Arc;

use epoll_group::Config;
use epoll_group::codec::message::ScalarValue;
use epoll_group::codec::proto::notice::Level;
use epoll_group::session::{Reply, SessionError};
use rusqlite::types::{ToSqlOutput, Value as Datum, ValueRef};

use crate::node::arguments;
use crate::node::dialect::{LONGEST_KEPT, Scope, Setting, Target, Value};
use crate::node::engine::Engine;
use crate::node::errors::{syntax, too_many_arguments, wrong_value};
use crate::node::operator::PREFIX;
use crate::node::run::Run;
use crate::node::state::{EngineSession, Warning};

impl Engine {
    pub fn set(
        &self,
        session: &mut EngineSession,
        settings: &[Setting],
        arguments: &[ScalarValue<'_>],
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let marks: usize = settings.iter().map(|setting| setting.value.marks()).sum();
        if arguments.len() > marks {
            return Err(too_many_arguments());
        }
        if arguments.len() < marks {
            return Err(syntax("?"));
        }
        let before = (session.locals.clone(), session.variables.clone());
        let next = (session.next_isolation.clone(), session.next_read_only);
        let (was_on, was_open) = (self.commits_itself(session), session.transaction.is_some());
        let done = settings.iter().try_for_each(|setting| {
            let value = self.evaluate(session, &setting.value, arguments)?;
            self.assign(session, &setting.target, value, reply)
        });
        if done.is_err() {
            // All or nothing. Global variables stay changed: another session may have read them.
            (session.locals, session.variables) = before;
            if !was_open {
                // An expression behind `autocommit = 0` has begun a transaction, to read.
                session.transaction = None;
                (session.next_isolation, session.next_read_only) = next;
            }
            return done;
        }
        // Switched on, autocommit commits what is open.
        if !was_on && self.commits_itself(session) { self.commit(session) } else { Ok(()) }
    }

    /// The value; None for the default.
    fn evaluate(
        &self,
        session: &mut EngineSession,
        value: &Value,
        arguments: &[ScalarValue<'_>],
    ) -> Result<Option<Datum>, SessionError> {
        Ok(Some(match value {
            Value::Default => return Ok(None),
            Value::Plain(text) => {
                text.parse().map(Datum::Integer).unwrap_or_else(|_| Datum::Text(text.clone()))
            }
            Value::Argument(at) => {
                let value = arguments.get(*at).ok_or_else(|| syntax("?"))?;
                match arguments::to_sql(*value)? {
                    ToSqlOutput::Borrowed(ValueRef::Text(text)) => {
                        Datum::Text(String::from_utf8_lossy(text).into_owned())
                    }
                    ToSqlOutput::Borrowed(ValueRef::Blob(bytes)) => Datum::Blob(bytes.to_vec()),
                    ToSqlOutput::Owned(value) => value,
                    _ => Datum::Null,
                }
            }
            Value::Expression(query, first) => {
                let variables = query.variables.iter();
                let variables = variables.map(|variable| self.variable(session, variable));
                let database = Arc::clone(&session.database);
                let run = Run {
                    query,
                    arguments: arguments.get(*first..*first + query.marks).unwrap_or_default(),
                    variables: variables.collect::<Result<_, _>>()?,
                    schema: &database.schema,
                    is_known: query.sql.len() <= LONGEST_KEPT,
                    prepared: None,
                };
                run.value(&self.reader(session)?)?
            }
        }))
    }

    fn assign(
        &self,
        session: &mut EngineSession,
        target: &Target,
        value: Option<Datum>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match target {
            Target::User(name) => session.variables.set(name, value.unwrap_or(Datum::Null)),
            Target::Names => {
                let text = value.map(|value| text(&value));
                for part in ["client", "connection", "results"] {
                    session.locals.set(&format!("character_set_{part}"), text.as_deref())?;
                }
                Ok(())
            }
            Target::System(scope, name) => {
                let text = value.map(|value| text(&value));
                self.assign_system(session, *scope, name, text.as_deref(), reply)
            }
        }
    }

    fn assign_system(
        &self,
        session: &mut EngineSession,
        scope: Scope,
        name: &str,
        value: Option<&str>,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        if name.starts_with(PREFIX) {
            if scope != Scope::Global {
                let text = format!(
                    "Variable '{name}' is a GLOBAL variable and should be set with SET GLOBAL"
                );
                return Err(SessionError::new(1229, b"HY000", text));
            }
            if let Some(instead) = Config::without_counterpart(name) {
                let text = format!("Variable '{name}' has no effect: {instead}");
                session.warn(reply, Warning { level: Level::Warning, code: 1287, text });
                return Ok(());
            }
            return self.operator.set(name, value);
        }
        match (scope, name) {
            (Scope::Global, _) => self.globals.set(name, value),
            (Scope::Next, "transaction_isolation") => {
                session.next_isolation = value.map(str::to_owned);
                Ok(())
            }
            (Scope::Next, _) => {
                session.next_read_only = value.map(|value| value == "ON");
                Ok(())
            }
            (_, "character_set_client") if value.is_some_and(|value| !is_utf8(value)) => {
                Err(wrong_value(name, value.unwrap_or_default()))
            }
            _ => session.locals.set(name, value),
        }
    }
}

/// Statements are read as UTF-8, of which ASCII is a part.
fn is_utf8(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("utf8") || name == "ascii" || name == "binary"
}

fn text(value: &Datum) -> String {
    match value {
        Datum::Null => String::new(),
        Datum::Integer(number) => number.to_string(),
        Datum::Real(number) => number.to_string(),
        Datum::Text(text) => text.clone(),
        Datum::Blob(bytes) => String::from_utf8_lossy(bytes).into_owned(),
    }
}

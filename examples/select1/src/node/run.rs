//! Runs a query in SQLite and writes its rows.

use std::sync::Arc;

use epoll_group::codec::message::ScalarValue;
use epoll_group::codec::row::Column;
use epoll_group::session::{Reply, Row, SessionError};
use rusqlite::Statement;
use rusqlite::types::{ToSqlOutput, Value, ValueRef};

use crate::node::arguments;
use crate::node::columns::{Description, Type};
use crate::node::dialect::{Effect, Item, Query};
use crate::node::errors::{of_sqlite, syntax, too_many_arguments};
use crate::node::pool::Lent;

/// A query with everything that it needs.
pub struct Run<'a> {
    pub query: &'a Query,
    pub arguments: &'a [ScalarValue<'a>],
    /// Values of the query's variables, in their order.
    pub variables: Vec<Value>,
    pub schema: &'a str,
    /// It is worth being kept compiled. A text that comes once costs less if it is not.
    pub is_known: bool,
    /// Its columns, if they are known from another time.
    pub described: Option<Arc<[Description]>>,
}

/// Result of a query.
#[derive(Debug, Default)]
pub struct Outcome {
    pub affected: u64,
    pub last_insert_id: u64,
    /// Its columns, if they were not known before.
    pub described: Option<Arc<[Description]>>,
}

/// Rows that are kept at most until a value says of what type a column is.
const MOST_KEPT: usize = 256;

impl Run<'_> {
    pub fn run(&self, db: &Lent, reply: &mut Reply<'_>) -> Result<Outcome, SessionError> {
        let sqlite = |error| of_sqlite(&error, self.schema);
        let sql = &self.query.sql;
        if self.is_known {
            let mut statement = db.prepare_cached(sql).map_err(sqlite)?;
            self.run_compiled(db, &mut statement, reply)
        } else {
            let mut statement = db.prepare(sql).map_err(sqlite)?;
            self.run_compiled(db, &mut statement, reply)
        }
    }

    fn run_compiled(
        &self,
        db: &Lent,
        statement: &mut Statement<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Outcome, SessionError> {
        let sqlite = |error| of_sqlite(&error, self.schema);
        self.bind(statement)?;
        if statement.column_count() > 0 {
            return self.rows(db, statement, reply);
        }
        let last_before = db.last_insert_rowid();
        statement.raw_execute().map_err(sqlite)?;
        for more in &self.query.then {
            // One statement, whatever is in it.
            db.execute(more, []).map_err(sqlite)?;
        }
        let mut outcome = Outcome::default();
        if self.query.effect == Effect::Write {
            outcome.affected = db.changes();
            // It may have changed rows and inserted none. Then the number is an older one, perhaps of
            // another session.
            if db.last_insert_rowid() != last_before {
                outcome.last_insert_id = self.first_number(db, outcome.affected).map_err(sqlite)?;
            }
        }
        Ok(outcome)
    }

    /// The only value of the only row.
    pub fn value(&self, db: &Lent) -> Result<Value, SessionError> {
        let sqlite = |error| of_sqlite(&error, self.schema);
        let mut statement = db.prepare_cached(&self.query.sql).map_err(sqlite)?;
        self.bind(&mut statement)?;
        let mut rows = statement.raw_query();
        let row = rows.next().map_err(sqlite)?;
        row.map_or(Ok(Value::Null), |row| row.get(0).map_err(sqlite))
    }

    fn bind(&self, statement: &mut Statement<'_>) -> Result<(), SessionError> {
        let Query { marks, variables, sql, .. } = self.query;
        if self.arguments.len() > *marks {
            return Err(too_many_arguments());
        }
        if self.arguments.len() < *marks {
            let mark = sql.find('?').and_then(|at| sql.get(at..));
            return Err(syntax(mark.unwrap_or("?")));
        }
        let mut arguments = self.arguments.iter();
        for index in 1..=statement.parameter_count() {
            let variable =
                if variables.is_empty() { None } else { statement.parameter_name(index) };
            let at =
                variable.and_then(|name| variables.iter().position(|(known, _)| known == name));
            let value = match at.and_then(|at| self.variables.get(at)) {
                Some(value) => ToSqlOutput::Borrowed(value.into()),
                None => match arguments.next() {
                    // An argument that is only shown is written as it came. SQLite, which may have
                    // no type for it, gets NULL.
                    Some(ScalarValue::Unsigned(number))
                        if *number > i64::MAX as u64 && self.only_shows(index - 1) =>
                    {
                        ToSqlOutput::Owned(Value::Null)
                    }
                    Some(&value) => arguments::to_sql(value)?,
                    None => ToSqlOutput::Owned(Value::Null),
                },
            };
            statement.raw_bind_parameter(index, value).map_err(|e| of_sqlite(&e, self.schema))?;
        }
        Ok(())
    }

    /// Is this argument a column of its own?
    fn only_shows(&self, argument: usize) -> bool {
        self.query.variables.is_empty()
            && self.query.items.iter().any(|item| item.argument == Some(argument))
    }

    /// The number that the database gave to the first row it has inserted.
    fn first_number(&self, db: &Lent, affected: u64) -> rusqlite::Result<u64> {
        let Some(table) = self.query.inserts_into.as_deref().filter(|_| affected > 0) else {
            return Ok(0);
        };
        let mut numbered = db.prepare_cached(
            "select exists(select 1 from sqlite_master where type = 'table' \
             and name = ?1 collate nocase and sql like '%autoincrement%')",
        )?;
        if !numbered.query_row([table], |row| row.get::<_, bool>(0))? {
            return Ok(0);
        }
        let last = u64::try_from(db.last_insert_rowid()).unwrap_or(0);
        Ok((last + 1).saturating_sub(affected))
    }

    fn rows(
        &self,
        db: &Lent,
        statement: &mut Statement<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Outcome, SessionError> {
        let sqlite = |error| of_sqlite(&error, self.schema);
        let mut outcome = Outcome::default();
        let known: Arc<[Description]> = match &self.described {
            // It is another one if tables have changed in between.
            Some(known) if known.len() == statement.column_count() => Arc::clone(known),
            _ => {
                let columns = self.describe(db, statement).map_err(sqlite)?;
                Arc::clone(outcome.described.insert(columns.into()))
            }
        };
        let items = self.items(known.len());
        let mut rows = statement.raw_query();
        // Types of all columns are known once this holds something else.
        let mut columns: Option<Vec<Description>> = None;
        let mut kept: Vec<Vec<Value>> = Vec::new();
        let undecided = self.decide_arguments(&known, items);
        if undecided.iter().all(|column| column.kind.is_some()) {
            columns = Some(self.begin(undecided.clone(), reply)?);
        }
        let mut undecided = undecided;
        while let Some(row) = rows.next().map_err(sqlite)? {
            if let Some(columns) = &columns {
                self.write(reply, columns, items, |at| row.get_ref(at).map_err(sqlite))?;
                continue;
            }
            for (at, column) in undecided.iter_mut().enumerate() {
                if column.kind.is_none() {
                    column.kind = Type::of_value(row.get_ref(at).map_err(sqlite)?);
                }
            }
            let decided = undecided.iter().all(|column| column.kind.is_some());
            if !decided && kept.len() < MOST_KEPT {
                let values = (0..known.len()).map(|at| row.get(at));
                kept.push(values.collect::<rusqlite::Result<_>>().map_err(sqlite)?);
                continue;
            }
            let begun = self.begin(std::mem::take(&mut undecided), reply)?;
            self.write_kept(reply, &begun, items, &mut kept)?;
            self.write(reply, &begun, items, |at| row.get_ref(at).map_err(sqlite))?;
            columns = Some(begun);
        }
        if columns.is_none() {
            for column in undecided.iter_mut().filter(|column| column.kind.is_none()) {
                column.kind = Some(if kept.is_empty() { Type::STRING } else { Type::Null });
            }
            let begun = self.begin(undecided, reply)?;
            self.write_kept(reply, &begun, items, &mut kept)?;
        }
        Ok(outcome)
    }

    fn items(&self, columns: usize) -> &[Item] {
        if self.query.items.len() == columns { &self.query.items } else { &[] }
    }

    /// Sends what is known of the columns; what is not is a text.
    fn begin(
        &self,
        mut columns: Vec<Description>,
        reply: &mut Reply<'_>,
    ) -> Result<Vec<Description>, SessionError> {
        let literals = self.items(columns.len());
        for column in &mut columns {
            column.kind = column.kind.or(Some(Type::STRING));
        }
        let sent: Vec<Column<'_>> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| {
                let literal = literals.get(at).and_then(|item| item.literal_integer);
                match literal.filter(|_| column.kind == Some(Type::BIGINT)) {
                    // With room for a sign, as MySQL describes it.
                    Some(digits) => column.column().length(digits + 1).not_null(),
                    None => column.column(),
                }
            })
            .collect();
        reply.columns(&sent)?;
        Ok(columns)
    }

    /// The columns of the statement, without what depends on the arguments.
    fn describe(&self, db: &Lent, statement: &Statement<'_>) -> rusqlite::Result<Vec<Description>> {
        let mut columns = db.tables().describe(db, statement, self.schema)?;
        let items = self.items(columns.len());
        for (column, item) in columns.iter_mut().zip(items) {
            if let Some(label) = &item.label {
                column.name.clone_from(label);
            }
        }
        Ok(columns)
    }

    fn decide_arguments(&self, known: &[Description], items: &[Item]) -> Vec<Description> {
        let mut columns = known.to_vec();
        for (column, item) in columns.iter_mut().zip(items) {
            if let Some(argument) = item.argument.and_then(|at| self.arguments.get(at)) {
                column.kind = Some(arguments::kind(*argument));
            }
        }
        columns
    }

    fn write_kept(
        &self,
        reply: &mut Reply<'_>,
        columns: &[Description],
        items: &[Item],
        kept: &mut Vec<Vec<Value>>,
    ) -> Result<(), SessionError> {
        for values in kept.drain(..) {
            self.write(reply, columns, items, |at| {
                Ok(values.get(at).map_or(ValueRef::Null, ValueRef::from))
            })?;
        }
        Ok(())
    }

    #[inline]
    fn write<'v>(
        &self,
        reply: &mut Reply<'_>,
        columns: &[Description],
        items: &[Item],
        value: impl Fn(usize) -> Result<ValueRef<'v>, SessionError>,
    ) -> Result<(), SessionError> {
        reply.try_row(|row: &mut Row<'_>| {
            for (at, column) in columns.iter().enumerate() {
                let argument = items.get(at).and_then(|item| item.argument);
                match argument.and_then(|argument| self.arguments.get(argument)) {
                    Some(argument) => arguments::write(row, *argument),
                    None => column.write(row, value(at)?)?,
                }
            }
            Ok::<_, SessionError>(())
        })
    }
}

//! Runs a query in SQLite and gives its rows.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use epoll_group::codec::message::ScalarValue;
use epoll_group::codec::proto::value::Scalar;
use epoll_group::codec::row::Column;
use epoll_group::session::{Reply, Row, RowSource, SessionError};
use rusqlite::types::{ToSqlOutput, Value};
use rusqlite::{Connection, Statement};

use crate::node::arguments;
use crate::node::columns::{Description, Type, triggers};
use crate::node::cursor::{Cell, Compiled, Cursor};
use crate::node::dialect::{Effect, Inserted, Item, PLACE, Query, check_views};
use crate::node::errors::{no_index, of_sqlite, syntax, too_many_arguments};
use crate::node::pool::Lent;
use crate::node::prepared::Prepared;
use crate::node::rest::{Rows, write_row};

/// A query with everything that it needs.
pub struct Run<'a> {
    pub query: &'a Query,
    pub arguments: &'a [ScalarValue<'a>],
    /// Values of the query's variables, in their order.
    pub variables: Vec<Value>,
    pub schema: &'a Arc<str>,
    /// True if the connection keeps the compiled statement. A text that comes once costs less
    /// without that.
    pub is_known: bool,
    /// The statement whose columns may be known from another time.
    pub prepared: Option<&'a Prepared>,
}

/// Result of a query.
#[derive(Default)]
pub struct Outcome {
    pub affected: u64,
    pub last_insert_id: u64,
    /// True if SQLite has chosen that number.
    pub is_generated: bool,
    /// Its rows, if it has a result.
    pub rows: Option<Selected>,
}

/// Rows of a query whose columns were sent.
pub struct Selected {
    cursor: Cursor,
    columns: Vec<Description>,
    /// Arguments that are columns of their own, by the number of the column; empty if there are none.
    shown: Vec<Option<Scalar>>,
    schema: Arc<str>,
}

/// Rows, and their bytes, that are fetched at most to find the types of columns.
const MOST_AHEAD: usize = 256;
const MOST_BYTES_AHEAD: usize = 1 << 20;
/// Time from the first row after which a column with only integers so far is sent as BIGINT.
const LONGEST_AHEAD: Duration = Duration::from_millis(100);

impl Run<'_> {
    /// Runs a definition.
    pub fn define(&self, db: &Connection) -> Result<(), SessionError> {
        let sqlite = |error| of_sqlite(&error, self.schema);
        if let Some([index, table]) = self.query.drops_index.as_deref() {
            // SQLite has one space of names for the indexes of all tables.
            let is_there = "select exists(select 1 from sqlite_master where type = 'index' \
                            and name = ?1 collate nocase and tbl_name = ?2 collate nocase)";
            let is_there = db.query_row(is_there, [index, table], |row| row.get(0));
            if !is_there.map_err(sqlite)? {
                return Err(no_index(index));
            }
        }
        if let Some(table) = &self.query.retriggers {
            triggers::remove(db, table).map_err(sqlite)?;
        }
        let mut statement = db.prepare(&self.query.sql).map_err(sqlite)?;
        self.bind(&mut statement)?;
        statement.raw_execute().map_err(sqlite)?;
        drop(statement);
        // `execute` refuses a text with more than one statement.
        for more in &self.query.then {
            db.execute(more, []).map_err(sqlite)?;
        }
        if self.query.makes_view {
            let all = "select name, sql from sqlite_master where type = 'view'";
            let mut all = db.prepare(all).map_err(sqlite)?;
            let views = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
            let views = views.and_then(Iterator::collect::<rusqlite::Result<Vec<_>>>);
            check_views(&views.map_err(sqlite)?)?;
        }
        if self.query.retriggers.is_some() { triggers::make(db).map_err(sqlite) } else { Ok(()) }
    }

    /// Runs any other query: a change to its end, a result up to its first rows.
    pub fn run(&self, mut db: Lent, reply: &mut Reply<'_>) -> Result<Outcome, SessionError> {
        let sqlite = |error| of_sqlite(&error, self.schema);
        let inserts = self.query.updates.then(|| db.watch_inserts()).transpose().map_err(sqlite)?;
        let opened = Cursor::open(db, |db| self.compile(db)).map_err(|failed| failed.1);
        let (mut cursor, known) = opened?;
        if !known.is_empty() {
            let mut rows = self.select(cursor, &known, reply)?;
            if self.query.effect == Effect::Write && !rows.cursor.is_over() {
                // Other writers wait for the end of a change, so the handler writes the rest and
                // leaves none to a source.
                let sqlite = |error| of_sqlite(&error, self.schema);
                while rows.cursor.has_more().map_err(sqlite)? {
                    write_row(&mut rows, reply)?;
                }
            }
            return Ok(Outcome { rows: Some(rows), ..Outcome::default() });
        }
        cursor.look_ahead().map_err(sqlite)?;
        let mut outcome = Outcome::default();
        if self.query.effect == Effect::Write {
            let db = cursor.db();
            outcome.affected = db.changes();
            // An upsert may have changed rows and inserted none. Then the number is an older one, perhaps
            // of another session.
            if inserts.is_none_or(|inserts| inserts.load(Ordering::Relaxed)) {
                (outcome.last_insert_id, outcome.is_generated) =
                    self.first_number(db, outcome.affected).map_err(sqlite)?;
            }
        }
        Ok(outcome)
    }

    /// Compiles and binds.
    fn compile<'db>(
        &self,
        db: &'db Lent,
    ) -> Result<(Compiled<'db>, Arc<[Description]>), SessionError> {
        let sqlite = |error| of_sqlite(&error, self.schema);
        let statement = self.bound(db)?;
        // The connection may see older tables than others: those of the snapshot of its transaction.
        let generation = db.generation();
        let known = self.prepared.and_then(|prepared| prepared.described(generation));
        let columns = match known {
            // The number of columns differs if tables have changed in between.
            Some(known) if known.len() == statement.column_count() => known,
            _ => {
                let new: Arc<[_]> = self.describe(db, &statement).map_err(sqlite)?.into();
                if let Some(prepared) = self.prepared {
                    prepared.describe(generation, Arc::clone(&new));
                }
                new
            }
        };
        Ok((statement, columns))
    }

    /// The statement with its arguments.
    fn bound<'db>(&self, db: &'db Lent) -> Result<Compiled<'db>, SessionError> {
        let sql = &self.query.sql;
        let compiled = if self.is_known {
            db.prepare_cached(sql).map(Compiled::Kept)
        } else {
            db.prepare(sql).map(Compiled::Once)
        };
        let mut statement = compiled.map_err(|error| of_sqlite(&error, self.schema))?;
        self.bind(&mut statement)?;
        Ok(statement)
    }

    /// The only value of the only row.
    pub fn value(&self, db: &Lent) -> Result<Value, SessionError> {
        let sqlite = |error| of_sqlite(&error, self.schema);
        let mut statement = self.bound(db)?;
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
            let place = if variables.is_empty() { None } else { statement.parameter_name(index) };
            let at = place.and_then(|name| name.strip_prefix(PLACE)?.parse::<usize>().ok());
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

    /// Returns the number of the first inserted row, and true if SQLite has chosen it. If the client has
    /// chosen it, or rows may have been updated instead, the number is that of the last row.
    fn first_number(&self, db: &Lent, affected: u64) -> rusqlite::Result<(u64, bool)> {
        let Query { inserts_into, inserts_columns, first_row, updates, .. } = self.query;
        let Some(table) = inserts_into.as_deref().filter(|_| affected > 0) else {
            return Ok((0, false));
        };
        let mut tables = db.tables();
        let Some((number, name)) = tables.numbered(db, self.schema, table)? else {
            return Ok((0, false));
        };
        let at = if inserts_columns.is_empty() {
            Some(number)
        } else {
            inserts_columns.iter().position(|listed| listed.eq_ignore_ascii_case(name))
        };
        // The other rows are taken to be like the first one.
        let is_generated = at.is_none_or(|at| match first_row.get(at) {
            Some(Inserted::Null) => true,
            Some(Inserted::Argument(at)) => {
                matches!(self.arguments.get(*at), Some(ScalarValue::Null))
            }
            _ => false,
        });
        let last = u64::try_from(db.last_insert_rowid()).unwrap_or(0);
        let before = if is_generated && !updates { affected - 1 } else { 0 };
        Ok((last.saturating_sub(before), is_generated))
    }

    /// Sends the columns. Before that it fetches rows until it knows whether there are two, and of what
    /// types the columns are. Of a change it fetches all rows, or as many bytes as it may.
    fn select(
        &self,
        mut cursor: Cursor,
        known: &[Description],
        reply: &mut Reply<'_>,
    ) -> Result<Selected, SessionError> {
        let mut columns = self.decide_arguments(known);
        let guessed: Vec<_> = columns.iter().map(|column| column.kind.is_none()).collect();
        let items = self.items(columns.len());
        let is_literal =
            |at| items.get(at).is_some_and(|item: &Item| item.literal_integer.is_some());
        let mut began = None;
        let mut bytes = 0;
        while let Some(row) = cursor.look_ahead().map_err(|e| of_sqlite(&e, self.schema))? {
            let began = *began.get_or_insert_with(Instant::now);
            bytes += row.iter().map(Cell::bytes).sum::<usize>();
            for ((column, cell), guessed) in columns.iter_mut().zip(row).zip(&guessed) {
                if *guessed {
                    column.kind = wider(column.kind, Type::of_value(cell.get()));
                }
            }
            let mut all = columns.iter().zip(&guessed).enumerate();
            let is_decided = all.all(|(at, (column, guessed))| match column.kind {
                _ if !guessed => true,
                None => false,
                // An expression over decimals gives integers for some rows and fractions for others.
                Some(Type::BIGINT) => is_literal(at) || began.elapsed() >= LONGEST_AHEAD,
                Some(_) => true,
            });
            let is_large = bytes >= MOST_BYTES_AHEAD;
            let is_enough = match self.query.effect {
                Effect::Write => is_large,
                _ => is_decided || is_large || cursor.rows_ahead() > MOST_AHEAD,
            };
            if is_enough && cursor.rows_ahead() >= 2 {
                break;
            }
        }
        let is_null = cursor.is_over() && cursor.rows_ahead() > 0;
        for column in &mut columns {
            // A column of an unknown type is a text.
            let default = if is_null { Type::Null } else { Type::STRING };
            column.kind = column.kind.or(Some(default));
        }
        self.begin(&columns, reply)?;
        let shown = self.items(columns.len()).iter().map(|item| {
            let argument = item.argument.and_then(|at| self.arguments.get(at));
            argument.map(|argument| arguments::owned(*argument))
        });
        let mut shown: Vec<_> = shown.collect();
        if shown.iter().all(Option::is_none) {
            shown.clear();
        }
        Ok(Selected { cursor, columns, shown, schema: Arc::clone(self.schema) })
    }

    fn items(&self, columns: usize) -> &[Item] {
        if self.query.items.len() == columns { &self.query.items } else { &[] }
    }

    fn begin(&self, columns: &[Description], reply: &mut Reply<'_>) -> Result<(), SessionError> {
        let literals = self.items(columns.len());
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
        reply.columns(&sent)
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

    fn decide_arguments(&self, known: &[Description]) -> Vec<Description> {
        let mut columns = known.to_vec();
        for (column, item) in columns.iter_mut().zip(self.items(known.len())) {
            if let Some(argument) = item.argument.and_then(|at| self.arguments.get(at)) {
                column.kind = Some(arguments::kind(*argument));
            }
        }
        columns
    }
}

/// Returns the type of a column with values of both types; `None` is the type of NULL.
fn wider(guess: Option<Type>, seen: Option<Type>) -> Option<Type> {
    match (guess, seen) {
        (Some(Type::BIGINT), Some(Type::Double)) => seen,
        (Some(Type::Double), Some(Type::BIGINT)) => guess,
        (Some(Type::BIGINT | Type::Double), Some(Type::VarBinary(_))) => seen,
        (Some(Type::BIGINT | Type::Double), Some(seen)) if guess != Some(seen) => {
            Some(Type::STRING)
        }
        _ => guess.or(seen),
    }
}

impl RowSource for Selected {
    fn next(&mut self, row: &mut Row<'_>) -> Result<bool, SessionError> {
        let Self { cursor, columns, shown, schema } = self;
        if !cursor.advance().map_err(|error| of_sqlite(&error, schema))? {
            return Ok(false);
        }
        let written = cursor.with_row(|values| {
            columns.iter().enumerate().try_for_each(|(at, column)| match shown.get(at) {
                Some(Some(argument)) => {
                    arguments::write(row, argument.value()?);
                    Ok(())
                }
                _ => {
                    let value = values.get_ref(at).map_err(|error| of_sqlite(&error, schema))?;
                    column.write(row, value)
                }
            })
        });
        written.transpose().map(|written| written.is_some())
    }
}

impl Rows for Selected {
    fn most(&self) -> Option<usize> {
        self.cursor.is_over().then(|| self.cursor.rows_ahead())
    }
}

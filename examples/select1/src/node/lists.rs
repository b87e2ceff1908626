//! Answers to `SHOW`.

use epoll_group::codec::proto::notice::Level;
use epoll_group::codec::row::Column;
use epoll_group::session::{Reply, SessionError};
use rusqlite::Connection;

use crate::node::columns::{Description, Domain, TEXT_COLLATION, range, table_columns};
use crate::node::database::Database;
use crate::node::dialect::{Filter, Scope, Show, quoted};
use crate::node::engine::Engine;
use crate::node::errors::{no_table, of_sqlite};
use crate::node::state::EngineSession;

/// Bytes of a text column of these lists, as they are described.
const WIDTH: u32 = 1024;

impl Engine {
    pub fn show(
        &self,
        session: &mut EngineSession,
        show: &Show,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        match show {
            Show::Variables(scope, filter) => {
                let locals = (*scope != Scope::Global).then_some(&session.locals);
                let mut all = self.globals.all(locals);
                all.extend(self.operator.tunables());
                let found = all.into_iter().filter(|(name, _)| filter.accepts(name));
                pairs(reply, ["Variable_name", "Value"], found)
            }
            Show::Status(filter) => {
                let mut all = self.operator.status();
                let ours = [
                    ("Connections_lent", self.lent()),
                    ("Sources", self.sources.number()),
                    ("Branches_prepared", self.branches.number()),
                ];
                all.extend(ours.map(|(name, number)| (name.to_owned(), number.to_string())));
                let all = all.into_iter();
                let found = all.filter(|(name, _)| filter.accepts(name));
                pairs(reply, ["Variable_name", "Value"], found)
            }
            Show::Warnings { limit } => {
                let code = Column::unsigned("Code");
                reply.columns(&[text("Level"), code, text("Message")])?;
                let limit = limit.map_or(usize::MAX, |limit| limit as usize);
                session.warnings.iter().take(limit).try_for_each(|warning| {
                    reply.row(|row| {
                        row.text(match warning.level {
                            Level::Note => "Note",
                            Level::Warning => "Warning",
                            Level::Error => "Error",
                        });
                        row.uint(warning.code.into());
                        row.text(&warning.text);
                    })
                })
            }
            Show::Databases(filter) => {
                let label = format!("Database{}", filter.in_label());
                reply.columns(&[text(&label)])?;
                let mut names: Vec<_> =
                    session.user.databases().iter().map(|database| &database.schema).collect();
                names.sort();
                let mut found = names.into_iter().filter(|name| filter.accepts(name));
                found.try_for_each(|name| reply.row(|row| row.text(name.as_bytes())))
            }
            Show::Tables { full, filter } => {
                let db = self.reader(session)?;
                session.database.tables(&db, *full, filter, reply)
            }
            Show::Columns { table, filter } => {
                let db = self.reader(session)?;
                session.database.table_columns(&db, table, filter, reply)
            }
            Show::Indexes { table } => {
                let db = self.reader(session)?;
                session.database.indexes(&db, table, reply)
            }
            Show::CreateTable { table } => {
                let db = self.reader(session)?;
                session.database.definition(&db, table, reply)
            }
        }
    }
}

impl Database {
    fn tables(
        &self,
        db: &Connection,
        full: bool,
        filter: &Filter,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let label = format!("Tables_in_{}{}", self.schema, filter.in_label());
        let columns = [text(&label), text("Table_type")];
        reply.columns(if full { &columns } else { &columns[..1] })?;
        let all = "select name, type from sqlite_master where type in ('table', 'view') \
                   and name not like 'sqlite\\_%' escape '\\' order by name";
        for [name, kind] in self.rows(db, all, [])? {
            if filter.accepts(&name) {
                reply.row(|row| {
                    row.text(&name);
                    if full {
                        row.text(if kind == "view" { "VIEW" } else { "BASE TABLE" });
                    }
                })?;
            }
        }
        Ok(())
    }

    fn table_columns(
        &self,
        db: &Connection,
        table: &str,
        filter: &Filter,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let described = self.columns(db, table)?;
        let all = "select type, coalesce(dflt_value, '') from pragma_table_info(?1) order by cid";
        let declared = self.rows(db, all, [table])?;
        reply.columns(&["Field", "Type", "Null", "Key", "Default", "Extra"].map(text))?;
        for (column, [kind, default]) in described.iter().zip(declared) {
            if !filter.accepts(&column.name) {
                continue;
            }
            let facts = column.facts;
            reply.row(|row| {
                row.text(&column.name);
                let domain = Domain::declared(&kind).map(|domain| domain.to_string());
                row.text(domain.unwrap_or_else(|| kind.to_ascii_lowercase()));
                row.text(if facts.not_null { "NO" } else { "YES" });
                row.text(match facts {
                    _ if facts.primary_key => "PRI",
                    _ if facts.unique_key => "UNI",
                    _ if facts.multiple_key => "MUL",
                    _ => "",
                });
                let inside = |text: &str, from, to| {
                    text.strip_prefix(from)?.strip_suffix(to).map(str::to_owned)
                };
                let default = inside(&default, '(', ')').unwrap_or(default);
                if default.is_empty() || default.eq_ignore_ascii_case("null") {
                    row.null();
                } else {
                    let text = inside(&default, '\'', '\'').map(|text| text.replace("''", "'"));
                    row.text(text.unwrap_or(default));
                }
                row.text(if facts.auto_increment { "auto_increment" } else { "" });
            })?;
        }
        Ok(())
    }

    fn columns(&self, db: &Connection, table: &str) -> Result<Vec<Description>, SessionError> {
        let columns = table_columns(db, &self.schema, table);
        let columns = columns.map_err(|error| of_sqlite(&error, &self.schema))?;
        if columns.is_empty() { Err(no_table(&self.schema, table)) } else { Ok(columns) }
    }

    fn indexes(
        &self,
        db: &Connection,
        table: &str,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let columns = self.columns(db, table)?;
        let [unique, at] = ["Non_unique", "Seq_in_index"].map(Column::signed);
        reply.columns(&[text("Table"), unique, text("Key_name"), at, text("Column_name")])?;
        let keys = columns.iter().filter(|column| column.facts.primary_key);
        let mut all: Vec<_> = keys
            .enumerate()
            .map(|(at, column)| {
                [0.to_string(), "PRIMARY".to_owned(), (at + 1).to_string(), column.name.clone()]
            })
            .collect();
        // An expression has no name.
        let others = "select 1 - list.\"unique\", list.name, info.seqno + 1, coalesce(info.name, '') \
                      from pragma_index_list(?1) list, pragma_index_info(list.name) info \
                      where list.origin <> 'pk' order by list.seq, info.seqno";
        all.extend(self.rows(db, others, [table])?);
        for [unique, key, at, column] in all {
            reply.row(|row| {
                row.text(table);
                row.int(unique.parse().unwrap_or(1));
                row.text(&key);
                row.int(at.parse().unwrap_or(0));
                row.text(&column);
            })?;
        }
        Ok(())
    }

    fn definition(
        &self,
        db: &Connection,
        table: &str,
        reply: &mut Reply<'_>,
    ) -> Result<(), SessionError> {
        let all = "select name, sql from sqlite_master where name = ?1 collate nocase \
                   and type in ('table', 'view')";
        let found = self.rows(db, all, [table])?;
        let [name, mut sql] =
            found.into_iter().next().ok_or_else(|| no_table(&self.schema, table))?;
        for [column, kind] in
            self.rows(db, "select name, type from pragma_table_info(?1)", [table])?
        {
            if let Some(check) = range(&column, &kind) {
                sql = sql.replace(&check, "");
            }
            if let Some(domain) = Domain::declared(&kind) {
                sql = sql.replace(&domain.definition(), &domain.to_string());
            } else if kind.contains(") ") {
                sql = sql.replace(&quoted(&kind), &kind);
            }
        }
        pairs(reply, ["Table", "Create Table"], [(name, sql)])
    }

    /// Runs a query and returns its rows, with each value as text.
    fn rows<const N: usize>(
        &self,
        db: &Connection,
        sql: &str,
        arguments: impl rusqlite::Params,
    ) -> Result<Vec<[String; N]>, SessionError> {
        let rows = || {
            let mut statement = db.prepare_cached(sql)?;
            let rows = statement.query_map(arguments, |row| {
                let mut texts = [const { String::new() }; N];
                for (at, text) in texts.iter_mut().enumerate() {
                    *text = match row.get_ref(at)? {
                        rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                        value => value.as_str()?.to_owned(),
                    };
                }
                Ok(texts)
            })?;
            rows.collect::<rusqlite::Result<_>>()
        };
        rows().map_err(|error| of_sqlite(&error, &self.schema))
    }
}

/// Writes a result of names and texts.
pub fn pairs(
    reply: &mut Reply<'_>,
    labels: [&str; 2],
    pairs: impl IntoIterator<Item = (String, String)>,
) -> Result<(), SessionError> {
    reply.columns(&labels.map(text))?;
    pairs.into_iter().try_for_each(|(name, value)| {
        reply.row(|row| {
            row.text(&name);
            row.text(&value);
        })
    })
}

fn text(label: &(impl AsRef<[u8]> + ?Sized)) -> Column<'_> {
    Column::text(label, TEXT_COLLATION, WIDTH)
}

//! [`Shell`]: runs statements and commands, and shows what comes of them.

mod commands;

use std::io::{self, Write};
use std::time::{Duration, Instant};

use epoll_group::client::{Answer, Client, Error, Request, Session, Summary};
use lab::units::Nanos;

use crate::cell;
use crate::interrupt::Running;
use crate::splitter::Input;
use crate::table::{Style, Table};

/// One session of a server, and how its answers are shown.
#[derive(Debug)]
pub(crate) struct Shell<W> {
    client: Client,
    address: String,
    /// From the first statement on.
    session: Option<Session>,
    running: Running,
    pub(crate) settings: Settings,
    out: W,
}

/// Settings that commands change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Say how long each statement took.
    pub(crate) timing: bool,
    /// Ask for columns in place of rows.
    pub(crate) chunks: bool,
    /// Columns that are shown of a value.
    pub(crate) cut: Option<usize>,
}

/// Outcome of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A result with so many rows.
    Rows(u64),
    /// No result; so many rows were changed.
    Changed(u64),
    /// Why there is no result. It is not shown yet.
    Failed(String),
    /// A command is done.
    Command,
    /// The user leaves.
    Quit,
}

impl Default for Settings {
    fn default() -> Self {
        Self { timing: true, chunks: false, cut: None }
    }
}

impl<W: Write> Shell<W> {
    pub(crate) fn new(client: Client, address: String, running: Running, out: W) -> Self {
        Self { client, address, session: None, running, settings: Settings::default(), out }
    }

    /// Runs one input and shows what comes of it. If a SIGINT came meanwhile, a script has to stop:
    /// the outcome is then a failure.
    ///
    /// # Errors
    /// The output cannot be written.
    pub(crate) fn run(&mut self, input: &Input) -> io::Result<Outcome> {
        let outcome = match input {
            Input::Statement { text, vertical } => self.execute(text, *vertical),
            Input::Command(command) => self.command(command),
        };
        self.out.flush()?;
        match outcome? {
            failed @ Outcome::Failed(_) => Ok(failed),
            // An interrupted statement may have a result, as `sleep` does.
            _ if self.running.is_interrupted() => Ok(interrupted()),
            outcome => Ok(outcome),
        }
    }

    /// Prints a line.
    pub(crate) fn say(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.out, "{line}")?;
        self.out.flush()
    }

    /// The session, or another when it has ended.
    fn session(&mut self) -> io::Result<Result<&mut Session, Error>> {
        if let Some(ended) = self.session.take_if(|session| !session.is_alive()) {
            drop(ended);
            writeln!(self.out, "the session has ended; another begins, without its transaction")?;
        }
        if self.session.is_none() {
            match self.client.session() {
                Ok(session) => self.session = Some(session),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(self.session.as_mut().expect("one was opened")))
    }

    fn execute(&mut self, text: &str, vertical: bool) -> io::Result<Outcome> {
        let Settings { chunks, cut, .. } = self.settings;
        let mut request = Request::sql(text);
        if chunks {
            request = request.chunks();
        }
        let running = self.running.clone();
        let begun = Instant::now();
        let session = match self.session()? {
            Ok(session) => session,
            Err(error) => return Ok(failed(&error)),
        };
        let Some(guard) = running.begin(session.canceller()) else {
            return Ok(interrupted());
        };
        let answer = match session.execute(request) {
            Ok(answer) => answer,
            Err(error) => return Ok(failed(&error)),
        };
        let (rows, ended) = show(answer, Style { cut, vertical }, &mut self.out)?;
        drop(guard);
        match ended {
            Ok(summary) => self.conclude(rows, &summary, begun.elapsed()),
            Err(error) => Ok(failed(&error)),
        }
    }

    /// Prints the line below a result, and the warnings and the text of the server.
    fn conclude(
        &mut self,
        rows: Option<u64>,
        summary: &Summary,
        time: Duration,
    ) -> io::Result<Outcome> {
        let (mut line, outcome) = match rows {
            Some(rows) => (count(rows, ""), Outcome::Rows(rows)),
            None => (count(summary.affected, " changed"), Outcome::Changed(summary.affected)),
        };
        if let Some(id) = summary.insert_id.filter(|&id| id > 0) {
            line.push_str(&format!(", insert id {id}"));
        }
        if self.settings.timing {
            line.push_str(&format!(", {}", Nanos::of(time)));
        }
        writeln!(self.out, "({line})")?;
        for warning in &summary.warnings {
            let text = cell::one_line(&String::from_utf8_lossy(&warning.msg));
            writeln!(self.out, "warning {}: {text}", warning.code)?;
        }
        if !summary.info.is_empty() {
            let text = cell::one_line(&String::from_utf8_lossy(&summary.info));
            writeln!(self.out, "{text}")?;
        }
        Ok(outcome)
    }

    /// Ends the session, so that the server hears of it.
    pub(crate) fn close(mut self) {
        drop(self.session.take());
        self.client.close();
    }
}

fn failed(error: &Error) -> Outcome {
    Outcome::Failed(cell::one_line(&error.to_string()))
}

fn interrupted() -> Outcome {
    Outcome::Failed("interrupted by SIGINT".to_owned())
}

fn count(rows: u64, what: &str) -> String {
    format!("{rows} row{}{what}", if rows == 1 { "" } else { "s" })
}

/// Prints rows as they come. Returns their number, `None` if there is no result, and how the answer
/// ended. If the columns change, another table begins.
fn show(
    mut answer: Answer,
    style: Style,
    out: &mut impl Write,
) -> io::Result<(Option<u64>, Result<Summary, Error>)> {
    let (mut table, mut known, mut rows) = (None::<Table>, Vec::new(), 0);
    let end = loop {
        match answer.columns() {
            Ok(columns) if columns != known => {
                known = columns.to_vec();
                let headings =
                    known.iter().enumerate().map(|(place, column)| cell::heading(column, place));
                let next = Table::new(headings.collect(), style);
                if let Some(mut before) = table.replace(next) {
                    before.flush(out)?;
                }
            }
            Ok(_) => {}
            Err(error) => break Err(error),
        }
        let cells = match answer.next_row() {
            Ok(Some(row)) => {
                let values = row.values().zip(&known);
                values
                    .map(|(value, column)| value.map(|value| cell::text(value, column)))
                    .collect::<Result<Vec<_>, _>>()
            }
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        };
        match (cells, &mut table) {
            (Ok(cells), Some(table)) => {
                rows += 1;
                table.push(cells, out)?;
            }
            (Ok(_), None) => {}
            (Err(error), _) => break Err(error),
        }
    };
    if let Some(table) = &mut table {
        table.flush(out)?;
    }
    let summary = end.map(|()| answer.summary().clone());
    Ok((table.map(|_| rows), summary))
}

#[cfg(test)]
impl Shell<Vec<u8>> {
    /// Text printed since the last call.
    pub(crate) fn take_output(&mut self) -> String {
        String::from_utf8(std::mem::take(&mut self.out)).expect("it is text")
    }

    /// Has the server end the session: it dies of a schema that is not there.
    pub(crate) fn break_session(&mut self) {
        use epoll_group::codec::proto::sql::StmtExecute;

        let message = StmtExecute {
            stmt: Some(b"select 1".to_vec()),
            schema_name: Some(b"missing".to_vec()),
            ..StmtExecute::default()
        };
        let session = self.session.as_mut().expect("there is one");
        session.run(Request::statement(message)).expect_err("it is fatal");
    }
}

//! Commands, which start with a backslash.

use std::io::{self, Write};

use epoll_group::client::{ConnectionPhase, ConnectionStatus};
use epoll_group::codec::value::Value;
use lab::units::Nanos;

use super::{Outcome, Shell};
use crate::cell;
use crate::table::{Heading, Style, Table};

const HELP: &str = "\
STATEMENT;         runs it; it may span lines
STATEMENT\\G        the same, its rows one below the other
\\status            the server, the session, and the connections of the client
\\timing [on|off]   say how long each statement took
\\chunks [on|off]   ask for columns in place of rows; they look the same here
\\cut [N|off]       show no more than N columns of a value
\\help              this
\\quit              leave, as Ctrl-D does
Ctrl-C             interrupts the statement that runs
";

impl<W: Write> Shell<W> {
    /// Prints the server, its status, and how to get help.
    pub(crate) fn greet(&mut self, own: bool) -> io::Result<()> {
        let address = &self.address;
        if own {
            writeln!(self.out, "a server of its own on {address}, with a table sbtest1")?;
        }
        self.status()?;
        writeln!(self.out, "statements end with ;  \\help lists the commands")
    }

    pub(super) fn command(&mut self, command: &str) -> io::Result<Outcome> {
        let mut words = command.split_whitespace();
        let (name, argument) = (words.next().unwrap_or(""), words.next());
        let surplus = words.count();
        if surplus > 0 {
            let words = 1 + surplus;
            return Ok(misused(&format!("\\{name} takes at most one word: {words} exceeds 1")));
        }
        match (name, argument) {
            ("help" | "h" | "?", None) => self.out.write_all(HELP.as_bytes())?,
            ("quit" | "q", None) => return Ok(Outcome::Quit),
            ("status" | "s", None) => self.status()?,
            ("timing", argument) => match switch(self.settings.timing, argument) {
                Some(on) => self.settings.timing = on,
                None => return Ok(misused("\\timing takes on or off")),
            },
            ("chunks", argument) => match switch(self.settings.chunks, argument) {
                Some(on) => self.settings.chunks = on,
                None => return Ok(misused("\\chunks takes on or off")),
            },
            ("cut", Some("off") | None) => self.settings.cut = None,
            ("cut", Some(columns)) => match columns.parse() {
                Ok(columns) if columns > 0 => self.settings.cut = Some(columns),
                _ => return Ok(misused("\\cut takes a number of columns, or off")),
            },
            _ => {
                return Ok(misused(&format!("there is no command \\{command}; \\help lists them")));
            }
        }
        if matches!(name, "timing" | "chunks" | "cut") {
            self.show_settings()?;
        }
        Ok(Outcome::Command)
    }

    fn show_settings(&mut self) -> io::Result<()> {
        let word = |on| if on { "on" } else { "off" };
        let (timing, chunks) = (word(self.settings.timing), word(self.settings.chunks));
        let cut = self.settings.cut.map_or_else(|| "off".to_owned(), |cut| cut.to_string());
        writeln!(self.out, "settings  timing {timing}, chunks {chunks}, cut {cut}")
    }

    fn status(&mut self) -> io::Result<()> {
        let version = self.version()?;
        writeln!(self.out, "server    {}, {version}", self.address)?;
        match &self.session {
            Some(session) => {
                let id = session.id();
                writeln!(self.out, "session   {id}")?;
            }
            None => writeln!(self.out, "session   none")?,
        }
        let status = self.client.status();
        let ready = status.connections.iter().filter(|one| one.phase == ConnectionPhase::Ready);
        let (ready, all) = (ready.count(), status.connections.len());
        let (made, failed) = (status.connected, status.failed);
        writeln!(self.out, "client    {ready} of {all} connections; {made} made, {failed} failed")?;
        if let Some(error) = &status.last_error {
            writeln!(
                self.out,
                "          the last failed: {}",
                cell::one_line(&error.to_string())
            )?;
        }
        self.show_settings()?;
        self.show_connections(&status.connections)
    }

    fn show_connections(&mut self, connections: &[ConnectionStatus]) -> io::Result<()> {
        let heading = |label: &str, is_number| Heading { label: label.to_owned(), is_number };
        let headings = vec![
            heading("connection", false),
            heading("sessions", true),
            heading("outstanding", true),
            heading("age", true),
        ];
        let mut table = Table::new(headings, Style::default());
        for one in connections {
            let row = vec![
                format!("{:?}", one.phase).to_lowercase(),
                one.sessions.to_string(),
                one.outstanding.to_string(),
                one.age.map_or_else(String::new, |age| Nanos::of(age).to_string()),
            ];
            table.push(row, &mut self.out)?;
        }
        table.flush(&mut self.out)
    }

    /// The server's version, or why it does not tell one.
    fn version(&mut self) -> io::Result<String> {
        let running = self.running.clone();
        let session = match self.session()? {
            Ok(session) => session,
            Err(error) => return Ok(cell::one_line(&error.to_string())),
        };
        let _guard = running.begin(session.canceller());
        let asked = session.execute("select version()");
        let version = asked.and_then(|mut answer| match answer.next_row()? {
            Some(row) => match row.get(0)? {
                Value::Bytes(text) => Ok(String::from_utf8_lossy(text).into_owned()),
                other => Ok(format!("{other:?}")),
            },
            None => Ok("no version".to_owned()),
        });
        Ok(cell::one_line(&version.unwrap_or_else(|error| error.to_string())))
    }
}

/// New value of a setting. Without an argument it is switched; `None` if the argument is not `on`
/// or `off`.
fn switch(is: bool, argument: Option<&str>) -> Option<bool> {
    match argument {
        None => Some(!is),
        Some("on") => Some(true),
        Some("off") => Some(false),
        Some(_) => None,
    }
}

fn misused(text: &str) -> Outcome {
    Outcome::Failed(text.to_owned())
}

//! The admin listener: one command on a line, an answer that ends with an empty line.
//!
//! It is served as `Class::Admin`: also when every other thread waits. Whoever can connect may
//! change tunables, so give it a Unix socket, or a port that only operators reach.

mod client;

use std::fmt::{Display, Write};
use std::str;
use std::time::Instant;

use epoll_group::net::{Close, Connection, Input, Protocol};
use epoll_group::stats::Stage;
use epoll_group::{Config, Handle, Runtime};

pub(crate) use client::{AdminError, Client};

/// Serves an operator.
pub(crate) struct Admin {
    handle: Handle,
    requests: Box<dyn Fn() -> u64 + Send + Sync>,
    started: Instant,
}

/// Longest command, in bytes.
const LONGEST: usize = 1024;
/// Answers that a client may leave unread before it is disconnected, in bytes.
const MOST_UNREAD: usize = 1 << 20;

const HELP: &str = "\
stats            everything that is counted, each in a line of a name and a value
text             the same for people, with the histograms
buckets          the histograms: stage, end of the bucket in nanoseconds, samples in it
config           every tunable: name, value, range, and whether it is live
set NAME VALUE   changes a tunable that is live
reset            empties the histograms
help             this
quit             ends the connection
";

impl Admin {
    /// `requests` tells how many the server has answered.
    pub(crate) fn new(
        runtime: &Runtime,
        requests: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        Self { handle: runtime.handle(), requests: Box::new(requests), started: Instant::now() }
    }

    /// The lines of the answer, without the empty one; or what is wrong with the command.
    fn answer(&self, line: &str) -> Result<String, String> {
        let line = line.trim();
        let (command, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (command, rest.trim_start()) {
            ("stats", "") => Ok(self.stats()),
            ("text", "") => {
                // Empty lines stand between histograms, and would end the answer.
                let text = self.handle.stats().to_string();
                Ok(text
                    .lines()
                    .filter(|line| !line.is_empty())
                    .flat_map(|line| [line, "\n"])
                    .collect())
            }
            ("buckets", "") => Ok(self.buckets()),
            ("config", "") => Ok(self.tunables()),
            ("set", pair) => {
                let (name, value) = pair.split_once([' ', '\t', '=']).unwrap_or((pair, ""));
                match value.trim_start_matches([' ', '\t', '=']) {
                    "" => Err("set needs a name and a value, such as: set max_threads 256".into()),
                    value => self.set(name, value),
                }
            }
            ("reset", "") => {
                self.handle.reset_histograms();
                Ok("the histograms are empty\n".to_owned())
            }
            ("help", "") => Ok(HELP.to_owned()),
            ("stats" | "text" | "buckets" | "config" | "reset" | "help", rest) => {
                Err(format!("{command} takes no argument, not {rest:?}"))
            }
            _ => Err(format!("unknown command {command:?}; help lists them")),
        }
    }

    fn stats(&self) -> String {
        let mut lines = self.handle.stats().to_lines();
        let uptime = self.started.elapsed().as_secs_f64();
        put(&mut lines, format_args!("echo_requests {}", (self.requests)()));
        put(&mut lines, format_args!("echo_uptime_seconds {uptime:.9}"));
        lines
    }

    fn buckets(&self) -> String {
        let mut lines = String::new();
        let stats = self.handle.stats();
        for &stage in Stage::ALL {
            for (end, count) in stats.histogram(stage).iter().flat_map(|all| all.buckets()) {
                put(&mut lines, format_args!("{} {} {count}", stage.name(), end.as_nanos()));
            }
        }
        lines
    }

    fn tunables(&self) -> String {
        let config = self.handle.config();
        let mut lines = String::new();
        for field in Config::FIELDS {
            let when = if field.is_live() { "live" } else { "start only" };
            let (name, value, range) = (field.name(), field.value_in(&config), field.range());
            put(&mut lines, format_args!("{name} {value}  # {range}, {when}"));
        }
        lines
    }

    fn set(&self, name: &str, value: &str) -> Result<String, String> {
        // Whoever changes something else at the same time: this is asked again then.
        let mut refused = None;
        let set = |config: Config| {
            config.clone().set(name, value).unwrap_or_else(|error| {
                refused = Some(error);
                config
            })
        };
        self.handle.reconfigure(set).map_err(|error| error.to_string())?;
        match refused {
            Some(error) => Err(error.to_string()),
            None => {
                let value = self.handle.config().get(name).unwrap_or_default();
                Ok(format!("{name} {value}\n"))
            }
        }
    }
}

impl Protocol for Admin {
    type State = ();

    fn opened(&self, _conn: &Connection) {}

    fn received(&self, conn: &Connection, _: &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        while let Some(end) = input.bytes().iter().position(|&byte| byte == b'\n') {
            if end > LONGEST {
                return Err(too_long(conn));
            }
            let line = input.take(end + 1);
            let Ok(line) = str::from_utf8(line) else {
                conn.send("error: this command is not UTF-8\n\n");
                continue;
            };
            match line.split_whitespace().next() {
                None => continue,
                Some("quit") => return Err(Close::new("quit")),
                // A browser was tricked into talking to this port: the next line could be a `set`.
                Some("POST" | "GET" | "Host:") => return Err(Close::new("this is not HTTP")),
                Some(_) => {}
            }
            match self.answer(line) {
                Ok(lines) => conn.send(lines + "\n"),
                Err(error) => conn.send(format!("error: {error}\n\n")),
            };
            if conn.pending_bytes() > MOST_UNREAD {
                return Err(Close::new("too many answers are left unread"));
            }
        }
        if input.len() > LONGEST { Err(too_long(conn)) } else { Ok(()) }
    }
}

fn too_long(conn: &Connection) -> Close {
    conn.send(format!("error: a command is at most {LONGEST} bytes long\n\n"));
    Close::new("command too long")
}

fn put(lines: &mut String, line: impl Display) {
    writeln!(lines, "{line}").expect("a String takes everything");
}

#[cfg(test)]
#[path = "admin/tests.rs"]
mod tests;

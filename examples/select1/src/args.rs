//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use lab::args::{Account, Tunables, seconds, within};

use select1::node::{AccountOptions, Schema};

use crate::load::Mode;

/// A data node: SQL and execution plans over SQLite.
///
/// Without a command it serves on loopback from a temporary database and loads itself: `select 1`, and
/// single rows by their ids as SQL text and as a plan, by 1 to 2048 sessions over at most 16
/// connections. Every answer is checked. Takes half a minute.
#[derive(Debug, Parser)]
#[command(name = "select1", args_conflicts_with_subcommands = true)]
pub(crate) struct Command {
    /// Take 0.3 s a step instead of 2 s.
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(subcommand)]
    pub(crate) task: Option<Task>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Task {
    Serve(Serve),
    Load(Load),
}

/// Serve SQL over SQLite until SIGTERM or SIGINT, then drain.
///
/// Prints `listening on ADDR`.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// HOST:PORT, or unix:PATH; port 0 takes a free one.
    #[arg(long, value_name = "ADDR")]
    pub(crate) listen: String,
    /// First account, which may use all schemas; its password may be empty.
    #[command(flatten)]
    pub(crate) account: Account,
    /// One more account, for some schemas or all; may be repeated.
    #[arg(long, value_name = "NAME[@SCHEMA,…]:PASSWORD", value_parser = account)]
    pub(crate) add_account: Vec<AccountOptions>,
    /// Database, made if there is none [default: a temporary one].
    #[arg(long, value_name = "FILE")]
    pub(crate) database: Option<PathBuf>,
    /// Name of the database for clients.
    #[arg(long, value_name = "NAME", default_value = "sbtest")]
    pub(crate) schema: String,
    /// One more database, made if there is none; may be repeated.
    #[arg(long, value_name = "NAME=FILE", value_parser = schema)]
    pub(crate) add_schema: Vec<Schema>,
    /// Rows of the table sbtest1, if it is made.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = within(0..=10_000_000_u32))]
    pub(crate) rows: u32,
    #[command(flatten)]
    pub(crate) tunables: Tunables,
}

/// Load a server through the client library.
///
/// Every session asks again as soon as it has its answer, and no thread waits for one. Every answer is
/// checked; ends with status 1 if one was wrong or an error. Prints a line each second on standard
/// error, a table and a histogram at the end.
#[derive(Clone, Debug, Args)]
pub(crate) struct Load {
    /// HOST:PORT, or unix:PATH [default: a server in this process].
    #[arg(long, value_name = "ADDR", requires_all = ["user", "password"])]
    pub(crate) connect: Option<String>,
    /// User to log in as; needed with --connect.
    #[arg(long, value_name = "NAME", default_value = lab::sessions::USER)]
    pub(crate) user: String,
    /// Password of the user; needed with --connect.
    #[arg(long, value_name = "PASSWORD", default_value = lab::sessions::PASSWORD)]
    pub(crate) password: String,
    /// Sessions, each with one request in flight.
    // The limit is the client's default for callers that wait for a session.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = within(1..=65_536_usize))]
    pub(crate) sessions: usize,
    /// Connections that the sessions share.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = within(1..=1024_usize))]
    pub(crate) connections: usize,
    /// Requests.
    #[arg(long, value_enum, default_value_t = Mode::Select1)]
    pub(crate) mode: Mode,
    /// Ids to ask for, from 1 [default: the highest of the table].
    #[arg(long, value_name = "N", value_parser = within(1..=u32::MAX))]
    pub(crate) rows: Option<u32>,
    /// Length of the load.
    #[arg(long, value_name = "S", default_value = "5", value_parser = seconds(0.01..=86_400.0))]
    pub(crate) seconds: Duration,
    /// Print one JSON object, and nothing else, on standard output.
    #[arg(long)]
    pub(crate) json: bool,
}

/// # Errors
/// The text is not `NAME:PASSWORD` or `NAME@SCHEMA,…:PASSWORD`.
fn account(text: &str) -> Result<AccountOptions, String> {
    let error = || "an account is NAME:PASSWORD or NAME@SCHEMA,…:PASSWORD".to_owned();
    let (account, password) = text.split_once(':').ok_or_else(error)?;
    let (user, schemas) = match account.split_once('@') {
        Some((user, names)) => (user, names.split(',').map(str::to_owned).collect()),
        None => (account, Vec::new()),
    };
    if user.is_empty() || schemas.iter().any(String::is_empty) {
        return Err(error());
    }
    Ok(AccountOptions { user: user.to_owned(), password: password.to_owned(), schemas })
}

/// # Errors
/// The text is not `NAME=FILE`, or no account could name the schema.
fn schema(text: &str) -> Result<Schema, String> {
    match text.split_once('=') {
        Some((name, path))
            if !name.is_empty() && !path.is_empty() && !name.contains([',', ':']) =>
        {
            Ok(Schema { name: name.to_owned(), path: path.into() })
        }
        _ => Err("a schema is NAME=FILE, without , and : in its name".to_owned()),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        Command::try_parse_from(line.split(' ')).map_err(|error| error.to_string())
    }

    pub(crate) fn load(line: &str) -> Load {
        match parse(line).map(|command| command.task) {
            Ok(Some(Task::Load(load))) => load,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn a_command_line_has_defaults() {
        assert!(parse("select1").is_ok_and(|command| !command.quick && command.task.is_none()));
        assert!(parse("select1 --quick").is_ok_and(|command| command.quick));
        let load = load("select1 load");
        assert_eq!((load.connect, load.sessions, load.connections), (None, 16, 4));
        assert_eq!(
            (load.mode, load.rows, load.seconds),
            (Mode::Select1, None, Duration::from_secs(5))
        );
    }

    #[test]
    fn an_error_names_the_option_the_value_and_the_limits() {
        for (line, parts) in [
            ("select1 load --sessions 0", ["--sessions", "0 is outside 1..=65536"]),
            ("select1 load --seconds 0", ["--seconds", "0 is outside 0.01..=86400.0"]),
            ("select1 load --mode sqll", ["--mode", "select1, sql, digest, plan"]),
            ("select1 load --connect a:1", ["--user", "--password"]),
            ("select1 serve --listen a:1 --user u", ["--password", "required"]),
            ("select1 serve --rows -1", ["-1", "unexpected"]),
            ("select1 serve --add-account app", ["--add-account", "NAME:PASSWORD"]),
            ("select1 serve --add-account :a", ["--add-account", "NAME:PASSWORD"]),
            ("select1 serve --add-account a@:b", ["--add-account", "NAME:PASSWORD"]),
            ("select1 serve --add-schema stock", ["--add-schema", "NAME=FILE"]),
            ("select1 serve --add-schema a,b=c", ["--add-schema", "NAME=FILE"]),
        ] {
            let error = parse(line).expect_err(line);
            assert!(parts.iter().all(|part| error.contains(part)), "{line}: {error}");
        }
    }
}

//! Servers as processes: what is started, and what is known of it.

use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::str::FromStr;

use super::process::{Ending, Helper};
use super::sessions::{PASSWORD, USER};
use super::spec::{Kind, Spec};

/// Any server of a comparison.
#[derive(Clone, Debug)]
pub(crate) enum Server {
    /// One that echoes frames.
    Echo(Spec),
    /// One that runs statements, over a table of so many rows.
    Sql(Sql, u32),
}

/// A server that runs statements, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sql {
    /// A thread for each session, before this engine.
    Old(EngineName),
    /// A thread for each client, which has one session.
    Jdbc(EngineName),
    /// The example, as built beside this program or elsewhere.
    Select1(Option<PathBuf>),
}

/// Whom a server before an engine gives its threads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadsFor {
    Sessions,
    Clients,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineName {
    Constant,
    Sqlite,
}

const ANY_PORT: &str = "127.0.0.1:0";
const GREETING: &str = "listening on ";

impl Server {
    /// Starts it and returns where it listens.
    pub(crate) fn start(&self) -> Result<(Helper, SocketAddr), Box<dyn Error>> {
        let (helper, address) = match self {
            Self::Echo(spec) => {
                let binary = match &spec.binary {
                    Some(binary) => binary.clone(),
                    None => std::env::current_exe()?,
                };
                let mut command = Command::new(binary);
                command.arg("serve").arg(spec.without_binary().to_string()).arg(ANY_PORT);
                Helper::start(&mut command, GREETING)?
            }
            Self::Sql(Sql::Old(engine), rows) => old(ThreadsFor::Sessions, *engine, *rows)?,
            Self::Sql(Sql::Jdbc(engine), rows) => old(ThreadsFor::Clients, *engine, *rows)?,
            Self::Sql(Sql::Select1(binary), rows) => {
                let mut command = Command::new(select1(binary.as_ref())?);
                command.arg("serve");
                Helper::start_ending(with_account(&mut command, *rows), GREETING, Ending::Signal)?
            }
        };
        Ok((helper, address.parse()?))
    }

    /// It says at its end how many requests it has answered.
    pub(crate) fn counts_answers(&self) -> bool {
        matches!(self, Self::Echo(spec) if spec.kind == Kind::EpollGroup)
    }
}

fn old(
    threads_for: ThreadsFor,
    engine: EngineName,
    rows: u32,
) -> Result<(Helper, String), Box<dyn Error>> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve-old", "--engine", &engine.to_string()]);
    command.args(["--threads-for", &threads_for.to_string()]);
    Helper::start(with_account(&mut command, rows), GREETING)
}

/// What the servers that run statements are all told.
fn with_account(command: &mut Command, rows: u32) -> &mut Command {
    command
        .args(["--listen", ANY_PORT, "--user", USER, "--password", PASSWORD])
        .args(["--rows", &rows.to_string()])
}

/// The example's binary: cargo puts it beside this one.
fn select1(binary: Option<&PathBuf>) -> Result<PathBuf, Box<dyn Error>> {
    if let Some(binary) = binary {
        return Ok(binary.clone());
    }
    let this = std::env::current_exe()?;
    let example = this.with_file_name("examples").join("select1");
    if example.exists() {
        return Ok(example);
    }
    let text = "is not there: cargo build --release --example select1, or --servers …@BINARY";
    Err(format!("{} {text}", example.display()).into())
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo(spec) => spec.fmt(f),
            Self::Sql(server, _) => server.fmt(f),
        }
    }
}

impl fmt::Display for Sql {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Old(engine) => write!(f, "old:{engine}"),
            Self::Jdbc(engine) => write!(f, "jdbc:{engine}"),
            Self::Select1(None) => f.write_str("select1"),
            Self::Select1(Some(binary)) => write!(f, "select1@{}", binary.display()),
        }
    }
}

impl FromStr for Sql {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.split_once(':'), text.split_once('@')) {
            (Some(("old", engine)), _) => Ok(Self::Old(engine.parse()?)),
            (Some(("jdbc", engine)), _) => Ok(Self::Jdbc(engine.parse()?)),
            (_, Some(("select1", binary))) => Ok(Self::Select1(Some(binary.into()))),
            _ if text == "select1" => Ok(Self::Select1(None)),
            _ => Err(format!(
                "server {text} is none of select1, select1@BINARY, old:sqlite, old:constant, \
                 jdbc:sqlite and jdbc:constant"
            )),
        }
    }
}

impl fmt::Display for ThreadsFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sessions => "sessions",
            Self::Clients => "clients",
        })
    }
}

impl FromStr for ThreadsFor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "sessions" => Ok(Self::Sessions),
            "clients" => Ok(Self::Clients),
            _ => Err(format!("threads are for sessions or clients, not {text}")),
        }
    }
}

impl fmt::Display for EngineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Constant => "constant",
            Self::Sqlite => "sqlite",
        })
    }
}

impl FromStr for EngineName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "constant" => Ok(Self::Constant),
            "sqlite" => Ok(Self::Sqlite),
            _ => Err(format!("engine {text} is neither constant nor sqlite")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_displayed_is_what_was_parsed() {
        for text in ["old:sqlite", "old:constant", "jdbc:sqlite", "select1", "select1@/tmp/a:b"] {
            assert_eq!(text.parse::<Sql>().unwrap().to_string(), text);
        }
        for text in ["old", "old:mysql", "jdbc", "select2", "select1:2"] {
            assert!(text.parse::<Sql>().is_err(), "{text}");
        }
    }
}

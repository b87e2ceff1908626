//! Servers as processes: what is started, and what is known of it.

use std::env;
use std::error::Error;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::str::FromStr;
use std::sync::OnceLock;

use super::process::{Ending, Helper};
use super::sessions::{PASSWORD, USER};
use super::spec::{Kind, Spec};

/// Any server of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Server {
    /// One that echoes frames.
    Echo(Spec),
    /// One that runs statements, over a table of so many rows.
    Sql(Sql, u32),
}

/// A server that runs statements, as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sql {
    /// One of this program.
    Ours(Architecture, EngineName),
    /// The example, as built beside this program or elsewhere.
    Select1(Option<PathBuf>),
}

/// What stands before an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Architecture {
    /// The library.
    New,
    /// A thread for each session, behind one that reads for each connection.
    Old,
    /// A thread for each connection, which has one session.
    Jdbc,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EngineName {
    Constant,
    Sqlite,
}

const ARCHITECTURES: [(&str, Architecture); 3] =
    [("new", Architecture::New), ("old", Architecture::Old), ("jdbc", Architecture::Jdbc)];
const ANY_PORT: &str = "127.0.0.1:0";
const GREETING: &str = "listening on ";

impl Server {
    /// Starts it and returns where it listens.
    pub(crate) fn start(&self) -> Result<(Helper, SocketAddr), Box<dyn Error>> {
        let (helper, address) = match self {
            Self::Echo(spec) => {
                let binary = match &spec.binary {
                    Some(binary) => binary.clone(),
                    None => env::current_exe()?,
                };
                let mut command = Command::new(binary);
                command.arg("serve").arg(spec.without_binary().to_string()).arg(ANY_PORT);
                Helper::start(&mut command, GREETING)?
            }
            Self::Sql(server @ Sql::Ours(..), rows) => {
                let mut command = Command::new(env::current_exe()?);
                command.arg("serve-sql").arg(server.to_string());
                Helper::start(with_account(&mut command, *rows), GREETING)?
            }
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

impl Sql {
    /// Over how many connections its sessions come, when `shared` are to be had.
    pub(crate) fn connections(&self, shared: usize, sessions: usize) -> usize {
        match self {
            Self::Ours(Architecture::Jdbc, _) => sessions,
            _ => shared.min(sessions),
        }
    }
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
    static BUILT: OnceLock<Result<(), String>> = OnceLock::new();
    let this = env::current_exe()?;
    let example = this.with_file_name("select1");
    BUILT.get_or_init(|| build_select1(&this)).clone()?;
    if example.exists() {
        return Ok(example);
    }
    let text = "is not there: cargo build --release -p select1, or --servers …@BINARY";
    Err(format!("{} {text}", example.display()).into())
}

/// Builds the example as this program was built, when cargo runs it: one that is not there is made,
/// and one that is older than its source is not measured. Otherwise it is taken as it is.
fn build_select1(this: &Path) -> Result<(), String> {
    let (Some(cargo), Some(package)) = (env::var_os("CARGO"), env::var_os("CARGO_MANIFEST_DIR"))
    else {
        return Ok(());
    };
    let profile = this.parent().and_then(Path::file_name).unwrap_or_default();
    let target = this.ancestors().nth(2).unwrap_or(this);
    let mut build = Command::new(cargo);
    build.args(["build", "--quiet", "--package", "select1"]);
    build.arg("--target-dir").arg(target).current_dir(package).stdout(Stdio::null());
    if profile == "release" {
        build.arg("--release");
    }
    match build.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{build:?}: {status}")),
        Err(error) => Err(format!("{build:?}: {error}")),
    }
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
            Self::Ours(architecture, engine) => write!(f, "{architecture}:{engine}"),
            Self::Select1(None) => f.write_str("select1"),
            Self::Select1(Some(binary)) => write!(f, "select1@{}", binary.display()),
        }
    }
}

impl FromStr for Sql {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(("select1", binary)) = text.split_once('@') {
            return Ok(Self::Select1(Some(binary.into())));
        }
        if text == "select1" {
            return Ok(Self::Select1(None));
        }
        let parts = text.split_once(':').and_then(|(architecture, engine)| {
            let known = ARCHITECTURES.iter().find(|(name, _)| *name == architecture);
            known.map(|(_, architecture)| (*architecture, engine))
        });
        let Some((architecture, engine)) = parts else {
            return Err(format!(
                "server {text} is none of select1, select1@BINARY, and new, old, jdbc with \
                 :constant or :sqlite"
            ));
        };
        Ok(Self::Ours(architecture, engine.parse()?))
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = ARCHITECTURES.iter().find(|(_, architecture)| architecture == self);
        f.write_str(entry.map_or("", |(name, _)| name))
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
        for text in [
            "old:sqlite",
            "old:constant",
            "jdbc:sqlite",
            "new:constant",
            "select1",
            "select1@/tmp/a:b",
        ] {
            assert_eq!(text.parse::<Sql>().unwrap().to_string(), text);
        }
        for text in ["old", "old:mysql", "jdbc", "select2", "select1:2"] {
            assert!(text.parse::<Sql>().is_err(), "{text}");
        }
    }
}

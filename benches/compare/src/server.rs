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
    /// The example, as built beside this program or elsewhere.
    Select1(Option<PathBuf>),
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
                    None => env::current_exe()?,
                };
                let mut command = Command::new(binary);
                command.arg("serve").arg(spec.without_binary().to_string()).arg(ANY_PORT);
                Helper::start(&mut command, GREETING)?
            }
            Self::Sql(Sql::Old(engine), rows) => {
                let mut command = Command::new(env::current_exe()?);
                command.args(["serve-old", "--engine", &engine.to_string()]);
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
    let example = this.with_file_name("examples").join("select1");
    BUILT.get_or_init(|| build_select1(&this)).clone()?;
    if example.exists() {
        return Ok(example);
    }
    let text = "is not there: cargo build --release --example select1, or --servers …@BINARY";
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
    build.args(["build", "--quiet", "--package", "epoll-group", "--example", "select1"]);
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
            Self::Old(engine) => write!(f, "old:{engine}"),
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
            (_, Some(("select1", binary))) => Ok(Self::Select1(Some(binary.into()))),
            _ if text == "select1" => Ok(Self::Select1(None)),
            _ => Err(format!(
                "server {text} is none of select1, select1@BINARY, old:sqlite and old:constant"
            )),
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
        for text in ["old:sqlite", "old:constant", "select1", "select1@/tmp/a:b"] {
            assert_eq!(text.parse::<Sql>().unwrap().to_string(), text);
        }
        for text in ["old", "old:mysql", "select2", "select1:2"] {
            assert!(text.parse::<Sql>().is_err(), "{text}");
        }
    }
}

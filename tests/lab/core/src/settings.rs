//! The tunables of a server: defaults, then a file, then the environment, then the command line.
//!
//! Everything goes through `Config::set`, so that there is one grammar and one text of an error.
//! This module adds the source of each value.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use epoll_group::{Config, Field};
use toml::de::{DeTable, DeValue};

use crate::table;

/// A configuration, and where each value came from that is not a default.
#[derive(Debug, Default)]
pub struct Settings {
    pub config: Config,
    origins: BTreeMap<&'static str, Origin>,
}

/// One tunable of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The option that sets it, for errors: `--set`, or a short form of that.
    pub option: &'static str,
    pub name: String,
    pub value: String,
}

/// Source of a tunable's value.
#[derive(Clone, Debug)]
enum Origin {
    File { path: PathBuf, line: usize },
    Variable(String),
    Option(&'static str),
}

/// A value that cannot be used, and where it stands.
#[derive(Debug, PartialEq, Eq)]
pub struct SettingsError(String);

/// Environment variables that begin so are tunables.
const PREFIX: &str = "EPOLL_GROUP_";

impl Settings {
    /// Later sources override earlier ones: the file, the environment, the command line.
    pub fn gather(
        file: Option<&Path>,
        environment: impl Iterator<Item = (OsString, OsString)>,
        options: &[Setting],
    ) -> Result<Self, SettingsError> {
        let mut settings = Self::default();
        if let Some(path) = file {
            let text = fs::read_to_string(path)
                .map_err(|error| SettingsError(format!("--config {}: {error}", path.display())))?;
            settings.read_toml(path, &text)?;
        }
        settings.read_environment(environment)?;
        for Setting { option, name, value } in options {
            settings.assign(name, value, Origin::Option(option))?;
        }
        settings.config.validate().map_err(|error| {
            let origin = settings.origins.get(error.field);
            SettingsError(
                origin.map_or_else(String::new, |origin| format!("{origin}: "))
                    + &error.to_string(),
            )
        })?;
        Ok(settings)
    }

    /// Takes the tunables of a TOML document. `path` is for errors.
    pub fn read_toml(&mut self, path: &Path, text: &str) -> Result<(), SettingsError> {
        let origin = |offset: usize| {
            let line = 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
            Origin::File { path: path.to_owned(), line }
        };
        let table = DeTable::parse(text).map_err(|error| {
            let origin = origin(error.span().map_or(0, |span| span.start));
            SettingsError(format!("{origin}: {}", error.message()))
        })?;
        let mut entries: Vec<_> = table.into_inner().into_iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        for (name, value) in entries {
            let origin = origin(name.span().start);
            let name = name.get_ref();
            let value = match value.get_ref() {
                DeValue::String(text) => text.to_string(),
                DeValue::Integer(number) => {
                    let plain = i128::from_str_radix(number.as_str(), number.radix());
                    plain.map_or_else(|_| number.to_string(), |number| number.to_string())
                }
                DeValue::Float(number) => number.to_string(),
                DeValue::Boolean(switch) => switch.to_string(),
                other => {
                    let kind = other.type_str();
                    return Err(SettingsError(format!(
                        "{origin}: {name:?} is a TOML {kind}; a tunable is a number, true, \
                         false, or a string such as \"10s\" or \"64KiB\""
                    )));
                }
            };
            self.assign(name, &value, origin)?;
        }
        Ok(())
    }

    fn read_environment(
        &mut self,
        variables: impl Iterator<Item = (OsString, OsString)>,
    ) -> Result<(), SettingsError> {
        for (variable, value) in variables {
            let Some(variable) = variable.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            let Some(value) = value.to_str() else {
                let value = value.display();
                return Err(SettingsError(format!("{variable}: {value} is not UTF-8")));
            };
            let name = variable[PREFIX.len()..].to_ascii_lowercase();
            self.assign(&name, value, Origin::Variable(variable.to_owned()))?;
        }
        Ok(())
    }

    fn assign(&mut self, name: &str, value: &str, origin: Origin) -> Result<(), SettingsError> {
        let config = self.config.clone().set(name, value);
        self.config = config.map_err(|error| SettingsError(format!("{origin}: {error}")))?;
        let name = name.trim().to_ascii_lowercase();
        // `set` accepts a prefix before the name of a tunable. If several names match the end of `name`,
        // the longest one is meant.
        let names = Config::FIELDS.iter().map(Field::name).filter(|known| name.ends_with(known));
        if let Some(name) = names.max_by_key(|known| known.len()) {
            self.origins.insert(name, origin);
        }
        Ok(())
    }

    /// Prints every tunable: value, default, range, when it may change, where it came from.
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let heading = ["tunable", "value", "default", "range", "when", "from"];
        let mut table = table::plain(&heading);
        for field in Config::FIELDS {
            let when = if field.is_live() { "live" } else { "start only" };
            let origin = self.origins.get(field.name());
            table.add_row([
                field.name().to_owned(),
                field.value_in(&self.config),
                field.default_value(),
                field.range(),
                when.to_owned(),
                origin.map_or_else(|| "default".to_owned(), Origin::to_string),
            ]);
        }
        writeln!(out, "{}", table.trim_fmt())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Option(option) => f.write_str(option),
        }
    }
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for SettingsError {}

#[cfg(test)]
mod tests;

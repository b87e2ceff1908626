//! System variables, which clients of MySQL look at and set, and user variables.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, PoisonError, RwLock};

use epoll_group::session::SessionError;
use rusqlite::types::Value;

use crate::node::errors::{unknown_variable, wrong_value};

/// Version that the server reports. From `X-Cluster` and the numbers, clients of the protocol tell
/// which of its features they may use.
pub const VERSION: &str = "8.0.32-X-Cluster-8.4.20-epoll-group";

/// Variables of the server. A session copies them when it starts.
#[derive(Debug)]
pub struct Globals(RwLock<Arc<Values>>);

/// Variables of a session.
#[derive(Clone, Debug)]
pub struct Locals {
    globals: Arc<Globals>,
    values: Arc<Values>,
}

type Values = BTreeMap<&'static str, String>;

/// User variables of a session, by their names in lower case.
#[derive(Clone, Debug, Default)]
pub struct UserVariables {
    /// Shared with the copy that `SET` takes.
    values: Arc<HashMap<String, Value>>,
    /// Bytes of their names and values.
    bytes: usize,
}

/// Most bytes of a system variable.
const LONGEST_TEXT: usize = 1024;
/// Most bytes of the user variables of a session.
const MOST_BYTES: usize = 64 << 20;

impl UserVariables {
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    /// # Errors
    /// The variables of the session would be too large.
    pub fn set(&mut self, name: &str, value: Value) -> Result<(), SessionError> {
        let before = self.values.get(name).map_or(0, |before| bytes(name, before));
        let after = self.bytes - before + bytes(name, &value);
        if after > MOST_BYTES {
            let text = format!("Out of memory: user variables have at most {MOST_BYTES} bytes");
            return Err(SessionError::new(1037, b"HY001", text));
        }
        self.bytes = after;
        Arc::make_mut(&mut self.values).insert(name.to_owned(), value);
        Ok(())
    }
}

/// Bytes of a user variable in memory.
fn bytes(name: &str, value: &Value) -> usize {
    let value = match value {
        Value::Text(text) => text.len(),
        Value::Blob(bytes) => bytes.len(),
        _ => 0,
    };
    size_of::<Value>() + name.len() + value
}

impl Globals {
    pub fn new() -> Self {
        let known = KNOWN.iter().map(|&(name, value, _)| (name, value.to_owned()));
        Self(RwLock::new(Arc::new(known.collect())))
    }

    fn values(&self) -> Arc<Values> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Its value; None for an unknown name.
    pub fn get(&self, name: &str) -> Option<String> {
        self.values().get(canonical(name)).cloned()
    }

    pub fn set(&self, name: &str, value: Option<&str>) -> Result<(), SessionError> {
        let (name, value) = checked(name, value)?;
        let mut values = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut values).insert(name, value);
        Ok(())
    }

    /// All names and values, with those of a session if one is given.
    pub fn all(&self, locals: Option<&Locals>) -> BTreeMap<String, String> {
        let values = locals.map_or_else(|| self.values(), |locals| Arc::clone(&locals.values));
        let mut all: BTreeMap<_, _> =
            values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        for (alias, name) in ALIASES {
            if let Some(value) = all.get(*name).cloned() {
                all.insert((*alias).to_owned(), value);
            }
        }
        all
    }
}

impl Locals {
    /// Copies the variables of the server.
    pub fn new(globals: &Arc<Globals>) -> Self {
        Self { globals: Arc::clone(globals), values: globals.values() }
    }

    /// Its value; None for an unknown name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.values.get(canonical(name)).map(String::as_str)
    }

    /// Sets it, or with None sets it to the value of the server.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<(), SessionError> {
        let (known, checked) = checked(name, value)?;
        let default = if value.is_none() { self.globals.get(known) } else { None };
        Arc::make_mut(&mut self.values).insert(known, default.unwrap_or(checked));
        Ok(())
    }

    /// True if this switch is on for the session.
    pub fn is_on(&self, name: &str) -> bool {
        self.get(name) == Some("ON")
    }
}

/// The name under which the value is kept.
fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, name)| name)
}

/// The value as it is kept, if the variable takes it.
fn checked(name: &str, value: Option<&str>) -> Result<(&'static str, String), SessionError> {
    let known = KNOWN.iter().find(|(known, ..)| *known == canonical(name));
    let &(known, default, kind) = known.ok_or_else(|| unknown_variable(name))?;
    let value = value.unwrap_or(default);
    let wrong = || wrong_value(name, value);
    let value =
        match kind {
            Kind::Fixed => {
                let text = format!("Variable '{name}' is a read only variable");
                return Err(SessionError::new(1238, b"HY000", text));
            }
            Kind::Text if value.len() > LONGEST_TEXT => {
                let text = format!("Variable '{name}' has at most {LONGEST_TEXT} bytes");
                return Err(SessionError::new(1231, b"42000", text));
            }
            Kind::Text => value.to_owned(),
            Kind::Switch => match value.to_ascii_lowercase().as_str() {
                "on" | "1" | "true" => "ON".to_owned(),
                "off" | "0" | "false" => "OFF".to_owned(),
                _ => return Err(wrong()),
            },
            Kind::Number => {
                let number = value.parse::<i64>().map_err(|_| {
                    let text = format!("Incorrect argument type to variable '{name}'");
                    SessionError::new(1232, b"42000", text)
                })?;
                number.max(0).to_string()
            }
            Kind::CharacterSet => match value.to_ascii_lowercase().as_str() {
                // From NULL, which means that results are not converted.
                "" if known == "character_set_results" => String::new(),
                name @ ("utf8mb4" | "utf8mb3" | "utf8" | "binary" | "ascii" | "latin1") => {
                    name.to_owned()
                }
                _ => {
                    let text = format!("Unknown character set: '{value}'");
                    return Err(SessionError::new(1115, b"42000", text));
                }
            },
            Kind::Isolation => match value.to_ascii_uppercase().replace(' ', "-").as_str() {
                level @ ("READ-COMMITTED" | "READ-UNCOMMITTED" | "REPEATABLE-READ"
                | "SERIALIZABLE") => level.to_owned(),
                _ => return Err(wrong()),
            },
        };
    Ok((known, value))
}

/// Values that a variable takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Fixed,
    Switch,
    Number,
    Text,
    CharacterSet,
    Isolation,
}

const ALIASES: &[(&str, &str)] =
    &[("tx_isolation", "transaction_isolation"), ("tx_read_only", "transaction_read_only")];

/// Name, default and kind of each.
const KNOWN: &[(&str, &str, Kind)] = &[
    ("auto_increment_increment", "1", Kind::Number),
    ("autocommit", "ON", Kind::Switch),
    ("block_encryption_mode", "aes-128-ecb", Kind::Text),
    ("character_set_client", "utf8mb4", Kind::CharacterSet),
    ("character_set_connection", "utf8mb4", Kind::CharacterSet),
    ("character_set_database", "utf8mb4", Kind::CharacterSet),
    ("character_set_results", "utf8mb4", Kind::CharacterSet),
    ("character_set_server", "utf8mb4", Kind::CharacterSet),
    ("collation_connection", "utf8mb4_general_ci", Kind::Text),
    ("collation_database", "utf8mb4_general_ci", Kind::Text),
    ("collation_server", "utf8mb4_general_ci", Kind::Text),
    ("default_storage_engine", "SQLite", Kind::Fixed),
    ("div_precision_increment", "4", Kind::Number),
    ("foreign_key_checks", "ON", Kind::Switch),
    ("group_concat_max_len", "1024", Kind::Number),
    ("innodb_lock_wait_timeout", "50", Kind::Number),
    ("innodb_mark_distributed", "OFF", Kind::Switch),
    ("interactive_timeout", "28800", Kind::Number),
    ("license", "Apache-2.0", Kind::Fixed),
    ("lock_wait_timeout", "31536000", Kind::Number),
    ("lower_case_table_names", "1", Kind::Fixed),
    ("max_allowed_packet", "67108864", Kind::Fixed),
    ("max_connections", "65536", Kind::Fixed),
    ("max_execution_time", "0", Kind::Number),
    ("max_join_size", "18446744073709551615", Kind::Text),
    ("net_buffer_length", "16384", Kind::Number),
    ("net_read_timeout", "30", Kind::Number),
    ("net_write_timeout", "60", Kind::Number),
    ("new_rpc", "ON", Kind::Fixed),
    ("opt_flashback_area", "OFF", Kind::Switch),
    ("performance_schema", "OFF", Kind::Fixed),
    ("query_cache_size", "0", Kind::Number),
    ("query_cache_type", "OFF", Kind::Switch),
    ("sql_auto_is_null", "OFF", Kind::Switch),
    ("sql_mode", "STRICT_TRANS_TABLES", Kind::Text),
    ("sql_safe_updates", "OFF", Kind::Switch),
    ("sql_select_limit", "18446744073709551615", Kind::Text),
    ("system_time_zone", "UTC", Kind::Fixed),
    ("time_zone", "SYSTEM", Kind::Text),
    ("transaction_isolation", "READ-COMMITTED", Kind::Isolation),
    ("transaction_read_only", "OFF", Kind::Switch),
    ("unique_checks", "ON", Kind::Switch),
    ("version", VERSION, Kind::Fixed),
    ("version_comment", "select1, an example of epoll-group", Kind::Fixed),
    ("wait_timeout", "28800", Kind::Number),
    ("warning_count", "0", Kind::Fixed),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_variables_have_a_limit() {
        let mut variables = UserVariables::default();
        let third = || Value::Blob(vec![0; MOST_BYTES / 3]);
        for name in ["a", "b", "a", "b"] {
            variables.set(name, third()).expect("there is room");
        }
        assert_eq!(variables.set("c", third()).expect_err("it is full").code, 1037);
        variables.set("a", Value::Null).expect("there is room");
        variables.set("c", third()).expect("there is room");
        assert_eq!(variables.get("c"), Some(&third()));
    }

    #[test]
    fn a_copy_of_user_variables_shares_their_values() {
        let mut variables = UserVariables::default();
        let before = variables.clone();
        assert!(Arc::ptr_eq(&variables.values, &before.values));
        variables.set("a", Value::Null).expect("there is room");
        assert_eq!(before.get("a"), None);
    }

    #[test]
    fn a_session_has_values_of_its_own() {
        let globals = Arc::new(Globals::new());
        let mut locals = Locals::new(&globals);
        locals.set("tx_isolation", Some("repeatable read")).expect("it is a level");
        assert_eq!(locals.get("transaction_isolation"), Some("REPEATABLE-READ"));
        assert_eq!(globals.get("tx_isolation").as_deref(), Some("READ-COMMITTED"));
        locals.set("transaction_isolation", None).expect("it has a default");
        assert_eq!(locals.get("tx_isolation"), Some("READ-COMMITTED"));
        assert_eq!(locals.get("missing"), None);
        for (name, value, code) in [
            ("missing", "1", 1193),
            ("version", "1", 1238),
            ("autocommit", "2", 1231),
            ("max_execution_time", "a", 1232),
            ("character_set_client", "klingon", 1115),
        ] {
            let error = locals.set(name, Some(value)).expect_err(name);
            assert_eq!(error.code, code, "{name}");
        }
    }

    #[test]
    fn a_session_copies_the_variables_of_the_server_when_it_starts() {
        let globals = Arc::new(Globals::new());
        let mut before = Locals::new(&globals);
        globals.set("autocommit", Some("0")).expect("it is a switch");
        assert!(before.is_on("autocommit"));
        assert_eq!(globals.all(Some(&before))["autocommit"], "ON");
        assert!(!Locals::new(&globals).is_on("autocommit"));
        before.set("autocommit", None).expect("it has a default");
        assert!(!before.is_on("autocommit"));
    }
}

//! [`Operator`]: tunables and counters of the runtime under the original's names.

use std::sync::Arc;
use std::time::Instant;

use epoll_group::session::SessionError;
use epoll_group::stats::{Counter, Stage};
use epoll_group::{Config, Field, Handle, Unit};

use crate::node::errors::{unknown_variable, wrong_value};

/// View of the runtime for an operator of the original.
#[derive(Debug)]
pub struct Operator {
    handle: Handle,
    started: Instant,
    /// Each open session that its client has opened has a copy.
    opened: Arc<()>,
}

/// Prefix of the names of tunables.
pub const PREFIX: &str = "polarx_rpc_";

/// Prefix that the original puts in front of our names of the tunables in [`LONGER`].
const GROUP_PREFIX: &str = "epoll_group_";
const LONGER: &[&str] = &[
    "dynamic_threads",
    "dynamic_threads_shrink_time",
    "tasker_extend_step",
    "tasker_multiply",
    "thread_deadlock_check_interval",
    "thread_scale_thresh",
];

impl Operator {
    pub fn new(handle: Handle) -> Self {
        Self { handle, started: Instant::now(), opened: Arc::default() }
    }

    /// Counts a session that its client has opened, as long as the result is kept.
    pub fn count_session(&self) -> Arc<()> {
        Arc::clone(&self.opened)
    }

    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Names and values of all tunables.
    pub fn tunables(&self) -> Vec<(String, String)> {
        let config = self.handle.config();
        let all = Config::FIELDS.iter();
        all.map(|field| (original_name(field), original_value(field, &config))).collect()
    }

    /// One tunable, whose name begins with the prefix.
    pub fn tunable(&self, name: &str) -> Option<String> {
        field(name).map(|field| original_value(field, &self.handle.config()))
    }

    /// Changes a tunable for all sessions, at once.
    pub fn set(&self, name: &str, value: Option<&str>) -> Result<(), SessionError> {
        let default = field(name).ok_or_else(|| unknown_variable(name))?.default_value();
        let value = value.unwrap_or(&default);
        // `reconfigure` calls the closure again if another change has come between.
        let mut refused = None;
        let changed = self.handle.reconfigure(|config| {
            config.clone().set(name, value).unwrap_or_else(|error| {
                refused = Some(error);
                config
            })
        });
        if refused.is_some() {
            return Err(wrong_value(name, value));
        }
        changed.map_err(|error| {
            let text = format!("Variable '{name}' is not changed: {error}");
            SessionError::new(1238, b"HY000", text)
        })
    }

    /// Names and values of what is counted: the original's, and then ours.
    pub fn status(&self) -> Vec<(String, String)> {
        let stats = self.handle.stats();
        let count = |counter| stats.get(counter);
        let threads = stats.workers;
        let original = [
            ("inited", 1),
            ("tcp_connections", stats.connections),
            ("tcp_closing", stats.closing_connections),
            ("worker_sessions", Arc::strong_count(&self.opened) as u64 - 1),
            ("total_sessions", stats.sessions),
            ("threads", threads),
            ("sql_hit", count(Counter::SqlHit)),
            ("sql_miss", count(Counter::SqlMiss)),
            ("sql_evict", count(Counter::SqlEvict)),
            ("plan_hit", count(Counter::PlanHit)),
            ("plan_miss", count(Counter::PlanMiss)),
            ("plan_evict", count(Counter::PlanEvict)),
        ];
        let mut all: Vec<_> = original
            .into_iter()
            .map(|(name, value)| {
                // The original has a switch there.
                let value = if name == "inited" { "ON".to_owned() } else { value.to_string() };
                (format!("{PREFIX}{name}"), value)
            })
            .collect();
        all.push(("Questions".to_owned(), count(Counter::RequestsExecuted).to_string()));
        all.push(("Threads_connected".to_owned(), stats.sessions.to_string()));
        all.push(("Threads_running".to_owned(), stats.running_threads.to_string()));
        all.push(("Uptime".to_owned(), self.started.elapsed().as_secs().to_string()));
        for line in stats.to_lines().lines() {
            if let Some((name, value)) = line.split_once(' ') {
                all.push((format!("epoll_group_{name}"), value.to_owned()));
            }
        }
        all
    }

    /// Answers `call xrpc.perf_hist(what)`: names of stages, and their histograms as text.
    pub fn histograms(&self, what: &str) -> Result<Vec<(String, String)>, SessionError> {
        if what.eq_ignore_ascii_case("reset") {
            self.handle.reset_histograms();
            return Ok(Vec::new());
        }
        let all = what.eq_ignore_ascii_case("all");
        let stages =
            Stage::ALL.iter().filter(|stage| all || what.eq_ignore_ascii_case(stage.name()));
        let stats = self.handle.stats();
        let found: Vec<_> = stages
            .map(|&stage| {
                let text = stats.histogram(stage).map_or_else(
                    || format!("off: set global {PREFIX}enable_perf_hist = on"),
                    |histogram| format!("{}\n{histogram}", stage.help()),
                );
                (stage.name().to_owned(), text)
            })
            .collect();
        if found.is_empty() {
            let names: Vec<_> = Stage::ALL.iter().map(|stage| stage.name()).collect();
            let names = names.join(", ");
            let text = format!("'{what}' is none of all, reset, {names}");
            return Err(SessionError::new(1210, b"HY000", text));
        }
        Ok(found)
    }
}

/// Returns the tunable of this name, which begins with the prefix.
fn field(name: &str) -> Option<&'static Field> {
    let name = name.strip_prefix(PREFIX)?;
    let ours = name.strip_prefix(GROUP_PREFIX).unwrap_or(name);
    Config::FIELDS.iter().find(|field| field.name == name || field.name == ours)
}

fn original_name(field: &Field) -> String {
    let name = field.name;
    let group = if LONGER.contains(&name) { GROUP_PREFIX } else { "" };
    format!("{PREFIX}{group}{name}")
}

/// In the tunable's unit, as a plain number; switches as MySQL writes them.
fn original_value(field: &Field, config: &Config) -> String {
    let value = field.value_in(config);
    match field.unit {
        Unit::Switch => if value == "true" { "ON" } else { "OFF" }.to_owned(),
        Unit::Milliseconds => in_units(&value, 1e-3).unwrap_or(value),
        Unit::Seconds => in_units(&value, 1.0).unwrap_or(value),
        Unit::Bytes => in_bytes(&value).unwrap_or(value),
        _ => value,
    }
}

/// `1.5s` in a unit of so many seconds.
fn in_units(value: &str, unit: f64) -> Option<String> {
    let end = value.find(|char: char| char.is_ascii_alphabetic())?;
    let (number, suffix) = value.split_at(end);
    let seconds = match suffix {
        "ns" => 1e-9,
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let number: f64 = number.parse().ok()?;
    // Rounds away the error of the division.
    let number = (number * seconds / unit * 1e6).round() / 1e6;
    Some(number.to_string())
}

/// `64KiB` in bytes.
fn in_bytes(value: &str) -> Option<String> {
    let end = value.find(|char: char| char.is_ascii_alphabetic())?;
    let (number, suffix) = value.split_at(end);
    let shift = match suffix {
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    let number: u64 = number.parse().ok()?;
    Some(number.checked_mul(1 << shift)?.to_string())
}

#[cfg(test)]
mod tests {
    use epoll_group::Runtime;

    use super::*;

    #[test]
    fn each_tunable_is_shown_as_a_value_that_can_be_set() {
        let config = Config::default();
        for field in Config::FIELDS {
            let (name, value) = (original_name(field), original_value(field, &config));
            let set = config.clone().set(&name, &value);
            let set = set.unwrap_or_else(|error| panic!("{name} = {value}: {error}"));
            assert_eq!(field.value_in(&set), field.value_in(&config), "{name} = {value}");
        }
    }

    #[test]
    fn a_tunable_is_changed_at_once_or_the_reason_is_told() {
        let runtime = Runtime::builder().start().expect("it starts");
        let operator = Operator::new(runtime.handle());
        operator.set("polarx_rpc_max_queued_messages", Some("64")).expect("it is live");
        assert_eq!(operator.tunable("polarx_rpc_max_queued_messages").as_deref(), Some("64"));
        operator.set("polarx_rpc_max_queued_messages", None).expect("it has a default");
        assert_eq!(operator.tunable("polarx_rpc_max_queued_messages").as_deref(), Some("128"));
        for (name, value, code) in [
            ("polarx_rpc_missing", "1", 1193),
            ("polarx_rpc_max_queued_messages", "1", 1231),
            ("polarx_rpc_epoll_groups", "3", 1238),
        ] {
            assert_eq!(operator.set(name, Some(value)).expect_err(name).code, code, "{name}");
        }
    }

    #[test]
    fn histograms_are_drawn_while_they_are_on() {
        let runtime = Runtime::builder().start().expect("it starts");
        let operator = Operator::new(runtime.handle());
        let off = operator.histograms("run").expect("it is a stage");
        assert!(off[0].1.starts_with("off"), "{off:?}");
        operator.set("polarx_rpc_enable_perf_hist", Some("ON")).expect("it is live");
        let on = operator.histograms("ALL").expect("all is known");
        assert_eq!(on.len(), Stage::ALL.len());
        assert!(operator.histograms("reset").expect("reset is known").is_empty());
        assert_eq!(operator.histograms("missing").expect_err("no stage").code, 1210);
    }
}

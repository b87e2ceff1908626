//! A configuration as a map from names to values, for files and environments.
//!
//! Integers, booleans and strings are read as [`Config::set`] reads their text, so that there is
//! one grammar. Switches are written as booleans, counts and sizes as integers, times as strings
//! with their unit.

use std::fmt;

use serde::de::{self, Deserialize, DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::fields::{Field, Unit};
use super::{Config, ConfigError};

/// Reads a map of names to integers, booleans or strings, as in TOML, JSON or YAML. Names and texts
/// are those of [`Config::set`]; missing tunables have their defaults. Errors are: unknown names,
/// repeated names, wrong types, and configurations that [`Config::validate`] refuses. They name the
/// tunable, the value and the range.
///
/// The format must tell the type of a value. Formats that do not (such as bincode) fail.
impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Tunables)
    }
}

struct Tunables;

impl<'de> Visitor<'de> for Tunables {
    type Value = Config;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from tunables to their values")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Config, A::Error> {
        let mut config = Config::default();
        let mut given = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if Config::without_counterpart(&name).is_some() {
                // It has no effect, whatever its value. `set` warns.
                map.next_value::<de::IgnoredAny>()?;
                config = config.set(&name, "").map_err(de::Error::custom)?;
                continue;
            }
            let field = Field::named(&name).map_err(de::Error::custom)?;
            if given.contains(&field.name) {
                return Err(de::Error::duplicate_field(field.name));
            }
            given.push(field.name);
            map.next_value_seed(Assign { field, config: &mut config })?;
        }
        config.validate().map_err(de::Error::custom)?;
        Ok(config)
    }
}

/// Reads the value of one tunable.
struct Assign<'a> {
    field: &'static Field,
    config: &'a mut Config,
}

impl<'de> DeserializeSeed<'de> for Assign<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Assign<'_> {
    fn text<E: de::Error>(self, text: &str) -> Result<(), E> {
        self.field.write(self.config, text).map_err(|error: ConfigError| E::custom(error))
    }
}

impl Visitor<'_> for Assign<'_> {
    type Value = ();

    /// The text follows `invalid type: sequence, expected `.
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [name, range] = [self.field.name, &self.field.range()];
        match self.field.unit {
            Unit::Count => write!(f, "{name}, a count within {range}"),
            Unit::Bytes => write!(f, "{name}, a size within {range}"),
            Unit::Milliseconds | Unit::Seconds => write!(f, "{name}, a time within {range}"),
            Unit::Switch => write!(f, "{name}, {range}"),
        }
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<(), E> {
        self.text(if value { "true" } else { "false" })
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<(), E> {
        self.text(&value.to_string())
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<(), E> {
        self.text(&value.to_string())
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<(), E> {
        self.text(value)
    }
}

/// Writes a map of all tunables that reads back equal.
impl Serialize for Config {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Self::FIELDS.len()))?;
        for field in Self::FIELDS {
            let text = field.value_in(self);
            // TOML's integers end at i64::MAX; larger values are written as strings.
            if let Ok(switch) = text.parse::<bool>() {
                map.serialize_entry(field.name, &switch)?;
            } else if let Ok(number) = text.parse::<i64>() {
                map.serialize_entry(field.name, &number)?;
            } else {
                map.serialize_entry(field.name, &text)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;

    fn read(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.message().to_owned())
    }

    #[test]
    fn a_table_is_read_and_what_is_missing_has_its_default() {
        let text = r#"
            epoll_groups = 2
            enable_tasker = false
            enable_perf_hist = "on"
            max_allowed_packet = "16MiB"
            net_write_timeout = 2500
            tcp_keep_alive = 60
            mcs_spin_cnt = 2000
            polarx_rpc_epoll_group_dynamic_threads_shrink_time = "1m"
        "#;
        let expected = Config::default()
            .epoll_groups(2)
            .enable_tasker(false)
            .enable_perf_hist(true)
            .max_allowed_packet(16 << 20)
            .net_write_timeout(Duration::from_millis(2500))
            .tcp_keep_alive(Duration::from_secs(60))
            .dynamic_threads_shrink_time(Duration::from_secs(60));
        assert_eq!(read(text), Ok(expected));
        assert_eq!(read(""), Ok(Config::default()));
    }

    #[test]
    fn what_is_wrong_names_tunable_value_and_range() {
        for (text, expected) in [
            ("epoll_groups = 200", "epoll_groups 200 is outside 0..=128"),
            ("epoll_groups = -1", "epoll_groups -1 is outside 0..=128"),
            ("epoll_groups = true", "epoll_groups \"true\" is no count within 0..=128"),
            ("epoll_groups = \"x\"", "epoll_groups \"x\" is no count within 0..=128"),
            (
                "epoll_groups = 1.5",
                "invalid type: floating point `1.5`, expected epoll_groups, a count within 0..=128",
            ),
            (
                "linger_timeout = [1]",
                "invalid type: sequence, expected linger_timeout, a time within 0ns..=60s",
            ),
            (
                "max_buffered_bytes = {}",
                "invalid type: map, expected max_buffered_bytes, a size within \
                 1048576..=18446744073709551615",
            ),
            (
                "enable_tasker = 1.0",
                "invalid type: floating point `1.0`, expected enable_tasker, true or false",
            ),
            ("enable_tasker = 2", "enable_tasker \"2\" is not true or false"),
            ("epol_groups = 2", "unknown tunable \"epol_groups\", did you mean epoll_groups?"),
            ("mcs_spin_count = 2", "unknown tunable \"mcs_spin_count\""),
            ("epoll_groups = 2\nEPOLL_GROUPS = 2", "duplicate field `epoll_groups`"),
            (
                "write_high_watermark_bytes = 4096",
                "write_low_watermark_bytes 262144 is outside 0..=4096 (write_high_watermark_bytes)",
            ),
        ] {
            assert_eq!(read(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_is_written_reads_back_equal() {
        let changed = Config::default()
            .enable_tasker(false)
            .max_buffered_bytes(usize::MAX)
            .handler_report_after(Duration::new(1, 1))
            .linger_timeout(Duration::from_micros(1500))
            .first_bytes_timeout(Duration::from_secs(3600))
            .tcp_send_buf(4096);
        for config in [Config::default(), changed] {
            let text = toml::to_string(&config).expect("it can be written");
            assert_eq!(text.lines().count(), Config::FIELDS.len());
            assert_eq!(read(&text), Ok(config), "{text}");
        }
    }

    #[test]
    fn a_table_inside_another_is_read_too() {
        let mut file: BTreeMap<String, Config> =
            toml::from_str("[server]\nepoll_groups = 3").expect("valid");
        assert_eq!(file.remove("server"), Some(Config::default().epoll_groups(3)));
    }
}

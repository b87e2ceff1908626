//! Table of the tunables: their properties beside the value.

use std::fmt;

use super::Config;
use super::error::ConfigError;
use super::value::nearest;

/// Unit of a tunable, and therefore the unit of a plain number in [`Config::set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Pieces: threads, events, connections.
    Count,
    /// Bytes.
    Bytes,
    /// A time; a plain number is milliseconds.
    Milliseconds,
    /// A time; a plain number is seconds.
    Seconds,
    /// On or off.
    Switch,
}

/// `count`, `bytes`, `ms`, `s` or `switch`.
impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Count => "count",
            Self::Bytes => "bytes",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Switch => "switch",
        })
    }
}

/// One tunable of [`Config`], for admin commands and config files.
///
/// *Shape*: an entry of [`Config::FIELDS`], which lives as long as the process.
///
/// ```
/// use epoll_group::Config;
///
/// let config = Config::default();
/// for field in Config::FIELDS {
///     let live = if field.live { "live" } else { "start only" };
///     let (name, value) = (field.name, field.value_in(&config));
///     println!("{name} = {value}  # {} in {}, {live}", field.unit, field.range());
/// }
/// ```
#[non_exhaustive]
pub struct Field {
    /// Name of the tunable, which is also that of its setter.
    pub name: &'static str,
    /// Unit of its value.
    pub unit: Unit,
    /// True if it may change while the runtime runs.
    pub live: bool,
    pub(super) range: fn() -> String,
    pub(super) read: fn(&Config) -> String,
    pub(super) check: fn(&Config) -> Result<(), ConfigError>,
    pub(super) write: fn(&mut Config, &str) -> Result<(), ConfigError>,
}

impl Field {
    /// Valid range, as text: `0..=128`, `1ms..=10s`, `true or false`.
    #[must_use]
    pub fn range(&self) -> String {
        (self.range)()
    }

    /// Its default, as text that [`Config::set`] understands.
    #[must_use]
    pub fn default_value(&self) -> String {
        self.value_in(&Config::default())
    }

    /// Its value in a configuration, as text that [`Config::set`] understands.
    #[must_use]
    pub fn value_in(&self, config: &Config) -> String {
        (self.read)(config)
    }

    pub(super) fn check(&self, config: &Config) -> Result<(), ConfigError> {
        (self.check)(config)
    }

    pub(super) fn write(&self, config: &mut Config, text: &str) -> Result<(), ConfigError> {
        (self.write)(config, text)
    }

    /// Returns the tunable for an operator's name of it.
    pub(super) fn named(given: &str) -> Result<&'static Self, ConfigError> {
        let name = short(given);
        Config::FIELDS.iter().find(|field| field.name == name).ok_or_else(|| {
            let names = Config::FIELDS.iter().map(|field| field.name);
            ConfigError::unknown(given, nearest(&name, names))
        })
    }
}

/// Tunables of the original that have no counterpart here, and what took their place.
const WITHOUT_COUNTERPART: [(&str, &str); 12] = [
    ("epoll_timeout", "workers sleep until they are woken, added ones for their shrink time"),
    ("mcs_spin_cnt", "there are no spin locks"),
    ("session_poll_rwlock_spin_cnt", "there are no spin locks"),
    ("max_cached_output_buffer_pages", "pages belong to threads, not to connections"),
    ("shared_session_lifetime", "each auto-commit request has its own session"),
    (
        "enable_epoll_in_tasker",
        "threads added for a long queue are workers, which wait in epoll like the others",
    ),
    ("ctx_refresh_time", "no sessions are kept that could age"),
    ("skip_name_resolve", "names of peers are not looked up"),
    ("rpc_port", "the host calls `listen` with an address"),
    ("rpc_use_legacy_port", "the host calls `listen` with an address"),
    ("enable_polarx_rpc", "the host calls `listen` or not"),
    ("new_rpc", "the host calls `listen` or not"),
];

/// Returns what took the place of a tunable of the original that has no counterpart here.
pub(super) fn without_counterpart(given: &str) -> Option<&'static str> {
    let name = short(given);
    WITHOUT_COUNTERPART.iter().find(|(known, _)| *known == name).map(|(_, instead)| *instead)
}

/// An operator's name of a tunable, without the original's prefixes.
fn short(given: &str) -> String {
    let mut name = given.trim().to_ascii_lowercase();
    for prefix in ["polarx_rpc_", "epoll_group_"] {
        if let Some(rest) = name.strip_prefix(prefix) {
            name = rest.to_owned();
        }
    }
    name
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Field")
            .field("name", &self.name)
            .field("unit", &self.unit)
            .field("live", &self.live)
            .field("range", &self.range())
            .field("default", &self.default_value())
            .finish_non_exhaustive()
    }
}

/// Makes the struct with its defaults, its setters and [`Config::FIELDS`] from the table.
macro_rules! tunables {
    (
        $(#[$meta:meta])*
        pub struct $config:ident {
            $(
                $(#[$doc:meta])*
                $name:ident: $type:ty = $default:expr, $range:expr, $unit:ident, $when:ident;
            )+
        }
    ) => {
        $(#[$meta])*
        pub struct $config {
            $(pub(crate) $name: $type,)+
        }

        impl Default for $config {
            /// Defaults that the documentation of each setter names.
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl $config {
            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $name(mut self, value: $type) -> Self {
                    self.$name = value;
                    self
                }
            )+

            /// All tunables, in the order in which [`validate`](Self::validate) checks them.
            pub const FIELDS: &'static [Field] = &[$(Field {
                name: stringify!($name),
                unit: Unit::$unit,
                live: $crate::config::fields::tunables!(@live $when),
                range: || Allowed::<$type>::from($range).to_string(),
                read: |config| format!("{:?}", config.$name),
                check: |config| Allowed::from($range).check(stringify!($name), config.$name),
                write: |config, text| {
                    let range = Allowed::from($range);
                    config.$name = range.parse(stringify!($name), Unit::$unit, text)?;
                    Ok(())
                },
            },)+];
        }
    };
    (@live live) => { true };
    (@live start) => { false };
}
pub(super) use tunables;

//! Every tunable of a runtime, with its range, default and unit.
//!
//! A [`Config`] is built by value and checked once when the runtime starts. From then on it is read
//! as an immutable snapshot ([`settings`]). Each tunable stands once, in [`table`]. The table yields
//! the field, its setter with the documentation, its default, its check, its access by name and its
//! serde form.
//!
//! Sizes are bytes and counts are counts unless the type is a [`Duration`](std::time::Duration). If 0
//! has a meaning of its own (automatic, leave it to the kernel), the tunable documents it.

#![forbid(unsafe_code)]

#[cfg(test)]
mod documents;
mod error;
mod fields;
#[cfg(feature = "serde")]
mod serde;
mod settings;
mod table;
#[cfg(test)]
mod tests;
mod value;

pub use error::ConfigError;
pub use fields::{Field, Unit};
pub use settings::ReconfigureError;
pub(crate) use settings::Settings;
pub use table::Config;
use table::MOST_THREADS;

impl Config {
    /// Checks every tunable. The start of a runtime makes the same check.
    ///
    /// # Errors
    ///
    /// The first tunable that is outside its range, with its value and that range. The check has no
    /// effect on a runtime.
    pub fn validate(&self) -> Result<(), ConfigError> {
        Self::FIELDS.iter().try_for_each(|field| field.check(self))?;
        let [low, high] = [self.write_low_watermark_bytes, self.write_high_watermark_bytes];
        if low > high {
            let range = format!("0..={high} (write_high_watermark_bytes)");
            return Err(ConfigError::out_of_range("write_low_watermark_bytes", low, range));
        }
        Ok(())
    }

    /// Checks that `max_threads` allows the threads with which a runtime of `groups` groups starts.
    pub(crate) fn validate_threads(&self, groups: usize) -> Result<(), ConfigError> {
        let [base, reserve] = [self.epoll_threads_per_group, self.reserve_threads_per_group];
        let least = groups.saturating_mul(base.saturating_add(reserve));
        if self.max_threads >= least {
            return Ok(());
        }
        let sum = format!("{base} epoll_threads_per_group + {reserve} reserve_threads_per_group");
        let range = format!("{least}..={MOST_THREADS} ({groups} groups x ({sum}))");
        Err(ConfigError::out_of_range("max_threads", self.max_threads, range))
    }

    /// Sets a tunable by its name.
    ///
    /// *Names* are those of the setters, in upper or lower case, also behind the prefixes
    /// `polarx_rpc_` and `epoll_group_`: `POLARX_RPC_EPOLL_GROUP_DYNAMIC_THREADS` is
    /// [`dynamic_threads`](Self::dynamic_threads). A tunable of the original that has no counterpart here
    /// is accepted with any value, so that its scripts run. That has no effect but a warning in the log.
    ///
    /// *Values*: counts as `8`; sizes in bytes, or as `64KiB`, `1MiB`, `1GiB` (and `64K`, `1M`,
    /// `1G`); switches as `true`, `on`, `1` or `false`, `off`, `0`; times as `250ms`, `1.5s`,
    /// `10s`, `1m`, `1h`, and a plain number counts in the tunable's own [`Unit`]. The text that
    /// [`get`](Self::get) returns is read back as the same value.
    ///
    /// # Errors
    ///
    /// No tunable has that name, or the value is not of its kind or outside its range. Constraints
    /// between two tunables are left to [`validate`](Self::validate), so that the order of the
    /// calls does not matter.
    pub fn set(mut self, name: &str, value: &str) -> Result<Self, ConfigError> {
        if let Some(instead) = Self::without_counterpart(name) {
            tracing::warn!(name, instead, "tunable without effect");
            return Ok(self);
        }
        Field::named(name)?.write(&mut self, value)?;
        Ok(self)
    }

    /// Returns what took the place of a tunable of the original that has no counterpart here. `None` for
    /// all other names. Names are as for [`set`](Self::set).
    ///
    /// ```
    /// # use epoll_group::Config;
    /// let instead = Config::without_counterpart("polarx_rpc_mcs_spin_cnt");
    /// assert_eq!(instead, Some("there are no spin locks"));
    /// ```
    #[must_use]
    pub fn without_counterpart(name: &str) -> Option<&'static str> {
        fields::without_counterpart(name)
    }

    /// Returns the value of the tunable with that name, as text that [`set`](Self::set)
    /// understands. `None` if there is no such tunable. Names are as for [`set`](Self::set).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<String> {
        Field::named(name).ok().map(|field| field.value_in(self))
    }
}

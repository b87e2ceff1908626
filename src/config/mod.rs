//! Every tunable of a runtime, with its range, default and unit.
//!
//! A [`Config`] is built by value and checked once when the runtime starts. From then on it is read
//! as an immutable snapshot ([`settings`]). Each tunable stands once in the table below. The table
//! yields the field, its default, its check, its access by name and its serde form. Only the
//! setter, with its documentation, is written beside the table.
//!
//! Sizes are bytes and counts are counts unless the type is a [`Duration`]. If 0 has a meaning of
//! its own (automatic, leave it to the kernel), the tunable documents it.

#![forbid(unsafe_code)]

use std::time::Duration;

mod connections;
#[cfg(test)]
mod documents;
mod error;
mod fields;
mod growth;
mod observe;
#[cfg(feature = "serde")]
mod serde;
mod sessions;
mod settings;
#[cfg(test)]
mod tests;
mod threads;
mod value;

pub use error::ConfigError;
use fields::tunables;
pub use fields::{Field, Unit};
pub use settings::ReconfigureError;
pub(crate) use settings::Settings;
use value::{Allowed, SWITCH, zero_or};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

tunables! {
    /// Tunables of one runtime.
    ///
    /// *Shape*: a plain value; [`Default`] is fit for service, and each setter takes and returns
    /// it. A *live* tunable may change while the runtime runs; a *start only* tunable may not. If a
    /// tunable is live *for new connections*, open connections keep their value.
    ///
    /// ```
    /// use epoll_group::Config;
    /// use std::time::Duration;
    ///
    /// let config = Config::default().epoll_groups(2).net_write_timeout(Duration::from_secs(5));
    /// assert!(config.validate().is_ok());
    ///
    /// let error = config.epoll_groups(200).validate().unwrap_err();
    /// assert_eq!(error.to_string(), "epoll_groups 200 is outside 0..=128");
    /// ```
    ///
    /// The tunables are also accessible by name, for environment variables, admin commands and
    /// files. See [`set`](Self::set); with the feature `serde` also `Deserialize` and `Serialize`,
    /// as a map from names to values:
    ///
    /// ```
    /// # use epoll_group::{Config, ConfigError};
    /// let config = Config::default().set("max_allowed_packet", "16MiB")?;
    /// assert_eq!(config.get("max_allowed_packet").as_deref(), Some("16777216"));
    ///
    /// let error = config.set("epol_groups", "2").unwrap_err();
    /// let expected = "unknown tunable \"epol_groups\", did you mean epoll_groups?";
    /// assert_eq!(error.to_string(), expected);
    /// # Ok::<(), ConfigError>(())
    /// ```
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct Config {
        // name: type = default, range, unit, time of change
        auto_cpu_affinity: bool = true, SWITCH, Switch, start;
        multi_affinity_in_group: bool = true, SWITCH, Switch, start;
        force_all_cores: bool = false, SWITCH, Switch, start;
        epoll_groups: usize = 0, 0..=128, Count, start;
        min_auto_epoll_groups: usize = 1, 1..=128, Count, start;
        epoll_extra_groups: usize = 0, 0..=32, Count, start;
        epoll_threads_per_group: usize = 4, 1..=128, Count, start;
        max_epoll_wait_total_threads: usize = 0, 0..=128, Count, start;
        epoll_events_per_thread: usize = 16, 1..=16, Count, live;
        epoll_work_queue_capacity: usize = 256, 128..=4096, Count, start;
        tasks_per_poll: usize = 64, 1..=4096, Count, live;

        dynamic_threads: usize = 0, 0..=16, Count, live;
        dynamic_threads_shrink_time: Duration = 10 * SECOND,
            10 * MILLISECOND..=600 * SECOND, Milliseconds, live;
        thread_scale_thresh: usize = 2, 0..=100, Count, live;
        thread_deadlock_check_interval: Duration = 500 * MILLISECOND,
            MILLISECOND..=10 * SECOND, Milliseconds, live;
        enable_tasker: bool = true, SWITCH, Switch, live;
        tasker_multiply: usize = 3, 1..=50, Count, live;
        tasker_extend_step: usize = 2, 1..=50, Count, live;
        max_threads: usize = 1024, 2..=MOST_THREADS, Count, live;
        reserve_threads_per_group: usize = 1, 0..=16, Count, start;

        tcp_listen_queue: u32 = 0, 0..=4096, Count, start;
        tcp_keep_alive: Duration = 30 * SECOND, SECOND..=7200 * SECOND, Seconds, live;
        tcp_send_buf: usize = 0, zero_or(2 * KIB..=2 * MIB), Bytes, live;
        tcp_recv_buf: usize = 0, zero_or(2 * KIB..=2 * MIB), Bytes, live;
        tcp_notsent_lowat_bytes: u32 = 0, 0..=1 << 30, Bytes, live;
        tcp_fixed_dealing_buf: usize = 4 * KIB, 4 * KIB..=64 * KIB, Bytes, live;
        worker_read_buf_bytes: usize = 64 * KIB, 4 * KIB..=MIB, Bytes, start;
        max_allowed_packet: usize = 64 * MIB, 4 * KIB..=GIB, Bytes, live;
        read_budget_bytes: usize = 256 * KIB, 4 * KIB..=64 * MIB, Bytes, live;
        big_buf_release_after: Duration = 10 * SECOND,
            MILLISECOND..=3600 * SECOND, Milliseconds, live;
        net_write_timeout: Duration = 10 * SECOND,
            MILLISECOND..=7200 * SECOND, Milliseconds, live;
        write_high_watermark_bytes: usize = MIB, 4 * KIB..=GIB, Bytes, live;
        write_low_watermark_bytes: usize = 256 * KIB, 0..=GIB, Bytes, live;
        linger_timeout: Duration = SECOND, Duration::ZERO..=60 * SECOND, Milliseconds, live;
        linger_bytes: usize = 64 * KIB, 0..=16 * MIB, Bytes, live;
        accept_budget: usize = 64, 1..=4096, Count, live;
        max_connections: usize = 65_536, 1..=1 << 24, Count, live;
        max_silent_connections: usize = 16_384, 1..=1 << 24, Count, live;
        first_bytes_timeout: Duration = 10 * SECOND,
            Duration::ZERO..=3600 * SECOND, Milliseconds, live;
        handshake_timeout: Duration = 10 * SECOND,
            MILLISECOND..=3600 * SECOND, Milliseconds, live;
        max_handshakes: usize = 4096, 1..=1 << 24, Count, live;
        idle_timeout: Duration = 28_800 * SECOND,
            Duration::ZERO..=604_800 * SECOND, Milliseconds, live;
        frame_timeout: Duration = 60 * SECOND,
            MILLISECOND..=7200 * SECOND, Milliseconds, live;
        max_buffered_bytes: usize = GIB, MIB..=usize::MAX, Bytes, live;

        max_sessions_per_connection: usize = 4096, 1..=1 << 24, Count, live;
        max_sessions: usize = 65_536, 1..=1 << 24, Count, live;
        session_budget: usize = 64, 1..=4096, Count, live;
        galaxy_protocol: bool = false, SWITCH, Switch, live;
        galaxy_version: u8 = 0, 0..=127, Count, live;
        max_queued_messages: usize = 128, 16..=4096, Count, live;
        max_queued_bytes_per_connection: usize = 128 * MIB, 4 * KIB..=usize::MAX, Bytes, live;
        max_queued_bytes: usize = GIB, 4 * KIB..=usize::MAX, Bytes, live;
        request_timeout: Duration = 900 * SECOND,
            Duration::ZERO..=86_400 * SECOND, Milliseconds, live;
        half_close_timeout: Duration = 5 * SECOND,
            Duration::ZERO..=86_400 * SECOND, Milliseconds, live;
        max_waiting_writers: usize = 64, 1..=4096, Count, live;
        max_glitches: usize = 10_000, 0..=1 << 24, Count, live;
        glitch_window: Duration = 60 * SECOND,
            SECOND..=3600 * SECOND, Milliseconds, live;
        login_timeout: Duration = 10 * SECOND,
            MILLISECOND..=3600 * SECOND, Milliseconds, live;
        max_login_attempts: usize = 3, 1..=1000, Count, live;
        max_unauthenticated_connections: usize = 4096, 1..=1 << 24, Count, live;
        max_unauthenticated_per_address: usize = 256, 1..=1 << 24, Count, live;
        max_login_failures_per_address: usize = 60, 1..=65_536, Count, live;
        login_failure_delay: Duration = 100 * MILLISECOND,
            Duration::ZERO..=60 * SECOND, Milliseconds, live;
        authenticate_ok_delay: Duration = Duration::ZERO,
            Duration::ZERO..=SECOND, Milliseconds, live;
        request_cache_number: usize = 1024, 128..=16_384, Count, start;
        request_cache_instances: usize = 16, 1..=128, Count, start;
        request_cache_max_length: usize = MIB, 128..=GIB, Bytes, live;
        request_cache_bytes: usize = 64 * MIB, 4 * KIB..=usize::MAX, Bytes, start;

        handler_report_after: Duration = 10 * SECOND,
            MILLISECOND..=3600 * SECOND, Milliseconds, live;
        max_log_events: usize = 100, 0..=1 << 20, Count, live;
        enable_thread_pool_log: bool = true, SWITCH, Switch, live;
        enable_kill_log: bool = true, SWITCH, Switch, live;
        enable_perf_hist: bool = false, SWITCH, Switch, live;
    }
}

const MOST_THREADS: usize = 32_768;

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

//! Setters: what the runtime reports about itself.

use std::time::Duration;

use super::Config;

/// Reports.
impl Config {
    /// Time that a handler may run before it is logged, once, and counted.
    ///
    /// *Live.* *Range* 1 ms..=3600 s. *Default* 10 s: what takes so long is rarely meant. It is
    /// seen with the next look of the watchdog
    /// ([`thread_deadlock_check_interval`](Self::thread_deadlock_check_interval)). *Price* of a
    /// low value: a log line for each handler that is slow by nature.
    #[must_use]
    pub const fn handler_report_after(mut self, running: Duration) -> Self {
        self.handler_report_after = running;
        self
    }

    /// Whether threads that are added, and those that leave, are logged.
    ///
    /// *Live.* *Range* true or false. *Default* true. They are counted in any case. *Price*: a log
    /// line for each.
    #[must_use]
    pub const fn enable_thread_pool_log(mut self, enable: bool) -> Self {
        self.enable_thread_pool_log = enable;
        self
    }

    /// Whether kills of requests and sessions are logged.
    ///
    /// *Live.* *Range* true or false. *Default* true. They are counted in any case. *Price*: a log
    /// line for each.
    #[must_use]
    pub const fn enable_kill_log(mut self, enable: bool) -> Self {
        self.enable_kill_log = enable;
        self
    }

    /// Whether the time that requests spend in each stage is collected in histograms.
    ///
    /// *Live.* *Range* true or false. *Default* false. *Price*: reading the clock for each stage
    /// of each request, and memory for the histograms of each group once it was on.
    #[must_use]
    pub const fn enable_perf_hist(mut self, enable: bool) -> Self {
        self.enable_perf_hist = enable;
        self
    }
}

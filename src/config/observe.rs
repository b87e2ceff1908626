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

    /// Log events of one kind in a second of those that peers can bring about as often as they like:
    /// connections that end, kills, panics of handlers, handlers that run long, frames relayed out
    /// of place. What is beyond is counted (`log_events_suppressed`), and summed up in one event
    /// when the second is over.
    ///
    /// *Live.* *Range* 0..=1048576; 0 logs the sums alone. *Default* 100. *Price*: lines that a peer
    /// can fill the log with; too low, and the line that tells what happened is missing.
    #[must_use]
    pub const fn max_log_events(mut self, events: usize) -> Self {
        self.max_log_events = events;
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

//! Setters: reports of the runtime about itself.

use std::time::Duration;

use super::Config;

/// Setters for reports.
impl Config {
    /// Time that a handler may run before it is logged, once, and counted.
    ///
    /// *Live.* *Range* 1 ms..=3600 s. *Default* 10 s: so long a run is rarely intended. The next
    /// check of the watchdog detects it
    /// ([`thread_deadlock_check_interval`](Self::thread_deadlock_check_interval)). *Price* of a low
    /// value: a log line for each handler that is slow by nature.
    #[must_use]
    pub const fn handler_report_after(mut self, running: Duration) -> Self {
        self.handler_report_after = running;
        self
    }

    /// Log events of one kind in a second, for kinds that peers can cause as often as they like.
    /// These are: connections that end or cannot be served, kills, panics of handlers, handlers
    /// that run long, frames relayed out of place, threads that the system refuses. Further events
    /// are counted (`log_events_suppressed`), and summed up in one event when the second is over.
    ///
    /// *Live.* *Range* 0..=1048576; 0 logs the sums alone. *Default* 100. *Price*: lines with which
    /// a peer can fill the log. If it is too low, the line that explains an event is missing.
    #[must_use]
    pub const fn max_log_events(mut self, events: usize) -> Self {
        self.max_log_events = events;
        self
    }

    /// Logs the threads that are added, and those that the system refuses.
    ///
    /// *Live.* *Range* true or false. *Default* true. They are counted in any case. *Price*: a log
    /// line for each.
    #[must_use]
    pub const fn enable_thread_pool_log(mut self, enable: bool) -> Self {
        self.enable_thread_pool_log = enable;
        self
    }

    /// Logs the kills of requests and sessions.
    ///
    /// *Live.* *Range* true or false. *Default* true. They are counted in any case. *Price*: a log
    /// line for each.
    #[must_use]
    pub const fn enable_kill_log(mut self, enable: bool) -> Self {
        self.enable_kill_log = enable;
        self
    }

    /// Collects the time that requests spend in each stage in histograms.
    ///
    /// *Live.* *Range* true or false. *Default* false. *Price*: up to two clock readings for each
    /// stage of each request, and memory for the histograms of each group after the first use.
    #[must_use]
    pub const fn enable_perf_hist(mut self, enable: bool) -> Self {
        self.enable_perf_hist = enable;
        self
    }
}

//! Setters: conditions under which a group gets more threads than its base, and loses them again.

use std::time::Duration;

use super::Config;

/// Setters for threads that are added while the base threads wait.
impl Config {
    /// Number of extra workers to which a group grows at once when its handlers announce waits. It
    /// keeps them from then on, also while it needs no more than its base.
    ///
    /// *Live.* *Range* 0..=16. *Default* 0: one at a time, as they are needed. *Price*: threads
    /// started for a short stall that a single one would have covered.
    #[must_use]
    pub const fn dynamic_threads(mut self, threads: usize) -> Self {
        self.dynamic_threads = threads;
        self
    }

    /// Time without need after which an added thread beyond
    /// [`dynamic_threads`](Self::dynamic_threads) leaves.
    ///
    /// *Live.* *Range* 10 ms..=600 s. *Default* 10 s: the next burst finds them there. In the
    /// original the range begins at 1 s, because its threads notice only when they wake that they
    /// are not needed; ours sleep for this time. *Price*: idle threads with their stack and read
    /// buffer. If it is too low, each burst starts them again.
    #[must_use]
    pub const fn dynamic_threads_shrink_time(mut self, unneeded: Duration) -> Self {
        self.dynamic_threads_shrink_time = unneeded;
        self
    }

    /// Workers of a group that may wait inside handlers without replacement. For each further
    /// waiting worker the runtime adds one.
    ///
    /// *Live.* *Range* 0..=100; counts as at most one less than
    /// [`epoll_threads_per_group`](Self::epoll_threads_per_group), so that a group never stands
    /// still because of it. *Default* 2: of four workers half still serve. *Price*: the higher, the
    /// fewer workers are left when the first one is added. At 0 every short wait starts a thread.
    #[must_use]
    pub const fn thread_scale_thresh(mut self, waiting: usize) -> Self {
        self.thread_scale_thresh = waiting;
        self
    }

    /// Interval at which the watchdog looks for groups in which no handler completes while work
    /// waits, and for handlers that run long.
    ///
    /// *Live.* *Range* 1 ms..=10 s. *Default* 500 ms: the watchdog is a fallback for handlers that
    /// wait without an announcement. *Price* of a long interval: such a group stands still for
    /// longer; of a short one: a wake-up per interval while there is work.
    #[must_use]
    pub const fn thread_deadlock_check_interval(mut self, interval: Duration) -> Self {
        self.thread_deadlock_check_interval = interval;
        self
    }

    /// Threads of the runtime, of all kinds but the watchdog.
    ///
    /// *Live*; if more threads run, none is added until enough have left. *Range* 2..=32768, and at
    /// least the groups times ([`epoll_threads_per_group`](Self::epoll_threads_per_group) +
    /// [`reserve_threads_per_group`](Self::reserve_threads_per_group)). That minimum is checked
    /// when the number of groups is known. *Default* 1024. *Price*: a stack and a read buffer for
    /// each thread that waits. If it is too low, handlers that wait for one another stand still
    /// when it is reached, or when only the part that is kept for urgent work is left: at least a
    /// quarter of the threads that may be added.
    #[must_use]
    pub const fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = threads;
        self
    }

    /// Threads of each group, above the limits for the rest, that are kept for work in progress,
    /// logins and administration. With them a session that holds a lock gets a thread although
    /// others wait for that lock.
    ///
    /// *Start only.* *Range* 0..=16; with 0 such work competes with all other. *Default* 1: one
    /// that does not wait suffices, because another is started when it does. *Price*: a thread each.
    #[must_use]
    pub const fn reserve_threads_per_group(mut self, threads: usize) -> Self {
        self.reserve_threads_per_group = threads;
        self
    }
}

/// Setters for workers that are added while tasks queue up.
impl Config {
    /// Adds threads for a long task queue.
    ///
    /// *Live.* *Range* true or false. *Default* true. *Price*: more threads than CPUs while the
    /// queue is long. Without them tasks wait for the existing workers.
    #[must_use]
    pub const fn enable_tasker(mut self, enable: bool) -> Self {
        self.enable_tasker = enable;
        self
    }

    /// Queued tasks that each thread of a group is expected to handle. If more are queued, workers
    /// are added.
    ///
    /// *Live.* *Range* 1..=50. *Default* 3. *Price*: the higher, the longer tasks wait before a
    /// worker is added; the lower, the more threads for a short burst.
    #[must_use]
    pub const fn tasker_multiply(mut self, tasks: usize) -> Self {
        self.tasker_multiply = tasks;
        self
    }

    /// Greatest number of workers that one check of the watchdog adds for a long queue.
    ///
    /// *Live.* *Range* 1..=50. *Default* 2: growth is steady, and stops soon after the queue has
    /// shortened. *Price*: the higher, the more threads for a burst that was about to end.
    #[must_use]
    pub const fn tasker_extend_step(mut self, threads: usize) -> Self {
        self.tasker_extend_step = threads;
        self
    }
}

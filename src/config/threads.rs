//! Setters: numbers of groups and base threads, their CPUs, and the sizes of their batches.

use super::Config;

/// Setters for placement.
impl Config {
    /// Binds the workers to CPUs, of those that the process may run on.
    ///
    /// *Start only.* *Range* true or false. *Default* true: a group's workers stay near the memory
    /// that they share. *Price*: the scheduler cannot move a bound worker away from a CPU that
    /// another process keeps busy; turn it off where many processes share few CPUs.
    #[must_use]
    pub const fn auto_cpu_affinity(mut self, bind: bool) -> Self {
        self.auto_cpu_affinity = bind;
        self
    }

    /// Lets a base worker run on all CPUs of its group (true) or on one of them only (false). Added
    /// workers are always bound to the CPUs of the group.
    ///
    /// *Start only.* *Range* true or false; without [`auto_cpu_affinity`](Self::auto_cpu_affinity)
    /// it has no effect. *Default* true: a worker that becomes ready takes any free CPU of the
    /// group. *Price*: it may move between CPUs, and finds a cold cache there.
    #[must_use]
    pub const fn multi_affinity_in_group(mut self, whole_group: bool) -> Self {
        self.multi_affinity_in_group = whole_group;
        self
    }

    /// Uses all CPUs of the machine, and not only those that the process may run on when the
    /// runtime starts.
    ///
    /// *Start only.* *Range* true or false. *Default* false: CPUs that an operator or a container
    /// took from the process stay unused. *Price*: more groups than CPUs that serve them, and a
    /// setting of `taskset` is overridden. A cpuset cannot be left: binding beyond it does nothing.
    #[must_use]
    pub const fn force_all_cores(mut self, all: bool) -> Self {
        self.force_all_cores = all;
        self
    }
}

/// Setters for groups and threads.
impl Config {
    /// Epoll groups. Each has its own epoll, task queue, timers and workers, and a connection
    /// belongs to one of them for life.
    ///
    /// *Start only.* *Range* 0..=128. *Default* 0, automatic: the CPUs that the process may run on, or the
    /// CPU quota of its control group if that is less, divided by
    /// [`epoll_threads_per_group`](Self::epoll_threads_per_group) and rounded up. Thus there is about one
    /// base worker for each CPU. The number is at least
    /// [`min_auto_epoll_groups`](Self::min_auto_epoll_groups), and
    /// [`epoll_extra_groups`](Self::epoll_extra_groups) are added to it. *Price*: more groups
    /// contend less, but share less: idle workers of one group do not serve the connections of
    /// another.
    #[must_use]
    pub const fn epoll_groups(mut self, groups: usize) -> Self {
        self.epoll_groups = groups;
        self
    }

    /// Least number of groups if [`epoll_groups`](Self::epoll_groups) is automatic.
    ///
    /// *Start only.* *Range* 1..=128; an explicit number is not raised. *Default* 1, where the
    /// original has 32. With as many base workers as CPUs a group has other workers beside its slow
    /// handlers, and the system does not switch between threads that do the same. 32 groups of four
    /// are 128 threads on a machine of any size. *Price*: base threads beyond the CPUs.
    #[must_use]
    pub const fn min_auto_epoll_groups(mut self, groups: usize) -> Self {
        self.min_auto_epoll_groups = groups;
        self
    }

    /// Groups that are added if [`epoll_groups`](Self::epoll_groups) is automatic. The sum is 128
    /// at most.
    ///
    /// *Start only.* *Range* 0..=32; an explicit number is not raised. *Default* 0. *Price*: base
    /// threads beyond the CPUs.
    #[must_use]
    pub const fn epoll_extra_groups(mut self, groups: usize) -> Self {
        self.epoll_extra_groups = groups;
        self
    }

    /// Base workers of each group, which run for the life of the runtime.
    ///
    /// *Start only.* *Range* 1..=128. *Default* 4: as many handlers of a group may wait before its
    /// queue stands still. *Price*: a thread each (its stack and
    /// [`worker_read_buf_bytes`](Self::worker_read_buf_bytes)), and more wake-ups.
    #[must_use]
    pub const fn epoll_threads_per_group(mut self, threads: usize) -> Self {
        self.epoll_threads_per_group = threads;
        self
    }

    /// Workers, of all groups together, that may wait in epoll at the same time, at least one of each
    /// group. The others wait for queued tasks only.
    ///
    /// *Start only.* *Range* 0..=128. *Default* 0: as many of each group as it has base workers.
    /// The runtime adapts the present number to the handlers, see the guide; this is the upper
    /// bound for slow handlers. *Price* of a low bound: events wait while handlers run.
    #[must_use]
    pub const fn max_epoll_wait_total_threads(mut self, threads: usize) -> Self {
        self.max_epoll_wait_total_threads = threads;
        self
    }

    /// Events that a worker takes with one `epoll_wait`.
    ///
    /// *Live.* *Range* 1..=16. *Default* 16, where the original has 4: it saves 0.15 system calls
    /// per request at the same CPU time and latency (`benches/record/`). No event waits behind a
    /// handler that is known to be slow, because a batch runs such handlers last or queues them.
    /// While such a handler runs, every wait takes one event, regardless of this value. *Price*:
    /// the events behind a handler that is slow for the first time wait half a millisecond until
    /// another worker takes them over.
    #[must_use]
    pub const fn epoll_events_per_thread(mut self, events: usize) -> Self {
        self.epoll_events_per_thread = events;
        self
    }

    /// Number of spawned closures that may wait in each task queue of a group.
    ///
    /// *Start only.* *Range* 128..=4096. *Default* 256. A full queue returns a spawned closure to
    /// its spawner. Connections and timers do not count, and are always queued, so none of their
    /// work is lost. *Price*: a longer queue means longer waits before callers feel backpressure;
    /// 40 bytes for each entry.
    #[must_use]
    pub const fn epoll_work_queue_capacity(mut self, tasks: usize) -> Self {
        self.epoll_work_queue_capacity = tasks;
        self
    }

    /// Tasks that a worker runs in a row before it looks at epoll without waiting.
    ///
    /// *Live.* *Range* 1..=4096. *Default* 64: the cost of a system call for every 64 tasks is
    /// negligible. *Price*: new events and due timers may wait for that many tasks, or 1 ms, while
    /// the queue is never empty.
    #[must_use]
    pub const fn tasks_per_poll(mut self, tasks: usize) -> Self {
        self.tasks_per_poll = tasks;
        self
    }
}

//! Setters: how many groups and base threads there are, where they run and what they take at once.

use super::Config;

/// Placement.
impl Config {
    /// Whether the workers are bound to CPUs, of those that the process may run on.
    ///
    /// *Start only.* *Range* true or false. *Default* true: a group's workers stay near the memory
    /// that they share. *Price*: the scheduler cannot move a bound worker away from a CPU that
    /// another process keeps busy; turn it off where many processes share few CPUs.
    #[must_use]
    pub const fn auto_cpu_affinity(mut self, bind: bool) -> Self {
        self.auto_cpu_affinity = bind;
        self
    }

    /// Whether a base worker may run on all CPUs of its group (true) or on one of them only
    /// (false). Those that are added are always bound to the CPUs of the group.
    ///
    /// *Start only.* *Range* true or false; without [`auto_cpu_affinity`](Self::auto_cpu_affinity)
    /// it has no effect. *Default* true: a worker that becomes ready takes whichever CPU of the
    /// group is free. *Price*: it may move between CPUs, and finds a cold cache there.
    #[must_use]
    pub const fn multi_affinity_in_group(mut self, whole_group: bool) -> Self {
        self.multi_affinity_in_group = whole_group;
        self
    }

    /// Whether all CPUs of the machine count, and not only those that the process may run on when
    /// the runtime starts.
    ///
    /// *Start only.* *Range* true or false. *Default* false: what an operator or a container took
    /// from the process stays taken. *Price*: more groups than CPUs that serve them, and what was
    /// set with `taskset` is overridden; a cpuset cannot be left, binding beyond it does nothing.
    #[must_use]
    pub const fn force_all_cores(mut self, all: bool) -> Self {
        self.force_all_cores = all;
        self
    }
}

/// Groups and threads.
impl Config {
    /// Epoll groups; each has its own epoll, task queue, timers and workers, and a connection
    /// belongs to one of them for life.
    ///
    /// *Start only.* *Range* 0..=128. *Default* 0, automatic: the CPUs that the process may run
    /// on, divided by [`epoll_threads_per_group`](Self::epoll_threads_per_group) and rounded up,
    /// so that there is about one base worker for each CPU; at least
    /// [`min_auto_epoll_groups`](Self::min_auto_epoll_groups), and
    /// [`epoll_extra_groups`](Self::epoll_extra_groups) on top. *Price*: more groups contend less,
    /// but share less: a busy group's connections are not served by the idle workers of another.
    #[must_use]
    pub const fn epoll_groups(mut self, groups: usize) -> Self {
        self.epoll_groups = groups;
        self
    }

    /// Groups that an automatic number of [`epoll_groups`](Self::epoll_groups) has at least.
    ///
    /// *Start only.* *Range* 1..=128; a number that is given is not raised. *Default* 1, where the
    /// original has 32: with as many base workers as CPUs a group has company for its slow
    /// handlers and nobody switches between threads that do the same; 32 groups of four are 128
    /// threads on a machine of any size. *Price*: base threads beyond the CPUs.
    #[must_use]
    pub const fn min_auto_epoll_groups(mut self, groups: usize) -> Self {
        self.min_auto_epoll_groups = groups;
        self
    }

    /// Groups that are added to an automatic number of [`epoll_groups`](Self::epoll_groups); the
    /// sum is 128 at most.
    ///
    /// *Start only.* *Range* 0..=32; a number that is given is not raised. *Default* 0. *Price*:
    /// base threads beyond the CPUs.
    #[must_use]
    pub const fn epoll_extra_groups(mut self, groups: usize) -> Self {
        self.epoll_extra_groups = groups;
        self
    }

    /// Base workers of each group, there for the life of the runtime.
    ///
    /// *Start only.* *Range* 1..=128. *Default* 4: as many handlers of a group may wait for
    /// something before its queue stands still. *Price*: a thread each (its stack and
    /// [`worker_read_buf_bytes`](Self::worker_read_buf_bytes)), and more wake-ups.
    #[must_use]
    pub const fn epoll_threads_per_group(mut self, threads: usize) -> Self {
        self.epoll_threads_per_group = threads;
        self
    }

    /// Workers, of all groups together, that may wait in epoll at the same time. The others wait
    /// for queued tasks only.
    ///
    /// *Start only.* *Range* 0..=128. *Default* 0: all. How many do at a given time the runtime
    /// decides by what the handlers do, see the guide; this is the upper bound for when they are
    /// slow. *Price* of a low bound: events wait while handlers run.
    #[must_use]
    pub const fn max_epoll_wait_total_threads(mut self, threads: usize) -> Self {
        self.max_epoll_wait_total_threads = threads;
        self
    }

    /// Events that a worker takes with one `epoll_wait`.
    ///
    /// *Live.* *Range* 1..=16. *Default* 16, where the original has 4: it saves 0.15 system calls
    /// per request at the same CPU time and latency (`benches/record/`), and nothing stands behind
    /// a handler that is known to be slow, as those of a batch are run last or queued; while one
    /// runs, every wait takes one event whatever this says. *Price*: the events behind a handler
    /// that is slow for the first time wait half a millisecond until another worker takes them
    /// over.
    #[must_use]
    pub const fn epoll_events_per_thread(mut self, events: usize) -> Self {
        self.epoll_events_per_thread = events;
        self
    }

    /// Places in the task queue of a group.
    ///
    /// *Start only.* *Range* 128..=4096. *Default* 256. A full queue gives a spawned closure back
    /// to its spawner; connections go to an overflow list instead, so nothing of theirs is lost.
    /// *Price*: a longer queue means longer waits before anybody is pushed back; 32 bytes for each
    /// place.
    #[must_use]
    pub const fn epoll_work_queue_capacity(mut self, tasks: usize) -> Self {
        self.epoll_work_queue_capacity = tasks;
        self
    }

    /// Tasks that a worker runs in a row before it looks at epoll without waiting.
    ///
    /// *Live.* *Range* 1..=4096. *Default* 64: a system call for every 64 tasks is not felt.
    /// *Price*: new events and due timers may wait for so many tasks while the queue never runs
    /// dry.
    #[must_use]
    pub const fn tasks_per_poll(mut self, tasks: usize) -> Self {
        self.tasks_per_poll = tasks;
        self
    }
}

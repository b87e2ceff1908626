//! The table of all tunables, with the documentation of each.

use std::time::Duration;

use super::fields::{Field, Unit, tunables};
use super::value::{Allowed, SWITCH, zero_or};

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
pub(super) const MILLISECOND: Duration = Duration::from_millis(1);
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Most threads of a runtime.
pub(super) const MOST_THREADS: usize = 32_768;

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

        // ---- groups and base threads, their CPUs, and the sizes of their batches ----

        /// Binds the workers to CPUs, of those that the process may run on.
        ///
        /// *Start only.* *Range* true or false. *Default* true: a group's workers stay near the
        /// memory that they share. *Price*: the scheduler cannot move a bound worker away from a
        /// CPU that another process keeps busy; turn it off where many processes share few CPUs.
        auto_cpu_affinity: bool = true, SWITCH, Switch, start;

        /// Lets a base worker run on all CPUs of its group (true) or on one of them only (false).
        /// Added workers are always bound to the CPUs of the group.
        ///
        /// *Start only.* *Range* true or false; without
        /// [`auto_cpu_affinity`](Self::auto_cpu_affinity) it has no effect. *Default* true: a
        /// worker that becomes ready takes any free CPU of the group. *Price*: it may move between
        /// CPUs, and finds a cold cache there.
        multi_affinity_in_group: bool = true, SWITCH, Switch, start;

        /// Uses all CPUs of the machine, and not only those that the process may run on when the
        /// runtime starts.
        ///
        /// *Start only.* *Range* true or false. *Default* false: CPUs that an operator or a
        /// container took from the process stay unused. *Price*: more groups than CPUs that serve
        /// them, and a setting of `taskset` is overridden. A cpuset cannot be left: binding beyond
        /// it does nothing.
        force_all_cores: bool = false, SWITCH, Switch, start;

        /// Epoll groups. Each has its own epoll, task queue, timers and workers, and a connection
        /// belongs to one of them for life.
        ///
        /// *Start only.* *Range* 0..=128. *Default* 0, automatic: the CPUs that the process may run
        /// on, or the CPU quota of its control group if that is less, divided by
        /// [`epoll_threads_per_group`](Self::epoll_threads_per_group) and rounded up. Thus there is
        /// about one base worker for each CPU. The number is at least
        /// [`min_auto_epoll_groups`](Self::min_auto_epoll_groups), and
        /// [`epoll_extra_groups`](Self::epoll_extra_groups) are added to it. *Price*: more groups
        /// contend less, but share less: idle workers of one group do not serve the connections of
        /// another.
        epoll_groups: usize = 0, 0..=128, Count, start;

        /// Least number of groups if [`epoll_groups`](Self::epoll_groups) is automatic.
        ///
        /// *Start only.* *Range* 1..=128; an explicit number is not raised. *Default* 1, where the
        /// original has 32. With as many base workers as CPUs a group has other workers beside its
        /// slow handlers, and the system does not switch between threads that do the same. 32
        /// groups of four are 128 threads on a machine of any size. *Price*: base threads beyond
        /// the CPUs.
        min_auto_epoll_groups: usize = 1, 1..=128, Count, start;

        /// Groups that are added if [`epoll_groups`](Self::epoll_groups) is automatic. The sum is
        /// 128 at most.
        ///
        /// *Start only.* *Range* 0..=32; an explicit number is not raised. *Default* 0. *Price*:
        /// base threads beyond the CPUs.
        epoll_extra_groups: usize = 0, 0..=32, Count, start;

        /// Base workers of each group, which run for the life of the runtime.
        ///
        /// *Start only.* *Range* 1..=128. *Default* 4: as many handlers of a group may wait before
        /// its queue stands still. *Price*: a thread each (its stack and
        /// [`worker_read_buf_bytes`](Self::worker_read_buf_bytes)), and more wake-ups.
        epoll_threads_per_group: usize = 4, 1..=128, Count, start;

        /// Workers, of all groups together, that may wait in epoll at the same time, at least one
        /// of each group. The others wait for queued tasks only.
        ///
        /// *Start only.* *Range* 0..=128. *Default* 0: as many of each group as it has base
        /// workers. The runtime adapts the present number to the handlers, see the guide; this is
        /// the upper bound for slow handlers. *Price* of a low bound: events wait while handlers
        /// run.
        max_epoll_wait_total_threads: usize = 0, 0..=128, Count, start;

        /// Events that a worker takes with one `epoll_wait`.
        ///
        /// *Live.* *Range* 1..=16. *Default* 16, where the original has 4: it saves 0.15 system
        /// calls per request at the same CPU time and latency (`benches/record/`). No event waits
        /// behind a handler that is known to be slow, because a batch runs such handlers last or
        /// queues them. While such a handler runs, every wait takes one event, regardless of this
        /// value. *Price*: the events behind a handler that is slow for the first time wait half a
        /// millisecond until another worker takes them over.
        epoll_events_per_thread: usize = 16, 1..=16, Count, live;

        /// Number of spawned closures that may wait in each task queue of a group.
        ///
        /// *Start only.* *Range* 128..=4096. *Default* 256. A full queue returns a spawned closure
        /// to its spawner. Connections and timers do not count, and are always queued, so none of
        /// their work is lost. *Price*: a longer queue means longer waits before callers feel
        /// backpressure; 40 bytes for each entry.
        epoll_work_queue_capacity: usize = 256, 128..=4096, Count, start;

        /// Tasks that a worker runs in a row before it looks at epoll without waiting.
        ///
        /// *Live.* *Range* 1..=4096. *Default* 64: the cost of a system call for every 64 tasks is
        /// negligible. *Price*: new events and due timers may wait for that many tasks, or 1 ms,
        /// while the queue is never empty.
        tasks_per_poll: usize = 64, 1..=4096, Count, live;

        // ---- threads beyond the base: when a group adds them, and loses them again ----

        /// Number of extra workers to which a group grows at once when its handlers announce waits.
        /// It keeps them from then on, also while it needs no more than its base.
        ///
        /// *Live.* *Range* 0..=16. *Default* 0: one at a time, as they are needed. *Price*: threads
        /// started for a short stall that a single one would have covered.
        dynamic_threads: usize = 0, 0..=16, Count, live;

        /// Time without need after which an added thread beyond
        /// [`dynamic_threads`](Self::dynamic_threads) leaves.
        ///
        /// *Live.* *Range* 10 ms..=600 s. *Default* 10 s: the next burst finds them there. In the
        /// original the range begins at 1 s, because its threads notice only when they wake that
        /// they are not needed; ours sleep for this time. *Price*: idle threads with their stack
        /// and read buffer. If it is too low, each burst starts them again.
        dynamic_threads_shrink_time: Duration = 10 * SECOND,
            10 * MILLISECOND..=600 * SECOND, Milliseconds, live;

        /// Workers of a group that may wait inside handlers without replacement. For each further
        /// waiting worker the runtime adds one.
        ///
        /// *Live.* *Range* 0..=100; counts as at most one less than
        /// [`epoll_threads_per_group`](Self::epoll_threads_per_group), so that a group never stands
        /// still because of it. *Default* 2: of four workers half still serve. *Price*: the higher,
        /// the fewer workers are left when the first one is added. At 0 every short wait starts a
        /// thread.
        thread_scale_thresh: usize = 2, 0..=100, Count, live;

        /// Interval at which the watchdog looks for groups in which no handler completes while work
        /// waits, and for handlers that run long.
        ///
        /// *Live.* *Range* 1 ms..=10 s. *Default* 500 ms: the watchdog is a fallback for handlers
        /// that wait without an announcement. *Price* of a long interval: such a group stands still
        /// for longer; of a short one: a wake-up per interval while there is work.
        thread_deadlock_check_interval: Duration = 500 * MILLISECOND,
            MILLISECOND..=10 * SECOND, Milliseconds, live;

        /// Adds threads for a long task queue.
        ///
        /// *Live.* *Range* true or false. *Default* true. *Price*: more threads than CPUs while the
        /// queue is long. Without them tasks wait for the existing workers.
        enable_tasker: bool = true, SWITCH, Switch, live;

        /// Queued tasks that each thread of a group is expected to handle. If more are queued,
        /// workers are added.
        ///
        /// *Live.* *Range* 1..=50. *Default* 3. *Price*: the higher, the longer tasks wait before a
        /// worker is added; the lower, the more threads for a short burst.
        tasker_multiply: usize = 3, 1..=50, Count, live;

        /// Greatest number of workers that one check of the watchdog adds for a long queue.
        ///
        /// *Live.* *Range* 1..=50. *Default* 2: growth is steady, and stops soon after the queue
        /// has shortened. *Price*: the higher, the more threads for a burst that was about to end.
        tasker_extend_step: usize = 2, 1..=50, Count, live;

        /// Threads of the runtime, of all kinds but the watchdog.
        ///
        /// *Live*; if more threads run, none is added until enough have left. *Range* 2..=32768,
        /// and at least the groups times
        /// ([`epoll_threads_per_group`](Self::epoll_threads_per_group) +
        /// [`reserve_threads_per_group`](Self::reserve_threads_per_group)). That minimum is checked
        /// when the number of groups is known. *Default* 1024. *Price*: a stack and a read buffer
        /// for each thread that waits. If it is too low, handlers that wait for one another stand
        /// still when it is reached, or when only the part that is kept for urgent work is left: at
        /// least a quarter of the threads that may be added.
        max_threads: usize = 1024, 2..=MOST_THREADS, Count, live;

        /// Threads of each group, above the limits for the rest, that are kept for work in
        /// progress, logins and administration. With them a session that holds a lock gets a thread
        /// although others wait for that lock.
        ///
        /// *Start only.* *Range* 0..=16; with 0 such work competes with all other. *Default* 1: one
        /// that does not wait suffices, because another is started when it does. *Price*: a thread
        /// each.
        reserve_threads_per_group: usize = 1, 0..=16, Count, start;

        // ---- sockets, reading and sending on them, and their greatest number ----

        /// Connections that the kernel keeps for a listener before they are accepted.
        ///
        /// *Start only.* *Range* 0..=4096. *Default* 0: as many as the kernel allows
        /// (`net.core.somaxconn`), because a connection that finds the queue full costs its client
        /// a second. With 128, a burst of 6 000 connections finds it full seven to nine times.
        /// *Price*: peers are accepted late rather than refused early. A listener given by the host
        /// keeps its own.
        tcp_listen_queue: u32 = 0, 0..=4096, Count, start;

        /// Silence on a TCP connection after which the kernel checks that the peer is still there
        /// (`TCP_KEEPIDLE`).
        ///
        /// *Live*, for new connections. *Unit* whole seconds; fractions are dropped. *Range* 1
        /// s..=7200 s. *Default* 30 s: below the idle limits of common firewalls and load
        /// balancers. *Price* of raising it: dead peers hold their connection for longer; of
        /// lowering it: a packet per idle connection and interval.
        tcp_keep_alive: Duration = 30 * SECOND, SECOND..=7200 * SECOND, Seconds, live;

        /// Send buffer of the kernel for each connection, TCP or Unix (`SO_SNDBUF`).
        ///
        /// *Live*, for new connections. A change to 0 needs a new TCP listener. *Unit* bytes.
        /// *Range* 0, or 2048..=2097152. *Default* 0: the kernel sizes it as needed. *Price*:
        /// kernel memory for each peer that does not read; a fixed size also ends the kernel's own
        /// tuning.
        tcp_send_buf: usize = 0, zero_or(2 * KIB..=2 * MIB), Bytes, live;

        /// Receive buffer of the kernel for each TCP connection (`SO_RCVBUF`). Unix sockets have
        /// none: a peer's bytes count against its own send buffer.
        ///
        /// *Live*, for new connections. A larger size, or a change to 0, needs a new listener,
        /// because the kernel takes the largest window from the listener. *Unit* bytes. *Range* 0,
        /// or 2048..=2097152. *Default* 0: the kernel sizes it as needed. *Price*: kernel memory
        /// for each peer that sends faster than the server answers; a fixed size also ends the
        /// kernel's own tuning.
        tcp_recv_buf: usize = 0, zero_or(2 * KIB..=2 * MIB), Bytes, live;

        /// Unsent bytes that the kernel accepts for a TCP connection before it reports the socket
        /// as not writable (`TCP_NOTSENT_LOWAT`).
        ///
        /// *Live*, for new connections. *Unit* bytes. *Range* 0..=1073741824. *Default* 0: the
        /// system's setting. *Price*: a low value bounds the kernel memory for a reader that never
        /// reads (on loopback about 160 kB with 16 KiB, several MB without). Large replies then
        /// leave in more, smaller sends.
        tcp_notsent_lowat_bytes: u32 = 0, 0..=1 << 30, Bytes, live;

        /// First size of a connection's own read buffer, which exists only while it holds an
        /// unfinished frame.
        ///
        /// *Live.* *Unit* bytes. *Range* 4096..=65536. *Default* 4096: a page. *Price*: this much
        /// memory for each connection that stopped in the middle of a frame.
        tcp_fixed_dealing_buf: usize = 4 * KIB, 4 * KIB..=64 * KIB, Bytes, live;

        /// Size of the buffer into which a worker reads for any of its connections. It is also the
        /// most that one `recv` brings to a connection that holds no input yet.
        ///
        /// *Start only.* *Unit* bytes. *Range* 4096..=1048576. *Default* 65536: pipelined requests
        /// come with one system call. *Price*: this much memory for each worker, and beyond the
        /// CPU's second-level cache each byte is fetched twice.
        worker_read_buf_bytes: usize = 64 * KIB, 4 * KIB..=MIB, Bytes, start;

        /// Greatest input of one connection that its protocol may leave unconsumed, which is the
        /// largest frame. A frame's header comes on top.
        ///
        /// Memory limits count too. The input of one connection gets at most half of
        /// [`max_buffered_bytes`](Self::max_buffered_bytes). A request to a session server must fit
        /// into [`max_queued_bytes_per_connection`](Self::max_queued_bytes_per_connection) and into
        /// half of [`max_queued_bytes`](Self::max_queued_bytes).
        ///
        /// *Live.* *Unit* bytes. *Range* 4096..=1073741824. *Default* 64 MiB. A connection that
        /// needs more is closed. *Price*: a peer can make the runtime hold this much by really
        /// sending it, within [`max_buffered_bytes`](Self::max_buffered_bytes) for all peers
        /// together.
        max_allowed_packet: usize = 64 * MIB, 4 * KIB..=GIB, Bytes, live;

        /// Bytes received from one connection in one turn, before it goes to the back of the queue.
        ///
        /// *Live.* *Unit* bytes. *Range* 4096..=67108864. *Default* 256 KiB. *Price*: the time that
        /// one busy sender may keep a worker while others wait. If it is too low, large transfers
        /// need more turns.
        read_budget_bytes: usize = 256 * KIB, 4 * KIB..=64 * MIB, Bytes, live;

        /// Time without need after which a connection frees its large read buffer, also if its peer
        /// is silent.
        ///
        /// *Live.* *Range* 1 ms..=3600 s. *Default* 10 s: bursts of large frames reuse the same
        /// memory. *Price*: large buffers held without use.
        big_buf_release_after: Duration = 10 * SECOND,
            MILLISECOND..=3600 * SECOND, Milliseconds, live;

        /// Time in which a peer has to take its backlog, or
        /// [`write_high_watermark_bytes`](Self::write_high_watermark_bytes) of a longer one. If the
        /// peer takes less, its connection is closed. The backlog is measured after a tenth of the
        /// time. That amount must leave in the rest of the time.
        ///
        /// *Live.* *Range* 1 ms..=7200 s. *Default* 10 s. *Price*: peers that never read hold their
        /// backlog for longer.
        net_write_timeout: Duration = 10 * SECOND,
            MILLISECOND..=7200 * SECOND, Milliseconds, live;

        /// Backlog above which the runtime stops reading a connection, so that the connection
        /// produces no more replies.
        ///
        /// *Live.* *Unit* bytes. *Range* 4096..=1073741824. *Default* 1 MiB. *Price*: this much
        /// memory for each peer that does not read, plus the replies that one turn of a handler
        /// makes.
        write_high_watermark_bytes: usize = MIB, 4 * KIB..=GIB, Bytes, live;

        /// Backlog at or below which the runtime reads a connection again.
        ///
        /// *Live.* *Unit* bytes. *Range* 0 up to
        /// [`write_high_watermark_bytes`](Self::write_high_watermark_bytes). *Default* 256 KiB:
        /// enough left to keep the network busy while the next replies are made. *Price*: close to
        /// the high watermark, reading stops and starts again and again.
        write_low_watermark_bytes: usize = 256 * KIB, 0..=GIB, Bytes, live;

        /// Time for which a connection closed by the runtime stays to read and discard later bytes
        /// of the peer. Without it, unread input turns the close into a reset, and the peer loses
        /// the last reply.
        ///
        /// *Live.* *Range* 0 s..=60 s; 0 closes at once. *Default* 1 s. *Price*: closed connections
        /// hold their descriptor for this time, unless the peer closes first.
        linger_timeout: Duration = SECOND, Duration::ZERO..=60 * SECOND, Milliseconds, live;

        /// Bytes that are read and discarded on a connection closed by the runtime, before it is
        /// cut.
        ///
        /// *Live.* *Unit* bytes. *Range* 0..=16777216. *Default* 64 KiB. *Price*: work for a peer
        /// that continues to send.
        linger_bytes: usize = 64 * KIB, 0..=16 * MIB, Bytes, live;

        /// Connections that a listener accepts in one turn, before it goes to the back of the
        /// queue.
        ///
        /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a flood of connections keeps a worker
        /// for that many while others wait.
        accept_budget: usize = 64, 1..=4096, Count, live;

        /// Connections open at once in the runtime, accepted and outgoing. A further one is
        /// accepted and closed at once, so that the peer learns it; `connect` returns an error.
        ///
        /// *Live.* *Range* 1..=16777216. *Default* 65536. *Price*: a descriptor and under 1 KiB for
        /// each idle connection, and the kernel's share. The process's own limit of descriptors
        /// also applies.
        max_connections: usize = 65_536, 1..=1 << 24, Count, live;

        /// Accepted connections of the runtime that have not sent a byte yet and have a time for
        /// it. Further ones are accepted and closed at once.
        ///
        /// *Live.* *Range* 1..=16777216; above [`max_connections`](Self::max_connections) it has no
        /// effect. *Default* 16384: a burst of clients gets in, and a flood of silent ones leaves
        /// room for active clients. *Price*: the number of connections that a flood can hold.
        max_silent_connections: usize = 16_384, 1..=1 << 24, Count, live;

        /// Time in which an accepted connection must send its first bytes. Then it is closed. If it
        /// has layers, the time begins once more when they are ready. 0 switches it off, for
        /// protocols whose clients may only listen. Then `idle_timeout` begins when the connection
        /// is opened, and [`max_silent_connections`](Self::max_silent_connections) does not count
        /// the connection.
        ///
        /// *Live*, for new connections. *Range* 0 s..=3600 s. *Default* 10 s. *Price*: silent
        /// connections count against [`max_silent_connections`](Self::max_silent_connections) for
        /// longer.
        first_bytes_timeout: Duration = 10 * SECOND,
            Duration::ZERO..=3600 * SECOND, Milliseconds, live;

        /// Time in which the [layers](crate::net::Layer) of a connection must be ready, from the
        /// time at which it was established or a layer was started. Then it is closed.
        ///
        /// *Live*, for new connections. *Range* 1 ms..=3600 s. *Default* 10 s. *Price*: peers that
        /// stop in a handshake count against [`max_handshakes`](Self::max_handshakes) for longer.
        handshake_timeout: Duration = 10 * SECOND,
            MILLISECOND..=3600 * SECOND, Milliseconds, live;

        /// Accepted connections of the runtime whose layers are not ready yet. Further ones are
        /// accepted and closed at once.
        ///
        /// *Live.* *Range* 1..=16777216. *Default* 4096. *Price*: the number of handshakes, with
        /// their memory, that a flood can hold.
        max_handshakes: usize = 4096, 1..=1 << 24, Count, live;

        /// Time for which an accepted connection may receive and send no bytes, with no request in
        /// progress. Then it is closed; if bytes were sent last, after at most twice this time.
        ///
        /// The time begins with the first received bytes. Before them `first_bytes_timeout` counts
        /// if it is not 0, also if bytes were sent. An incomplete frame is no request in progress:
        /// this time or `frame_timeout` ends the connection, whichever passes first.
        ///
        /// *Live*; an open connection follows at its next deadline, at the latest when the old time
        /// has passed. If the old time was 0, it may never follow. *Range* 0 s..=604800 s; 0 is for
        /// ever. *Default* 28800 s: eight hours, the default of MySQL. *Price*: forgotten clients
        /// keep their sessions, and the locks and memory of these, for longer.
        idle_timeout: Duration = 28_800 * SECOND,
            Duration::ZERO..=604_800 * SECOND, Milliseconds, live;

        /// Time in which a frame must be complete after its first bytes. Then the connection is
        /// closed. The time does not run while the runtime has paused reading. A frame is the input
        /// that the protocol leaves unconsumed.
        ///
        /// *Live.* *Range* 1 ms..=7200 s. *Default* 60 s: the largest frame at one MiB a second.
        /// *Price*: peers that stop in the middle of a frame occupy its memory for longer.
        frame_timeout: Duration = 60 * SECOND,
            MILLISECOND..=7200 * SECOND, Milliseconds, live;

        /// Memory for the read buffers and backlogs of all connections of the runtime together.
        ///
        /// If the read buffer, the backlog or the layers of a connection would grow beyond the free
        /// rest, the connection is closed. Therefore each of the three alone can have half, and
        /// none can have all. Each of the three may always have 8 KiB. Thus small connections do
        /// not notice those that take all they can get.
        ///
        /// *Live.* *Unit* bytes. *Range* 1 MiB..=`usize::MAX`. *Default* 1 GiB. All limits per
        /// connection together can still exceed the memory: a hundred peers times one frame of 64
        /// MiB. *Price*: the memory itself.
        max_buffered_bytes: usize = GIB, MIB..=usize::MAX, Bytes, live;

        // ---- sessions, their requests, logins and the request caches ----

        /// Sessions open at once on one connection. Opening one more is an error for that session
        /// alone.
        ///
        /// *Live.* *Range* 1..=16777216. *Default* 4096. *Price*: the memory of a session of the
        /// service, for that many sessions of each peer.
        max_sessions_per_connection: usize = 4096, 1..=1 << 24, Count, live;

        /// Sessions open at once in the runtime. Opening one more is an error for that session
        /// alone.
        ///
        /// *Live.* *Range* 1..=16777216. *Default* 65536. *Price*: the memory of a session of the
        /// service, for each of them.
        max_sessions: usize = 65_536, 1..=1 << 24, Count, live;

        /// Requests of one session that are answered in a row before the session goes to the back
        /// of the queue.
        ///
        /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a session with a steady supply of
        /// requests keeps a worker for that many, or 1 ms, while others wait.
        session_budget: usize = 64, 1..=4096, Count, live;

        /// Puts a version into the header of frames, in both directions.
        ///
        /// *Live*, for new connections. *Range* true or false. *Default* false, as in the original.
        /// *Price*: peers with the other setting cannot communicate with the server.
        galaxy_protocol: bool = false, SWITCH, Switch, live;

        /// Version in the header of frames, where [`galaxy_protocol`](Self::galaxy_protocol) is on.
        ///
        /// *Live*, for new connections. *Range* 0..=127. *Default* 0. *Price*: peers of another
        /// version are closed.
        galaxy_version: u8 = 0, 0..=127, Count, live;

        /// Requests of one session that may wait behind the running one. One more waits in its
        /// connection, which is not read until half of the waiting requests were begun. If that
        /// takes too long, an error ends that session.
        ///
        /// *Live.* *Range* 16..=4096. *Default* 128. *Price*: memory for that many requests of each
        /// session, within [`max_queued_bytes`](Self::max_queued_bytes).
        max_queued_messages: usize = 128, 16..=4096, Count, live;

        /// Memory for the waiting requests of all sessions of one connection. A session whose
        /// request does not fit is ended.
        ///
        /// *Live.* *Unit* bytes. *Range* 4096..=`usize::MAX`. *Default* 128 MiB: twice the largest
        /// frame. *Price*: the memory, for each peer that sends faster than the server answers.
        max_queued_bytes_per_connection: usize = 128 * MIB, 4 * KIB..=usize::MAX, Bytes, live;

        /// Memory for the waiting requests of all sessions of the runtime together. A session whose
        /// request does not fit is ended. A request also does not fit if the waiting requests of
        /// its connection would exceed the free rest. Each connection may always have 8 KiB.
        ///
        /// *Live.* *Unit* bytes. *Range* 4096..=`usize::MAX`. *Default* 1 GiB. *Price*: the memory
        /// itself, beside [`max_buffered_bytes`](Self::max_buffered_bytes).
        max_queued_bytes: usize = GIB, 4 * KIB..=usize::MAX, Bytes, live;

        /// Time from the arrival of a request to its last reply. It includes the time in which the
        /// request waits for its turn and for its peer to grant room. Then the request is
        /// cancelled. A request for timestamps has no deadline at the server.
        ///
        /// *Live*; if requests are being watched already, the new value counts from the next check
        /// on. The old value has set the time of that check. *Range* 0 s..=86400 s; 0 is for ever.
        /// *Default* 900 s, in which the real clients have long given up. *Price*: requests without
        /// a waiting client hold their session and its locks.
        request_timeout: Duration = 900 * SECOND,
            Duration::ZERO..=86_400 * SECOND, Milliseconds, live;

        /// Time that the requests of a peer which has finished sending may still take. Then they
        /// are cancelled and its sessions end.
        ///
        /// *Live.* *Range* 0 s..=86400 s; 0 is at once. *Default* 5 s: a client that is gone looks
        /// the same as a client that waits for its last answers. *Price*: a request of a client
        /// that is gone, for example a wait for a lock, keeps its session and the session's locks
        /// for this time.
        half_close_timeout: Duration = 5 * SECOND,
            Duration::ZERO..=86_400 * SECOND, Milliseconds, live;

        /// Handlers of one `Server` in a group that may wait, each on a thread, until their peer grants
        /// room for more rows. If one more begins to wait, the longest-waiting handler is cancelled.
        ///
        /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a thread for each peer that requests
        /// rows and does not read them. Rows that are pulled from a source hold no thread.
        max_waiting_writers: usize = 64, 1..=4096, Count, live;

        /// Glitches of one connection in [`glitch_window`](Self::glitch_window), all at once or
        /// spread. A glitch is a whole message without use, such as a request to a session that
        /// does not exist. After one more, the connection gets a fatal error and is closed. The
        /// [guide](crate::guide::sessions) lists the glitches, and the harmless habits of existing
        /// clients.
        ///
        /// *Live.* *Range* 0..=16777216; 0 counts and closes no connection. *Default* 10000, which
        /// existing clients do not come near. *Price* of a high value: that much useless work from
        /// each peer; of a low one: the server closes a faulty client instead of only answering it
        /// with errors.
        max_glitches: usize = 10_000, 0..=1 << 24, Count, live;

        /// Time in which an allowance of [`max_glitches`](Self::max_glitches) is renewed.
        ///
        /// *Live.* *Range* 1 s..=3600 s. *Default* 60 s. *Price* of raising it: old glitches close
        /// a connection.
        glitch_window: Duration = 60 * SECOND,
            SECOND..=3600 * SECOND, Milliseconds, live;

        /// Time in which an accepted connection must have logged in. Then it is closed.
        ///
        /// *Live*, for new connections. *Range* 1 ms..=3600 s. *Default* 10 s. *Price*: peers that
        /// never log in count against
        /// [`max_unauthenticated_connections`](Self::max_unauthenticated_connections) for longer.
        login_timeout: Duration = 10 * SECOND,
            MILLISECOND..=3600 * SECOND, Milliseconds, live;

        /// Failed logins after which a connection is closed.
        ///
        /// *Live*, for new connections. *Range* 1..=1000. *Default* 3, where the original has no
        /// limit: the real clients try once. *Price*: guesses that cost no new connection.
        max_login_attempts: usize = 3, 1..=1000, Count, live;

        /// Connections of a session server that have not logged in yet. If one more comes, the
        /// server closes the oldest connection of the address that has the most.
        ///
        /// *Live.* *Range* 1..=16777216. *Default* 4096: a burst of clients gets in. *Price*: the
        /// number of connections that a flood can hold.
        max_unauthenticated_connections: usize = 4096, 1..=1 << 24, Count, live;

        /// Connections from one address that have not logged in yet. Further ones are closed at
        /// once. Addresses of IPv6 count by their first 64 bits, and all Unix sockets are one
        /// address.
        ///
        /// *Live.* *Range* 1..=16777216; above
        /// [`max_unauthenticated_connections`](Self::max_unauthenticated_connections) it has no
        /// effect. *Default* 256: the pool of a client may open all at once. *Price*: the share of
        /// that limit that one address can occupy.
        max_unauthenticated_per_address: usize = 256, 1..=1 << 24, Count, live;

        /// Failed logins from one address in a minute. Further logins are refused unchecked until
        /// enough time has passed. Addresses count as in
        /// [`max_unauthenticated_per_address`](Self::max_unauthenticated_per_address).
        ///
        /// *Live.* *Range* 1..=65536 in a minute. *Default* 60. *Price*: guesses. If it is too low,
        /// one client with an old password locks out all clients of its address.
        max_login_failures_per_address: usize = 60, 1..=65_536, Count, live;

        /// Time for which the answer to a failed login is delayed. If it is not shorter than
        /// [`login_timeout`](Self::login_timeout), the connection ends without that answer.
        ///
        /// *Live.* *Range* 0 s..=60 s. *Default* 100 ms; no thread waits for it. *Price*: a user
        /// who mistyped the password learns it that much later.
        login_failure_delay: Duration = 100 * MILLISECOND,
            Duration::ZERO..=60 * SECOND, Milliseconds, live;

        /// Time for which the answer to a successful login is delayed. It helps clients that lose
        /// their own wake-up if the answer comes before they wait.
        ///
        /// *Live.* *Range* 0 s..=1 s. *Default* 0 ms: at once. *Price*: each login takes that much
        /// longer; no thread waits for it.
        authenticate_ok_delay: Duration = Duration::ZERO,
            Duration::ZERO..=SECOND, Milliseconds, live;

        /// Entries of each of the two request caches.
        ///
        /// *Start only.* *Range* 128..=16384. *Default* 1024. If an entry is absent, the client has
        /// to send its text again. *Price*: the memory of the entries, within
        /// [`request_cache_bytes`](Self::request_cache_bytes).
        request_cache_number: usize = 1024, 128..=16_384, Count, start;

        /// Parts of each request cache, with a lock each; entries and bytes are divided among them.
        ///
        /// *Start only.* *Range* 1..=128. *Default* 16. *Price*: a full part may evict an entry
        /// while others have room. If there are too few parts, lookups wait for one another.
        request_cache_instances: usize = 16, 1..=128, Count, start;

        /// Largest text or plan that a request cache keeps. Longer ones run as well, but the client
        /// has to send them each time. A plan counts by its memory, with its text for the audit log
        /// and without parameters.
        ///
        /// *Live.* *Unit* bytes. *Range* 128..=1073741824. An entry larger than
        /// [`request_cache_bytes`](Self::request_cache_bytes) divided by
        /// [`request_cache_instances`](Self::request_cache_instances) is not kept either. *Default*
        /// 1 MiB. *Price*: one such entry displaces many small ones.
        request_cache_max_length: usize = MIB, 128..=GIB, Bytes, live;

        /// Memory for the entries of each of the two request caches.
        ///
        /// *Start only.* *Unit* bytes. *Range* 4096..=`usize::MAX`. *Default* 64 MiB. *Price*: the
        /// memory itself.
        request_cache_bytes: usize = 64 * MIB, 4 * KIB..=usize::MAX, Bytes, start;

        // ---- reports of the runtime about itself ----

        /// Time that a handler may run before it is logged, once, and counted.
        ///
        /// *Live.* *Range* 1 ms..=3600 s. *Default* 10 s: so long a run is rarely intended. The
        /// next check of the watchdog detects it
        /// ([`thread_deadlock_check_interval`](Self::thread_deadlock_check_interval)). *Price* of a
        /// low value: a log line for each handler that is slow by nature.
        handler_report_after: Duration = 10 * SECOND,
            MILLISECOND..=3600 * SECOND, Milliseconds, live;

        /// Log events of one kind in a second, for kinds that peers can cause as often as they
        /// like. These are: connections that end or cannot be served, kills, panics of handlers,
        /// handlers that run long, frames relayed out of place, threads that the system refuses.
        /// Further events are counted (`log_events_suppressed`), and summed up in one event when
        /// the second is over.
        ///
        /// *Live.* *Range* 0..=1048576; 0 logs the sums alone. *Default* 100. *Price*: lines with
        /// which a peer can fill the log. If it is too low, the line that explains an event is
        /// missing.
        max_log_events: usize = 100, 0..=1 << 20, Count, live;

        /// Logs the threads that are added, and those that the system refuses.
        ///
        /// *Live.* *Range* true or false. *Default* true. They are counted in any case. *Price*: a
        /// log line for each.
        enable_thread_pool_log: bool = true, SWITCH, Switch, live;

        /// Logs the kills of requests and sessions.
        ///
        /// *Live.* *Range* true or false. *Default* true. They are counted in any case. *Price*: a
        /// log line for each.
        enable_kill_log: bool = true, SWITCH, Switch, live;

        /// Collects the time that requests spend in each stage in histograms.
        ///
        /// *Live.* *Range* true or false. *Default* false. *Price*: up to two clock readings for
        /// each stage of each request, and memory for the histograms of each group after the first
        /// use.
        enable_perf_hist: bool = false, SWITCH, Switch, live;
    }
}

//! Counters and their table.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::named;

named! {
    /// Name of one counter. Counters only ever rise.
    Counter;

    ConnectionsAccepted "connections_accepted" "connections accepted and served",
    ConnectionsConnected "connections_connected" "outgoing connections established",
    ConnectionsClosed "connections_closed" "connections ended, for whatever reason",
    ConnectionsRefusedLimit "connections_refused_limit"
        "closed at once, or named by a PROXY header: max_connections or max_connections_per_address reached",
    ConnectionsRefusedSilentLimit "connections_refused_silent_limit"
        "accepted and closed at once: max_silent_connections reached",
    ConnectionsRefusedHandshakes "connections_refused_handshakes"
        "closed at once, or refused a layer in mid-stream: max_handshakes reached",
    ConnectionsRefusedDescriptors "connections_refused_descriptors"
        "accepted on the reserve descriptor and closed: none was free",
    AcceptErrorsPeer "accept_errors_peer"
        "accept failures of one connection: the peer or the network gave up",
    AcceptErrorsResources "accept_errors_resources"
        "accept failures for want of descriptors or memory",
    AcceptErrorsOther "accept_errors_other" "accept failures of any other kind",
    AcceptPauses "accept_pauses" "times a listener stopped accepting for a while",

    ClosedByPeer "closed_by_peer" "connections ended because the peer finished",
    ClosedByHandler "closed_by_handler" "connections ended by the protocol or through their handle",
    ClosedReset "closed_reset" "connections reset by the peer, or whose peer is gone",
    ClosedIoError "closed_io_error" "connections ended by another socket error, and connects that failed",
    ClosedWriteTimeout "closed_write_timeout"
        "connections ended: the peer took too little in net_write_timeout",
    ClosedFirstBytesTimeout "closed_first_bytes_timeout"
        "connections ended: nothing came within first_bytes_timeout",
    ClosedHandshakeTimeout "closed_handshake_timeout"
        "connections ended: layers not ready within handshake_timeout",
    ClosedByLayer "closed_by_layer" "connections ended by a layer, which could not use the bytes",
    ClosedIdleTimeout "closed_idle_timeout" "connections ended: idle for idle_timeout",
    ClosedFrameTimeout "closed_frame_timeout"
        "connections ended: a frame was not complete within frame_timeout",
    ClosedFrameTooLong "closed_frame_too_long"
        "connections ended: unconsumed input beyond max_allowed_packet",
    ClosedMemoryBudget "closed_memory_budget" "connections ended: max_buffered_bytes reached",
    ClosedPanic "closed_panic" "connections ended by a panic in their handler",
    ClosedLoginTimeout "closed_login_timeout"
        "connections ended: not logged in within login_timeout",
    ClosedLoginDisplaced "closed_login_displaced"
        "connections ended: not logged in, and max_unauthenticated_connections reached",
    ClosedGlitches "closed_glitches" "connections ended: max_glitches reached",
    ClosedDraining "closed_draining" "connections ended in good order by a drain",
    ClosedCut "closed_cut" "connections cut at the deadline of a drain",

    HandshakesCompleted "handshakes_completed" "times the layers of a connection became ready",
    Receives "receives" "calls of Protocol::received and Protocol::notified",
    RecvCalls "recv_calls" "recv system calls",
    SendCalls "send_calls" "send system calls",
    BytesReceived "bytes_received" "bytes read from sockets",
    BytesSent "bytes_sent" "bytes taken by sockets",
    BacklogBytesQueued "backlog_bytes_queued"
        "bytes that had to wait in a backlog before they were sent",
    ReadsPaused "reads_paused" "times reading stopped, at the high watermark or by pause_reads",
    ReadsResumed "reads_resumed" "times reading went on, at the low watermark or by resume_reads",
    TurnsRequeued "turns_requeued"
        "receive turns that went to the back of the queue: budget spent, or a step of a handshake",

    TasksRun "tasks_run" "spawned closures and timer callbacks run",
    UrgentTasks "urgent_tasks" "tasks of work in progress, logins and administration",
    TasksOverflowed "tasks_overflowed" "tasks that were queued beyond the capacity of their queue",
    SpawnRefused "spawn_refused" "closures given back to their spawner: queue full or draining",
    TimersSet "timers_set" "timers set, a repeating one once",
    TimersFired "timers_fired" "timers fired",
    TimersCancelled "timers_cancelled" "timers cancelled before they fired",
    TimerfdArmed "timerfd_armed" "times a timerfd was armed",
    Panics "panics" "panics caught in handlers, tasks and timers",

    WakeupsSent "wakeups_sent" "times a worker was woken, for queued work or a free poll permit",
    WakeupsUseful "wakeups_useful" "woken workers that found queued work",
    WakeupsFutile "wakeups_futile" "woken workers that found none, also those woken to poll",
    EpollWaits "epoll_waits" "epoll_wait system calls",
    EpollEvents "epoll_events" "events returned by epoll_wait",
    StaleEvents "stale_events" "events for a connection that was gone already",
    BatchEventsInline "batch_events_inline"
        "events delivered in place by the worker that received them",
    BatchEventsQueued "batch_events_queued" "events queued by the worker that received them",
    BatchEventsStolen "batch_events_stolen" "queued events that another worker delivered",
    Reclaimed "reclaimed" "connection contexts reclaimed",

    Logins "logins" "logins that succeeded",
    LoginsFailed "logins_failed" "logins that failed: wrong password, unknown user, malformed",
    LoginsRefused "logins_refused"
        "connections and logins refused: too many of one address or account",

    SessionsOpened "sessions_opened" "sessions opened",
    SessionsClosed "sessions_closed" "sessions ended, for whatever reason",
    SessionsKilled "sessions_killed" "sessions ended by a kill",
    SessionsRefusedLimit "sessions_refused_limit"
        "sessions refused: max_sessions, max_sessions_per_connection or a limit of the account reached",
    SessionRunsInline "session_runs_inline"
        "runs of sessions by the worker that found them runnable",
    SessionRunsQueued "session_runs_queued" "runs of sessions that were not quick, left for after the receive",
    RequestsExecuted "requests_executed" "requests that the service executed",
    RequestsCancelled "requests_cancelled" "requests cancelled by a kill that leaves their session open",
    RequestsExpired "requests_expired" "requests cancelled after request_timeout, or by max_waiting_writers",
    RequestsRefusedQueue "requests_refused_queue" "requests refused: max_queued_messages, or 1024 requests for timestamps, reached",
    RequestsRefusedBytes "requests_refused_bytes"
        "requests refused: max_queued_bytes or max_queued_bytes_per_connection reached",
    RequestsRefusedAccount "requests_refused_account"
        "requests refused: max_requests or max_requests_per_second of their account reached",
    RequestPanics "request_panics" "requests whose handler panicked, which ended the session",
    DeferredDropped "deferred_dropped" "deferred requests dropped before they were answered",
    RelaysRefused "relays_refused" "requests ended: a relay passed a frame out of place",
    TokenWaits "token_waits" "times a result waited until its peer granted room",
    WritersCut "writers_cut" "requests ended: max_waiting_writers reached",
    FramesOfDeadSessionsDropped "frames_of_dead_sessions_dropped"
        "times that frames of a killed session were not sent",
    ProtocolErrors "protocol_errors" "messages that broke the protocol",
    Glitches "glitches" "messages that were whole but of no use, see max_glitches",

    SqlHit "sql_hit" "statements found in the request cache",
    SqlMiss "sql_miss" "statements not found in the request cache",
    SqlEvict "sql_evict" "statements that left the request cache for want of room",
    PlanHit "plan_hit" "plans found in the request cache",
    PlanMiss "plan_miss" "plans not found in the request cache",
    PlanEvict "plan_evict" "plans that left the request cache for want of room",

    ThreadsStartedStall "threads_started_stall" "threads added because handlers wait (announced)",
    ThreadsStartedBacklog "threads_started_backlog" "threads added because the queue was long",
    ThreadsStartedWatchdog "threads_started_watchdog"
        "threads added because nothing completed while work waited",
    ThreadsStartedReserve "threads_started_reserve"
        "reserve threads added because all others waited",
    ThreadsLeft "threads_left" "dynamic threads that left",
    ThreadStartFailed "thread_start_failed" "threads that the system refused",
    ThreadsLimited "threads_limited" "times a thread was wanted, and max_threads or its part for ordinary threads was reached",
    Stalls "stalls" "announced stalls",
    StallsUncounted "stalls_uncounted" "announced waits of kinds that do not count",
    WatchdogChecks "watchdog_checks" "looks of the watchdog",
    HandlersReported "handlers_reported" "handlers that ran longer than handler_report_after",
    LogEventsSuppressed "log_events_suppressed" "log events left out: max_log_events reached",
    AffinitySet "affinity_set" "times a thread was bound to its CPUs",
    AffinityFailed "affinity_failed" "times the system refused to bind",
    Reconfigured "reconfigured" "times the configuration was changed",
}

impl Counter {
    /// Returns true if the counter counts bytes.
    pub(crate) const fn is_of_bytes(self) -> bool {
        matches!(self, Self::BytesReceived | Self::BytesSent | Self::BacklogBytesQueued)
    }
}

/// One block with all counters, starting at zero.
///
/// *Shape*: 896 bytes, aligned so that two blocks share no cache line. A worker owns one and uses
/// [`bump`](Self::bump); other threads share another and use [`add`](Self::add).
#[repr(align(128))]
pub(crate) struct Counters {
    /// Writers: the owner of the block or, through `add`, many threads. Reader: `Snapshot::absorb`.
    pub(super) values: [AtomicU64; COUNTERS],
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self { values: [const { AtomicU64::new(0) }; COUNTERS] }
    }

    /// Adds `n`, from any thread.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.values[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Adds `n` without a locked instruction. Only the one thread that owns this block may call it:
    /// two at once would lose counts (and cause no other harm).
    pub(crate) fn bump(&self, counter: Counter, n: u64) {
        let value = &self.values[counter as usize];
        value.store(value.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Current value, from any thread.
    pub(crate) fn get(&self, counter: Counter) -> u64 {
        self.values[counter as usize].load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Counters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let values = Counter::ALL.iter().map(|&counter| (counter.name(), self.get(counter)));
        f.debug_map().entries(values.filter(|&(_, value)| value != 0)).finish()
    }
}

/// Number of counters.
pub(super) const COUNTERS: usize = Counter::ALL.len();

/// Columns of the longest name.
pub(super) const NAME_WIDTH: usize = 32;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_names_are_unique() {
        let mut names = HashSet::new();
        for (position, &counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(counter as usize, position, "{}", counter.name());
            assert!(names.insert(counter.name()), "{} is there twice", counter.name());
            assert!(counter.name().len() <= NAME_WIDTH, "{}", counter.name());
            let snake = |c: char| c.is_ascii_lowercase() || c == '_';
            assert!(counter.name().chars().all(snake), "{}", counter.name());
            let camel: String = counter.name().split('_').map(capitalised).collect();
            assert_eq!(format!("{counter:?}"), camel);
        }
    }

    fn capitalised(word: &str) -> String {
        word[..1].to_ascii_uppercase() + &word[1..]
    }

    #[test]
    fn many_writers_lose_no_count() {
        let counters = Counters::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10_000).for_each(|_| counters.add(Counter::TasksRun, 1)));
            }
        });
        assert_eq!(counters.get(Counter::TasksRun), 40_000);
    }

    #[test]
    fn blocks_share_no_cache_line() {
        assert_eq!(align_of::<Counters>(), 128);
        assert_eq!(size_of::<Counters>(), 896);
    }
}

//! What the runtime counts, and how a host reads it.
//!
//! Writers own a block of counters each, so that nothing is shared where it is hot; a reader
//! sums the blocks into a [`Snapshot`], a plain value without locks or references. Counting never
//! orders anything: every access is relaxed, and a snapshot that is taken while the runtime works
//! may see one counter of a story and not yet the other.
//!
//! This module knows names and numbers, not what they are about.

#![forbid(unsafe_code)]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Declares [`Counter`] from one table, so that no name, help text or position is written twice.
macro_rules! counters {
    ($($variant:ident $name:literal $help:literal,)+) => {
        /// The name of one counter. All of them only ever rise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Counter {
            $(#[doc = concat!("`", $name, "`: ", $help, ".")] $variant,)+
        }

        impl Counter {
            /// Every counter, in the order of the text form.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Name in snake case, fit for a metrics system.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            /// What it counts, in one line.
            #[must_use]
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$variant => $help,)+
                }
            }
        }
    };
}

counters! {
    ConnectionsAccepted "connections_accepted" "connections accepted and served",
    ConnectionsConnected "connections_connected" "outgoing connections established",
    ConnectionsClosed "connections_closed" "connections ended, for whatever reason",
    ConnectionsRefusedLimit "connections_refused_limit"
        "accepted and closed at once: max_connections reached",
    ConnectionsRefusedSilentLimit "connections_refused_silent_limit"
        "accepted and closed at once: max_silent_connections reached",
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
    ClosedReset "closed_reset" "connections reset by the peer",
    ClosedIoError "closed_io_error" "connections ended by any other socket error",
    ClosedWriteTimeout "closed_write_timeout"
        "connections ended: the peer took nothing for net_write_timeout",
    ClosedFirstBytesTimeout "closed_first_bytes_timeout"
        "connections ended: nothing came within first_bytes_timeout",
    ClosedFrameTooLong "closed_frame_too_long"
        "connections ended: unconsumed input beyond max_allowed_packet",
    ClosedMemoryBudget "closed_memory_budget" "connections ended: max_buffered_bytes reached",
    ClosedPanic "closed_panic" "connections ended by a panic in their handler",
    ClosedDraining "closed_draining" "connections ended in good order by a drain",
    ClosedCut "closed_cut" "connections cut at the deadline of a drain",

    Receives "receives" "calls of Protocol::received",
    RecvCalls "recv_calls" "recv system calls",
    SendCalls "send_calls" "send system calls",
    BytesReceived "bytes_received" "bytes read from sockets",
    BytesSent "bytes_sent" "bytes taken by sockets",
    BacklogBytesQueued "backlog_bytes_queued"
        "bytes that had to wait in a backlog before they were sent",
    ReadsPaused "reads_paused" "times reading stopped at the high watermark",
    ReadsResumed "reads_resumed" "times reading went on at the low watermark",
    TurnsRequeued "turns_requeued"
        "receive turns that ran out of budget and went to the back of the queue",

    TasksRun "tasks_run" "tasks run",
    TasksOverflowed "tasks_overflowed" "tasks that met a full queue and went to the overflow list",
    SpawnRefused "spawn_refused" "closures given back to their spawner: queue full or draining",
    TimersSet "timers_set" "timers set, a repeating one once",
    TimersFired "timers_fired" "timers fired",
    TimersCancelled "timers_cancelled" "timers cancelled before they fired",
    TimerfdArmed "timerfd_armed" "times a timerfd was armed",
    Panics "panics" "panics caught in handlers, tasks and timers",

    WakeupsSent "wakeups_sent" "times a worker was woken for queued work",
    WakeupsUseful "wakeups_useful" "woken workers that found work",
    WakeupsFutile "wakeups_futile" "woken workers that found none",
    EpollWaits "epoll_waits" "epoll_wait system calls",
    EpollEvents "epoll_events" "events returned by epoll_wait",
    StaleEvents "stale_events" "events for a connection that was gone already",
    BatchEventsInline "batch_events_inline"
        "events delivered in place by the worker that received them",
    BatchEventsQueued "batch_events_queued" "events queued by the worker that received them",
    BatchEventsStolen "batch_events_stolen" "queued events that another worker delivered",
    Reclaimed "reclaimed" "connection contexts reclaimed",
}

/// One block of counters, all of them, starting at zero.
///
/// *Shape*: about half a KiB, aligned so that two blocks share no cache line. A worker owns one and
/// uses [`bump`](Self::bump); everybody else shares another and uses [`add`](Self::add).
#[repr(align(128))]
pub(crate) struct Counters {
    /// Written by the owner of the block or, through `add`, by many; read by `Snapshot::absorb`.
    values: [AtomicU64; COUNTERS],
}

impl Counters {
    pub(crate) const fn new() -> Self {
        Self { values: [const { AtomicU64::new(0) }; COUNTERS] }
    }

    /// Adds `n`, from any thread.
    pub(crate) fn add(&self, counter: Counter, n: u64) {
        self.values[counter as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// Adds `n` without a locked instruction. Only the one thread that owns this block may call
    /// it: two at once would lose counts (and nothing worse).
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

/// Everything that was counted, and how things stood, when it was taken.
///
/// *Shape*: a plain value of about half a KiB, without locks or references. Counters rise for the
/// life of the runtime; subtract two snapshots for a rate. The public fields are gauges: they go up
/// and down.
///
/// `Display` prints one aligned line for each gauge and each counter that is not zero.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// Epoll groups.
    pub groups: u64,
    /// Worker threads that were started.
    pub workers: u64,
    /// Workers asleep, waiting for events or tasks.
    pub parked: u64,
    /// Tasks in the queues of the groups.
    pub queue_len: u64,
    /// Tasks in the overflow lists of the groups.
    pub overflow_len: u64,
    /// Connections open.
    pub connections: u64,
    /// Accepted connections that have not sent a byte yet.
    pub silent_connections: u64,
    /// Slots for connection contexts that exist, used and free.
    pub slots_allocated: u64,
    /// Slots that wait for a connection.
    pub slots_free: u64,
    /// Bytes held in read buffers and backlogs.
    pub buffered_bytes: u64,
    /// Timers set that have not fired yet.
    pub timers_pending: u64,
    counters: [u64; COUNTERS],
}

impl Snapshot {
    /// Value of one counter.
    #[must_use]
    pub const fn get(&self, counter: Counter) -> u64 {
        self.counters[counter as usize]
    }

    /// Adds the counts of one block.
    pub(crate) fn absorb(&mut self, block: &Counters) {
        for (sum, value) in self.counters.iter_mut().zip(&block.values) {
            *sum = sum.wrapping_add(value.load(Ordering::Relaxed));
        }
    }

    const fn gauges(&self) -> [(&'static str, u64, &'static str); 11] {
        [
            ("groups", self.groups, "epoll groups"),
            ("workers", self.workers, "worker threads that were started"),
            ("parked", self.parked, "workers asleep"),
            ("queue_len", self.queue_len, "tasks in the queues"),
            ("overflow_len", self.overflow_len, "tasks in the overflow lists"),
            ("connections", self.connections, "connections open"),
            ("silent_connections", self.silent_connections, "accepted, nothing received yet"),
            ("slots_allocated", self.slots_allocated, "slots for connection contexts"),
            ("slots_free", self.slots_free, "slots that wait for a connection"),
            ("buffered_bytes", self.buffered_bytes, "bytes in read buffers and backlogs"),
            ("timers_pending", self.timers_pending, "timers that have not fired yet"),
        ]
    }
}

impl Default for Snapshot {
    /// All zero.
    fn default() -> Self {
        Self {
            groups: 0,
            workers: 0,
            parked: 0,
            queue_len: 0,
            overflow_len: 0,
            connections: 0,
            silent_connections: 0,
            slots_allocated: 0,
            slots_free: 0,
            buffered_bytes: 0,
            timers_pending: 0,
            counters: [0; COUNTERS],
        }
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counters = Counter::ALL
            .iter()
            .map(|&counter| (counter.name(), self.get(counter), counter.help()))
            .filter(|&(_, value, _)| value != 0);
        let mut separator = "";
        for (name, value, help) in self.gauges().into_iter().chain(counters) {
            write!(f, "{separator}{name:NAME_WIDTH$} {value:>12}  {help}")?;
            separator = "\n";
        }
        Ok(())
    }
}

const COUNTERS: usize = Counter::ALL.len();

/// Columns of the longest name.
const NAME_WIDTH: usize = 32;

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
        for (name, _, _) in Snapshot::default().gauges() {
            assert!(names.insert(name), "{name} is there twice");
        }
    }

    fn capitalised(word: &str) -> String {
        word[..1].to_ascii_uppercase() + &word[1..]
    }

    #[test]
    fn a_snapshot_sums_the_blocks() {
        let (own, shared) = (Counters::new(), Counters::new());
        own.bump(Counter::TasksRun, 2);
        own.bump(Counter::TasksRun, 3);
        shared.add(Counter::TasksRun, 10);
        shared.add(Counter::Reclaimed, 1);
        let mut snapshot = Snapshot::default();
        snapshot.absorb(&own);
        snapshot.absorb(&shared);
        assert_eq!(snapshot.get(Counter::TasksRun), 15);
        assert_eq!(snapshot.get(Counter::Reclaimed), 1);
        assert_eq!(snapshot.get(Counter::Panics), 0);
        assert_eq!(own.get(Counter::TasksRun), 5);
        assert_eq!(format!("{own:?}"), r#"{"tasks_run": 5}"#);
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
    fn the_text_has_each_gauge_and_only_the_counters_that_counted() {
        let counters = Counters::new();
        counters.add(Counter::BytesSent, 1234);
        let mut snapshot = Snapshot { workers: 4, ..Snapshot::default() };
        snapshot.absorb(&counters);
        let text = snapshot.to_string();
        assert_eq!(text.lines().count(), 12);
        assert!(text.contains(
            "workers                                     4  worker threads that were started"
        ));
        assert!(
            text.ends_with("bytes_sent                               1234  bytes taken by sockets")
        );
    }

    #[test]
    fn blocks_share_no_cache_line() {
        assert_eq!(align_of::<Counters>(), 128);
    }
}

//! Every tunable of a runtime, with its range, default and unit.
//!
//! A [`Config`] is built by value, checked once when the runtime starts, and read from then on as
//! an immutable snapshot. None of the tunables changes while a runtime runs.
//!
//! Sizes are bytes and counts are counts unless the type is a [`Duration`]. Where 0 means
//! something of its own (automatic, leave it to the kernel), the tunable says so.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

/// The tunables of one runtime.
///
/// *Shape*: a plain value; [`Default`] is fit for service, and each setter takes and returns it.
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) epoll_groups: usize,
    pub(crate) epoll_threads_per_group: usize,
    pub(crate) max_epoll_wait_total_threads: usize,
    pub(crate) epoll_events_per_thread: usize,
    pub(crate) epoll_work_queue_capacity: usize,
    pub(crate) tasks_per_poll: usize,
    pub(crate) tcp_listen_queue: u32,
    pub(crate) tcp_keep_alive: Duration,
    pub(crate) tcp_send_buf: usize,
    pub(crate) tcp_recv_buf: usize,
    pub(crate) tcp_notsent_lowat_bytes: u32,
    pub(crate) tcp_fixed_dealing_buf: usize,
    pub(crate) worker_read_buf_bytes: usize,
    pub(crate) max_allowed_packet: usize,
    pub(crate) read_budget_bytes: usize,
    pub(crate) big_buf_release_after: Duration,
    pub(crate) net_write_timeout: Duration,
    pub(crate) write_high_watermark_bytes: usize,
    pub(crate) write_low_watermark_bytes: usize,
    pub(crate) linger_timeout: Duration,
    pub(crate) linger_bytes: usize,
    pub(crate) accept_budget: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_silent_connections: usize,
    pub(crate) first_bytes_timeout: Duration,
    pub(crate) max_buffered_bytes: usize,
}

impl Default for Config {
    /// The defaults that each setter names.
    fn default() -> Self {
        Self {
            epoll_groups: 0,
            epoll_threads_per_group: 4,
            max_epoll_wait_total_threads: 0,
            epoll_events_per_thread: 16,
            epoll_work_queue_capacity: 256,
            tasks_per_poll: 64,
            tcp_listen_queue: 128,
            tcp_keep_alive: Duration::from_secs(30),
            tcp_send_buf: 0,
            tcp_recv_buf: 0,
            tcp_notsent_lowat_bytes: 0,
            tcp_fixed_dealing_buf: 4 * KIB,
            worker_read_buf_bytes: 64 * KIB,
            max_allowed_packet: 64 * MIB,
            read_budget_bytes: 256 * KIB,
            big_buf_release_after: Duration::from_secs(10),
            net_write_timeout: Duration::from_secs(10),
            write_high_watermark_bytes: MIB,
            write_low_watermark_bytes: 256 * KIB,
            linger_timeout: Duration::from_secs(1),
            linger_bytes: 64 * KIB,
            accept_budget: 64,
            max_connections: 65_536,
            max_silent_connections: 16_384,
            first_bytes_timeout: Duration::from_secs(10),
            max_buffered_bytes: GIB,
        }
    }
}

/// Groups and threads.
impl Config {
    /// Epoll groups; each has its own epoll, task queue, timers and workers, and a connection
    /// belongs to one of them for life.
    ///
    /// *Range* 0..=128. *Default* 0: the CPUs that the process may run on, divided by
    /// [`epoll_threads_per_group`](Self::epoll_threads_per_group) and rounded up, so that there is
    /// about one base worker for each CPU. *Price*: more groups contend less, but share less: a
    /// busy group's connections are not served by the idle workers of another.
    #[must_use]
    pub const fn epoll_groups(mut self, groups: usize) -> Self {
        self.epoll_groups = groups;
        self
    }

    /// Base workers of each group, there for the life of the runtime.
    ///
    /// *Range* 1..=128. *Default* 4: as many handlers of a group may wait for something before its
    /// queue stands still. *Price*: a thread each (its stack and
    /// [`worker_read_buf_bytes`](Self::worker_read_buf_bytes)), and more wake-ups.
    #[must_use]
    pub const fn epoll_threads_per_group(mut self, threads: usize) -> Self {
        self.epoll_threads_per_group = threads;
        self
    }

    /// Workers, of all groups together, that may wait in epoll at the same time. The others wait
    /// for queued tasks only.
    ///
    /// *Range* 0..=128. *Default* 0: all. How many do at a given time the runtime decides by what the
    /// handlers do, see the guide; this is the upper bound for when they are slow. *Price* of a low
    /// bound: events wait while handlers run.
    #[must_use]
    pub const fn max_epoll_wait_total_threads(mut self, threads: usize) -> Self {
        self.max_epoll_wait_total_threads = threads;
        self
    }

    /// Events that a worker takes with one `epoll_wait`.
    ///
    /// *Range* 1..=16. *Default* 16, where the original has 4: it saves 0.15 system calls per request
    /// at the same CPU time and latency (`benches/record/`), and nothing stands behind a handler that
    /// is known to be slow, as those of a batch are run last or queued; while one runs, every wait
    /// takes one event whatever this says. *Price*: the events behind a handler that is slow for the
    /// first time wait half a millisecond until another worker takes them over.
    #[must_use]
    pub const fn epoll_events_per_thread(mut self, events: usize) -> Self {
        self.epoll_events_per_thread = events;
        self
    }

    /// Places in the task queue of a group.
    ///
    /// *Range* 128..=4096. *Default* 256. A full queue gives a spawned closure back to its spawner;
    /// connections go to an overflow list instead, so nothing of theirs is lost. *Price*: a longer
    /// queue means longer waits before anybody is pushed back; 32 bytes for each place.
    #[must_use]
    pub const fn epoll_work_queue_capacity(mut self, tasks: usize) -> Self {
        self.epoll_work_queue_capacity = tasks;
        self
    }

    /// Tasks that a worker runs in a row before it looks at epoll without waiting.
    ///
    /// *Range* 1..=4096. *Default* 64: a system call for every 64 tasks is not felt. *Price*: new
    /// events and due timers may wait for so many tasks while the queue never runs dry.
    #[must_use]
    pub const fn tasks_per_poll(mut self, tasks: usize) -> Self {
        self.tasks_per_poll = tasks;
        self
    }
}

/// Sockets.
impl Config {
    /// Connections that the kernel keeps for a listener before they are accepted.
    ///
    /// *Range* 1..=4096. *Default* 128. The kernel caps it at `net.core.somaxconn`. *Price*: peers
    /// that are let in late rather than refused early. A listener given by the host keeps its own.
    #[must_use]
    pub const fn tcp_listen_queue(mut self, connections: u32) -> Self {
        self.tcp_listen_queue = connections;
        self
    }

    /// Silence on a TCP connection after which the kernel asks whether the peer is still there
    /// (`TCP_KEEPIDLE`).
    ///
    /// *Unit* whole seconds, the rest is dropped. *Range* 1 s..=7200 s. *Default* 30 s: below the
    /// idle limits of common firewalls and load balancers. *Price* of raising it: dead peers hold
    /// their connection for longer; of lowering it: a packet per idle connection and interval.
    #[must_use]
    pub const fn tcp_keep_alive(mut self, idle: Duration) -> Self {
        self.tcp_keep_alive = idle;
        self
    }

    /// Send buffer of the kernel for each connection, TCP or Unix (`SO_SNDBUF`).
    ///
    /// *Unit* bytes. *Range* 0, or 2048..=2097152. *Default* 0: the kernel sizes it as needed.
    /// *Price*: kernel memory for each peer that does not read; a fixed size also ends the
    /// kernel's own tuning.
    #[must_use]
    pub const fn tcp_send_buf(mut self, bytes: usize) -> Self {
        self.tcp_send_buf = bytes;
        self
    }

    /// Receive buffer of the kernel for each connection, TCP or Unix (`SO_RCVBUF`).
    ///
    /// *Unit* bytes. *Range* 0, or 2048..=2097152. *Default* 0: the kernel sizes it as needed.
    /// *Price*: kernel memory for each peer that sends faster than it is served; a fixed size also
    /// ends the kernel's own tuning.
    #[must_use]
    pub const fn tcp_recv_buf(mut self, bytes: usize) -> Self {
        self.tcp_recv_buf = bytes;
        self
    }

    /// Unsent bytes that the kernel takes for a TCP connection before it calls it not writable
    /// (`TCP_NOTSENT_LOWAT`).
    ///
    /// *Unit* bytes. *Range* 0..=1073741824. *Default* 0: the system's setting. *Price*: a low
    /// value bounds what the kernel holds for a reader that never reads (on loopback about 160 kB
    /// with 16 KiB, several MB without), but large replies then leave in more, smaller sends.
    #[must_use]
    pub const fn tcp_notsent_lowat_bytes(mut self, bytes: u32) -> Self {
        self.tcp_notsent_lowat_bytes = bytes;
        self
    }
}

/// Receiving.
impl Config {
    /// First size of a connection's own read buffer, which it has only while it holds an
    /// unfinished frame.
    ///
    /// *Unit* bytes. *Range* 4096..=65536. *Default* 4096: a page. *Price*: so much memory for
    /// each connection that stopped in the middle of a frame.
    #[must_use]
    pub const fn tcp_fixed_dealing_buf(mut self, bytes: usize) -> Self {
        self.tcp_fixed_dealing_buf = bytes;
        self
    }

    /// The buffer into which a worker reads for whichever connection is at hand; also the most
    /// that one `recv` brings to a connection that holds nothing yet.
    ///
    /// *Unit* bytes. *Range* 4096..=1048576. *Default* 65536: pipelined requests come with one
    /// system call. *Price*: so much memory for each worker, and beyond the CPU's second-level
    /// cache each byte is fetched twice.
    #[must_use]
    pub const fn worker_read_buf_bytes(mut self, bytes: usize) -> Self {
        self.worker_read_buf_bytes = bytes;
        self
    }

    /// Most input of one connection that its protocol may leave unconsumed, which is the largest
    /// frame. A frame's header comes on top.
    ///
    /// *Unit* bytes. *Range* 4096..=1073741824. *Default* 64 MiB. A connection that needs more is
    /// closed. *Price*: a peer can make us hold so much by really sending it, within
    /// [`max_buffered_bytes`](Self::max_buffered_bytes) for all peers together.
    #[must_use]
    pub const fn max_allowed_packet(mut self, bytes: usize) -> Self {
        self.max_allowed_packet = bytes;
        self
    }

    /// Bytes received from one connection in one turn, before it goes to the back of the queue.
    ///
    /// *Unit* bytes. *Range* 4096..=67108864. *Default* 256 KiB. *Price*: how long one busy sender
    /// may keep a worker while others wait; too low, and large transfers pay for more turns.
    #[must_use]
    pub const fn read_budget_bytes(mut self, bytes: usize) -> Self {
        self.read_budget_bytes = bytes;
        self
    }

    /// Time without need after which a connection gives its large read buffer back, also when it
    /// has gone silent.
    ///
    /// *Range* 1 ms..=3600 s. *Default* 10 s: bursts of large frames use the same memory again.
    /// *Price*: large buffers held for nothing.
    #[must_use]
    pub const fn big_buf_release_after(mut self, unneeded: Duration) -> Self {
        self.big_buf_release_after = unneeded;
        self
    }
}

/// Sending and closing.
impl Config {
    /// Time for which a connection may have a backlog and make no progress with it, because its
    /// peer does not read. Then it is closed.
    ///
    /// *Range* 1 ms..=7200 s. *Default* 10 s. *Price*: peers that never read hold their backlog
    /// for longer.
    #[must_use]
    pub const fn net_write_timeout(mut self, stalled: Duration) -> Self {
        self.net_write_timeout = stalled;
        self
    }

    /// Backlog of a connection above which it is not read any more, so that it makes no more
    /// replies.
    ///
    /// *Unit* bytes. *Range* 4096..=1073741824. *Default* 1 MiB. *Price*: so much memory, and
    /// what one turn of a handler makes on top, for each peer that does not read.
    #[must_use]
    pub const fn write_high_watermark_bytes(mut self, bytes: usize) -> Self {
        self.write_high_watermark_bytes = bytes;
        self
    }

    /// Backlog of a connection at or below which it is read again.
    ///
    /// *Unit* bytes. *Range* 0 up to
    /// [`write_high_watermark_bytes`](Self::write_high_watermark_bytes). *Default* 256 KiB: enough
    /// left to keep the network busy while the next replies are made. *Price*: close to the high
    /// watermark, reading stops and starts again and again.
    #[must_use]
    pub const fn write_low_watermark_bytes(mut self, bytes: usize) -> Self {
        self.write_low_watermark_bytes = bytes;
        self
    }

    /// Time that a connection which we close stays to read and discard what the peer still sends.
    /// Without it, unread input turns the close into a reset and the peer loses our last reply.
    ///
    /// *Range* 0 s..=60 s; 0 closes at once. *Default* 1 s. *Price*: closed connections hold
    /// their descriptor for so long, unless the peer closes first.
    #[must_use]
    pub const fn linger_timeout(mut self, at_most: Duration) -> Self {
        self.linger_timeout = at_most;
        self
    }

    /// Bytes that are read and discarded on a connection which we close, before it is cut.
    ///
    /// *Unit* bytes. *Range* 0..=16777216. *Default* 64 KiB. *Price*: work for a peer that goes on
    /// sending.
    #[must_use]
    pub const fn linger_bytes(mut self, bytes: usize) -> Self {
        self.linger_bytes = bytes;
        self
    }
}

/// Accepting, and limits of the whole runtime.
impl Config {
    /// Connections that a listener accepts in one turn, before it goes to the back of the queue.
    ///
    /// *Range* 1..=4096. *Default* 64. *Price*: a flood of connections keeps a worker for so many
    /// while others wait.
    #[must_use]
    pub const fn accept_budget(mut self, connections: usize) -> Self {
        self.accept_budget = connections;
        self
    }

    /// Connections open at once in the runtime, accepted and outgoing. More are accepted and
    /// closed at once, so that the peer learns it.
    ///
    /// *Range* 1..=16777216. *Default* 65536. *Price*: a descriptor and under 1 KiB for each idle
    /// connection, and the kernel's share. The process's own limit of descriptors stands beside it.
    #[must_use]
    pub const fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Accepted connections of the runtime that have not sent a byte yet. More are accepted and
    /// closed at once.
    ///
    /// *Range* 1..=16777216; above [`max_connections`](Self::max_connections) it has no effect.
    /// *Default* 16384: a burst of clients gets in, and a flood of mute ones leaves room for those
    /// that speak. *Price*: the room that a flood can take.
    #[must_use]
    pub const fn max_silent_connections(mut self, connections: usize) -> Self {
        self.max_silent_connections = connections;
        self
    }

    /// Time in which an accepted connection must send its first bytes. Then it is closed.
    ///
    /// *Range* 1 ms..=3600 s. *Default* 10 s. *Price*: mute connections hold their place in
    /// [`max_silent_connections`](Self::max_silent_connections) for longer.
    #[must_use]
    pub const fn first_bytes_timeout(mut self, silent: Duration) -> Self {
        self.first_bytes_timeout = silent;
        self
    }

    /// Memory for the read buffers and backlogs of all connections of the runtime together. A
    /// connection that would grow past it is closed.
    ///
    /// *Unit* bytes. *Range* 1 MiB..=`usize::MAX`. *Default* 1 GiB. Every limit per connection can
    /// be kept and the sum still be too much: a hundred peers times one frame of 64 MiB. *Price*:
    /// the memory itself.
    #[must_use]
    pub const fn max_buffered_bytes(mut self, bytes: usize) -> Self {
        self.max_buffered_bytes = bytes;
        self
    }
}

impl Config {
    /// Checks every tunable; starting a runtime does it too.
    ///
    /// # Errors
    ///
    /// The first tunable that is outside its range, with its value and that range. Nothing was
    /// started, nothing ends.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.validate_groups()?;
        self.validate_sockets()?;
        self.validate_receiving()?;
        self.validate_sending()?;
        self.validate_limits()
    }

    fn validate_groups(&self) -> Result<(), ConfigError> {
        within("epoll_groups", self.epoll_groups, 0..=128)?;
        within("epoll_threads_per_group", self.epoll_threads_per_group, 1..=128)?;
        within("max_epoll_wait_total_threads", self.max_epoll_wait_total_threads, 0..=128)?;
        within("epoll_events_per_thread", self.epoll_events_per_thread, 1..=16)?;
        within("epoll_work_queue_capacity", self.epoll_work_queue_capacity, 128..=4096)?;
        within("tasks_per_poll", self.tasks_per_poll, 1..=4096)
    }

    fn validate_sockets(&self) -> Result<(), ConfigError> {
        within("tcp_listen_queue", self.tcp_listen_queue, 1..=4096)?;
        within("tcp_keep_alive", self.tcp_keep_alive, SECOND..=7200 * SECOND)?;
        zero_or_within("tcp_send_buf", self.tcp_send_buf, 2 * KIB..=2 * MIB)?;
        zero_or_within("tcp_recv_buf", self.tcp_recv_buf, 2 * KIB..=2 * MIB)?;
        within("tcp_notsent_lowat_bytes", self.tcp_notsent_lowat_bytes, 0..=1 << 30)
    }

    fn validate_receiving(&self) -> Result<(), ConfigError> {
        within("tcp_fixed_dealing_buf", self.tcp_fixed_dealing_buf, 4 * KIB..=64 * KIB)?;
        within("worker_read_buf_bytes", self.worker_read_buf_bytes, 4 * KIB..=MIB)?;
        within("max_allowed_packet", self.max_allowed_packet, 4 * KIB..=GIB)?;
        within("read_budget_bytes", self.read_budget_bytes, 4 * KIB..=64 * MIB)?;
        within("big_buf_release_after", self.big_buf_release_after, MILLISECOND..=3600 * SECOND)
    }

    fn validate_sending(&self) -> Result<(), ConfigError> {
        within("net_write_timeout", self.net_write_timeout, MILLISECOND..=7200 * SECOND)?;
        let high = self.write_high_watermark_bytes;
        within("write_high_watermark_bytes", high, 4 * KIB..=GIB)?;
        let low = self.write_low_watermark_bytes;
        if low > high {
            let range = format!("0..={high} (write_high_watermark_bytes)");
            return Err(ConfigError::new("write_low_watermark_bytes", low, range));
        }
        within("linger_timeout", self.linger_timeout, Duration::ZERO..=60 * SECOND)?;
        within("linger_bytes", self.linger_bytes, 0..=16 * MIB)
    }

    fn validate_limits(&self) -> Result<(), ConfigError> {
        within("accept_budget", self.accept_budget, 1..=4096)?;
        within("max_connections", self.max_connections, 1..=1 << 24)?;
        within("max_silent_connections", self.max_silent_connections, 1..=1 << 24)?;
        within("first_bytes_timeout", self.first_bytes_timeout, MILLISECOND..=3600 * SECOND)?;
        within("max_buffered_bytes", self.max_buffered_bytes, MIB..=usize::MAX)
    }
}

fn within<T: PartialOrd + fmt::Debug>(
    field: &'static str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if range.contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(field, value, format!("{range:?}")))
}

fn zero_or_within(
    field: &'static str,
    value: usize,
    range: RangeInclusive<usize>,
) -> Result<(), ConfigError> {
    if value == 0 || range.contains(&value) {
        return Ok(());
    }
    Err(ConfigError::new(field, value, format!("0 or {range:?}")))
}

/// A tunable is outside its range: a mistake of whoever configured the runtime.
///
/// `Display` says it in one line: `epoll_groups 200 is outside 0..=128`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigError {
    /// Name of the tunable.
    pub field: &'static str,
    /// The value it was given, as text with its unit.
    pub value: String,
    /// What is allowed, as text with its unit.
    pub range: String,
}

impl ConfigError {
    /// `Debug` of a number is the number, and of a `Duration` it is `1.5s`.
    fn new(field: &'static str, value: impl fmt::Debug, range: String) -> Self {
        Self { field, value: format!("{value:?}"), range }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} is outside {}", self.field, self.value, self.range)
    }
}

impl Error for ConfigError {}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;
const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn text(config: &Config) -> String {
        config.validate().expect_err("this is out of range").to_string()
    }

    /// Sets one field to a value: accepted at both ends of the range, refused one step beyond, with
    /// field, value and range in the text. The step is 1 for a count and 1 ns for a time.
    macro_rules! ranges {
        ($($field:ident $low:expr, $high:expr, $step:expr, $range:literal;)+) => {
            const FIELDS: &[&str] = &[$(stringify!($field)),+];

            $(
                #[test]
                fn $field() {
                    let set = |value| Config::default().$field(value);
                    let [low, high] = [$low, $high];
                    assert_eq!(set(low).validate(), Ok(()));
                    assert_eq!(set(high).validate(), Ok(()));
                    let beyond = [low.checked_sub($step), high.checked_add($step)];
                    for value in beyond.into_iter().flatten() {
                        let error = set(value).validate().expect_err("beyond the range");
                        assert_eq!(error.field, stringify!($field));
                        let expected = format!("{} {value:?} is outside {}", error.field, $range);
                        assert_eq!(error.to_string(), expected);
                    }
                }
            )+
        };
    }

    const STEP: Duration = Duration::from_nanos(1);
    const ZERO: Duration = Duration::ZERO;
    const MS: Duration = MILLISECOND;

    ranges! {
        epoll_groups 0_usize, 128, 1, "0..=128";
        epoll_threads_per_group 1_usize, 128, 1, "1..=128";
        max_epoll_wait_total_threads 0_usize, 128, 1, "0..=128";
        epoll_events_per_thread 1_usize, 16, 1, "1..=16";
        epoll_work_queue_capacity 128_usize, 4096, 1, "128..=4096";
        tasks_per_poll 1_usize, 4096, 1, "1..=4096";
        tcp_listen_queue 1_u32, 4096, 1, "1..=4096";
        tcp_keep_alive SECOND, 7200 * SECOND, STEP, "1s..=7200s";
        tcp_send_buf 2048_usize, 2_097_152, 1, "0 or 2048..=2097152";
        tcp_recv_buf 2048_usize, 2_097_152, 1, "0 or 2048..=2097152";
        tcp_notsent_lowat_bytes 0_u32, 1 << 30, 1, "0..=1073741824";
        tcp_fixed_dealing_buf 4096_usize, 65_536, 1, "4096..=65536";
        worker_read_buf_bytes 4096_usize, 1_048_576, 1, "4096..=1048576";
        max_allowed_packet 4096_usize, 1 << 30, 1, "4096..=1073741824";
        read_budget_bytes 4096_usize, 67_108_864, 1, "4096..=67108864";
        big_buf_release_after MS, 3600 * SECOND, STEP, "1ms..=3600s";
        net_write_timeout MS, 7200 * SECOND, STEP, "1ms..=7200s";
        linger_timeout ZERO, 60 * SECOND, STEP, "0ns..=60s";
        linger_bytes 0_usize, 16_777_216, 1, "0..=16777216";
        accept_budget 1_usize, 4096, 1, "1..=4096";
        max_connections 1_usize, 16_777_216, 1, "1..=16777216";
        max_silent_connections 1_usize, 16_777_216, 1, "1..=16777216";
        first_bytes_timeout MS, 3600 * SECOND, STEP, "1ms..=3600s";
        max_buffered_bytes 1_048_576_usize, usize::MAX, 1, "1048576..=18446744073709551615";
    }

    #[test]
    fn the_watermarks_have_their_ranges_and_their_order() {
        let high = |bytes| {
            Config::default().write_low_watermark_bytes(0).write_high_watermark_bytes(bytes)
        };
        assert_eq!(high(4096).validate(), Ok(()));
        assert_eq!(high(1 << 30).validate(), Ok(()));
        assert_eq!(
            text(&high(4095)),
            "write_high_watermark_bytes 4095 is outside 4096..=1073741824"
        );
        assert_eq!(
            text(&high((1 << 30) + 1)),
            "write_high_watermark_bytes 1073741825 is outside 4096..=1073741824"
        );
        assert_eq!(high(5000).write_low_watermark_bytes(5000).validate(), Ok(()));
        assert_eq!(
            text(&high(5000).write_low_watermark_bytes(5001)),
            "write_low_watermark_bytes 5001 is outside 0..=5000 (write_high_watermark_bytes)"
        );
    }

    #[test]
    fn the_default_is_valid() {
        assert_eq!(Config::default().validate(), Ok(()));
    }

    #[test]
    fn zero_leaves_a_socket_buffer_to_the_kernel() {
        assert_eq!(Config::default().tcp_send_buf(0).tcp_recv_buf(0).validate(), Ok(()));
        assert_eq!(
            text(&Config::default().tcp_send_buf(1)),
            "tcp_send_buf 1 is outside 0 or 2048..=2097152"
        );
    }

    #[test]
    fn no_field_is_left_unchecked() {
        let debug = format!("{:?}", Config::default());
        let fields = debug.matches(": ").count();
        assert_eq!(FIELDS.len() + 2, fields, "the two watermarks have a test of their own");
    }
}

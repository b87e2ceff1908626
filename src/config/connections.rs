//! Setters: sockets, what is received and sent on them, and how many there may be.

use std::time::Duration;

use super::Config;

/// Sockets.
impl Config {
    /// Connections that the kernel keeps for a listener before they are accepted.
    ///
    /// *Start only.* *Range* 0..=4096. *Default* 0: as many as the kernel allows
    /// (`net.core.somaxconn`), because a connection that finds the queue full costs its client a
    /// second. With 128, a burst of 6 000 connections finds it full seven to nine times. *Price*:
    /// peers that are let in late rather than refused early. A listener given by the host keeps its
    /// own.
    #[must_use]
    pub const fn tcp_listen_queue(mut self, connections: u32) -> Self {
        self.tcp_listen_queue = connections;
        self
    }

    /// Silence on a TCP connection after which the kernel asks whether the peer is still there
    /// (`TCP_KEEPIDLE`).
    ///
    /// *Live*, for new connections. *Unit* whole seconds, the rest is dropped. *Range* 1 s..=7200
    /// s. *Default* 30 s: below the idle limits of common firewalls and load balancers. *Price* of
    /// raising it: dead peers hold their connection for longer; of lowering it: a packet per idle
    /// connection and interval.
    #[must_use]
    pub const fn tcp_keep_alive(mut self, idle: Duration) -> Self {
        self.tcp_keep_alive = idle;
        self
    }

    /// Send buffer of the kernel for each connection, TCP or Unix (`SO_SNDBUF`).
    ///
    /// *Live*, for new connections. *Unit* bytes. *Range* 0, or 2048..=2097152. *Default* 0: the
    /// kernel sizes it as needed. *Price*: kernel memory for each peer that does not read; a fixed
    /// size also ends the kernel's own tuning.
    #[must_use]
    pub const fn tcp_send_buf(mut self, bytes: usize) -> Self {
        self.tcp_send_buf = bytes;
        self
    }

    /// Receive buffer of the kernel for each connection, TCP or Unix (`SO_RCVBUF`).
    ///
    /// *Live*, for new connections. *Unit* bytes. *Range* 0, or 2048..=2097152. *Default* 0: the
    /// kernel sizes it as needed. *Price*: kernel memory for each peer that sends faster than it
    /// is served; a fixed size also ends the kernel's own tuning.
    #[must_use]
    pub const fn tcp_recv_buf(mut self, bytes: usize) -> Self {
        self.tcp_recv_buf = bytes;
        self
    }

    /// Unsent bytes that the kernel takes for a TCP connection before it calls it not writable
    /// (`TCP_NOTSENT_LOWAT`).
    ///
    /// *Live*, for new connections. *Unit* bytes. *Range* 0..=1073741824. *Default* 0: the
    /// system's setting. *Price*: a low value bounds what the kernel holds for a reader that never
    /// reads (on loopback about 160 kB with 16 KiB, several MB without), but large replies then
    /// leave in more, smaller sends.
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
    /// *Live.* *Unit* bytes. *Range* 4096..=65536. *Default* 4096: a page. *Price*: so much memory
    /// for each connection that stopped in the middle of a frame.
    #[must_use]
    pub const fn tcp_fixed_dealing_buf(mut self, bytes: usize) -> Self {
        self.tcp_fixed_dealing_buf = bytes;
        self
    }

    /// The buffer into which a worker reads for whichever connection is at hand; also the most
    /// that one `recv` brings to a connection that holds nothing yet.
    ///
    /// *Start only.* *Unit* bytes. *Range* 4096..=1048576. *Default* 65536: pipelined requests
    /// come with one system call. *Price*: so much memory for each worker, and beyond the CPU's
    /// second-level cache each byte is fetched twice.
    #[must_use]
    pub const fn worker_read_buf_bytes(mut self, bytes: usize) -> Self {
        self.worker_read_buf_bytes = bytes;
        self
    }

    /// Most input of one connection that its protocol may leave unconsumed, which is the largest
    /// frame. A frame's header comes on top.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=1073741824. *Default* 64 MiB. A connection that needs
    /// more is closed. *Price*: a peer can make us hold so much by really sending it, within
    /// [`max_buffered_bytes`](Self::max_buffered_bytes) for all peers together.
    #[must_use]
    pub const fn max_allowed_packet(mut self, bytes: usize) -> Self {
        self.max_allowed_packet = bytes;
        self
    }

    /// Bytes received from one connection in one turn, before it goes to the back of the queue.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=67108864. *Default* 256 KiB. *Price*: how long one
    /// busy sender may keep a worker while others wait; too low, and large transfers pay for more
    /// turns.
    #[must_use]
    pub const fn read_budget_bytes(mut self, bytes: usize) -> Self {
        self.read_budget_bytes = bytes;
        self
    }

    /// Time without need after which a connection gives its large read buffer back, also when it
    /// has gone silent.
    ///
    /// *Live.* *Range* 1 ms..=3600 s. *Default* 10 s: bursts of large frames use the same memory
    /// again. *Price*: large buffers held for nothing.
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
    /// *Live.* *Range* 1 ms..=7200 s. *Default* 10 s. *Price*: peers that never read hold their
    /// backlog for longer.
    #[must_use]
    pub const fn net_write_timeout(mut self, stalled: Duration) -> Self {
        self.net_write_timeout = stalled;
        self
    }

    /// Backlog of a connection above which it is not read any more, so that it makes no more
    /// replies.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=1073741824. *Default* 1 MiB. *Price*: so much memory,
    /// and what one turn of a handler makes on top, for each peer that does not read.
    #[must_use]
    pub const fn write_high_watermark_bytes(mut self, bytes: usize) -> Self {
        self.write_high_watermark_bytes = bytes;
        self
    }

    /// Backlog of a connection at or below which it is read again.
    ///
    /// *Live.* *Unit* bytes. *Range* 0 up to
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
    /// *Live.* *Range* 0 s..=60 s; 0 closes at once. *Default* 1 s. *Price*: closed connections
    /// hold their descriptor for so long, unless the peer closes first.
    #[must_use]
    pub const fn linger_timeout(mut self, at_most: Duration) -> Self {
        self.linger_timeout = at_most;
        self
    }

    /// Bytes that are read and discarded on a connection which we close, before it is cut.
    ///
    /// *Live.* *Unit* bytes. *Range* 0..=16777216. *Default* 64 KiB. *Price*: work for a peer that
    /// goes on sending.
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
    /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a flood of connections keeps a worker for
    /// so many while others wait.
    #[must_use]
    pub const fn accept_budget(mut self, connections: usize) -> Self {
        self.accept_budget = connections;
        self
    }

    /// Connections open at once in the runtime, accepted and outgoing. More are accepted and
    /// closed at once, so that the peer learns it.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 65536. *Price*: a descriptor and under 1 KiB for
    /// each idle connection, and the kernel's share. The process's own limit of descriptors stands
    /// beside it.
    #[must_use]
    pub const fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Accepted connections of the runtime that have not sent a byte yet. More are accepted and
    /// closed at once.
    ///
    /// *Live.* *Range* 1..=16777216; above [`max_connections`](Self::max_connections) it has no
    /// effect. *Default* 16384: a burst of clients gets in, and a flood of mute ones leaves room
    /// for those that speak. *Price*: the room that a flood can take.
    #[must_use]
    pub const fn max_silent_connections(mut self, connections: usize) -> Self {
        self.max_silent_connections = connections;
        self
    }

    /// Time in which an accepted connection must send its first bytes. Then it is closed.
    ///
    /// *Live*, for new connections. *Range* 1 ms..=3600 s. *Default* 10 s. *Price*: mute
    /// connections hold their place in [`max_silent_connections`](Self::max_silent_connections)
    /// for longer.
    #[must_use]
    pub const fn first_bytes_timeout(mut self, silent: Duration) -> Self {
        self.first_bytes_timeout = silent;
        self
    }

    /// Time for which an accepted connection may receive and send nothing, with no request in progress.
    /// Then it is closed.
    ///
    /// *Live*, for new connections. *Range* 0 s..=604800 s; 0 is for ever. *Default* 28800 s: eight
    /// hours, what MySQL grants. *Price*: clients that were forgotten keep their sessions, and what
    /// these hold, for longer.
    #[must_use]
    pub const fn idle_timeout(mut self, idle: Duration) -> Self {
        self.idle_timeout = idle;
        self
    }

    /// Time in which a frame must be complete, once its first bytes have come and unless we do not
    /// read. Then the connection is closed. A frame is what the protocol leaves unconsumed.
    ///
    /// *Live.* *Range* 1 ms..=7200 s. *Default* 60 s: the largest frame at one MiB a second.
    /// *Price*: peers that stop in the middle hold what they have sent for longer.
    #[must_use]
    pub const fn frame_timeout(mut self, unfinished: Duration) -> Self {
        self.frame_timeout = unfinished;
        self
    }

    /// Memory for the read buffers and backlogs of all connections of the runtime together. A
    /// connection is closed when its buffer or its backlog would grow beyond what is left free: alone
    /// it can have half, and none can have all. 8 KiB are everybody's, whatever others have, so that
    /// those who need little do not notice those who take all they can get.
    ///
    /// *Live.* *Unit* bytes. *Range* 1 MiB..=`usize::MAX`. *Default* 1 GiB. Every limit per
    /// connection can be kept and the sum still be too much: a hundred peers times one frame of 64
    /// MiB. *Price*: the memory itself.
    #[must_use]
    pub const fn max_buffered_bytes(mut self, bytes: usize) -> Self {
        self.max_buffered_bytes = bytes;
        self
    }
}

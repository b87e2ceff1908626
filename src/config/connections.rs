//! Setters: sockets, reading and sending on them, and their greatest number.

use std::time::Duration;

use super::Config;

/// Sockets.
impl Config {
    /// Connections that the kernel keeps for a listener before they are accepted.
    ///
    /// *Start only.* *Range* 0..=4096. *Default* 0: as many as the kernel allows
    /// (`net.core.somaxconn`), because a connection that finds the queue full costs its client a
    /// second. With 128, a burst of 6 000 connections finds it full seven to nine times. *Price*:
    /// peers are accepted late rather than refused early. A listener given by the host keeps its
    /// own.
    #[must_use]
    pub const fn tcp_listen_queue(mut self, connections: u32) -> Self {
        self.tcp_listen_queue = connections;
        self
    }

    /// Silence on a TCP connection after which the kernel checks that the peer is still there
    /// (`TCP_KEEPIDLE`).
    ///
    /// *Live*, for new connections. *Unit* whole seconds; fractions are dropped. *Range* 1 s..=7200
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
    /// *Live*, for new connections. A change to 0 needs a new TCP listener. *Unit* bytes. *Range* 0, or
    /// 2048..=2097152. *Default* 0: the kernel sizes it as needed. *Price*: kernel memory for each peer
    /// that does not read; a fixed size also ends the kernel's own tuning.
    #[must_use]
    pub const fn tcp_send_buf(mut self, bytes: usize) -> Self {
        self.tcp_send_buf = bytes;
        self
    }

    /// Receive buffer of the kernel for each TCP connection (`SO_RCVBUF`). Unix sockets have none: a
    /// peer's bytes count against its own send buffer.
    ///
    /// *Live*, for new connections. A larger size, or a change to 0, needs a new listener, because the
    /// kernel takes the largest window from the listener. *Unit* bytes. *Range* 0, or 2048..=2097152.
    /// *Default* 0: the kernel sizes it as needed. *Price*: kernel memory for each peer that sends faster
    /// than the server answers; a fixed size also ends the kernel's own tuning.
    #[must_use]
    pub const fn tcp_recv_buf(mut self, bytes: usize) -> Self {
        self.tcp_recv_buf = bytes;
        self
    }

    /// Unsent bytes that the kernel accepts for a TCP connection before it reports the socket as
    /// not writable (`TCP_NOTSENT_LOWAT`).
    ///
    /// *Live*, for new connections. *Unit* bytes. *Range* 0..=1073741824. *Default* 0: the system's
    /// setting. *Price*: a low value bounds the kernel memory for a reader that never reads (on
    /// loopback about 160 kB with 16 KiB, several MB without). Large replies then leave in more,
    /// smaller sends.
    #[must_use]
    pub const fn tcp_notsent_lowat_bytes(mut self, bytes: u32) -> Self {
        self.tcp_notsent_lowat_bytes = bytes;
        self
    }
}

/// Setters for reading.
impl Config {
    /// First size of a connection's own read buffer, which exists only while it holds an unfinished
    /// frame.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=65536. *Default* 4096: a page. *Price*: this much
    /// memory for each connection that stopped in the middle of a frame.
    #[must_use]
    pub const fn tcp_fixed_dealing_buf(mut self, bytes: usize) -> Self {
        self.tcp_fixed_dealing_buf = bytes;
        self
    }

    /// Size of the buffer into which a worker reads for any of its connections. It is also the most
    /// that one `recv` brings to a connection that holds no input yet.
    ///
    /// *Start only.* *Unit* bytes. *Range* 4096..=1048576. *Default* 65536: pipelined requests come
    /// with one system call. *Price*: this much memory for each worker, and beyond the CPU's
    /// second-level cache each byte is fetched twice.
    #[must_use]
    pub const fn worker_read_buf_bytes(mut self, bytes: usize) -> Self {
        self.worker_read_buf_bytes = bytes;
        self
    }

    /// Greatest input of one connection that its protocol may leave unconsumed, which is the
    /// largest frame. A frame's header comes on top.
    ///
    /// Memory limits count too. The input of one connection gets at most half of
    /// [`max_buffered_bytes`](Self::max_buffered_bytes). A request to a session server must fit into
    /// [`max_queued_bytes_per_connection`](Self::max_queued_bytes_per_connection) and into half of
    /// [`max_queued_bytes`](Self::max_queued_bytes).
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=1073741824. *Default* 64 MiB. A connection that needs
    /// more is closed. *Price*: a peer can make the runtime hold this much by really sending it,
    /// within [`max_buffered_bytes`](Self::max_buffered_bytes) for all peers together.
    #[must_use]
    pub const fn max_allowed_packet(mut self, bytes: usize) -> Self {
        self.max_allowed_packet = bytes;
        self
    }

    /// Bytes received from one connection in one turn, before it goes to the back of the queue.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=67108864. *Default* 256 KiB. *Price*: the time that one
    /// busy sender may keep a worker while others wait. If it is too low, large transfers need more
    /// turns.
    #[must_use]
    pub const fn read_budget_bytes(mut self, bytes: usize) -> Self {
        self.read_budget_bytes = bytes;
        self
    }

    /// Time without need after which a connection frees its large read buffer, also if its peer is
    /// silent.
    ///
    /// *Live.* *Range* 1 ms..=3600 s. *Default* 10 s: bursts of large frames reuse the same memory.
    /// *Price*: large buffers held without use.
    #[must_use]
    pub const fn big_buf_release_after(mut self, unneeded: Duration) -> Self {
        self.big_buf_release_after = unneeded;
        self
    }
}

/// Setters for sending and closing.
impl Config {
    /// Time in which a peer has to take its backlog, or
    /// [`write_high_watermark_bytes`](Self::write_high_watermark_bytes) of a longer one. If the
    /// peer takes less, its connection is closed. The backlog is measured after a tenth of the
    /// time. That amount must leave in the rest of the time.
    ///
    /// *Live.* *Range* 1 ms..=7200 s. *Default* 10 s. *Price*: peers that never read hold their
    /// backlog for longer.
    #[must_use]
    pub const fn net_write_timeout(mut self, stalled: Duration) -> Self {
        self.net_write_timeout = stalled;
        self
    }

    /// Backlog above which the runtime stops reading a connection, so that the connection produces
    /// no more replies.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=1073741824. *Default* 1 MiB. *Price*: this much memory
    /// for each peer that does not read, plus the replies that one turn of a handler makes.
    #[must_use]
    pub const fn write_high_watermark_bytes(mut self, bytes: usize) -> Self {
        self.write_high_watermark_bytes = bytes;
        self
    }

    /// Backlog at or below which the runtime reads a connection again.
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

    /// Time for which a connection closed by the runtime stays to read and discard later bytes of
    /// the peer. Without it, unread input turns the close into a reset, and the peer loses the last
    /// reply.
    ///
    /// *Live.* *Range* 0 s..=60 s; 0 closes at once. *Default* 1 s. *Price*: closed connections
    /// hold their descriptor for this time, unless the peer closes first.
    #[must_use]
    pub const fn linger_timeout(mut self, at_most: Duration) -> Self {
        self.linger_timeout = at_most;
        self
    }

    /// Bytes that are read and discarded on a connection closed by the runtime, before it is cut.
    ///
    /// *Live.* *Unit* bytes. *Range* 0..=16777216. *Default* 64 KiB. *Price*: work for a peer that
    /// continues to send.
    #[must_use]
    pub const fn linger_bytes(mut self, bytes: usize) -> Self {
        self.linger_bytes = bytes;
        self
    }
}

/// Setters for accepting, and limits of the whole runtime.
impl Config {
    /// Connections that a listener accepts in one turn, before it goes to the back of the queue.
    ///
    /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a flood of connections keeps a worker for
    /// that many while others wait.
    #[must_use]
    pub const fn accept_budget(mut self, connections: usize) -> Self {
        self.accept_budget = connections;
        self
    }

    /// Connections open at once in the runtime, accepted and outgoing. A further one is accepted
    /// and closed at once, so that the peer learns it; `connect` returns an error.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 65536. *Price*: a descriptor and under 1 KiB for
    /// each idle connection, and the kernel's share. The process's own limit of descriptors also
    /// applies.
    #[must_use]
    pub const fn max_connections(mut self, connections: usize) -> Self {
        self.max_connections = connections;
        self
    }

    /// Accepted connections of the runtime that have not sent a byte yet and have a time for it. Further
    /// ones are accepted and closed at once.
    ///
    /// *Live.* *Range* 1..=16777216; above [`max_connections`](Self::max_connections) it has no
    /// effect. *Default* 16384: a burst of clients gets in, and a flood of silent ones leaves room
    /// for active clients. *Price*: the number of connections that a flood can hold.
    #[must_use]
    pub const fn max_silent_connections(mut self, connections: usize) -> Self {
        self.max_silent_connections = connections;
        self
    }

    /// Time in which an accepted connection must send its first bytes. Then it is closed. If it has
    /// layers, the time begins once more when they are ready. 0 switches it off, for protocols whose
    /// clients may only listen. Then `idle_timeout` begins when the connection is opened, and
    /// [`max_silent_connections`](Self::max_silent_connections) does not count the connection.
    ///
    /// *Live*, for new connections. *Range* 0 s..=3600 s. *Default* 10 s. *Price*: silent
    /// connections count against [`max_silent_connections`](Self::max_silent_connections) for
    /// longer.
    #[must_use]
    pub const fn first_bytes_timeout(mut self, silent: Duration) -> Self {
        self.first_bytes_timeout = silent;
        self
    }

    /// Time in which the [layers](crate::net::Layer) of a connection must be ready, from the time at which
    /// it was established or a layer was started. Then it is closed.
    ///
    /// *Live*, for new connections. *Range* 1 ms..=3600 s. *Default* 10 s. *Price*: peers that stop in a
    /// handshake count against [`max_handshakes`](Self::max_handshakes) for longer.
    #[must_use]
    pub const fn handshake_timeout(mut self, unfinished: Duration) -> Self {
        self.handshake_timeout = unfinished;
        self
    }

    /// Accepted connections of the runtime whose layers are not ready yet. Further ones are accepted and
    /// closed at once.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 4096. *Price*: the number of handshakes, with their memory,
    /// that a flood can hold.
    #[must_use]
    pub const fn max_handshakes(mut self, connections: usize) -> Self {
        self.max_handshakes = connections;
        self
    }

    /// Time for which an accepted connection may receive and send no bytes, with no request in
    /// progress. Then it is closed; if bytes were sent last, after at most twice this time.
    ///
    /// The time begins with the first received bytes. Before them `first_bytes_timeout` counts if
    /// it is not 0, also if bytes were sent. An incomplete frame is no request in progress: this
    /// time or `frame_timeout` ends the connection, whichever passes first.
    ///
    /// *Live*; an open connection follows at its next deadline, at the latest when the old time has
    /// passed. If the old time was 0, it may never follow. *Range* 0 s..=604800 s; 0 is for ever.
    /// *Default* 28800 s: eight hours, the default of MySQL. *Price*: forgotten clients keep their
    /// sessions, and the locks and memory of these, for longer.
    #[must_use]
    pub const fn idle_timeout(mut self, idle: Duration) -> Self {
        self.idle_timeout = idle;
        self
    }

    /// Time in which a frame must be complete after its first bytes. Then the connection is closed.
    /// The time does not run while the runtime has paused reading. A frame is the input that the
    /// protocol leaves unconsumed.
    ///
    /// *Live.* *Range* 1 ms..=7200 s. *Default* 60 s: the largest frame at one MiB a second.
    /// *Price*: peers that stop in the middle of a frame occupy its memory for longer.
    #[must_use]
    pub const fn frame_timeout(mut self, unfinished: Duration) -> Self {
        self.frame_timeout = unfinished;
        self
    }

    /// Memory for the read buffers and backlogs of all connections of the runtime together.
    ///
    /// If the read buffer, the backlog or the layers of a connection would grow beyond the free
    /// rest, the connection is closed. Therefore each of the three alone can have half, and none
    /// can have all. Each of the three may always have 8 KiB. Thus small connections do not notice
    /// those that take all they can get.
    ///
    /// *Live.* *Unit* bytes. *Range* 1 MiB..=`usize::MAX`. *Default* 1 GiB. All limits per
    /// connection together can still exceed the memory: a hundred peers times one frame of 64 MiB.
    /// *Price*: the memory itself.
    #[must_use]
    pub const fn max_buffered_bytes(mut self, bytes: usize) -> Self {
        self.max_buffered_bytes = bytes;
        self
    }
}

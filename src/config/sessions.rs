//! Setters: sessions, their requests, logins and the request cache.

use std::time::Duration;

use super::Config;

/// Setters for sessions.
impl Config {
    /// Sessions open at once on one connection. Opening one more is an error for that session
    /// alone.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 4096. *Price*: the memory of a session of the
    /// service, for that many sessions of each peer.
    #[must_use]
    pub const fn max_sessions_per_connection(mut self, sessions: usize) -> Self {
        self.max_sessions_per_connection = sessions;
        self
    }

    /// Sessions open at once in the runtime. Opening one more is an error for that session alone.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 65536. *Price*: the memory of a session of the
    /// service, for each of them.
    #[must_use]
    pub const fn max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// Requests of one session that are answered in a row before the session goes to the back of
    /// the queue.
    ///
    /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a session with a steady supply of requests
    /// keeps a worker for that many, or 1 ms, while others wait.
    #[must_use]
    pub const fn session_budget(mut self, requests: usize) -> Self {
        self.session_budget = requests;
        self
    }

    /// Puts a version into the header of frames, in both directions.
    ///
    /// *Live*, for new connections. *Range* true or false. *Default* false, as in the original.
    /// *Price*: peers with the other setting cannot communicate with the server.
    #[must_use]
    pub const fn galaxy_protocol(mut self, galaxy: bool) -> Self {
        self.galaxy_protocol = galaxy;
        self
    }

    /// Version in the header of frames, where [`galaxy_protocol`](Self::galaxy_protocol) is on.
    ///
    /// *Live*, for new connections. *Range* 0..=127. *Default* 0. *Price*: peers of another
    /// version are closed.
    #[must_use]
    pub const fn galaxy_version(mut self, version: u8) -> Self {
        self.galaxy_version = version;
        self
    }
}

/// Setters for requests.
impl Config {
    /// Requests of one session that may wait behind the running one. One more waits in its
    /// connection, which is not read until half of the waiting requests were begun. If that takes
    /// too long, an error ends that session.
    ///
    /// *Live.* *Range* 16..=4096. *Default* 128. *Price*: memory for that many requests of each
    /// session, within [`max_queued_bytes`](Self::max_queued_bytes).
    #[must_use]
    pub const fn max_queued_messages(mut self, requests: usize) -> Self {
        self.max_queued_messages = requests;
        self
    }

    /// Memory for the waiting requests of all sessions of one connection. A session whose request
    /// does not fit is ended.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=`usize::MAX`. *Default* 128 MiB: twice the largest
    /// frame. *Price*: the memory, for each peer that sends faster than the server answers.
    #[must_use]
    pub const fn max_queued_bytes_per_connection(mut self, bytes: usize) -> Self {
        self.max_queued_bytes_per_connection = bytes;
        self
    }

    /// Memory for the waiting requests of all sessions of the runtime together. A session whose
    /// request does not fit is ended. A request also does not fit if the waiting requests of its
    /// connection would exceed the free rest. Each connection may always have 8 KiB.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=`usize::MAX`. *Default* 1 GiB. *Price*: the memory
    /// itself, beside [`max_buffered_bytes`](Self::max_buffered_bytes).
    #[must_use]
    pub const fn max_queued_bytes(mut self, bytes: usize) -> Self {
        self.max_queued_bytes = bytes;
        self
    }

    /// Time from the arrival of a request to its last reply. It includes the time in which the
    /// request waits for its turn and for its peer to grant room. Then the request is cancelled.
    /// A request for timestamps has no deadline at the server.
    ///
    /// *Live*; if requests are being watched already, the new value counts from the next check on.
    /// The old value has set the time of that check. *Range* 0 s..=86400 s; 0 is for ever.
    /// *Default* 900 s, in which the real clients have long given up. *Price*: requests without a
    /// waiting client hold their session and its locks.
    #[must_use]
    pub const fn request_timeout(mut self, at_most: Duration) -> Self {
        self.request_timeout = at_most;
        self
    }

    /// Time that the requests of a peer which has finished sending may still take. Then they are
    /// cancelled and its sessions end.
    ///
    /// *Live.* *Range* 0 s..=86400 s; 0 is at once. *Default* 5 s: a client that is gone looks the
    /// same as a client that waits for its last answers. *Price*: a request of a client that is
    /// gone, for example a wait for a lock, keeps its session and the session's locks for
    /// this time.
    #[must_use]
    pub const fn half_close_timeout(mut self, at_most: Duration) -> Self {
        self.half_close_timeout = at_most;
        self
    }

    /// Handlers of one group that may wait, each on a thread, until their peer grants room for more
    /// rows. If one more begins to wait, the longest-waiting handler is cancelled.
    ///
    /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a thread for each peer that requests rows
    /// and does not read them. Rows that are pulled from a source hold no thread.
    #[must_use]
    pub const fn max_waiting_writers(mut self, writers: usize) -> Self {
        self.max_waiting_writers = writers;
        self
    }

    /// Glitches of one connection in [`glitch_window`](Self::glitch_window), all at once or spread.
    /// A glitch is a whole message without use, such as a request to a session that does not exist.
    /// After one more, the connection gets a fatal error and is closed. The
    /// [guide](crate::guide::sessions) lists the glitches, and the harmless habits of existing
    /// clients.
    ///
    /// *Live.* *Range* 0..=16777216; 0 counts and closes no connection. *Default* 10000, which
    /// existing clients do not come near. *Price* of a high value: that much useless work from each
    /// peer; of a low one: the server closes a faulty client instead of only answering it with
    /// errors.
    #[must_use]
    pub const fn max_glitches(mut self, glitches: usize) -> Self {
        self.max_glitches = glitches;
        self
    }

    /// Time in which an allowance of [`max_glitches`](Self::max_glitches) is renewed.
    ///
    /// *Live.* *Range* 1 s..=3600 s. *Default* 60 s. *Price* of raising it: old glitches close a
    /// connection.
    #[must_use]
    pub const fn glitch_window(mut self, window: Duration) -> Self {
        self.glitch_window = window;
        self
    }
}

/// Setters for logins.
impl Config {
    /// Time in which an accepted connection must have logged in. Then it is closed.
    ///
    /// *Live*, for new connections. *Range* 1 ms..=3600 s. *Default* 10 s. *Price*: peers that
    /// never log in count against
    /// [`max_unauthenticated_connections`](Self::max_unauthenticated_connections) for longer.
    #[must_use]
    pub const fn login_timeout(mut self, at_most: Duration) -> Self {
        self.login_timeout = at_most;
        self
    }

    /// Failed logins after which a connection is closed.
    ///
    /// *Live*, for new connections. *Range* 1..=1000. *Default* 3, where the original has no limit:
    /// the real clients try once. *Price*: guesses that cost no new connection.
    #[must_use]
    pub const fn max_login_attempts(mut self, attempts: usize) -> Self {
        self.max_login_attempts = attempts;
        self
    }

    /// Connections of a session server that have not logged in yet. If one more comes, the server
    /// closes the oldest connection of the address that has the most.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 4096: a burst of clients gets in. *Price*: the
    /// number of connections that a flood can hold.
    #[must_use]
    pub const fn max_unauthenticated_connections(mut self, connections: usize) -> Self {
        self.max_unauthenticated_connections = connections;
        self
    }

    /// Connections from one address that have not logged in yet. Further ones are closed at once.
    /// Addresses of IPv6 count by their first 64 bits, and all Unix sockets are one address.
    ///
    /// *Live.* *Range* 1..=16777216; above
    /// [`max_unauthenticated_connections`](Self::max_unauthenticated_connections) it has no effect.
    /// *Default* 256: the pool of a client may open all at once. *Price*: the share of that limit
    /// that one address can occupy.
    #[must_use]
    pub const fn max_unauthenticated_per_address(mut self, connections: usize) -> Self {
        self.max_unauthenticated_per_address = connections;
        self
    }

    /// Failed logins from one address in a minute. Further logins are refused unchecked until
    /// enough time has passed. Addresses count as in
    /// [`max_unauthenticated_per_address`](Self::max_unauthenticated_per_address).
    ///
    /// *Live.* *Range* 1..=65536 in a minute. *Default* 60. *Price*: guesses. If it is too low, one
    /// client with an old password locks out all clients of its address.
    #[must_use]
    pub const fn max_login_failures_per_address(mut self, failures: usize) -> Self {
        self.max_login_failures_per_address = failures;
        self
    }

    /// Time for which the answer to a failed login is delayed. If it is not shorter
    /// than [`login_timeout`](Self::login_timeout), the connection ends without that answer.
    ///
    /// *Live.* *Range* 0 s..=60 s. *Default* 100 ms; no thread waits for it. *Price*: a user who
    /// mistyped the password learns it that much later.
    #[must_use]
    pub const fn login_failure_delay(mut self, delay: Duration) -> Self {
        self.login_failure_delay = delay;
        self
    }

    /// Time for which the answer to a successful login is delayed. It helps clients that lose their
    /// own wake-up if the answer comes before they wait.
    ///
    /// *Live.* *Range* 0 s..=1 s. *Default* 0 ms: at once. *Price*: each login takes that much
    /// longer; no thread waits for it.
    #[must_use]
    pub const fn authenticate_ok_delay(mut self, delay: Duration) -> Self {
        self.authenticate_ok_delay = delay;
        self
    }
}

/// Setters for the request caches: one for the text of statements, one for plans.
impl Config {
    /// Entries of each of the two request caches.
    ///
    /// *Start only.* *Range* 128..=16384. *Default* 1024. If an entry is absent, the client has to
    /// send its text again. *Price*: the memory of the entries, within
    /// [`request_cache_bytes`](Self::request_cache_bytes).
    #[must_use]
    pub const fn request_cache_number(mut self, entries: usize) -> Self {
        self.request_cache_number = entries;
        self
    }

    /// Parts of each request cache, with a lock each; entries and bytes are divided among them.
    ///
    /// *Start only.* *Range* 1..=128. *Default* 16. *Price*: a full part may evict an entry while
    /// others have room. If there are too few parts, lookups wait for one another.
    #[must_use]
    pub const fn request_cache_instances(mut self, parts: usize) -> Self {
        self.request_cache_instances = parts;
        self
    }

    /// Largest text or plan that a request cache keeps. Longer ones run as well, but the client has
    /// to send them each time. A plan counts by its memory, with its text for the audit log and
    /// without parameters.
    ///
    /// *Live.* *Unit* bytes. *Range* 128..=1073741824. An entry larger than
    /// [`request_cache_bytes`](Self::request_cache_bytes) divided by
    /// [`request_cache_instances`](Self::request_cache_instances) is not kept either. *Default* 1
    /// MiB. *Price*: one such entry displaces many small ones.
    #[must_use]
    pub const fn request_cache_max_length(mut self, bytes: usize) -> Self {
        self.request_cache_max_length = bytes;
        self
    }

    /// Memory for the entries of each of the two request caches.
    ///
    /// *Start only.* *Unit* bytes. *Range* 4096..=`usize::MAX`. *Default* 64 MiB. *Price*: the
    /// memory itself.
    #[must_use]
    pub const fn request_cache_bytes(mut self, bytes: usize) -> Self {
        self.request_cache_bytes = bytes;
        self
    }
}

//! Setters: sessions, their requests, logins and the request cache.

use std::time::Duration;

use super::Config;

/// Sessions.
impl Config {
    /// Sessions open at once on one connection. Opening one more is an error for that session
    /// alone.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 4096. *Price*: what a session of the service holds,
    /// for so many sessions of each peer.
    #[must_use]
    pub const fn max_sessions_per_connection(mut self, sessions: usize) -> Self {
        self.max_sessions_per_connection = sessions;
        self
    }

    /// Sessions open at once in the runtime. Opening one more is an error for that session alone.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 65536. *Price*: what a session of the service
    /// holds, for each of them.
    #[must_use]
    pub const fn max_sessions(mut self, sessions: usize) -> Self {
        self.max_sessions = sessions;
        self
    }

    /// Requests of one session that are answered in a row before the session goes to the back of
    /// the queue.
    ///
    /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a session that never runs dry keeps a
    /// worker for so many requests while others wait.
    #[must_use]
    pub const fn session_budget(mut self, requests: usize) -> Self {
        self.session_budget = requests;
        self
    }

    /// Whether the header of frames holds a version, in both directions.
    ///
    /// *Live*, for new connections. *Range* true or false. *Default* false, as in the original.
    /// *Price*: peers that expect it to be otherwise cannot talk to us.
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

/// Requests.
impl Config {
    /// Requests of one session that may wait behind the one that runs. One more waits in its
    /// connection, which is not read meanwhile, until half of them were begun. When that takes too
    /// long it is an error that ends that session.
    ///
    /// *Live.* *Range* 16..=4096. *Default* 128. *Price*: memory for so many requests of each
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
    /// frame. *Price*: the memory, for each peer that sends faster than it is served.
    #[must_use]
    pub const fn max_queued_bytes_per_connection(mut self, bytes: usize) -> Self {
        self.max_queued_bytes_per_connection = bytes;
        self
    }

    /// Memory for the waiting requests of all sessions of the runtime together. A session whose
    /// request does not fit is ended. It does not fit either if its connection would have more
    /// waiting than is left free; 8 KiB are every connection's, whatever others have.
    ///
    /// *Live.* *Unit* bytes. *Range* 4096..=`usize::MAX`. *Default* 1 GiB. *Price*: the memory
    /// itself, beside [`max_buffered_bytes`](Self::max_buffered_bytes).
    #[must_use]
    pub const fn max_queued_bytes(mut self, bytes: usize) -> Self {
        self.max_queued_bytes = bytes;
        self
    }

    /// Time that a request may take from when it came until its last reply, including the time
    /// that it waits for its turn and for its peer to grant room. Then it is cancelled.
    ///
    /// *Live*; where requests are being watched already, from the next look on, which the old value
    /// has set. *Range* 0 s..=86400 s; 0 is for ever. *Default* 900 s, in which the real clients
    /// have long given up. *Price*: requests that nobody waits for any more hold their session and
    /// what it has locked.
    #[must_use]
    pub const fn request_timeout(mut self, at_most: Duration) -> Self {
        self.request_timeout = at_most;
        self
    }

    /// Time that the requests of a peer which has finished sending may still take. Then they are
    /// cancelled and its sessions end.
    ///
    /// *Live.* *Range* 0 s..=86400 s; 0 is at once. *Default* 5 s: a client that is gone looks the same
    /// as one that waits for its last answers. *Price*: what a client that is gone was waiting for, a
    /// lock, say, keeps its session and what that has locked for so long.
    #[must_use]
    pub const fn half_close_timeout(mut self, at_most: Duration) -> Self {
        self.half_close_timeout = at_most;
        self
    }

    /// Handlers of one group that may wait, each on a thread, until their peer grants room for
    /// more rows. With one more the one that has waited longest is cancelled.
    ///
    /// *Live.* *Range* 1..=4096. *Default* 64. *Price*: a thread for each peer that asks for rows
    /// and does not take them; rows that are pulled from a source hold none.
    #[must_use]
    pub const fn max_waiting_writers(mut self, writers: usize) -> Self {
        self.max_waiting_writers = writers;
        self
    }

    /// Glitches of one connection in [`glitch_window`](Self::glitch_window), all at once or spread:
    /// messages that are whole, but of no use, such as requests to sessions that are not there. One
    /// more, and the connection gets a fatal error and is closed. What counts, and what existing
    /// clients do that does not, is in the [guide](crate::guide::sessions).
    ///
    /// *Live.* *Range* 0..=16777216; 0 counts and closes nobody. *Default* 10000, which existing
    /// clients do not come near. *Price* of a high value: so much work for nothing from each peer;
    /// of a low one: a client with a fault is closed, and not only told.
    #[must_use]
    pub const fn max_glitches(mut self, glitches: usize) -> Self {
        self.max_glitches = glitches;
        self
    }

    /// Time that pays for [`max_glitches`](Self::max_glitches).
    ///
    /// *Live.* *Range* 1 s..=3600 s. *Default* 60 s. *Price* of raising it: a connection is closed
    /// for what it did long ago.
    #[must_use]
    pub const fn glitch_window(mut self, window: Duration) -> Self {
        self.glitch_window = window;
        self
    }
}

/// Logins.
impl Config {
    /// Time in which an accepted connection must have logged in. Then it is closed.
    ///
    /// *Live*, for new connections. *Range* 1 ms..=3600 s. *Default* 10 s. *Price*: peers that
    /// never log in hold their place in
    /// [`max_unauthenticated_connections`](Self::max_unauthenticated_connections) for longer.
    #[must_use]
    pub const fn login_timeout(mut self, at_most: Duration) -> Self {
        self.login_timeout = at_most;
        self
    }

    /// Logins that may fail on one connection; with the last of them it is closed.
    ///
    /// *Live*, for new connections. *Range* 1..=1000. *Default* 3, where the original has no limit: the real clients
    /// try once. *Price*: guesses that cost no new connection.
    #[must_use]
    pub const fn max_login_attempts(mut self, attempts: usize) -> Self {
        self.max_login_attempts = attempts;
        self
    }

    /// Connections of a session server that have not logged in yet. Beyond them, each newcomer takes the
    /// place of the oldest connection of the address that has the most; that connection is closed.
    ///
    /// *Live.* *Range* 1..=16777216. *Default* 4096: a burst of clients gets in. *Price*: the room
    /// that a flood can take.
    #[must_use]
    pub const fn max_unauthenticated_connections(mut self, connections: usize) -> Self {
        self.max_unauthenticated_connections = connections;
        self
    }

    /// Connections from one address that have not logged in yet. More are closed at once.
    /// Addresses of IPv6 count by their first 64 bits, and all Unix sockets are one address.
    ///
    /// *Live.* *Range* 1..=16777216; above
    /// [`max_unauthenticated_connections`](Self::max_unauthenticated_connections) it has no
    /// effect. *Default* 256: the pool of a client may open all at once. *Price*: the share of
    /// that limit which one address can take.
    #[must_use]
    pub const fn max_unauthenticated_per_address(mut self, connections: usize) -> Self {
        self.max_unauthenticated_per_address = connections;
        self
    }

    /// Logins from one address that may fail in a minute. Further ones are refused without a look
    /// until as much time has passed. Addresses count as in
    /// [`max_unauthenticated_per_address`](Self::max_unauthenticated_per_address).
    ///
    /// *Live.* *Range* 1..=65536 in a minute. *Default* 60. *Price*: guesses; too low, and one
    /// client with an old password locks out all who share its address.
    #[must_use]
    pub const fn max_login_failures_per_address(mut self, failures: usize) -> Self {
        self.max_login_failures_per_address = failures;
        self
    }

    /// Time that the answer to a failed login is held back.
    ///
    /// *Live.* *Range* 0 s..=60 s. *Default* 100 ms; no thread waits for it. *Price*: who mistyped
    /// learns it so much later.
    #[must_use]
    pub const fn login_failure_delay(mut self, delay: Duration) -> Self {
        self.login_failure_delay = delay;
        self
    }

    /// Time that the answer to a successful login is held back, for clients that lose their own
    /// wake-up when it comes before they wait.
    ///
    /// *Live.* *Range* 0 s..=1 s. *Default* 0 ms: at once. *Price*: each login takes so much
    /// longer; no thread waits for it.
    #[must_use]
    pub const fn authenticate_ok_delay(mut self, delay: Duration) -> Self {
        self.authenticate_ok_delay = delay;
        self
    }
}

/// Request caches: one for the text of statements, one for plans.
impl Config {
    /// Entries of each of the two request caches.
    ///
    /// *Start only.* *Range* 128..=16384. *Default* 1024. What is not there the client has to send
    /// again. *Price*: the memory of the entries, within
    /// [`request_cache_bytes`](Self::request_cache_bytes).
    #[must_use]
    pub const fn request_cache_number(mut self, entries: usize) -> Self {
        self.request_cache_number = entries;
        self
    }

    /// Parts of each request cache, with a lock each; entries and bytes are divided among them.
    ///
    /// *Start only.* *Range* 1..=128. *Default* 16. *Price*: an entry may have to go from a part
    /// that is full while others have room; too few, and lookups wait for one another.
    #[must_use]
    pub const fn request_cache_instances(mut self, parts: usize) -> Self {
        self.request_cache_instances = parts;
        self
    }

    /// Largest text or plan that a request cache keeps. Longer ones run as well, but the client
    /// has to send them each time.
    ///
    /// *Live.* *Unit* bytes. *Range* 128..=1073741824; what does not fit in
    /// [`request_cache_bytes`](Self::request_cache_bytes) divided by
    /// [`request_cache_instances`](Self::request_cache_instances) is not kept either. *Default* 1
    /// MiB. *Price*: one such entry takes the place of many.
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

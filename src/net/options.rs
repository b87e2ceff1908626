//! Options of one listener, and of one outgoing connection.
#![forbid(unsafe_code)]

/// Effect of a backlog above `write_high_watermark_bytes`, that is, of a peer that does not read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FullBacklog {
    /// The connection is not read until its backlog is at `write_low_watermark_bytes`. This suits a
    /// server, whose replies are the answers to that input.
    #[default]
    PauseReads,
    /// The connection is read on. This suits a proxy, which instead
    /// [pauses](super::Connection::pause_reads) the connection from which the bytes come. The backlog
    /// of a protocol that does not do so grows up to its share of `max_buffered_bytes`, and then the
    /// connection is closed.
    Notify,
}

/// Options of the connections of one listener, for [`listen_with`](crate::Handle::listen_with).
#[derive(Clone, Debug, Default)]
pub struct ListenOptions {
    pub(super) full_backlog: FullBacklog,
}

impl ListenOptions {
    /// Creates the options of [`listen`](crate::Handle::listen).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the effect of a full backlog. [`FullBacklog::PauseReads`] by default.
    #[must_use]
    pub const fn full_backlog(mut self, effect: FullBacklog) -> Self {
        self.full_backlog = effect;
        self
    }
}

/// Options of an outgoing connection, for [`connect_with`](crate::Handle::connect_with).
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    pub(super) full_backlog: FullBacklog,
}

impl ConnectOptions {
    /// Creates the options of [`connect`](crate::Handle::connect).
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the effect of a full backlog. [`FullBacklog::PauseReads`] by default.
    #[must_use]
    pub const fn full_backlog(mut self, effect: FullBacklog) -> Self {
        self.full_backlog = effect;
        self
    }
}

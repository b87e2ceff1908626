//! [`Connection`]: what the user holds.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::address::{Address, Credentials};
use super::close::Close;
use super::conn::{CLOSE, Conn, Phase};
use super::pieces::Pieces;
use super::send_queue::Sent;
use crate::runtime::{Class, Group};
use crate::sys::socket;

/// A connection: a cheap handle, to be cloned and sent anywhere.
///
/// It stays valid after the connection has ended: `send` then says
/// [`Closed`](Sent::Closed). The descriptor is closed when the last handle is dropped, so its number
/// cannot belong to somebody else while anybody may still use it; the socket itself is shut down
/// when the connection ends.
///
/// A handle keeps the [`Protocol`](super::Protocol) of its connection, too. So one that a protocol keeps
/// of a connection of its own keeps both for ever, unless `closed` lets go of it; one in the state of a
/// connection goes with the state.
#[derive(Clone)]
pub struct Connection(pub(super) Arc<Conn>);

/// Identifies a connection within its runtime, also in the log. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId(pub(super) u64);

impl ConnectionId {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({})", self.0)
    }
}

impl Connection {
    /// What it brings takes most of a turn each time.
    pub(crate) fn brings_much(&self) -> bool {
        self.0.cost().is_long()
    }

    /// Its number.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.0.id
    }

    /// The other end.
    #[must_use]
    pub fn peer_addr(&self) -> &Address {
        &self.0.peer
    }

    /// Our end.
    ///
    /// # Errors
    ///
    /// What the system says; it is asked at each call.
    pub fn local_addr(&self) -> io::Result<Address> {
        socket::local_addr(self.0.fd()).map(|addr| Address::from_raw(&addr))
    }

    /// Who is at the other end of a Unix socket; `None` for TCP, and where the system does not say.
    #[must_use]
    pub fn credentials(&self) -> Option<Credentials> {
        match self.0.peer {
            Address::Unix(_) => {
                let (pid, uid, gid) = socket::peer_credentials(self.0.fd()).ok()?;
                Some(Credentials { pid, uid, gid })
            }
            Address::Tcp(_) => None,
        }
    }

    /// What [`set_user_data`](Self::set_user_data) attached, if it is a `T`.
    #[must_use]
    pub fn user_data<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.parts().user.get()?.downcast_ref()
    }

    /// Attaches a value for all who have a handle, once. It should not own a handle (or a
    /// [`Hold`]) of this connection, which would then never be dropped.
    ///
    /// # Errors
    ///
    /// Gives the value back when there is one already.
    pub fn set_user_data<T: Any + Send + Sync>(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        let _ = self.0.parts().user.get_or_init(|| Box::new(value.take().expect("called once")));
        value.map_or(Ok(()), Err)
    }

    /// Sends bytes, from any thread, without waiting.
    ///
    /// The bytes of one call stay together, and the calls of one thread in order. What the socket
    /// does not take is copied to the connection's backlog and leaves as the peer reads. Above
    /// `write_high_watermark_bytes` the connection's input is not read, until the backlog is down to
    /// `write_low_watermark_bytes`; a peer that does not drain it within `net_write_timeout` is
    /// disconnected.
    pub fn send(&self, bytes: impl AsRef<[u8]>) -> Sent {
        Conn::send_or_hold(&self.0, Pieces::one(bytes.as_ref()))
    }

    /// Sends bytes that lie in several places, as one [`send`](Self::send) of all of them in this
    /// order: a header and what follows it, say. They stay together, nothing is copied that the socket
    /// takes at once, and as long as nothing waits before them it takes one system call.
    pub fn send_slices(&self, slices: &[IoSlice<'_>]) -> Sent {
        Conn::send_or_hold(&self.0, Pieces::new(slices))
    }

    /// Ends the connection, from any thread, without waiting.
    ///
    /// What was sent before leaves first, as long as the peer takes it; later sends are refused. The
    /// first reason counts.
    pub fn close(&self, reason: impl Into<Close>) {
        self.0.begin_close(reason.into().0, CLOSE);
    }

    /// How urgent its work is.
    #[must_use]
    pub fn class(&self) -> Class {
        self.0.class()
    }

    /// Changes how urgent its work is, from any thread: when a session on it begins a transaction,
    /// say, and takes locks that others wait for. A run that is queued already stays where it is; the
    /// next one goes by the new class.
    pub fn set_class(&self, class: Class) {
        self.0.set_class(class);
    }

    /// Bytes that were sent and that the socket has not taken yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.0.pending.load(Ordering::Relaxed)
    }

    /// It has ended, or is about to: nothing more can be sent.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.phase() >= Phase::Closing
    }

    /// The group that serves it.
    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.0.group
    }

    /// [`drained`](super::Protocol::drained) is called once after this, by a worker, when the
    /// backlog is at the low watermark: at once if it is, and whether or not reading was paused.
    /// Perhaps more than once, and not for a connection that ends first.
    ///
    /// Who has seen too many [`pending_bytes`](Self::pending_bytes) calls this and looks again in
    /// `drained`. To be called when the connection is open.
    pub(crate) fn tell_when_low(&self) {
        self.0.resume_when_low();
    }

    /// What was [set aside](super::Input::set_aside) is to come again. `drained` is called before, as if
    /// the backlog had been high.
    #[cfg(feature = "server")]
    pub(crate) fn resume(&self) {
        self.0.notify_recv(super::conn::RESUME);
    }

    #[cfg(feature = "client")]
    /// Reading is not paused for a high backlog from now on: for who bounds what it keeps of what is
    /// received, and whose peer does not read either while it is not read.
    pub(crate) fn read_always(&self) {
        self.0.reads_always.store(true, Ordering::Relaxed);
    }

    /// Keeps input coming in a drain as long as a request is [held](Self::hold). Must be called before
    /// [`draining`](super::Protocol::draining) returns.
    #[cfg(feature = "server")]
    pub(crate) fn read_while_held(&self) {
        self.0.reads_while_held.store(true, Ordering::Relaxed);
    }

    /// Marks a request as in progress beyond `received`: until the returned guard is dropped, neither
    /// the peer's half-close nor a drain ends the connection.
    ///
    /// On an outgoing connection it means that an answer is awaited: one that drains is read until
    /// the last hold is dropped. So whoever asks takes one, and whoever asks again takes the next one
    /// before this one is dropped; what merely keeps a connection for later takes none, for it would
    /// hold up the drain to its deadline.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.0.begin_hold();
        Hold(self.clone())
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.0.id)
            .field("peer", &self.0.peer)
            .field("phase", &self.0.phase())
            .field("pending_bytes", &self.pending_bytes())
            .finish_non_exhaustive()
    }
}

/// A request in progress, see [`Connection::hold`].
#[derive(Debug)]
pub struct Hold(Connection);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.0.end_hold();
    }
}

/// Why an outgoing connection was not even begun.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is not an address, or its name does not resolve.
    Address(io::Error),
    /// The system refused.
    Io(io::Error),
    /// `max_connections` is reached.
    Limit(usize),
    /// The runtime drains. Nothing is connected any more, also not for requests that are still in
    /// progress: what they need must be connected already.
    Draining,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => write!(f, "connect address: {error}"),
            Self::Io(error) => write!(f, "connect: {error}"),
            Self::Limit(limit) => write!(f, "connect: max_connections {limit} is reached"),
            Self::Draining => f.write_str("connect: the runtime drains"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Address(error) | Self::Io(error) => Some(error),
            Self::Limit(_) | Self::Draining => None,
        }
    }
}

#[cfg(test)]
mod tests;

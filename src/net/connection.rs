//! [`Connection`]: the handle of the user.

use std::any::Any;
use std::fmt;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::address::{Address, Credentials};
use super::close::Close;
use super::conn::{CLOSE, Conn, NOTIFIED, RESET};
use super::layer::Layer;
use super::phase::Phase;
use super::pieces::Pieces;
use super::read_buf::Input;
use super::send_queue::Sent;
use crate::config::ConfigError;
use crate::runtime::{Class, Group, Serving};
use crate::sys::socket;

/// Handle of a connection. It is cheap to clone and may be sent to any thread.
///
/// It stays valid after the connection has ended: `send` then returns [`Closed`](Sent::Closed). The
/// socket is shut down when the connection ends. The descriptor is closed when the last handle is
/// dropped, so no other file gets its number while a handle is in use.
///
/// A handle also keeps the [`Protocol`](super::Protocol) of its connection. If a protocol stores a
/// handle of its own connection, both live until the protocol drops the handle, for example in
/// `closed`. A handle in the state of a connection is dropped with the state.
///
/// No method calls the protocol on the calling thread, so all may be called under a lock that the
/// protocol takes too. Only after the end of the runtime, while a handler of the connection still
/// runs, may `abort` or `notify_when_drained` call [`drained`](super::Protocol::drained). The drop
/// of a handle ends nothing.
#[derive(Clone)]
pub struct Connection(pub(super) Arc<Conn>);

/// Identifier of a connection within its runtime, also in the log. Never used twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ConnectionId {
    /// The identifier as an integer.
    pub number: u64,
}

impl fmt::Display for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number.fmt(f)
    }
}

impl fmt::Debug for ConnectionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ConnectionId({})", self.number)
    }
}

impl Connection {
    /// Returns true if each receive of this connection takes most of a turn.
    pub(crate) fn brings_much(&self) -> bool {
        self.0.cost().is_long()
    }

    /// Returns the identifier of the connection.
    #[must_use]
    pub fn id(&self) -> ConnectionId {
        self.0.id
    }

    /// Returns the address of the peer. Until an outgoing connection is established, this is the first
    /// address of its server.
    #[must_use]
    pub fn peer_addr(&self) -> &Address {
        self.0.peer()
    }

    /// Returns the address of the client: that of the peer, unless the peer is a proxy and a
    /// [layer](Layer::client_addr) has named another. If several do, the one next to the socket counts.
    #[must_use]
    pub fn client_addr(&self) -> &Address {
        self.0.client_addr()
    }

    /// Returns the local address. After a reset it is `0.0.0.0` or `::`, unless the socket was bound to an
    /// address.
    ///
    /// # Errors
    ///
    /// The error of the system, which is asked at each call.
    pub fn local_addr(&self) -> io::Result<Address> {
        socket::local_addr(self.0.fd()).map(|addr| Address::from_raw(&addr))
    }

    /// Returns the credentials of the peer of a Unix socket. `None` for TCP, or if the system does
    /// not know them.
    #[must_use]
    pub fn credentials(&self) -> Option<Credentials> {
        match self.0.peer() {
            Address::Unix(_) => {
                let (pid, uid, gid) = socket::peer_credentials(self.0.fd()).ok()?;
                Some(Credentials { pid, uid, gid })
            }
            Address::Tcp(_) => None,
        }
    }

    /// Returns the value of this type that [`set_extension`](Self::set_extension) attached.
    #[must_use]
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.0.parts().extensions.get()
    }

    /// Attaches a value, which all handles can read: one of each type, until the last handle is
    /// dropped. A value that owns a handle or a [`Hold`] of this connection, or of another
    /// connection that owns a handle of this one, must drop it in
    /// [`closed`](super::Protocol::closed). Otherwise both live for ever.
    ///
    /// # Errors
    ///
    /// Returns the value if the connection has one of its type.
    pub fn set_extension<T: Any + Send + Sync>(&self, value: T) -> Result<(), T> {
        self.0.parts().extensions.set(value)
    }

    /// Sends bytes, from any thread, without waiting.
    ///
    /// The bytes of one call stay together, and the calls of one thread stay in order. Bytes that
    /// the socket does not take are copied to the connection's backlog. They leave as the peer
    /// reads. Above `write_high_watermark_bytes` the connection's input is not read until the
    /// backlog is down to `write_low_watermark_bytes`. A peer is
    /// disconnected if it takes neither all of it nor `write_high_watermark_bytes` of it within
    /// `net_write_timeout`.
    pub fn send(&self, bytes: impl AsRef<[u8]>) -> Sent {
        self.send_pieces(Pieces::one(bytes.as_ref()))
    }

    /// Sends several slices, as one [`send`](Self::send) of all of them in this order, for example
    /// a header and its payload. They stay together. Bytes that the socket takes at once are not
    /// copied. If no bytes wait before them, up to 1024 slices take one system call.
    pub fn send_slices(&self, slices: &[IoSlice<'_>]) -> Sent {
        self.send_pieces(Pieces::new(slices))
    }

    fn send_pieces(&self, pieces: Pieces<'_>) -> Sent {
        if self.0.is_layered() {
            self.0.send_layered(pieces)
        } else {
            Conn::send_or_hold(&self.0, pieces)
        }
    }

    /// Starts a layer in mid-stream, above the layers that there are, such as TLS after a message that
    /// asks for it. Must be called in a callback of this connection that has `input`, while no other
    /// thread sends.
    ///
    /// The unconsumed bytes of `input` and all later ones reach the layer only: `input` is empty
    /// afterwards. Bytes sent before are not encoded. Bytes sent from now on are, and wait until the layer
    /// is ready; then [`notified`](super::Protocol::notified) is called. If the connection is closed
    /// before, they are dropped. `handshake_timeout` limits the time.
    ///
    /// ```
    /// # #[cfg(feature = "tls")] {
    /// use epoll_group::net::{Close, Connection, Input, MakeLayer, TlsServer};
    ///
    /// /// Answers a client that asks for TLS, and goes on inside of it.
    /// fn start_tls(tls: &TlsServer, conn: &Connection, input: &mut Input<'_>) -> Result<(), Close> {
    ///     input.consume(b"STARTTLS\n".len());
    ///     conn.send(b"OK\n");
    ///     conn.start_layer(input, tls.make(conn)?)
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `max_handshakes` is reached, the connection has 8 layers, or the layer fails. The handler should
    /// return the error.
    pub fn start_layer(&self, input: &mut Input<'_>, layer: Box<dyn Layer>) -> Result<(), Close> {
        self.0.may_handshake()?;
        self.0.start_layer(self, input, layer)
    }

    /// Ends the connection, from any thread, without waiting.
    ///
    /// Bytes sent before leave first if the peer takes them. Later sends are refused. Input that has
    /// not been delivered is dropped. The first reason counts.
    pub fn close(&self, reason: impl Into<Close>) {
        self.0.begin_close(reason.into().0, CLOSE);
    }

    /// Resets the connection, from any thread, without waiting; if a callback runs, after it. Bytes that
    /// the peer has not received are lost, also those for which `send` returned [`Sent`](Sent::Sent).
    ///
    /// If one connection of a proxy breaks in the middle of its stream, the proxy aborts the other one. After
    /// a [`close`](Self::close), its peer would take the part that it got for the whole. Unix sockets have
    /// no reset: the peer sees the end of the stream.
    pub fn abort(&self, reason: impl Into<Close>) {
        self.0.break_off(reason.into().0, RESET);
    }

    /// Returns the class of the connection: how urgent its work is.
    #[must_use]
    pub fn class(&self) -> Class {
        self.0.class()
    }

    /// Changes the class of the connection, from any thread. For example, a session begins a
    /// transaction and takes locks that other sessions wait for. If the class was `Ordinary`, a run
    /// that is queued already moves to the queue of the new class.
    pub fn set_class(&self, class: Class) {
        self.0.set_class(class);
    }

    /// Returns the number of sent bytes that the socket has not taken yet.
    #[must_use]
    pub fn pending_bytes(&self) -> usize {
        self.0.pending.load(Ordering::Relaxed)
    }

    /// Returns true if more than `write_high_watermark_bytes` of sent bytes wait. Then the sender should
    /// stop its source and call [`notify_when_drained`](Self::notify_when_drained).
    #[must_use]
    pub fn is_backlogged(&self) -> bool {
        self.pending_bytes() > self.0.group.config().write_high_watermark_bytes
    }

    /// Notes that this thread runs code for the connection, until the result is dropped.
    pub(crate) fn serve(&self) -> Option<Serving> {
        self.0.serve()
    }

    /// Returns true if the connection has ended or is about to. Then no more bytes can be sent. A
    /// half-closed one is not closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.phase() >= Phase::Closing
    }

    /// Asks the system if the peer is still there. A handler that computes for long calls this now
    /// and then, and stops when its result has become useless. If the system call fails, the peer
    /// counts as connected.
    #[must_use]
    pub fn peer_state(&self) -> PeerState {
        match socket::hang_ups(self.0.fd()) {
            _ if self.0.phase() == Phase::Closed => PeerState::Gone,
            Ok((_, true)) => PeerState::Gone,
            Ok((true, false)) => PeerState::Finished,
            Ok((false, false)) | Err(_) => PeerState::Connected,
        }
    }

    /// Returns the group that serves the connection.
    pub(crate) fn group(&self) -> &Arc<Group> {
        &self.0.group
    }

    /// Stops reading, from any thread, until [`resume_reads`](Self::resume_reads). One call of
    /// `received` may still begin, also after a callback that called this.
    ///
    /// The peer is stopped by its full send buffer. Meanwhile none of the deadlines for its input run
    /// (`first_bytes_timeout`, `frame_timeout`, `idle_timeout`). Before `opened`, the handshakes of layers
    /// go on; that of a layer started in mid-stream waits. A drain waits for the input that had arrived.
    ///
    /// A reset is noticed, the end of the stream is not: a client that leaves meanwhile is found at the next
    /// send, or by [`peer_state`](Self::peer_state). A protocol that only wants one request at a time can
    /// leave further ones unconsumed instead, and must then allow for `frame_timeout`.
    pub fn pause_reads(&self) {
        self.0.pause(true);
    }

    /// Reads again, from any thread. Bytes that were left unconsumed come again, although none may
    /// have arrived. If the backlog is full, or the connection ends, it is still not read.
    pub fn resume_reads(&self) {
        self.0.pause(false);
    }

    /// Half-closes the connection, from any thread, without waiting. Bytes sent before leave, then the
    /// end of the stream. Later sends return [`Closed`](Sent::Closed). The connection is read on, and
    /// ends when the peer has finished too.
    pub fn shutdown_write(&self) {
        // Before the connection is open, its worker does the rest: to shut down a socket that connects
        // would end the attempt.
        if self.0.advance(Phase::HalfClosing) == Phase::Open {
            self.0.end_stream();
        }
    }

    /// Sets the idle time-out of this connection, from any thread, in place of its listener's. The time
    /// begins now, also before the first bytes. Zero switches it off. It has no effect on outgoing
    /// connections, which have none.
    pub fn set_idle_timeout(&self, limit: Duration) {
        self.0.set_idle_timeout(limit);
    }

    /// Asks for a call of [`notified`](super::Protocol::notified), from any thread. Calls coalesce: at
    /// least one `notified` begins after the last of them, unless the connection ends first.
    pub fn notify(&self) {
        self.0.notify_recv(NOTIFIED);
    }

    /// Asks for a call of [`drained`](super::Protocol::drained) when the backlog is at the low
    /// watermark. A worker calls it, at once if the backlog is low already. It may be called more than
    /// once. If the connection ends first, it is only called beside a callback that still runs.
    ///
    /// A sender that finds the connection [backlogged](Self::is_backlogged) stops its source, calls this,
    /// and goes on in `drained`.
    pub fn notify_when_drained(&self) {
        self.0.resume_when_low();
    }

    /// Delivers input that was [set aside](super::Input::set_aside) again. `drained` is called
    /// before, as if the backlog had been high.
    #[cfg(feature = "server")]
    pub(crate) fn resume(&self) {
        self.0.notify_recv(super::conn::RESUME);
    }

    /// Keeps reading an accepted connection in a drain while a request is [held](Self::hold), as
    /// outgoing ones are. So a client can end its transaction, if the protocol keeps a hold during
    /// the transaction. Must be called before [`draining`](super::Protocol::draining) returns.
    pub fn read_while_held(&self) {
        self.0.reads_while_held.store(true, Ordering::Relaxed);
    }

    /// Marks a request as in progress beyond `received`. Until the returned guard is dropped,
    /// neither the peer's half-close nor a drain ends the connection, and
    /// [`closed`](super::Protocol::closed) is not called for them. A protocol whose clients want no answer
    /// after their end closes the connection in [`ended`](super::Protocol::ended).
    ///
    /// On an outgoing connection, a hold means that an answer is awaited. In a drain, the
    /// connection is read until the last hold is dropped. So each request takes a hold, and the
    /// next request takes its hold before this one is dropped. A caller that only keeps a
    /// connection for later takes none, for it would delay the drain to its deadline. A server that has
    /// finished answers no more, so its end does not wait for holds.
    #[must_use]
    pub fn hold(&self) -> Hold {
        self.0.begin_request();
        Hold(self.clone())
    }
}

/// The socket, to ask for what has no method here, such as `TCP_INFO` or `SO_ORIGINAL_DST`. It stays
/// open as long as the handle. Bytes that are read or written by it mix with the stream of the
/// connection. Do that only inside a callback with the state of a connection without layers, while `input`
/// is empty and [`pending_bytes`](Connection::pending_bytes) is 0. `O_NONBLOCK` must stay set.
impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.0.id)
            .field("peer", self.0.peer())
            .field("phase", &self.0.phase())
            .field("pending_bytes", &self.pending_bytes())
            .finish_non_exhaustive()
    }
}

/// State of a connection's peer, see [`Connection::peer_state`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerState {
    /// Neither of the others. A peer that vanished silently counts as connected until
    /// `tcp_keep_alive` or a send detects it.
    Connected,
    /// The peer has finished sending. It may still read, or it has closed the connection.
    Finished,
    /// The connection is broken, or closed in both directions.
    Gone,
}

/// Guard of a request in progress, see [`Connection::hold`].
#[derive(Debug)]
pub struct Hold(Connection);

impl Drop for Hold {
    fn drop(&mut self) {
        self.0.0.end_request();
    }
}

/// Reason why an outgoing connection was not started.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is not an address, or its name does not resolve.
    Address(io::Error),
    /// The system returned an error.
    Io(io::Error),
    /// An option is out of its range.
    Options(ConfigError),
    /// `max_connections` is reached.
    Limit(usize),
    /// The runtime drains. No connection is made any more, even for requests in progress: the
    /// connections they need must exist already.
    Draining,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(error) => write!(f, "connect address: {error}"),
            Self::Io(error) => write!(f, "connect: {error}"),
            Self::Options(error) => write!(f, "connect: {error}"),
            Self::Limit(limit) => write!(f, "connect: max_connections {limit} is reached"),
            Self::Draining => f.write_str("connect: the runtime drains"),
        }
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Address(error) | Self::Io(error) => Some(error),
            Self::Options(error) => Some(error),
            Self::Limit(_) | Self::Draining => None,
        }
    }
}

#[cfg(test)]
mod tests;

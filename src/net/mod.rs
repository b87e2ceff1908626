//! Connections: bytes in, bytes out, and what goes wrong between.
//!
//! A layer above a socket is a [`Protocol`]; a socket is a [`Connection`]. The runtime calls the
//! protocol when bytes have arrived, on whichever worker is free, one call at a time for one
//! connection; the protocol answers by [`Connection::send`], from there or from any other thread.
//!
//! ```text
//!  Opening ─▶ Open ─▶ Finishing ─▶ Flushing ─▶ Lingering ─▶ Closed
//!               │     held requests  backlog     peer's rest    │ descriptor closed by the last
//!               └──────────── reset, time-out, cut ────────────▶┘ holder, as a task
//! ```
//!
//! * **Half-close.** A peer that finishes sending (`shutdown(SHUT_WR)`) has its last requests
//!   answered: [`Protocol::ended`] decides, and by default the connection ends when everything has
//!   left.
//! * **Reset.** Noticed at the next receive or send; what waits to be sent is dropped, `closed` says
//!   [`CloseReason::Reset`].
//! * **Our close.** What was sent before leaves first, then the end of the stream; the rest of the
//!   peer's bytes is read and thrown away for a while, because unread input would turn the close
//!   into a reset and the peer could lose the last reply.
//! * **Drain.** An accepted connection is not read any more: what has arrived is answered, and it
//!   ends when no request is [held](Connection::hold). A session server reads it until then, to
//!   answer probes. An outgoing one stays open until no accepted one is left, because requests in
//!   progress may wait for its answers. Then it ends, too, and is read while it is held, because an
//!   answer is awaited. A connection that is read in a drain does not become `Finishing`.
//!
//! This module knows bytes, never messages.

mod accept;
mod address;
mod close;
mod conn;
mod connection;
mod cork;
mod ending;
mod handler;
mod holds;
mod listener;
mod pieces;
mod read_buf;
mod receive;
mod send_queue;
#[cfg(feature = "internal")]
mod simulated;

pub use address::{Address, Credentials, Listen, ToAddress, ToListen};
pub use close::{Close, CloseReason};
pub use connection::{ConnectError, Connection, ConnectionId, Hold};
pub use cork::together;
pub use listener::{ListenError, Listener};
pub use read_buf::Input;
pub use send_queue::Sent;

pub(crate) use cork::{Cork, Held, flush_corked};
#[cfg(all(test, feature = "internal"))]
pub(crate) use simulated::Deaf;
#[cfg(feature = "internal")]
pub(crate) use simulated::Served;

pub use crate::runtime::Turn;

/// What stands above a socket: the code that gives bytes a meaning.
///
/// One value serves all connections of a listener, from many threads; what belongs to one
/// connection is its `State`. For one connection, calls never overlap. A call may block; it holds up
/// its own connection, and the runtime sees to the others. A panic closes the connection and is
/// counted.
pub trait Protocol: Send + Sync + 'static {
    /// What belongs to one connection.
    type State: Send + 'static;

    /// A connection is there. Called on a worker, before anything is received from it; for an
    /// outgoing one when it is established.
    fn opened(&self, conn: &Connection) -> Self::State;

    /// An outgoing connection came to nothing: it could not be established, or was closed before it
    /// was. No other call is made for it.
    fn connect_failed(&self, conn: &Connection, reason: &CloseReason) {
        let _ = (conn, reason);
    }

    /// Bytes have arrived. What is not consumed is there again at the next call, in front of what
    /// arrives until then.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends this connection, after what was sent has left.
    fn received(
        &self,
        conn: &Connection,
        state: &mut Self::State,
        input: &mut Input<'_>,
    ) -> Result<(), Close>;

    /// Follows `received` on the same thread, when another thread may already receive for this
    /// connection: the place to run, or to hand out, what the bytes made runnable. What `received`
    /// found is passed by way of [`Connection::user_data`]. `turn` says whether other events wait
    /// behind this one. The connection does not end between the two, unless it breaks: what is sent
    /// here in answer to the last bytes before the peer's half-close, a drain or a [`Close`] leaves.
    fn released(&self, conn: &Connection, turn: Turn) {
        let _ = (conn, turn);
    }

    /// The peer has finished sending, after everything that it sent was passed to `received`. It may
    /// still read. `released` for the last of it may be running on another thread, or follow.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends the connection after what was sent has left and the requests that are
    /// [held](Connection::hold) are done; that is the default. `Ok` leaves it open for sending.
    fn ended(&self, conn: &Connection, state: &mut Self::State) -> Result<(), Close> {
        let _ = (conn, state);
        Err(Close::by_peer())
    }

    /// The backlog has been above the high watermark and is at the low one again.
    fn drained(&self, conn: &Connection) {
        let _ = conn;
    }

    /// The drain of this connection begins: everything received so far has been passed to `received`,
    /// nothing more will be. The place for a last word to the peer.
    ///
    /// For an outgoing connection that is after the last accepted one has ended, and as long as it is
    /// [held](Connection::hold) more is received. One that is held and not yet established is told
    /// when it is.
    fn draining(&self, conn: &Connection, state: &mut Self::State) {
        let _ = (conn, state);
    }

    /// The connection has ended, the last call for it; if it broke, a `released` that was under way
    /// on another thread may end after this.
    fn closed(&self, conn: &Connection, state: Self::State, reason: &CloseReason) {
        let _ = (conn, state, reason);
    }
}

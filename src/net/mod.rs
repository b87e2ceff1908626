//! Connections: received bytes, sent bytes, and the errors of sockets.
//!
//! A socket is a [`Connection`], and a [`Protocol`] gives its bytes a meaning. When bytes have arrived,
//! a free worker calls the protocol. Calls with the state of one connection never overlap. The protocol
//! answers by [`Connection::send`], from that call or from any other thread.
//!
//! ```text
//!  Opening ─▶ Open ─▶ Finishing ─▶ Flushing ─▶ Lingering ─▶ Closed
//!               │     held requests  backlog     peer's rest    │ descriptor closed by the last
//!               └──────────── reset, time-out, cut ────────────▶┘ holder, as a task
//! ```
//!
//! * **Layers.** TLS, or a header in front of the stream, is a [`Layer`] between the socket and the protocol.
//!   A connection is `Opening` until its layers are ready.
//! * **Half-close.** The last requests of a peer that finishes sending (`shutdown(SHUT_WR)`) are
//!   answered. [`Protocol::ended`] decides whether the connection ends then. By default the
//!   connection ends when all bytes have left.
//! * **Flow control.** A peer that does not read fills the connection's backlog. Above
//!   `write_high_watermark_bytes` the connection is not read, or, with [`FullBacklog::Notify`], the
//!   protocol [pauses](Connection::pause_reads) the connection from which the bytes come, and resumes it
//!   in [`Protocol::drained`]. The example `splice` is a TCP proxy.
//! * **Half-close by us.** [`Connection::shutdown_write`] ends the stream behind the bytes sent before,
//!   and the connection is read on until the peer has finished too.
//! * **Reset.** Noticed when it arrives, also while the connection is not read; if a callback runs,
//!   after it. Bytes that wait to be sent are dropped, and `closed` gets [`CloseReason::Reset`].
//! * **Reset by us.** [`Connection::abort`] resets a connection, for example because the other
//!   connection of a proxy broke. A connection that ends although sent bytes wait, at a time-out
//!   for example, is reset too, and so is one that a drain cuts in a [held](Connection::hold)
//!   request: the peer must not take a part of the stream for the whole. The peer of a Unix socket
//!   sees the end of the stream.
//! * **Our close.** Bytes sent before leave first, then the end of the stream. The rest of the
//!   peer's bytes is read and dropped for a while. Otherwise unread input would turn the close into
//!   a reset, and the peer could lose the last reply.
//! * **Drain.** An accepted connection is no longer read. Requests that have arrived are answered,
//!   and it ends when no request is [held](Connection::hold). With
//!   [`read_while_held`](Connection::read_while_held) it is read until then. An outgoing connection
//!   stays open until no accepted one is left, because requests in progress may wait for its
//!   answers. Then it ends too, and is read while it is held, because an answer is awaited. A
//!   connection that is read in a drain becomes `Finishing` only if its peer finishes first.
//!
//! This module knows bytes, never messages.
//!
//! # Bytes from one connection to another
//!
//! ```
//! use epoll_group::net::{Connection, Input};
//!
//! /// Passes bytes on. If the receiver does not read, the sender is no longer read.
//! fn pass(from: &Connection, to: &Connection, input: &mut Input<'_>) {
//!     to.send(input.take_all());
//!     if to.is_backlogged() {
//!         from.pause_reads();
//!         // The call of `drained` follows the pause, even if the backlog is low by now.
//!         to.notify_when_drained();
//!     }
//! }
//! ```
//!
//! Both protocols call `pass` in `received`, and `resume_reads` of the other connection in `drained`. Each
//! ends the other connection in `closed`: a paused one has no deadline. Both connections have
//! [`FullBacklog::Notify`]: with `PauseReads`, two full backlogs may wait for each other.

mod accept;
mod address;
mod admissions;
#[cfg(feature = "client")]
mod calls;
mod close;
mod conn;
mod connection;
mod cork;
mod decode;
mod ending;
mod extensions;
mod handler;
mod layer;
mod layers;
mod listener;
mod opening;
mod options;
mod pausing;
mod phase;
mod pieces;
mod proxy_protocol;
mod read_buf;
mod read_more;
mod receive;
mod recv_state;
mod route;
mod send_queue;
#[cfg(feature = "internal")]
mod simulated;
#[cfg(feature = "tls")]
pub(crate) mod tls;

pub use address::{Address, Credentials, ToAddress};
pub use admissions::ListenerStats;
pub(crate) use admissions::PeerHost;
pub use close::{Close, CloseReason, HalfClose};
pub use connection::{ConnectError, Connection, ConnectionId, Hold, PeerState};
pub use cork::together;
#[cfg(feature = "client")]
pub(crate) use layer::Makers;
pub use layer::{Decoded, Layer, LayerState, MakeLayer};
pub use listener::{ListenError, Listener};
pub use options::{ConnectOptions, FullBacklog, ListenOptions};
pub use proxy_protocol::{Network, NetworkError, ProxyHeader, ProxyVersion};
pub use read_buf::Input;
pub use read_more::ReadMoreError;
pub use send_queue::Sent;
#[cfg(feature = "tls")]
pub use tls::{TlsClient, TlsInfo, TlsServer};

#[cfg(feature = "client")]
pub(crate) use calls::{Calls, Job, call_next};
pub(crate) use cork::{Cork, FULL, Held, OLD, flush_corked, is_corked};
#[cfg(feature = "internal")]
pub(crate) use proxy_protocol::check as check_proxy_header;
#[cfg(all(test, feature = "internal"))]
pub(crate) use simulated::Deaf;
#[cfg(feature = "internal")]
pub(crate) use simulated::Served;

pub use crate::runtime::Turn;

/// Code that gives the bytes of connections a meaning.
///
/// One value serves all connections of a listener, from many threads. The data of one connection is
/// its `State`. Calls that get it never overlap;
/// [`released`](Self::released) and [`drained`](Self::drained) may overlap them and themselves. If a call blocks, it delays only its own
/// connection; the runtime serves the others. A panic closes the connection and is counted.
pub trait Protocol: Send + Sync + 'static {
    /// Data of one connection.
    type State: Send + 'static;

    /// Called when an accepted or outgoing connection is established and its layers are ready.
    /// Called on a worker, before any `received` of the connection.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends this connection after the bytes sent before have left. There is no state then,
    /// so no other call is made for the connection.
    fn opened(&self, conn: &Connection) -> Result<Self::State, Close>;

    /// Called when an outgoing connection failed: it could not be established, or was closed
    /// before. No other call is made for it.
    fn connect_failed(&self, conn: &Connection, reason: &CloseReason) {
        let _ = (conn, reason);
    }

    /// Called when bytes have arrived. Unconsumed bytes come again at the next call, in front of
    /// the bytes that arrive until then.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends this connection after the bytes sent before have left.
    fn received(
        &self,
        conn: &Connection,
        state: &mut Self::State,
        input: &mut Input<'_>,
    ) -> Result<(), Close>;

    /// Follows `received` on the same thread, while another thread may already receive for this
    /// connection. Here the protocol runs, or hands out, the work that the bytes made runnable.
    /// `received` passes that work by way of [`Connection::extension`]. `turn` says if other events
    /// wait after this one.
    ///
    /// A half-close, a drain or an error of this `received` ends the connection only after this
    /// call, so answers from here still leave. Any other end may come first, and then sends are
    /// refused: the connection breaks, a thread calls `close`, or another worker receives later
    /// bytes that end it. For example, the later bytes make `received` or a layer fail, or are
    /// longer than `max_allowed_packet`.
    fn released(&self, conn: &Connection, turn: Turn) {
        let _ = (conn, turn);
    }

    /// Called when the peer has finished sending and all its bytes were passed to `received`. The
    /// peer may still read. `released` for the last bytes may run on another thread at the same
    /// time, or follow. The default ends the connection: an accepted one when no request is
    /// [held](Connection::hold) any more, an outgoing one at once. [`Connection::close`] ends either at once.
    ///
    /// A stream that breaks off in a layer, as that of a TLS peer that dies, is an error: it ends the
    /// connection at once, without this call.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends the connection like [`HalfClose::End`], for another reason: the last request is
    /// incomplete, for example.
    fn ended(&self, conn: &Connection, state: &mut Self::State) -> Result<HalfClose, Close> {
        let _ = (conn, state);
        Ok(HalfClose::End)
    }

    /// Called after [`Connection::notify`], on a worker. It runs also while reading is paused, and
    /// never before `opened` or after `closed`. `input` has the bytes that were left unconsumed, often
    /// none. It may consume them; `released` follows then, as after `received`. Bytes that it has
    /// [read](Input::read_more) and leaves are passed to `received`.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends this connection after the bytes sent before have left.
    fn notified(
        &self,
        conn: &Connection,
        state: &mut Self::State,
        input: &mut Input<'_>,
    ) -> Result<(), Close> {
        let _ = (conn, state, input);
        Ok(())
    }

    /// Called when the backlog has been above the high watermark and is at the low one again, and after
    /// [`Connection::notify_when_drained`]. While another callback of the connection runs, and perhaps
    /// waits for this, it is called on another thread at the same time, and again afterwards. If the
    /// connection breaks meanwhile, it is called for the last time, and
    /// [`is_closed`](Connection::is_closed) returns true. It is never called before `opened` has
    /// returned, so `opened` must not wait for it.
    ///
    /// It has no state. So a proxy keeps the other connection in an
    /// [extension](Connection::set_extension), in a lock that `closed` empties. Two connections that hold
    /// each other are never freed, nor are their descriptors. The example `splice` shows it.
    fn drained(&self, conn: &Connection) {
        let _ = conn;
    }

    /// Called when the drain of this connection begins. All bytes received so far have been passed
    /// to `received`. More follow only while the connection is [held](Connection::hold), and only
    /// if it is outgoing or [`read_while_held`](Connection::read_while_held) was called. The
    /// protocol may send a last message.
    ///
    /// For an outgoing connection, this call comes after the last accepted one has ended. If it is
    /// held and not yet established, the call follows when it is.
    fn draining(&self, conn: &Connection, state: &mut Self::State) {
        let _ = (conn, state);
    }

    /// Called when the connection has ended. If the peer does not close its side after the last
    /// bytes, that is when `linger_timeout` has passed. This is the last call for it, with two
    /// exceptions. A [`drained`](Self::drained) may begin or end on another thread after this. If
    /// neither a half-close nor a drain has ended the connection, a [`released`](Self::released)
    /// for earlier bytes may do so too.
    fn closed(&self, conn: &Connection, state: Self::State, reason: &CloseReason) {
        let _ = (conn, state, reason);
    }
}

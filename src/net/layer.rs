//! [`Layer`]: a transformation of the bytes between the socket and the protocol of one connection.
#![forbid(unsafe_code)]

use std::fmt;
use std::sync::Arc;

use super::address::Address;
use super::close::Close;
use super::connection::Connection;
use super::read_buf::Input;

/// Transformation of a connection's bytes between its socket and its [`Protocol`](super::Protocol), such
/// as TLS, compression, or a header in front of the stream.
///
/// *Shape*: one value for each connection, made when the connection is established. A layer does no
/// input or output itself: it gets bytes and returns bytes. Layers are stacked. The first one in the
/// options is next to the socket.
///
/// *Thread*: any, one call at a time, under the lock of the connection's layers. A call must not wait. It
/// must not send on this connection, half-close it or start a layer on it, which take that lock too. A
/// panic closes the connection.
///
/// *Order*: bytes are encoded in the order in which they are sent, and decoded in the order in which they
/// arrive. Watermarks, holds, drains and time-outs apply as without a layer: decoded bytes count as
/// unconsumed input, encoded ones as backlog.
///
/// [`opened`](super::Protocol::opened) is called when the last layer has left
/// [`Handshaking`](LayerState::Handshaking). Bytes sent before that wait, and are dropped if the connection
/// is closed meanwhile. A connection whose layers take longer than `handshake_timeout` is closed.
///
/// ```
/// use epoll_group::net::{Close, Connection, Decoded, Input, Layer, LayerState, ListenOptions};
///
/// /// Inverts all bits, behind a line that the client sends first.
/// #[derive(Default)]
/// struct Inverted {
///     greeted: bool,
/// }
///
/// impl Layer for Inverted {
///     fn received(
///         &mut self,
///         _: &Connection,
///         input: &mut Input<'_>,
///         decoded: &mut Decoded<'_>,
///         answer: &mut Vec<u8>,
///     ) -> Result<LayerState, Close> {
///         if !self.greeted {
///             match input.bytes().iter().position(|byte| *byte == b'\n') {
///                 Some(end) => input.consume(end + 1),
///                 None if input.len() < 64 => return Ok(LayerState::Handshaking),
///                 None => return Err("the greeting has no end".into()),
///             }
///             self.greeted = true;
///             answer.extend_from_slice(b"hello\n");
///         }
///         let inverted: Vec<u8> = input.take(decoded.room()).iter().map(|byte| !byte).collect();
///         decoded.push(&inverted);
///         Ok(LayerState::Ready)
///     }
///
///     fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close> {
///         encoded.extend(bytes.iter().map(|byte| !byte));
///         Ok(())
///     }
/// }
///
/// let options = ListenOptions::new().layer(|_: &Connection| Ok(Box::new(Inverted::default()) as _));
/// # let _ = options;
/// ```
pub trait Layer: Send + 'static {
    /// Begins, when the layers below are ready. May write first bytes for the peer, such as the hello of
    /// a client. By default the layer waits for input.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends the connection after the encoded bytes have left.
    fn start(&mut self, conn: &Connection, answer: &mut Vec<u8>) -> Result<LayerState, Close> {
        let _ = (conn, answer);
        Ok(LayerState::Handshaking)
    }

    /// Decodes bytes that have arrived. Unconsumed bytes, such as the beginning of a record, come again in
    /// front of the next ones. They count against `max_buffered_bytes`, `max_allowed_packet` and
    /// `frame_timeout`.
    ///
    /// A layer stops when [`room`](Decoded::room) is 0, and is called again for the rest. Bytes in
    /// `answer` leave for the peer, through the layers below.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends the connection after the decoded bytes were received and the encoded ones have
    /// left. Decoded bytes that wait because reading is paused are dropped.
    fn received(
        &mut self,
        conn: &Connection,
        input: &mut Input<'_>,
        decoded: &mut Decoded<'_>,
        answer: &mut Vec<u8>,
    ) -> Result<LayerState, Close>;

    /// Appends the encoded form of bytes to `encoded`. Never called before the layer is ready.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends the connection. The bytes are not sent.
    fn send(&mut self, bytes: &[u8], encoded: &mut Vec<u8>) -> Result<(), Close>;

    /// Called when the stream of the layer below has ended, or this layer has said that its own
    /// [has](LayerState::Ended). It may be called several times.
    ///
    /// # Errors
    ///
    /// If the end is not allowed here. The connection then ends at once with that reason, whatever
    /// holds it, and [`ended`](super::Protocol::ended) is not called.
    fn ended(&mut self) -> Result<(), Close> {
        Ok(())
    }

    /// Appends the last bytes for the peer, such as TLS's `close_notify`. Called once, when the connection
    /// is closed in order or half-closed by this side. They follow all bytes sent before.
    fn finish(&mut self, encoded: &mut Vec<u8>) {
        let _ = encoded;
    }

    /// Returns the address of the client, if the peer is a proxy that has named it. Asked once, when the layer
    /// has left [`Handshaking`](LayerState::Handshaking); see [`Connection::client_addr`].
    fn client_addr(&self) -> Option<Address> {
        None
    }

    /// Returns the number of bytes that the layer itself keeps, unconsumed input apart. They count against
    /// `max_buffered_bytes`.
    fn kept_bytes(&self) -> usize {
        0
    }
}

/// State of a [`Layer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayerState {
    /// The layer exchanges bytes with the peer before it can carry any. Layers above wait.
    Handshaking,
    /// The layer carries bytes.
    Ready,
    /// The peer has ended its stream. Later input is dropped. Sending goes on.
    Ended,
    /// The layer has nothing to do any more, and is dropped. Bytes pass unchanged from now on: the rest of
    /// its input, and later ones.
    Done,
}

/// Bytes that a layer has decoded, for the layer above or the protocol.
#[derive(Debug)]
pub struct Decoded<'a> {
    bytes: &'a mut Vec<u8>,
    /// Length of `bytes` at which the layer should stop.
    full_at: usize,
}

impl<'a> Decoded<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Self {
        Self { full_at: bytes.len() + ROOM, bytes }
    }

    /// Appends bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the number of bytes that the layer may still decode in this call: 64 KiB at the beginning.
    /// Its last record may exceed it.
    #[must_use]
    pub const fn room(&self) -> usize {
        self.full_at.saturating_sub(self.bytes.len())
    }
}

/// Bytes that a layer decodes in one call. The turn of the connection is checked between two calls.
const ROOM: usize = 64 << 10;

/// Maker of the layer of each connection: a closure `Fn(&Connection) -> Result<Box<dyn Layer>, Close>`, or
/// a value with shared state, such as `TlsServer`.
pub trait MakeLayer: Send + Sync + 'static {
    /// Makes the layer of one connection. If it is in the options, this is called when the connection was
    /// accepted or has been established, and has no state yet.
    ///
    /// # Errors
    ///
    /// A [`Close`] ends the connection.
    fn make(&self, conn: &Connection) -> Result<Box<dyn Layer>, Close>;
}

impl<F> MakeLayer for F
where
    F: Fn(&Connection) -> Result<Box<dyn Layer>, Close> + Send + Sync + 'static,
{
    fn make(&self, conn: &Connection) -> Result<Box<dyn Layer>, Close> {
        self(conn)
    }
}

/// Makers of the layers of a connection, the one next to the socket first.
#[derive(Clone, Default)]
pub(crate) struct Makers(Vec<Arc<dyn MakeLayer>>);

impl Makers {
    pub(crate) fn push(&mut self, maker: impl MakeLayer) {
        self.0.push(Arc::new(maker));
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn make(&self, conn: &Connection) -> Result<Vec<Box<dyn Layer>>, Close> {
        self.0.iter().map(|maker| maker.make(conn)).collect()
    }
}

impl fmt::Debug for Makers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} layers", self.0.len())
    }
}

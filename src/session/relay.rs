//! [`Relay`]: passes on the answer of another server.
//!
//! ```text
//!   other server ──▶ its reader ──▶ frames ◀──── next ──── the layer ──▶ client
//!                         │                                    ▲
//!                         └───────── wake, after Later ────────┘
//! ```

use std::fmt;
use std::sync::{Arc, Weak};

use super::ending::Ending;
use super::error::SessionError;
use super::notify_once::NotifyOnce;
use super::session_shared::SessionShared;
use crate::codec::message::ServerKind;

/// Answer of another server, which a proxy passes on frame by frame, unchanged.
///
/// [`Reply::relay`](super::Reply::relay) takes it. The layer asks it for one frame after the other
/// while the client grants credit and reads. If no frame is there, the relay returns
/// [`Relayed::Later`] and wakes the layer when one arrives. Meanwhile no thread waits: any worker
/// may ask for the next frame. So the relay must own its data. The layer drops it after its end,
/// after an error, and as soon as the request is cancelled.
///
/// A relay whose frames another thread puts into a queue:
///
/// ```
/// # use std::collections::VecDeque;
/// # use std::sync::{Arc, Mutex};
/// use epoll_group::codec::message::ServerKind;
/// use epoll_group::session::{Ending, Relay, Relayed, SessionError, Wake};
///
/// #[derive(Default)]
/// struct Pieces {
///     frames: VecDeque<(ServerKind, Vec<u8>)>,
///     ending: Option<Ending>,
///     /// Called when a frame or the ending was added.
///     wake: Option<Wake>,
/// }
///
/// struct Answer(Arc<Mutex<Pieces>>, Vec<u8>);
///
/// impl Relay for Answer {
///     fn next(&mut self, wake: &Wake) -> Result<Relayed<'_>, SessionError> {
///         let mut pieces = self.0.lock().unwrap();
///         if let Some((kind, body)) = pieces.frames.pop_front() {
///             self.1 = body;
///             return Ok(Relayed::Frame { kind, body: &self.1 });
///         }
///         pieces.wake = Some(wake.clone());
///         Ok(pieces.ending.take().map_or(Relayed::Later, Relayed::End))
///     }
/// }
///
/// # fn forward(pieces: Arc<Mutex<Pieces>>, reply: &mut epoll_group::session::Reply<'_>) {
/// reply.relay(Answer(pieces, Vec::new()));
/// # }
/// ```
pub trait Relay: Send {
    /// Returns the next frame. It should not wait: if no frame is there, it returns
    /// [`Relayed::Later`].
    ///
    /// The relay stores `wake` before it looks for a frame, or does both under one lock. Otherwise
    /// a frame that arrives in between wakes no worker. All calls of one relay get the same `wake`.
    ///
    /// # Errors
    ///
    /// An error ends the request, behind the frames relayed before.
    fn next(&mut self, wake: &Wake) -> Result<Relayed<'_>, SessionError>;
}

/// Frame or end of another server's answer.
#[derive(Debug)]
#[non_exhaustive]
pub enum Relayed<'a> {
    /// A frame: [`ColumnMetaData`](ServerKind::ColumnMetaData), [`Row`](ServerKind::Row),
    /// [`Chunk`](ServerKind::Chunk) or
    /// [`FetchDoneMoreResultsets`](ServerKind::FetchDoneMoreResultsets). The layer writes all other
    /// frames. A frame out of order, or a chunk that the client did not ask for, ends the request
    /// with an error.
    ///
    /// The body is sent unchanged. So the request to the other server must ask for the client's
    /// dialect, metadata and chunks.
    Frame {
        /// Kind of the frame.
        kind: ServerKind,
        /// Bytes behind the header.
        body: &'a [u8],
    },
    /// No frame is there yet. The relay calls [`Wake::wake`] when one is. A request that is never
    /// woken ends by a kill, by `request_timeout` or with its connection.
    Later,
    /// The answer is complete.
    End(Ending),
}

/// Makes the layer ask a [`Relay`] again after [`Relayed::Later`].
///
/// *Shape*: cheap to clone. Until the relay is asked again, only the first call has an effect. The
/// handle keeps neither the session nor its connection alive, and does nothing after the request.
#[derive(Clone)]
pub struct Wake(Arc<Call>);

struct Call {
    shared: Weak<SessionShared>,
    /// Marked by a wake-up, and by the end of the relay.
    notified: NotifyOnce,
}

impl Wake {
    pub(super) fn new(shared: &Arc<SessionShared>) -> Self {
        Self(Arc::new(Call { shared: Arc::downgrade(shared), notified: NotifyOnce::default() }))
    }

    /// Notifies the layer of a new frame. Any thread may call it at any time, also during
    /// [`Relay::next`], and more often than needed. It does not wait. The caller must not hold a
    /// lock that the drop of the relay takes, because this call may drop the session.
    pub fn wake(&self) {
        if self.0.notified.mark()
            && let Some(shared) = self.0.shared.upgrade()
        {
            shared.wake();
        }
    }

    pub(super) fn is_made(&self) -> bool {
        self.0.notified.is_marked()
    }

    /// Called before the relay is asked. Later wake-ups notify again.
    pub(super) fn ask(&self) {
        self.0.notified.clear();
    }

    /// Called at the end of the relay. Later wake-ups have no effect.
    fn end(&self) {
        self.0.notified.close();
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").field("made", &self.is_made()).finish_non_exhaustive()
    }
}

/// A relay and the position of its reply.
pub(super) struct Relaying {
    pub(super) relay: Box<dyn Relay>,
    pub(super) wake: Wake,
    pub(super) position: ResultPosition,
    /// Counts the relay as a deferred request.
    shared: Arc<SessionShared>,
}

impl Relaying {
    pub(super) fn new(
        relay: Box<dyn Relay>,
        shared: &Arc<SessionShared>,
        position: ResultPosition,
    ) -> Self {
        shared.conn.group().usage().deferred.change(true);
        Self { relay, wake: Wake::new(shared), position, shared: Arc::clone(shared) }
    }
}

impl Drop for Relaying {
    fn drop(&mut self) {
        self.wake.end();
        self.shared.conn.group().usage().deferred.change(false);
    }
}

/// Position of a relayed reply, which decides about the next frame.
///
/// ```text
///               META               ROW, CHUNK
///   Start ────────────▶ Columns ─────────────────▶ Rows      in Columns also META,
///                        │   ▲                      │        in Rows also ROW, CHUNK
///         MORE_RESULTSETS▼   │ META                 │
///                       Between ◀───────────────────┘ MORE_RESULTSETS
/// ```
///
/// A reply may end anywhere but in `Between`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResultPosition {
    Start,
    Columns,
    Rows,
    Between,
}

impl ResultPosition {
    /// Position behind a frame. Returns `None` if the frame is out of order.
    pub(super) const fn after(self, kind: ServerKind) -> Option<Self> {
        match (self, kind) {
            (Self::Start | Self::Columns | Self::Between, ServerKind::ColumnMetaData) => {
                Some(Self::Columns)
            }
            (Self::Columns | Self::Rows, ServerKind::Row | ServerKind::Chunk) => Some(Self::Rows),
            (Self::Columns | Self::Rows, ServerKind::FetchDoneMoreResultsets) => {
                Some(Self::Between)
            }
            _ => None,
        }
    }
}

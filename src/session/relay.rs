//! [`Relay`]: what another server answered, on its way through.
//!
//! ```text
//!   other server ──▶ who reads it ──▶ pieces ◀──── next ──── the layer ──▶ client
//!                         │                                      ▲
//!                         └───────── wake, if it was Later ──────┘
//! ```

use std::fmt;
use std::sync::{Arc, Weak};

use super::channel::Channel;
use super::ending::Ending;
use super::error::SessionError;
use super::told::Told;
use crate::codec::kind::ServerKind;

/// What another server answered, on its way through: a proxy's reply, whose frames are passed on as they
/// are.
///
/// Given to [`Reply::relay`](super::Reply::relay), it is asked for one piece after the other while the
/// client grants credit and reads what is sent. When there is none yet it says so, and wakes the layer
/// when there is. In between nobody waits: the rest is asked for later, on any worker. So it owns what
/// it needs. It is dropped at its end, when it fails, and as soon as the request is cancelled.
///
/// One of pieces that another thread leaves in a queue:
///
/// ```
/// # use std::collections::VecDeque;
/// # use std::sync::{Arc, Mutex};
/// use epoll_group::codec::kind::ServerKind;
/// use epoll_group::session::{Ending, Relay, Relayed, SessionError, Wake};
///
/// #[derive(Default)]
/// struct Pieces {
///     frames: VecDeque<(ServerKind, Vec<u8>)>,
///     ending: Option<Ending>,
///     /// To be called, when something was added.
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
    /// The next piece. It should not wait: what is not there yet is [`Relayed::Later`].
    ///
    /// `wake` is kept before it is found that nothing is there, or under the lock under which that is
    /// found; else a piece that comes in between wakes nobody. It is the same at every call.
    ///
    /// # Errors
    ///
    /// End the request, behind what was relayed before.
    fn next(&mut self, wake: &Wake) -> Result<Relayed<'_>, SessionError>;
}

/// A piece of what another server answered.
#[derive(Debug)]
#[non_exhaustive]
pub enum Relayed<'a> {
    /// A frame: [`ColumnMetaData`](ServerKind::ColumnMetaData), [`Row`](ServerKind::Row),
    /// [`Chunk`](ServerKind::Chunk) or
    /// [`FetchDoneMoreResultsets`](ServerKind::FetchDoneMoreResultsets). All others are made by the
    /// layer. What is out of place, and a chunk that nobody asked for, ends the request with an error.
    ///
    /// The body goes as it is. So metadata is of the dialect of the client, and the request has said to
    /// the other server what the client said: chunks, compact metadata.
    Frame {
        /// What it is.
        kind: ServerKind,
        /// What stands behind the header.
        body: &'a [u8],
    },
    /// Nothing is there yet; [`Wake::wake`] is called when there is. A request that nobody wakes ends
    /// by a kill, by `request_timeout` or with its connection.
    Later,
    /// That was all.
    End(Ending),
}

/// Makes the layer ask a [`Relay`] again that has said [`Relayed::Later`].
///
/// *Shape*: cheap to clone; of any number the first call counts, until the relay was asked. It keeps
/// neither the session nor its connection, and does nothing when the request is over.
#[derive(Clone)]
pub struct Wake(Arc<Call>);

struct Call {
    channel: Weak<Channel>,
    /// Of a wake-up, or of the end of the relay.
    told: Told,
}

impl Wake {
    pub(super) fn new(channel: &Arc<Channel>) -> Self {
        Self(Arc::new(Call { channel: Arc::downgrade(channel), told: Told::default() }))
    }

    /// Something is there. To be called from any thread and at any time, also while the relay is being
    /// asked, and also too often; it does not wait. Not under a lock that the relay needs to be
    /// dropped: this may be the last to hold its session.
    pub fn wake(&self) {
        if self.0.told.tell()
            && let Some(channel) = self.0.channel.upgrade()
        {
            channel.wake();
        }
    }

    pub(super) fn is_made(&self) -> bool {
        self.0.told.is_set()
    }

    /// The relay is asked next: it sees what was added before, and what comes behind wakes again.
    pub(super) fn ask(&self) {
        self.0.told.look();
    }

    /// Nobody is asked any more.
    fn end(&self) {
        self.0.told.end();
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wake").field("made", &self.is_made()).finish_non_exhaustive()
    }
}

/// A relay, and how far it is.
pub(super) struct Relaying {
    pub(super) relay: Box<dyn Relay>,
    pub(super) wake: Wake,
    pub(super) place: Place,
    /// Where it counts as a request that is answered later.
    channel: Arc<Channel>,
}

impl Relaying {
    pub(super) fn new(relay: Box<dyn Relay>, channel: &Arc<Channel>, place: Place) -> Self {
        channel.line.group().usage().deferred_changed(true);
        Self { relay, wake: Wake::new(channel), place, channel: Arc::clone(channel) }
    }
}

impl Drop for Relaying {
    fn drop(&mut self) {
        self.wake.end();
        self.channel.line.group().usage().deferred_changed(false);
    }
}

/// Where a reply is, as far as it decides about the next frame.
///
/// ```text
///               META               ROW, CHUNK
///   Start ────────────▶ Columns ─────────────────▶ Rows      in Columns also META,
///                        │   ▲                      │        in Rows also ROW, CHUNK
///         MORE_RESULTSETS▼   │ META                 │
///                       Between ◀───────────────────┘ MORE_RESULTSETS
/// ```
///
/// It may end everywhere but between two results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Start,
    Columns,
    Rows,
    Between,
}

impl Place {
    /// Behind a frame; `None` where that is out of place.
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

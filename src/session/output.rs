//! [`Output`]: frames that were written and not sent yet.
//!
//! ```text
//!   running request            requests that have ended           socket
//!   ┌─────────────────┐  keep  ┌──────────────────────┐  flush
//!   │ current         │───────▶│ ReplyBatch           │────────▶  one send
//!   └─────────────────┘        └──────────────────────┘
//!    for this thread alone      another thread may send them if this one is stuck
//! ```
//!
//! Replies of one run leave in one send, from one or several sessions of a connection. They leave
//! when they have 16 KiB, when the first is 0.1 ms old, before a request that is not known to be
//! quick, and before an announced wait. If a handler waits unannounced, another worker sends the
//! kept replies.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use super::conn_shared::ConnShared;
use super::server_conn::{RemainingWork, Runnable, ServerConn};
use super::service::Service;
use super::session_shared::SessionShared;
use crate::codec::buffer::OutBuffer;
use crate::codec::encoder::{Encoder, Metadata};
use crate::net::{Cork, Sent, flush_corked};
use crate::runtime::{Origin, Serving};
use crate::stats::Counter;
use crate::sync::shim::lock;
use crate::sync::stall;
use crate::sys::clock;

/// Frames that a thread has written for one connection and not sent.
pub(super) struct Output {
    conn: Arc<ConnShared>,
    current: RefCell<Unsent>,
    kept: Arc<ReplyBatch>,
    /// Set while replies may be kept.
    keeps: Cell<bool>,
    /// Set when other workers can find the kept replies.
    shown: Cell<bool>,
    /// Length of the buffer at which the clock is read again.
    look_at: Cell<usize>,
    /// Total of sent bytes.
    sent: Cell<usize>,
    /// Set if the socket did not take all bytes of the last send.
    pressed: Cell<bool>,
}

struct Unsent {
    buffer: OutBuffer,
    /// Session that writes into `buffer`.
    owner: Owner,
    /// Time of the first look at the clock since `buffer` was empty.
    since: Option<Instant>,
}

/// Number of bytes that are sent at once.
pub(super) const FULL: usize = 16 << 10;
/// Age at which replies are sent.
pub(super) const OLD: Duration = Duration::from_micros(100);
/// Bytes between two looks at the clock, within one reply.
const STRIDE: usize = 1 << 10;

impl Output {
    /// Runs `code` with an output for a connection, and sends the output at the end.
    pub(super) fn with<R>(conn: &Arc<ConnShared>, code: impl FnOnce(&Self) -> R) -> R {
        let _serving = Serving::begin(Origin::Accepted);
        // The thread-locals are gone if a destructor of another one finishes a deferred request.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let (buffer, kept) = spare.unwrap_or_else(|| (OutBuffer::new(&conn.pages), Arc::default()));
        let output = Rc::new(Self {
            conn: Arc::clone(conn),
            current: RefCell::new(Unsent { buffer, owner: None, since: None }),
            kept,
            keeps: Cell::new(false),
            shown: Cell::new(false),
            look_at: Cell::new(0),
            sent: Cell::new(0),
            pressed: Cell::new(false),
        });
        let _ = OPEN.try_with(|open| open.borrow_mut().push(Rc::clone(&output)));
        stall::before_wait(Some(flush_all));
        let open = Open(output);
        code(&open.0)
    }

    pub(super) const fn conn(&self) -> &Arc<ConnShared> {
        &self.conn
    }

    /// Sets the owner of the next frames. Earlier frames must be sent or kept.
    pub(super) fn begin(&self, owner: Option<&Arc<SessionShared>>) {
        self.pressed.set(self.conn.net.pending_bytes() > 0);
        let mut current = self.current.borrow_mut();
        debug_assert!(current.buffer.is_empty(), "this would change hands");
        current.owner = owner.cloned();
    }

    /// Writes frames of a session, and returns their length. `begin` was called for the session.
    pub(super) fn write<R>(
        &self,
        session: u64,
        metadata: Metadata,
        code: impl FnOnce(&mut Encoder<'_>) -> R,
    ) -> (R, usize) {
        let buffer = &mut self.current.borrow_mut().buffer;
        let before = buffer.len();
        let mut encoder =
            Encoder::with_dialect(buffer, self.conn.dialect, session).metadata(metadata);
        let result = code(&mut encoder);
        (result, buffer.len() - before)
    }

    /// Total of written bytes. It wraps, so only differences count.
    pub(super) fn sent_or_written(&self) -> usize {
        self.sent.get().wrapping_add(self.current.borrow().buffer.len())
    }

    /// Returns true if the backlog of the connection is worth a look.
    pub(super) const fn is_pressed(&self) -> bool {
        self.pressed.get()
    }

    /// Sends the reply so far if it is long or old. Called after each row.
    pub(super) fn row_written(&self) {
        let len = self.current.borrow().buffer.len();
        if len >= FULL {
            self.flush();
        } else if len >= self.look_at.get() {
            let now = clock::now();
            self.look_at.set(len + STRIDE);
            let since = *self.current.borrow_mut().since.get_or_insert(now);
            if now.saturating_duration_since(since) >= OLD {
                self.flush();
            }
        }
    }

    /// Keeps the reply of a quick request that ended at `now`, to send it with later replies.
    pub(super) fn keep(&self, now: Instant) {
        let due = {
            let Unsent { buffer, owner, since } = &mut *self.current.borrow_mut();
            *since = None;
            self.look_at.set(0);
            self.keeps.set(true);
            self.kept.add(buffer, owner, now)
        };
        if due {
            self.flush();
        }
    }

    /// Keeps `runnable` from running elsewhere until its output is sent, so that its replies stay
    /// in order.
    pub(super) fn hold(&self, runnable: Arc<dyn Runnable>) {
        self.keeps.set(true);
        self.kept.hold(runnable);
    }

    /// Makes work visible to other workers, which take it over if this thread gets stuck in its next
    /// run. The work is the kept replies, the ready queue of `server_conn`, and corked output.
    pub(super) fn show<S: Service>(&self, server_conn: &Arc<ServerConn<S>>) {
        let group = self.conn.group();
        if !self.shown.replace(true) || !group.has_stealable() {
            let (server_conn, kept) = (Arc::clone(server_conn), Arc::clone(&self.kept));
            let rest = RemainingWork { server_conn, kept, held: Cork::held() };
            group.put_stealable(Arc::new(rest));
        }
    }

    /// Returns true if replies may be kept.
    pub(super) const fn keeps(&self) -> bool {
        self.keeps.get()
    }

    /// Sends all frames, without those of dead sessions. Work that wrote them may run again.
    pub(super) fn flush(&self) {
        let held = {
            // During a row the buffer is borrowed, and an incomplete frame cannot be sent.
            let Ok(mut current) = self.current.try_borrow_mut() else { return };
            self.send_from(&mut current)
        };
        held.into_iter().for_each(Runnable::settle);
    }

    /// Sends all frames. The caller settles the returned work: for calls under a lock.
    #[must_use]
    pub(super) fn send(&self) -> Vec<Arc<dyn Runnable>> {
        self.send_from(&mut self.current.borrow_mut())
    }

    fn send_from(&self, current: &mut Unsent) -> Vec<Arc<dyn Runnable>> {
        let Unsent { buffer, owner, since } = current;
        self.look_at.set(0);
        *since = None;
        let bytes = buffer.len();
        let mut held = Vec::new();
        if self.keeps.replace(false) {
            let sent;
            (sent, held) = self.kept.send_with(&self.conn, buffer, owner);
            self.pressed.set(sent != Sent::Sent);
        } else if bytes > 0 {
            self.pressed.set(self.conn.send_frames(owner, buffer) != Sent::Sent);
        }
        self.sent.set(self.sent.get().wrapping_add(bytes));
        buffer.clear();
        held
    }
}

thread_local! {
    /// Open outputs of this thread. There are several when a handler finishes a deferred request of
    /// another connection.
    static OPEN: RefCell<Vec<Rc<Output>>> = const { RefCell::new(Vec::new()) };
    /// Buffers of the last output, for reuse.
    static SPARE: Cell<Option<(OutBuffer, Arc<ReplyBatch>)>> = const { Cell::new(None) };
}

/// Sends the output of this thread before it waits.
fn flush_all() {
    let open = OPEN.try_with(|open| open.try_borrow().map(|open| open.clone()));
    if let Ok(Ok(open)) = open {
        open.iter().for_each(|output| output.flush());
    }
    flush_corked();
}

/// Closes an output, also during unwinding.
struct Open(Rc<Output>);

impl Drop for Open {
    fn drop(&mut self) {
        let output = &self.0;
        output.flush();
        if output.shown.get() {
            drop(output.conn.group().take_stealable());
        }
        let _ = OPEN.try_with(|open| open.try_borrow_mut().map(|mut open| drop(open.pop())));
        let Some(output) = Rc::get_mut(&mut self.0) else { return };
        let buffer = std::mem::take(&mut output.current.get_mut().buffer);
        let mut kept = std::mem::take(&mut output.kept);
        // Another worker may still send from it.
        if Arc::get_mut(&mut kept).is_some() {
            let _ = SPARE.try_with(|spare| spare.set(Some((buffer, kept))));
        }
    }
}

/// Session whose frames these are; `None` for frames of no session.
pub(super) type Owner = Option<Arc<SessionShared>>;

/// Replies that one thread has written. Another thread may send them if the first one is stuck.
///
/// The lock is held during the send, which does not wait. So replies leave in order.
#[derive(Default)]
pub(super) struct ReplyBatch(Mutex<Replies>);

#[derive(Default)]
struct Replies {
    bytes: Vec<u8>,
    /// Owner of each part of `bytes`, and the end of the part.
    parts: Vec<(Owner, usize)>,
    /// Time at which the first reply was complete.
    since: Option<Instant>,
    /// Work that wrote the replies, and does not run until they are sent.
    held: Vec<Arc<dyn Runnable>>,
}

impl ReplyBatch {
    /// Takes the reply in `buffer`. Returns true if it is time to send.
    pub(super) fn add(&self, buffer: &mut OutBuffer, owner: &Owner, now: Instant) -> bool {
        let replies = &mut *lock(&self.0);
        if !buffer.is_empty() {
            buffer.slices().for_each(|slice| replies.bytes.extend_from_slice(slice));
            buffer.clear();
            let end = replies.bytes.len();
            match replies.parts.last_mut() {
                Some((last, last_end)) if is_same(last, owner) => *last_end = end,
                _ => replies.parts.push((owner.clone(), end)),
            }
            replies.since.get_or_insert(now);
        }
        let old = |since| now.saturating_duration_since(since) >= OLD;
        replies.bytes.len() >= FULL || replies.since.is_some_and(old)
    }

    pub(super) fn hold(&self, runnable: Arc<dyn Runnable>) {
        lock(&self.0).held.push(runnable);
    }

    /// Sends the replies, and `buffer` behind them. Returns the work that may run again.
    pub(super) fn send_with(
        &self,
        conn: &ConnShared,
        buffer: &OutBuffer,
        owner: &Owner,
    ) -> (Sent, Vec<Arc<dyn Runnable>>) {
        let replies = &mut *lock(&self.0);
        let sent = replies.send_with(conn, buffer, owner);
        (sent, std::mem::take(&mut replies.held))
    }

    /// Sends the replies by another thread, because their thread is stuck.
    pub(super) fn relieve(&self, conn: &ConnShared) {
        let held = {
            let mut replies = match self.0.try_lock() {
                Ok(replies) => replies,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The thread that has the lock is sending, so it is not stuck.
                Err(TryLockError::WouldBlock) => return,
            };
            replies.send_with(conn, &OutBuffer::new(&conn.pages), &None);
            std::mem::take(&mut replies.held)
        };
        held.into_iter().for_each(Runnable::settle);
    }
}

impl Replies {
    fn send_with(&mut self, conn: &ConnShared, buffer: &OutBuffer, owner: &Owner) -> Sent {
        self.since = None;
        if self.bytes.is_empty() && buffer.is_empty() {
            self.parts.clear();
            return Sent::Sent;
        }
        let sent = {
            let _sending = conn.sending();
            if is_dead(owner) || self.parts.iter().any(|(owner, _)| is_dead(owner)) {
                conn.net.send(self.living(conn, buffer, owner))
            } else if buffer.is_empty() {
                conn.net.send(&self.bytes)
            } else {
                let all = std::iter::once(&*self.bytes).chain(buffer.slices());
                let slices: Vec<_> = all.map(IoSlice::new).collect();
                conn.net.send_slices(&slices)
            }
        };
        self.bytes.clear();
        self.bytes.shrink_to(2 * FULL);
        self.parts.clear();
        sent
    }

    /// Bytes of the sessions that are not dead.
    fn living(&self, conn: &ConnShared, buffer: &OutBuffer, owner: &Owner) -> Vec<u8> {
        let mut living = Vec::new();
        let mut start = 0;
        for (owner, end) in &self.parts {
            if is_dead(owner) {
                conn.count(Counter::FramesOfDeadSessionsDropped);
            } else {
                living.extend_from_slice(&self.bytes[start..*end]);
            }
            start = *end;
        }
        if is_dead(owner) {
            conn.count(Counter::FramesOfDeadSessionsDropped);
        } else {
            buffer.slices().for_each(|slice| living.extend_from_slice(slice));
        }
        living
    }
}

pub(super) fn is_dead(owner: &Owner) -> bool {
    owner.as_ref().is_some_and(|shared| shared.is_dead())
}

fn is_same(one: &Owner, other: &Owner) -> bool {
    one.as_ref().map(Arc::as_ptr) == other.as_ref().map(Arc::as_ptr)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::codec::buffer::PagePool;
    use crate::codec::encoder::Encoder;
    use crate::codec::header::HEADER_BYTES;

    /// Keeps a reply of this length. Returns true if it is time to send.
    fn add(kept: &ReplyBatch, bytes: usize, now: Instant) -> bool {
        let mut buffer = OutBuffer::new(&PagePool::default());
        let body = vec![0; bytes - HEADER_BYTES];
        Encoder::new(&mut buffer, 1).frame(13, &[&body]).expect("short enough");
        assert_eq!(buffer.len(), bytes);
        kept.add(&mut buffer, &None, now)
    }

    #[test]
    fn replies_wait_until_they_are_many() {
        let (kept, now) = (ReplyBatch::default(), Instant::now());
        assert!(!add(&kept, 100, now));
        assert!(!add(&kept, FULL - 101, now), "one byte is missing");
        assert!(add(&kept, HEADER_BYTES, now));
        assert!(add(&ReplyBatch::default(), FULL, now));
    }

    #[test]
    fn replies_wait_until_the_first_is_old() {
        let (kept, now) = (ReplyBatch::default(), Instant::now());
        let nanosecond = Duration::from_nanos(1);
        assert!(!add(&kept, HEADER_BYTES, now));
        assert!(!add(&kept, HEADER_BYTES, now + OLD - nanosecond));
        assert!(add(&kept, HEADER_BYTES, now + OLD), "the age is that of the first");
    }
}

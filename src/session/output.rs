//! [`Output`]: frames that a thread writes and has not passed to the connection yet.
//!
//! Each reply is written into one buffer, and passed to the connection at its end. Long rows are
//! passed on when they have 16 KiB, or when the first of them is 0.1 ms old.
//!
//! If a quick request is followed by others, its reply is passed on under a [`Cork`]. So the
//! replies of one run leave in one send. They leave after a request that is not quick, and before
//! an announced wait. If a handler waits unannounced, another worker sends them. If several
//! sessions of a connection run in a row, one cork holds the replies of them all.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::conn_shared::ConnShared;
use super::session_shared::SessionShared;
use crate::codec::encoder::{Encoder, Metadata, OutBuffer};
use crate::net::{Cork, FULL, Held, OLD, Sent, flush_corked};
use crate::runtime::Work;
use crate::stall;
use crate::sys::clock::{self, Instant};

/// Frames that a thread has written for one connection and not passed on.
pub(super) struct Output {
    /// Present while the output is open.
    conn: Option<Arc<ConnShared>>,
    current: RefCell<Unsent>,
    /// Present while replies are held back.
    cork: Cell<Option<Cork>>,
    /// Set when other workers can find the held replies.
    shown: Cell<bool>,
    /// Length of the buffer at which the clock is read again.
    look_at: Cell<usize>,
    /// Total of bytes that were passed on.
    sent: Cell<usize>,
    /// Set if the socket did not take all bytes of the last send.
    pressed: Cell<bool>,
}

struct Unsent {
    buffer: OutBuffer,
    /// Session that writes into `buffer`; `None` for frames of no session.
    owner: Option<Arc<SessionShared>>,
    /// Time of the first look at the clock since `buffer` was empty.
    since: Option<Instant>,
}

/// Bytes between two looks at the clock, within one reply.
const STRIDE: usize = 1 << 10;

impl Output {
    /// Runs `code` with an output for a connection, and sends the output at the end.
    pub(super) fn with<R>(conn: &Arc<ConnShared>, code: impl FnOnce(&Self) -> R) -> R {
        let _serving = conn.net.serve();
        // The thread-locals are gone if a destructor of another one finishes a deferred request.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let mut output = spare.unwrap_or_else(|| Rc::new(Self::new(conn)));
        if let Some(output) = Rc::get_mut(&mut output) {
            output.conn = Some(Arc::clone(conn));
        }
        let _ = OPEN.try_with(|open| open.borrow_mut().push(Rc::clone(&output)));
        stall::before_wait(Some(flush_all));
        let open = Open(output);
        code(&open.0)
    }

    fn new(conn: &ConnShared) -> Self {
        let buffer = OutBuffer::new(&conn.server.pages);
        Self {
            conn: None,
            current: RefCell::new(Unsent { buffer, owner: None, since: None }),
            cork: Cell::new(None),
            shown: Cell::new(false),
            look_at: Cell::new(0),
            sent: Cell::new(0),
            pressed: Cell::new(false),
        }
    }

    pub(super) fn conn(&self) -> &Arc<ConnShared> {
        self.conn.as_ref().expect("the output is open")
    }

    /// Makes a sent output like a new one. Its buffer stays.
    fn close(&mut self) {
        self.conn = None;
        self.current.get_mut().owner = None;
        self.shown.set(false);
        self.look_at.set(0);
        self.pressed.set(false);
    }

    /// Sets the owner of the next frames. Earlier frames must be passed on.
    pub(super) fn begin(&self, owner: Option<&Arc<SessionShared>>) {
        self.pressed.set(self.conn().net.pending_bytes() > 0);
        let mut current = self.current.borrow_mut();
        debug_assert!(current.buffer.is_empty(), "earlier frames would get another owner");
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
            Encoder::with_dialect(buffer, self.conn().dialect, session).metadata(metadata);
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
            if now.duration_since(since) >= OLD {
                self.flush();
            }
        }
    }

    /// Holds back all replies from now to the next flush, so that they leave together.
    pub(super) fn keep(&self) {
        self.cork.set(Some(self.cork.take().unwrap_or_else(Cork::new)));
        self.pass_on();
    }

    /// Makes work visible to other workers, which take it over if this thread gets stuck in its next
    /// run. The work begins with the held output of this thread.
    pub(super) fn show(&self, work: impl FnOnce(Option<Arc<Held>>) -> Arc<dyn Work>) {
        let group = self.conn().group();
        if !self.shown.replace(true) || !group.has_stealable() {
            group.put_stealable(work(Cork::held()));
        }
    }

    /// Returns true if frames of this output were not passed on.
    pub(super) fn is_unsent(&self) -> bool {
        !self.current.borrow().buffer.is_empty()
    }

    /// Sends all frames, without those of dead sessions.
    pub(super) fn flush(&self) {
        self.pass_on();
        self.cork.take();
    }

    /// Passes all frames to the connection, without those of dead sessions. A cork may hold them
    /// back.
    pub(super) fn pass_on(&self) {
        // During a row the buffer is borrowed, and an incomplete frame cannot be sent.
        let Ok(mut current) = self.current.try_borrow_mut() else { return };
        let Unsent { buffer, owner, since } = &mut *current;
        self.look_at.set(0);
        *since = None;
        if !buffer.is_empty() {
            let is_dead = || owner.as_deref().is_some_and(SessionShared::is_dead);
            self.pressed.set(self.conn().send_frames(is_dead, buffer) != Sent::Sent);
            self.sent.set(self.sent.get().wrapping_add(buffer.len()));
            buffer.clear();
        }
    }
}

thread_local! {
    /// Open outputs of this thread. There are several when a handler finishes a deferred request of
    /// another connection.
    static OPEN: RefCell<Vec<Rc<Output>>> = const { RefCell::new(Vec::new()) };
    /// The last output, for reuse.
    static SPARE: Cell<Option<Rc<Output>>> = const { Cell::new(None) };
}

/// Sends the output of this thread before it waits.
fn flush_all() {
    let open = OPEN.try_with(|open| open.try_borrow().map(|open| open.clone()));
    if let Ok(Ok(open)) = open {
        open.iter().for_each(|output| output.pass_on());
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
            drop(output.conn().group().take_stealable());
        }
        let _ = OPEN.try_with(|open| open.try_borrow_mut().map(|mut open| drop(open.pop())));
        if let Some(output) = Rc::get_mut(&mut self.0) {
            output.close();
            let spare = Rc::clone(&self.0);
            let _ = SPARE.try_with(|place| place.set(Some(spare)));
        }
    }
}

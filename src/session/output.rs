//! [`Output`]: frames on their way out, from when they are written to when they are sent.
//!
//! ```text
//!   request that runs          requests that have ended           socket
//!   ┌─────────────────┐  keep  ┌──────────────────────┐  flush
//!   │ current         │───────▶│ Kept: replies, whole │────────▶  one send
//!   └─────────────────┘        └──────────────────────┘
//!    of this thread alone       others may send them, when this thread is stuck
//! ```
//!
//! What the requests of one run write, of one session or of several of a connection, leaves in one send.
//! It is not held back for long: it leaves when 16 KiB are there, when it is 0.1 ms old, before a
//! request begins that is not known to be quick, and when a handler announces that it waits. When a
//! handler that was thought quick waits and does not say so, another worker comes for what is kept.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::kept::{Kept, Owner};
use super::line::Line;
use super::link::{Link, Rest, Runnable};
use super::service::Service;
use crate::codec::buffer::OutBuffer;
use crate::codec::encoder::{Encoder, Metadata};
use crate::net::{Cork, Sent, flush_corked};
use crate::runtime::{Origin, Serving};
use crate::sync::stall;
use crate::sys::clock;

/// What a thread has written for one connection and not sent.
pub(super) struct Output {
    line: Arc<Line>,
    current: RefCell<Current>,
    kept: Arc<Kept>,
    /// Something may be kept.
    keeps: Cell<bool>,
    /// Others know of what is kept.
    shown: Cell<bool>,
    /// Bytes written before which the clock is not looked at again.
    look_at: Cell<usize>,
    /// Bytes that were sent.
    sent: Cell<usize>,
    /// The peer had not read everything when something was sent last.
    pressed: Cell<bool>,
}

struct Current {
    buffer: OutBuffer,
    /// Whose bytes these are.
    owner: Owner,
    /// When the first of them was written, as far as known.
    since: Option<Instant>,
}

/// Bytes at which they leave.
pub(super) const FULL: usize = 16 << 10;
/// Age at which they leave.
pub(super) const OLD: Duration = Duration::from_micros(100);
/// Bytes between two looks at the clock, within one reply.
const STRIDE: usize = 1 << 10;

impl Output {
    /// Runs `code` with an output for a connection, and sends what is in it at the end.
    pub(super) fn with<R>(line: &Arc<Line>, code: impl FnOnce(&Self) -> R) -> R {
        let _serving = Serving::begin(Origin::Accepted);
        // The thread-locals are gone if the destructor of another one finishes a deferred request.
        let spare = SPARE.try_with(Cell::take).ok().flatten();
        let (buffer, kept) = spare.unwrap_or_else(|| (OutBuffer::new(&line.pages), Arc::default()));
        let output = Rc::new(Self {
            line: Arc::clone(line),
            current: RefCell::new(Current { buffer, owner: None, since: None }),
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

    pub(super) const fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// What is written from now on belongs to `owner`; what was written before is sent or kept.
    pub(super) fn begin(&self, owner: Option<&Arc<Channel>>) {
        self.pressed.set(self.line.conn.pending_bytes() > 0);
        let mut current = self.current.borrow_mut();
        debug_assert!(current.buffer.is_empty(), "this would change hands");
        current.owner = owner.cloned();
    }

    /// Writes frames of a session, and returns how many bytes they are. `begin` was called for it.
    pub(super) fn write<R>(
        &self,
        session: u64,
        metadata: Metadata,
        code: impl FnOnce(&mut Encoder<'_>) -> R,
    ) -> (R, usize) {
        let buffer = &mut self.current.borrow_mut().buffer;
        let before = buffer.len();
        let mut encoder =
            Encoder::with_dialect(buffer, self.line.dialect, session).metadata(metadata);
        let result = code(&mut encoder);
        (result, buffer.len() - before)
    }

    /// Bytes that went through it: only differences count.
    pub(super) fn sent_or_written(&self) -> usize {
        self.sent.get().wrapping_add(self.current.borrow().buffer.len())
    }

    /// Whether a look at what the peer has not read is worth while.
    pub(super) const fn is_pressed(&self) -> bool {
        self.pressed.get()
    }

    /// After some bytes of a reply: sends them if there are many, or if they are old. Looks at the clock
    /// now and then.
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

    /// A quick request has ended, at `now`: its reply waits a little for those behind it.
    pub(super) fn keep(&self, now: Instant) {
        let due = {
            let Current { buffer, owner, since } = &mut *self.current.borrow_mut();
            *since = None;
            self.look_at.set(0);
            self.keeps.set(true);
            self.kept.add(buffer, owner, now)
        };
        if due {
            self.flush();
        }
    }

    /// Keeps it from being run elsewhere until what it has written has left, so that its replies stay in
    /// order.
    pub(super) fn hold(&self, runnable: Arc<dyn Runnable>) {
        self.keeps.set(true);
        self.kept.hold(runnable);
    }

    /// Lets others come for what is kept, for what is ready in `link`, and for what a cork holds back,
    /// if this thread gets stuck in what it runs next.
    pub(super) fn show<S: Service>(&self, link: &Arc<Link<S>>) {
        let group = self.line.group();
        if !self.shown.replace(true) || !group.has_aside() {
            let (link, kept) = (Arc::clone(link), Arc::clone(&self.kept));
            let rest = Rest { link, kept, held: Cork::held() };
            group.set_aside(Arc::new(rest));
        }
    }

    /// Something of earlier requests may be waiting.
    pub(super) const fn keeps(&self) -> bool {
        self.keeps.get()
    }

    /// Sends what is there. What belongs to a session that is dead by now is dropped. Those that have
    /// written it may run again.
    pub(super) fn flush(&self) {
        let held = {
            // Within a row nothing can be sent.
            let Ok(mut current) = self.current.try_borrow_mut() else { return };
            self.send_from(&mut current)
        };
        held.into_iter().for_each(Runnable::settle);
    }

    /// The same, but the caller settles those that may run again: for calls under a lock.
    #[must_use]
    pub(super) fn send(&self) -> Vec<Arc<dyn Runnable>> {
        self.send_from(&mut self.current.borrow_mut())
    }

    fn send_from(&self, current: &mut Current) -> Vec<Arc<dyn Runnable>> {
        let Current { buffer, owner, since } = current;
        self.look_at.set(0);
        *since = None;
        let bytes = buffer.len();
        let mut held = Vec::new();
        if self.keeps.replace(false) {
            let sent;
            (sent, held) = self.kept.send_with(&self.line, buffer, owner);
            self.pressed.set(sent != Sent::Sent);
        } else if bytes > 0 {
            self.pressed.set(self.line.send_of(owner, buffer) != Sent::Sent);
        }
        self.sent.set(self.sent.get().wrapping_add(bytes));
        buffer.clear();
        held
    }
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("line", &self.line).finish_non_exhaustive()
    }
}

thread_local! {
    /// The outputs of this thread: more than one when a handler finishes a deferred request of another
    /// connection.
    static OPEN: RefCell<Vec<Rc<Output>>> = const { RefCell::new(Vec::new()) };
    /// What the last one left, to be used again.
    static SPARE: Cell<Option<(OutBuffer, Arc<Kept>)>> = const { Cell::new(None) };
}

/// Sends what this thread has written: it is about to wait.
fn flush_all() {
    let open = OPEN.try_with(|open| open.try_borrow().map(|open| open.clone()));
    if let Ok(Ok(open)) = open {
        open.iter().for_each(|output| output.flush());
    }
    flush_corked();
}

/// Closes an output, also when the thread unwinds.
struct Open(Rc<Output>);

impl Drop for Open {
    fn drop(&mut self) {
        let output = &self.0;
        output.flush();
        if output.shown.get() {
            drop(output.line.group().take_aside());
        }
        let _ = OPEN.try_with(|open| open.try_borrow_mut().map(|mut open| drop(open.pop())));
        let Some(output) = Rc::get_mut(&mut self.0) else { return };
        let buffer = std::mem::take(&mut output.current.get_mut().buffer);
        let mut kept = std::mem::take(&mut output.kept);
        // Unless somebody else still looks at it.
        if Arc::get_mut(&mut kept).is_some() {
            let _ = SPARE.try_with(|spare| spare.set(Some((buffer, kept))));
        }
    }
}

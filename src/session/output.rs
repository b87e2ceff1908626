//! [`Output`]: frames on their way out, from when they are written to when they are sent.
//!
//! What the requests of one run write, of one session or of several of a connection, is collected and
//! leaves in one send. It is not held back for long: see [`Output::flush_if_due`]. A handler that
//! waits, and says so, sends first what it has written: `flush_all` is the hook for that.

use std::cell::{Cell, RefCell};
use std::io::IoSlice;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::channel::Channel;
use super::line::Line;
use crate::codec::buffer::OutBuffer;
use crate::codec::encoder::{Encoder, Metadata};
use crate::net::Sent;
use crate::stats::Counter;
use crate::sync::stall;

/// What a thread has written for one connection and not sent.
#[derive(Debug)]
pub(super) struct Output {
    /// Present while it is open.
    line: Option<Arc<Line>>,
    inner: RefCell<Inner>,
    /// Bytes written before which the clock is not looked at again.
    look_at: Cell<usize>,
    /// Bytes that were sent.
    sent: Cell<usize>,
    /// The peer had not read everything when something was sent last.
    pressed: Cell<bool>,
}

#[derive(Debug)]
struct Inner {
    buffer: OutBuffer,
    /// Whose bytes these are, up to where in the buffer; the last one's end is still open.
    parts: Vec<(Option<Arc<Channel>>, usize)>,
    /// When the first of them was written.
    since: Option<Instant>,
}

impl Inner {
    fn begin(&mut self, owner: Option<Arc<Channel>>) {
        let end = self.buffer.len();
        if let Some((_, last_end)) = self.parts.last_mut() {
            *last_end = end;
        }
        self.parts.push((owner, 0));
    }

    fn has_dead(&self) -> bool {
        self.parts.iter().any(|(owner, _)| is_dead(owner.as_ref()))
    }
}

fn is_dead(owner: Option<&Arc<Channel>>) -> bool {
    owner.is_some_and(|channel| channel.is_dead())
}

/// Bytes at which they leave.
const FULL: usize = 16 << 10;
/// Age at which they leave.
const OLD: Duration = Duration::from_micros(100);
/// Bytes between two looks at the clock, within one reply.
const STRIDE: usize = 1 << 10;

impl Output {
    /// Runs `code` with an output for a connection, and sends what is in it at the end.
    pub(super) fn with<R>(line: &Arc<Line>, code: impl FnOnce(&Self) -> R) -> R {
        let mut output = SPARE.take().unwrap_or_else(|| Rc::new(Self::new(line)));
        // Nobody else has a spare one.
        if let Some(output) = Rc::get_mut(&mut output) {
            output.line = Some(Arc::clone(line));
        }
        OPEN.with_borrow_mut(|open| open.push(Rc::clone(&output)));
        stall::before_wait(Some(flush_all));
        let open = Open(output);
        code(&open.0)
    }

    fn new(line: &Line) -> Self {
        let buffer = OutBuffer::new(&line.pages);
        let inner = RefCell::new(Inner { buffer, parts: Vec::new(), since: None });
        Self {
            line: None,
            inner,
            look_at: Cell::new(0),
            sent: Cell::new(0),
            pressed: Cell::new(false),
        }
    }

    pub(super) fn line(&self) -> &Arc<Line> {
        self.line.as_ref().expect("taken when it is closed only")
    }

    /// What is written from now on belongs to `channel`.
    pub(super) fn begin(&self, channel: &Arc<Channel>) {
        self.pressed.set(self.line().conn.pending_bytes() > 0);
        let mut inner = self.inner.borrow_mut();
        if !matches!(inner.parts.last(), Some((Some(last), _)) if Arc::ptr_eq(last, channel)) {
            inner.begin(Some(Arc::clone(channel)));
        }
    }

    /// What is written from now on belongs to no session.
    pub(super) fn begin_unowned(&self) {
        self.inner.borrow_mut().begin(None);
    }

    /// Writes frames of a session, and returns how many bytes they are. `begin` was called for it.
    pub(super) fn write<R>(
        &self,
        session: u64,
        metadata: Metadata,
        code: impl FnOnce(&mut Encoder<'_>) -> R,
    ) -> (R, usize) {
        let mut inner = self.inner.borrow_mut();
        let before = inner.buffer.len();
        let mut encoder = Encoder::with_dialect(&mut inner.buffer, self.line().dialect, session)
            .metadata(metadata);
        let result = code(&mut encoder);
        (result, inner.buffer.len() - before)
    }

    /// Bytes that went through it: only differences count.
    pub(super) fn sent_or_written(&self) -> usize {
        self.sent.get().wrapping_add(self.inner.borrow().buffer.len())
    }

    /// Whether a look at what the peer has not read is worth while.
    pub(super) const fn is_pressed(&self) -> bool {
        self.pressed.get()
    }

    /// A request has ended, at `now`: what it wrote leaves soon.
    pub(super) fn note_time(&self, now: Instant) {
        let mut inner = self.inner.borrow_mut();
        if inner.since.is_none() && !inner.buffer.is_empty() {
            inner.since = Some(now);
        }
    }

    /// Sends what is there if there is much of it, or if it is old.
    pub(super) fn flush_if_due(&self, now: Instant) {
        let due = {
            let inner = self.inner.borrow();
            let old = |since| now.saturating_duration_since(since) >= OLD;
            inner.buffer.len() >= FULL || inner.since.is_some_and(old)
        };
        if due {
            self.flush();
        }
    }

    /// The same within a reply, after some bytes of it: looks at the clock now and then.
    pub(super) fn row_written(&self) {
        let len = self.inner.borrow().buffer.len();
        if len >= FULL {
            self.flush();
        } else if len >= self.look_at.get() {
            let now = Instant::now();
            self.look_at.set(len + STRIDE);
            self.note_time(now);
            self.flush_if_due(now);
        }
    }

    /// Sends what is there. What belongs to a session that is dead by now is dropped.
    pub(super) fn flush(&self) {
        let Ok(mut inner) = self.inner.try_borrow_mut() else { return };
        let inner = &mut *inner;
        self.look_at.set(0);
        inner.since = None;
        if !inner.buffer.is_empty() {
            let line = self.line();
            let _sending = line.sending();
            let sent = if inner.has_dead() {
                self.send_living(inner)
            } else {
                let mut slices = inner.buffer.slices();
                match (slices.next(), slices.next()) {
                    (Some(only), None) => line.conn.send(only),
                    _ => {
                        let slices: Vec<_> = inner.buffer.slices().map(IoSlice::new).collect();
                        line.conn.send(inner.buffer.to_vec())
                    }
                }
            };
            self.pressed.set(sent != Sent::Sent);
            self.sent.set(self.sent.get().wrapping_add(inner.buffer.len()));
            inner.buffer.clear();
        }
        // The last one goes on writing.
        if inner.parts.len() > 1 {
            inner.parts.drain(..inner.parts.len() - 1);
        }
    }

    fn send_living(&self, inner: &Inner) -> Sent {
        let bytes = inner.buffer.to_vec();
        let mut living = Vec::new();
        let mut start = 0;
        for (at, (owner, end)) in inner.parts.iter().enumerate() {
            let end = if at + 1 == inner.parts.len() { bytes.len() } else { *end };
            if is_dead(owner.as_ref()) {
                self.line().count(Counter::FramesOfDeadSessionsDropped);
            } else {
                living.extend_from_slice(&bytes[start..end]);
            }
            start = end;
        }
        self.line().conn.send(living)
    }
}

thread_local! {
    /// The outputs of this thread: more than one when a handler finishes a deferred request of another
    /// connection.
    static OPEN: RefCell<Vec<Rc<Output>>> = const { RefCell::new(Vec::new()) };
    /// One that was closed, to be used again.
    static SPARE: Cell<Option<Rc<Output>>> = const { Cell::new(None) };
}

/// Sends what this thread has written: it is about to wait.
fn flush_all() {
    let open = OPEN.try_with(|open| open.try_borrow().map(|open| open.clone()));
    if let Ok(Ok(open)) = open {
        open.iter().for_each(|output| output.flush());
    }
}

/// Closes an output, also when the thread unwinds.
struct Open(Rc<Output>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.flush();
        let _ = OPEN.try_with(|open| open.try_borrow_mut().map(|mut open| drop(open.pop())));
        if let Some(output) = Rc::get_mut(&mut self.0) {
            output.line = None;
            output.pressed.set(false);
            output.inner.get_mut().parts.clear();
            let _ = SPARE.try_with(|spare| spare.set(Some(Rc::clone(&self.0))));
        }
    }
}

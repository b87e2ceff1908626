//! Announcement of a handler that it is about to wait, so that its runtime can put another thread
//! to work.
//!
//! A runtime has about as many workers as CPUs. A handler that sleeps, waits for a lock or asks
//! another server takes one of them away without using its CPU. If enough handlers wait, no worker
//! is left to run the code that they wait for. Therefore announce such waits. The runtime counts
//! the workers that wait, and starts others in their place when there are too many.
//!
//! ```
//! use std::sync::mpsc;
//!
//! use epoll_group::{Runtime, stall};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let runtime = Runtime::builder().start()?;
//! let (question, questions) = mpsc::channel();
//! let (answer, answers) = mpsc::channel();
//! let (done, finished) = mpsc::channel();
//!
//! runtime.handle().spawn(move || {
//!     question.send("row 7?").expect("a listener");
//!     let row = stall::run(|| answers.recv());
//!     done.send(row).expect("a listener");
//! })?;
//!
//! assert_eq!(questions.recv()?, "row 7?");
//! answer.send("a row")?;
//! assert_eq!(finished.recv()??, "a row");
//! # Ok(())
//! # }
//! ```
//!
//! # Users
//!
//! A handler announces every call that may block for longer than a thread switch: a channel, a
//! blocking client, a foreign library with locks of its own, `thread::sleep`. A library may
//! announce its waits without knowing its caller. On a thread that is no worker the announcement
//! does nothing. Waits may nest. Together they count once, from the first to the last.
//!
//! # Cost
//!
//! On a thread that is no worker an announcement costs the reads of two thread-local variables. On
//! a worker it costs a few counters more. The outermost wait also costs the reaction of the
//! runtime: the start of the missing threads, mostly one.
//!
//! # Mistakes to avoid
//!
//! Do not announce work that keeps the CPU busy: the added thread competes for the same CPU, and
//! everything becomes slower. If a call almost never waits, announce only its real waits, after a
//! try that failed. Do not keep a [`Stall`] longer than the wait, because code that runs under it
//! counts as waiting.
//!
//! A forgotten guard ([`mem::forget`](std::mem::forget)) makes its worker count as waiting for
//! good. While a guard is kept from one handler to the next, later waits of that thread are part of
//! its wait, and are not announced.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

/// Reason for which a thread waits.
///
/// The runtime adds threads for waits that count. [`Disk`](Self::Disk), [`Sync`](Self::Sync) and
/// [`Commit`](Self::Commit) do not count: they are short, they end without the help of another
/// session, and more threads would only queue for the same device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Wait {
    /// A lock that another session or thread holds: of a row, a table, metadata, a user's lock.
    Lock,
    /// Time to pass.
    Sleep,
    /// The answer of another server, or of another session of this one.
    Reply,
    /// A peer to send or to take bytes.
    Network,
    /// Anything else.
    Other,
    /// A read or write of a disk; not counted.
    Disk,
    /// A write to become durable (`fsync`), a log to be flushed; not counted.
    Sync,
    /// A group commit, in which one thread writes for all waiting ones; not counted.
    Commit,
}

impl Wait {
    /// Returns true if the runtime may add a thread for it.
    const fn is_counted(self) -> bool {
        match self {
            Self::Lock | Self::Sleep | Self::Reply | Self::Network | Self::Other => true,
            Self::Disk | Self::Sync | Self::Commit => false,
        }
    }
}

/// Marks this thread as waiting, until the guard is dropped; the same as [`enter_as`] with
/// [`Wait::Other`].
pub fn enter() -> Stall {
    enter_as(Wait::Other)
}

/// Marks this thread as waiting for the given reason, until the guard is dropped.
///
/// Guards may be dropped in any order: the thread counts as waiting until the last one is dropped.
pub fn enter_as(wait: Wait) -> Stall {
    let hooked = Hooked::begin();
    // The thread-local is gone if the destructor of another one waits. Such a thread is no worker
    // any more.
    let waiter = WAITER.try_with(|waiter| waiter.borrow().clone());
    let waiting = waiter.ok().flatten().and_then(|waiter| waiter.begin(wait.is_counted()));
    Stall { waiting, _hooked: hooked }
}

/// Runs code that waits; the same as [`run_as`] with [`Wait::Other`].
///
/// The wait ends when the code returns and when it panics.
pub fn run<R>(code: impl FnOnce() -> R) -> R {
    run_as(Wait::Other, code)
}

/// Runs code that waits for the given reason.
pub fn run_as<R>(wait: Wait, code: impl FnOnce() -> R) -> R {
    let _stall = enter_as(wait);
    code()
}

/// A wait in progress; it ends when this is dropped, also when the thread unwinds.
///
/// It belongs to the thread that waits and cannot be sent to another.
#[must_use = "the wait ends when the guard is dropped"]
pub struct Stall {
    waiting: Option<Waiting>,
    _hooked: Option<Hooked>,
}

impl fmt::Debug for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stall").field("announced", &self.waiting.is_some()).finish()
    }
}

/// Announcer that a runtime installs for its workers. Called on the thread that waits.
///
/// Its code may wait and announce that again. Such waits are part of the announced one, and the
/// announcer is not called for them.
pub(crate) trait Announce {
    /// Begins the first counted wait. If it panics, the wait ends at once, and `end` follows.
    fn begin(&self);
    /// Ends the last counted wait. It must not panic, because the thread may be unwinding.
    fn end(&self);
    /// Begins a wait that does not count, outside of any other.
    fn uncounted(&self);
}

/// Installs the announcer of this thread's waits; `None` removes it.
///
/// A wait in progress ends with the announcer with which it began.
pub(crate) fn install(announce: Option<Rc<dyn Announce>>) {
    let waiter = announce.map(|announce| Rc::new(Waiter::new(announce)));
    // The earlier announcer is dropped after the borrow, because its drop may announce a wait.
    let _before = WAITER.try_with(|place| place.replace(waiter));
}

/// Returns true if this thread has an announcer or a hook.
#[cfg(test)]
pub(crate) fn is_heard() -> bool {
    HOOK.with(|hook| hook.code.get().is_some())
        || WAITER.try_with(|waiter| waiter.borrow().is_some()).unwrap_or(false)
}

/// Sets the hook that this thread calls before a wait, counted or not; `None` removes it. Returns
/// the earlier hook.
///
/// The hook is called for the outermost wait, before that is announced, and also on threads without
/// an announcer. It releases resources that other threads may wait for, such as replies that are
/// held back. Waits of the hook itself are announced as any other, and the hook is not called for
/// them. If it panics, the wait does not begin.
pub(crate) fn before_wait(hook: Option<fn()>) -> Option<fn()> {
    HOOK.with(|place| place.code.replace(hook))
}

thread_local! {
    static WAITER: RefCell<Option<Rc<Waiter>>> = const { RefCell::new(None) };
}

thread_local! {
    /// Hook of the thread. It has no destructor, so that it lives as long as the thread.
    static HOOK: Hook = const { Hook { code: Cell::new(None), waits: Cell::new(0) } };
}

/// Hook of a thread; see [`before_wait`].
struct Hook {
    code: Cell<Option<fn()>>,
    /// Waits in progress that began while there was a hook.
    waits: Cell<usize>,
}

/// One wait in [`Hook::waits`].
struct Hooked(PhantomData<Rc<()>>);

impl Hooked {
    /// Counts a wait and calls the hook. Without a hook it costs one read.
    fn begin() -> Option<Self> {
        HOOK.with(|hook| {
            let code = hook.code.get()?;
            let before = hook.waits.replace(hook.waits.get() + 1);
            // From here on the wait counts until the guard is dropped, also by a panic.
            let hooked = Self(PhantomData);
            if before == 0 {
                code();
            }
            Some(hooked)
        })
    }
}

impl Drop for Hooked {
    fn drop(&mut self) {
        HOOK.with(|hook| hook.waits.set(hook.waits.get() - 1));
    }
}

/// State of one thread while one announcer is installed for it.
struct Waiter {
    announce: Rc<dyn Announce>,
    /// Waits in progress: those that count, and those that do not.
    counted: Cell<usize>,
    uncounted: Cell<usize>,
    /// True while the announcer runs.
    busy: Cell<bool>,
}

impl Waiter {
    fn new(announce: Rc<dyn Announce>) -> Self {
        let (counted, uncounted) = (Cell::new(0), Cell::new(0));
        Self { announce, counted, uncounted, busy: Cell::new(false) }
    }

    /// Begins a wait. `None`: the announcer itself waits.
    fn begin(self: Rc<Self>, counted: bool) -> Option<Waiting> {
        if self.busy.get() {
            return None;
        }
        let outside = self.counted.get() == 0;
        let first = outside && self.uncounted.get() == 0;
        let waiting = Waiting::new(self, counted);
        let waiter = &waiting.waiter;
        if counted && outside {
            waiter.call(|announce| announce.begin());
        } else if !counted && first {
            waiter.call(|announce| announce.uncounted());
        }
        Some(waiting)
    }

    fn call(&self, code: impl FnOnce(&dyn Announce)) {
        let _reset = Busy::new(&self.busy);
        code(&*self.announce);
    }
}

/// One wait of a [`Waiter`].
struct Waiting {
    waiter: Rc<Waiter>,
    counted: bool,
}

impl Waiting {
    fn new(waiter: Rc<Waiter>, counted: bool) -> Self {
        let waiting = Self { waiter, counted };
        let depth = waiting.depth();
        depth.set(depth.get() + 1);
        waiting
    }

    fn depth(&self) -> &Cell<usize> {
        if self.counted { &self.waiter.counted } else { &self.waiter.uncounted }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let depth = self.depth();
        depth.set(depth.get() - 1);
        if self.counted && depth.get() == 0 {
            self.waiter.call(|announce| announce.end());
        }
    }
}

/// Sets the flag while it lives.
struct Busy<'a>(&'a Cell<bool>);

impl<'a> Busy<'a> {
    fn new(flag: &'a Cell<bool>) -> Self {
        flag.set(true);
        Self(flag)
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

#[cfg(test)]
mod tests;

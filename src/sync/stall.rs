//! A handler says that it is about to wait, so that its runtime can put another thread to work.
//!
//! A runtime has about as many workers as CPUs. A handler that sleeps, waits for a lock or asks
//! another server takes one of them away without using its CPU; when enough of them wait, nobody is
//! left for whoever they wait for. So tell the runtime: it counts the workers that wait, and starts
//! others in their place when there are too many.
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
//!     question.send("row 7?").expect("somebody listens");
//!     let row = stall::run(|| answers.recv());
//!     done.send(row).expect("somebody listens");
//! })?;
//!
//! assert_eq!(questions.recv()?, "row 7?");
//! answer.send("a row")?;
//! assert_eq!(finished.recv()??, "a row");
//! # Ok(())
//! # }
//! ```
//!
//! # Who uses it
//!
//! Whoever calls something that may block for longer than a thread switch takes: a channel, a
//! blocking client, a foreign library with locks of its own, `thread::sleep`. A library may announce
//! its waits without knowing who calls it: on a thread that is no worker it does nothing. Waits may
//! nest; together they count once, from the first to the last.
//!
//! # What it costs
//!
//! On a thread that is no worker one look at a thread-local variable. On a worker some counters more,
//! and for the outermost wait what the runtime does about it: at most the start of a thread.
//!
//! # What not to do
//!
//! Do not announce work that keeps the CPU busy: the thread that is added competes for the same CPU,
//! and everything becomes slower. Do not announce what almost never waits, either: announce when it
//! does, after a try that failed. Do not keep a [`Stall`] longer than the wait: what runs under it
//! counts as waiting, and one that is forgotten ([`mem::forget`](std::mem::forget)) makes its worker
//! count as waiting for good. While a guard is kept from one handler to the next, later waits of that
//! thread are part of its wait, and nobody hears of them.
#![forbid(unsafe_code)]

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

/// What a thread waits for.
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
    /// A group commit, in which one writes for all that wait; not counted.
    Commit,
}

impl Wait {
    /// Whether the runtime may add a thread for it.
    ///
    /// [`Disk`](Self::Disk), [`Sync`](Self::Sync) and [`Commit`](Self::Commit) do not count: they are
    /// short, they end without the help of another session, and more threads would only queue for
    /// the same device.
    #[must_use]
    pub const fn is_counted(self) -> bool {
        match self {
            Self::Lock | Self::Sleep | Self::Reply | Self::Network | Self::Other => true,
            Self::Disk | Self::Sync | Self::Commit => false,
        }
    }
}

/// This thread waits, until the guard is dropped; the same as [`enter_as`] with [`Wait::Other`].
pub fn enter() -> Stall {
    enter_as(Wait::Other)
}

/// This thread waits for such a thing, until the guard is dropped.
///
/// Guards may be dropped in any order: the thread waits as long as one of them lives.
pub fn enter_as(wait: Wait) -> Stall {
    let hooked = Hooked::begin();
    // The thread-local is gone when another one's destructor waits: that is no worker any more.
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

/// Runs code that waits for such a thing.
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

/// What a runtime installs for its workers. Called on the thread that waits.
///
/// Its code may wait and announce that again: such waits are part of the one that it is told of, and
/// it hears nothing of them.
pub(crate) trait Announce {
    /// The first counted wait begins. It may panic: the wait then ends at once, and `end` follows.
    fn begin(&self);
    /// The last counted wait is over. Perhaps the thread is unwinding: it must not panic.
    fn end(&self);
    /// A wait that does not count begins, outside of any other.
    fn uncounted(&self);
}

/// From now on the waits of this thread are announced there, or nowhere.
///
/// A wait in progress ends where it began.
pub(crate) fn install(announce: Option<Rc<dyn Announce>>) {
    let waiter = announce.map(|announce| Rc::new(Waiter::new(announce)));
    // What was installed before is dropped after the borrow: it may announce something.
    let _before = WAITER.try_with(|place| place.replace(waiter));
}

/// Whether somebody is told of this thread's waits.
pub(crate) fn is_heard() -> bool {
    HOOK.with(|hook| hook.code.get().is_some())
        || WAITER.try_with(|waiter| waiter.borrow().is_some()).unwrap_or(false)
}

/// From now on this is called on this thread before a wait, counted or not, or nothing; returns what
/// was called so far.
///
/// It is called for the outermost wait, before that is announced, and also where nothing is announced:
/// the place to let go of what others may wait for, such as replies that are held back. Waits that it
/// makes itself are announced as any other, and it is not called for them. If it panics, the wait does
/// not begin.
pub(crate) fn before_wait(hook: Option<fn()>) -> Option<fn()> {
    HOOK.with(|place| place.code.replace(hook))
}

thread_local! {
    static WAITER: RefCell<Option<Rc<Waiter>>> = const { RefCell::new(None) };
}

thread_local! {
    /// Without a destructor, so that it is there as long as the thread is.
    static HOOK: Hook = const { Hook { code: Cell::new(None), waits: Cell::new(0) } };
}

/// See [`before_wait`].
struct Hook {
    code: Cell<Option<fn()>>,
    /// Waits in progress that began while there was a hook.
    waits: Cell<usize>,
}

/// One of its waits.
struct Hooked(PhantomData<Rc<()>>);

impl Hooked {
    /// Without a hook one look.
    fn begin() -> Option<Self> {
        HOOK.with(|hook| {
            let code = hook.code.get()?;
            let before = hook.waits.replace(hook.waits.get() + 1);
            // From here on it counts until it is dropped, also by a panic.
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

/// One thread, as long as one announcer is installed for it.
struct Waiter {
    announce: Rc<dyn Announce>,
    /// Waits in progress that count, and that do not.
    counted: Cell<usize>,
    uncounted: Cell<usize>,
    /// The announcer runs.
    busy: Cell<bool>,
}

impl Waiter {
    fn new(announce: Rc<dyn Announce>) -> Self {
        let (counted, uncounted) = (Cell::new(0), Cell::new(0));
        Self { announce, counted, uncounted, busy: Cell::new(false) }
    }

    /// `None`: it is the announcer itself that waits.
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

/// One of its waits.
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

/// The flag is set for as long as this lives.
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

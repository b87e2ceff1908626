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
mod tests {
    use std::panic::{self, AssertUnwindSafe};
    use std::thread;

    use super::*;

    /// Writes down what it is told, and waits itself when it is.
    #[derive(Default)]
    struct Log {
        heard: RefCell<Vec<&'static str>>,
        kept: RefCell<Vec<Stall>>,
        keeps: Cell<bool>,
        fails: Cell<bool>,
    }

    impl Log {
        fn installed() -> Rc<Self> {
            let log = Rc::new(Self::default());
            install(Some(log.clone()));
            log
        }

        fn hear(&self, what: &'static str) {
            self.heard.borrow_mut().push(what);
            run(|| run_as(Wait::Disk, || ()));
            if self.keeps.get() {
                self.kept.borrow_mut().push(enter());
            }
            assert!(!self.fails.get(), "told to fail");
        }

        fn take(&self) -> Vec<&'static str> {
            self.heard.take()
        }
    }

    impl Announce for Log {
        fn begin(&self) {
            self.hear("begin");
        }

        fn end(&self) {
            self.hear("end");
        }

        fn uncounted(&self) {
            self.hear("uncounted");
        }
    }

    #[test]
    fn a_wait_begins_and_ends_once() {
        let log = Log::installed();
        let stall = enter();
        assert_eq!(log.take(), ["begin"]);
        drop(stall);
        assert_eq!(log.take(), ["end"]);
        assert_eq!(run(|| 7), 7);
        assert_eq!(log.take(), ["begin", "end"]);
    }

    #[test]
    fn some_waits_do_not_count() {
        let log = Log::installed();
        for (wait, heard) in [
            (Wait::Lock, &["begin", "end"][..]),
            (Wait::Sleep, &["begin", "end"]),
            (Wait::Reply, &["begin", "end"]),
            (Wait::Network, &["begin", "end"]),
            (Wait::Other, &["begin", "end"]),
            (Wait::Disk, &["uncounted"]),
            (Wait::Sync, &["uncounted"]),
            (Wait::Commit, &["uncounted"]),
        ] {
            run_as(wait, || ());
            assert_eq!(log.take(), heard, "{wait:?}");
            assert_eq!(wait.is_counted(), heard.len() == 2, "{wait:?}");
        }
    }

    #[test]
    fn nested_waits_count_once() {
        let log = Log::installed();
        run(|| {
            run_as(Wait::Lock, || run(|| ()));
            run_as(Wait::Disk, || run_as(Wait::Sleep, || ()));
        });
        assert_eq!(log.take(), ["begin", "end"]);
    }

    #[test]
    fn a_wait_that_does_not_count_hides_none_that_does() {
        let log = Log::installed();
        run_as(Wait::Disk, || {
            run_as(Wait::Commit, || ());
            assert_eq!(log.take(), ["uncounted"]);
            run_as(Wait::Lock, || run_as(Wait::Sync, || ()));
            assert_eq!(log.take(), ["begin", "end"]);
            run_as(Wait::Commit, || ());
        });
        assert_eq!(log.take(), [""; 0]);
    }

    #[test]
    fn guards_may_be_dropped_in_any_order() {
        let log = Log::installed();
        let (first, disk, second) = (enter(), enter_as(Wait::Disk), enter());
        drop(first);
        assert_eq!(log.take(), ["begin"]);
        let third = enter();
        drop(second);
        assert_eq!(log.take(), [""; 0]);
        drop(third);
        assert_eq!(log.take(), ["end"]);
        let fourth = enter();
        drop(disk);
        drop(fourth);
        assert_eq!(log.take(), ["begin", "end"]);
        run_as(Wait::Disk, || ());
        assert_eq!(log.take(), ["uncounted"]);
    }

    #[test]
    fn a_panic_ends_the_wait() {
        let log = Log::installed();
        let caught = panic::catch_unwind(|| run(|| run(|| panic!("while waiting"))));
        assert!(caught.is_err());
        assert_eq!(log.take(), ["begin", "end"]);
        run(|| ());
        assert_eq!(log.take(), ["begin", "end"]);
    }

    #[test]
    fn an_announcer_that_panics_is_heard_again() {
        let log = Log::installed();
        log.fails.set(true);
        let caught = panic::catch_unwind(AssertUnwindSafe(|| run_as(Wait::Disk, || ())));
        assert!(caught.is_err());
        log.fails.set(false);
        run_as(Wait::Disk, || ());
        run(|| ());
        assert_eq!(log.take(), ["uncounted", "uncounted", "begin", "end"]);
    }

    #[test]
    fn what_the_announcer_keeps_does_not_count() {
        let log = Log::installed();
        log.keeps.set(true);
        run(|| run_as(Wait::Disk, || ()));
        log.keeps.set(false);
        assert_eq!((log.take(), log.kept.borrow().len()), (vec!["begin", "end"], 2));
        run(|| log.kept.take().clear());
        assert_eq!(log.take(), ["begin", "end"]);
    }

    #[test]
    fn a_wait_ends_where_it_began() {
        let before = enter();
        let first = Log::installed();
        drop(before);
        assert_eq!(first.take(), [""; 0]);

        let stall = enter();
        let second = Log::installed();
        run(|| drop(stall));
        assert_eq!((first.take(), second.take()), (vec!["begin", "end"], vec!["begin", "end"]));

        let stall = enter();
        install(None);
        run(|| ());
        drop(stall);
        assert_eq!((first.take(), second.take()), (vec![], vec!["begin", "end"]));
        assert_eq!((Rc::strong_count(&first), Rc::strong_count(&second)), (1, 1));
    }

    #[test]
    fn elsewhere_nothing_is_announced() {
        let log = Log::installed();
        let nobody = thread::spawn(|| {
            let stall = enter();
            let shown = format!("{stall:?}");
            drop(stall);
            run_as(Wait::Disk, || shown)
        });
        assert_eq!(nobody.join().expect("no panic"), "Stall { announced: false }");
        assert_eq!(log.take(), [""; 0]);
        assert_eq!(format!("{:?}", enter()), "Stall { announced: true }");
    }

    thread_local! {
        static CALLS: Cell<usize> = const { Cell::new(0) };
        static FAILS: Cell<bool> = const { Cell::new(false) };
    }

    /// Waits, and counts.
    fn hook() {
        run(|| run_as(Wait::Disk, || CALLS.set(CALLS.get() + 1)));
        assert!(!FAILS.get(), "told to fail");
    }

    #[test]
    fn the_hook_is_called_once_for_each_outermost_wait() {
        assert!(before_wait(Some(hook)).is_none());
        for (wait, calls) in [(Wait::Lock, 1), (Wait::Disk, 2)] {
            run_as(wait, || run(|| run_as(Wait::Commit, || ())));
            assert_eq!(CALLS.get(), calls, "{wait:?}, and nobody is told of it");
        }
        let (first, second) = (enter(), enter());
        drop(first);
        run(|| drop(second));
        assert_eq!(CALLS.get(), 3);
        assert!(is_heard(), "a lock announces its waits");
        assert!(before_wait(None).is_some());
        run(|| ());
        assert_eq!((CALLS.get(), is_heard()), (3, false));
    }

    #[test]
    fn the_hook_is_called_before_the_wait_is_announced() {
        thread_local! {
            static SEEN: RefCell<Option<Rc<Log>>> = const { RefCell::new(None) };
        }
        let log = Log::installed();
        SEEN.set(Some(Rc::clone(&log)));
        before_wait(Some(|| {
            SEEN.with_borrow(|log| log.as_ref().expect("set").heard.borrow_mut().push("hook"));
            run(|| ());
        }));
        run(|| run(|| ()));
        assert_eq!(log.take(), ["hook", "begin", "end", "begin", "end"]);
        run_as(Wait::Disk, || ());
        assert_eq!(log.take(), ["hook", "begin", "end", "uncounted"]);
        let _ = before_wait(None);
        run(|| ());
        assert_eq!(log.take(), ["begin", "end"]);
    }

    #[test]
    fn a_hook_that_panics_is_called_again() {
        let log = Log::installed();
        before_wait(Some(hook));
        FAILS.set(true);
        for wait in [Wait::Lock, Wait::Disk] {
            let waited = panic::catch_unwind(|| run_as(wait, || ()));
            assert!(waited.is_err());
            assert_eq!(log.take(), ["begin", "end"], "what the hook waited for, and nothing else");
        }
        FAILS.set(false);
        run(|| ());
        assert_eq!(log.take(), ["begin", "end", "begin", "end"]);
        assert_eq!(CALLS.get(), 3);
        before_wait(None);
    }

    #[test]
    fn a_hook_may_come_and_go_within_a_wait() {
        run(|| {
            before_wait(Some(hook));
            run(|| before_wait(None));
            run(|| ());
            before_wait(Some(hook));
        });
        assert_eq!(CALLS.get(), 1);
        run(|| ());
        assert_eq!(CALLS.get(), 2);
        before_wait(None);
    }

    #[test]
    fn a_thread_may_wait_while_it_ends() {
        struct Late;

        impl Drop for Late {
            fn drop(&mut self) {
                run(|| ());
                install(None);
            }
        }

        impl Announce for Late {
            fn begin(&self) {}
            fn end(&self) {}
            fn uncounted(&self) {}
        }

        thread_local! {
            static BEFORE: RefCell<Vec<Late>> = const { RefCell::new(Vec::new()) };
            static AFTER: RefCell<Vec<Late>> = const { RefCell::new(Vec::new()) };
        }

        // Destructors run in an order that is nobody's promise: one on either side of ours.
        let ends = thread::spawn(|| {
            before_wait(Some(|| ()));
            BEFORE.with_borrow_mut(|late| late.push(Late));
            install(Some(Rc::new(Late)));
            AFTER.with_borrow_mut(|late| late.push(Late));
        });
        ends.join().expect("no panic");
    }
}

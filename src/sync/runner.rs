//! [`Runner`]: one thread at a time, no thread waits, no notification is lost.
//!
//! Many threads learn of work on a thing (bytes to receive on a connection, room to send). One of
//! them may do it. The others must not wait, and their notifications must not be lost. A `Runner`
//! is the thing together with one word:
//!
//! ```text
//!            notify: taken                    queue
//!   idle ────────────────────▶ running ────────────────────▶ queued
//!    ▲                          │    ▲                          │
//!    │ finish, no mark was left │    │ finish, a mark was left  │ resume (after the pop)
//!    └──────────────────────────┘    └─── look again ◀──────────┘
//! ```
//!
//! A notifier that finds it running or queued leaves its marks in the word and returns. The owner
//! takes the marks, and cannot finish while a mark is left. That is a try-lock whose holder
//! rechecks, as a single atomic word.
//!
//! The word also counts *holds*: requests in progress that an owner has begun and that go on after its
//! run. A later owner may wait for their end ([`Runner::await_holds`]). Then the last hold to end
//! leaves a mark.
//!
//! An owner may sleep in the middle of its run until a mark is left ([`Runner::wait`]). Notifiers
//! that find the owner waiting ring its [`Bell`].
//!
//! A `Runner` knows nothing of tasks. The caller of [`Running::queue`] pushes the right to run to a
//! queue. The thread that pops it calls [`Runner::resume`]. [`Running::run`] queues after a number
//! of rounds, so that no owner works without end for threads that keep leaving marks.

use std::fmt;
use std::mem;
use std::ops::{BitOr, BitOrAssign, ControlFlow, Deref, DerefMut};
use std::time::Duration;

use super::mutant::mutant;
use super::shim::atomic::{AtomicU64, Ordering};
use super::shim::{Condvar, MutPtr, Mutex, UnsafeCell, lock, wait_while};

/// Set of events, as bits. A layer gives its own names to the 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Marks(u64);

impl Marks {
    pub(crate) const NONE: Self = Self(0);

    /// Mark with number `n`, 0 to 15.
    pub(crate) const fn bit(n: u32) -> Self {
        assert!(n < 16, "a Runner has 16 marks");
        Self(1 << (MARKS_SHIFT + n))
    }

    /// `|` for constants.
    pub(crate) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Marks that are also in `other`.
    pub(crate) const fn only(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Marks that are not in `other`.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl BitOr for Marks {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Marks {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Marks({:#b})", self.0 >> MARKS_SHIFT)
    }
}

/// Value that one thread at a time may work on; see the module's page.
pub(crate) struct Runner<T> {
    /// Writers: all threads, by read-modify-write only. `OWNED`: a thread may access `value`, or a
    /// queue holds the right to. `QUEUED`, only together with `OWNED`: a queue holds it. `FLAG`: a
    /// note of the owner for threads that only read the word. `AWAITS`: the last hold to end leaves a
    /// mark. `WAITS`: the owner sleeps or is about to. `MARKS`: marks that no owner has taken yet. The
    /// upper half counts the holds.
    word: AtomicU64,
    value: UnsafeCell<T>,
}

const OWNED: u64 = 1;
const QUEUED: u64 = 1 << 1;
const FLAG: u64 = 1 << 2;
const AWAITS: u64 = 1 << 3;
const WAITS: u64 = 1 << 4;
const MARKS_SHIFT: u32 = 8;
const MARKS: u64 = 0xffff << MARKS_SHIFT;
/// Unit of the count of holds.
const HOLD: u64 = 1 << 32;

// SAFETY: the value is reached only through a `Running`, of which there is one at a time (`OWNED`);
// it moves from thread to thread, hence `T: Send`.
unsafe impl<T: Send> Sync for Runner<T> {}
// SAFETY: sending the Runner sends the value.
unsafe impl<T: Send> Send for Runner<T> {}

impl<T> Runner<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { word: AtomicU64::new(0), value: UnsafeCell::new(value) }
    }

    /// Leaves `marks`. Returns the right to run if no thread has it.
    ///
    /// `None`: the owner will see the marks before it finishes.
    #[must_use]
    pub(crate) fn notify(&self, marks: Marks) -> Option<Running<'_, T>> {
        self.own_or_leave(marks).ok()
    }

    /// Like [`notify`](Self::notify), and wakes an owner that [waits](Self::wait).
    #[must_use]
    pub(crate) fn notify_or_wake(&self, marks: Marks, bell: &Bell) -> Option<Running<'_, T>> {
        match self.own_or_leave(marks) {
            Ok(running) => Some(running),
            Err(before) => {
                if mutant!(before & WAITS != 0, WaitingOwnerUnseen => false) {
                    bell.ring();
                }
                None
            }
        }
    }

    /// Takes the right to run, or leaves the marks and returns the word as it was.
    fn own_or_leave(&self, marks: Marks) -> Result<Running<'_, T>, u64> {
        // In the usual case, idle and no marks, the marks need not pass through the word.
        let idle = self.word.load(Ordering::Relaxed);
        if idle & (OWNED | MARKS) == 0 {
            // Acquire: pairs with the Release of `finish`, so the value is seen as the last owner
            // left it.
            let taken = self.word.compare_exchange(
                idle,
                idle | OWNED,
                Ordering::Acquire,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return Ok(self.running(marks));
            }
        }
        // Acquire: as above. Release: the thread that takes the marks sees the notifier's earlier
        // writes.
        let ordering = mutant!(Ordering::AcqRel, NotifyWithoutRelease => Ordering::Acquire);
        let before = self.word.fetch_or(marks.0 | OWNED, ordering);
        if before & OWNED == 0 { Ok(self.running(Marks::NONE)) } else { Err(before) }
    }

    /// Sleeps until a mark is left, at most for the limit. Returns at once if one of `wanted` was left
    /// before, and may return early. The marks stay. Called by the owner in the middle of its run.
    pub(crate) fn wait(&self, wanted: Marks, bell: &Bell, limit: Option<Duration>) {
        // A notifier changes the same word. Either it sees `WAITS`, or the owner sees its mark.
        let before = self.word.fetch_or(WAITS, Ordering::Relaxed);
        if mutant!(before & wanted.0 == 0, WaitWithoutMarks => true) {
            bell.wait(limit);
        }
        self.word.fetch_and(!WAITS, Ordering::Relaxed);
    }

    /// Returns the marks that are left. Called by the owner in the middle of its run.
    pub(crate) fn marks(&self) -> Marks {
        // Acquire: as in `take_marks`.
        Marks(self.word.load(Ordering::Acquire) & MARKS)
    }

    /// Takes those of `wanted` that are left. Called by the owner in the middle of its run.
    pub(crate) fn take(&self, wanted: Marks) -> Marks {
        if self.marks().has(wanted) {
            Marks(self.word.fetch_and(!wanted.0, Ordering::AcqRel) & wanted.0)
        } else {
            Marks::NONE
        }
    }

    /// Leaves marks that were taken, so that they are looked at before the run ends. Called by the owner
    /// in the middle of its run.
    pub(crate) fn put_back(&self, marks: Marks) {
        self.word.fetch_or(marks.0, Ordering::Relaxed);
    }

    /// Takes over the right that [`Running::queue`] left; `None` if none is queued.
    pub(crate) fn resume(&self) -> Option<Running<'_, T>> {
        // Acquire: pairs with the Release of `queue`.
        let before = self.word.fetch_and(!QUEUED, Ordering::AcqRel);
        (before & QUEUED != 0).then(|| self.running(Marks::NONE))
    }

    /// Returns true if a notification could matter: a thread owns the value, or an owner left the
    /// flag.
    ///
    /// `false` means that the next run starts after this call.
    pub(crate) fn is_owned_or_flagged(&self) -> bool {
        let bits = mutant!(OWNED | FLAG, LookAtFlagOnly => FLAG);
        self.word.load(Ordering::Acquire) & bits != 0
    }

    /// Returns true if a queue holds the right to run.
    ///
    /// `false` means that a right which is queued later is pushed after this call. The pushing
    /// thread then sees what the caller wrote before.
    pub(crate) fn is_queued(&self) -> bool {
        // Not a load: one of the two changes of the word, here and in `queue`, sees the other.
        let word = mutant!(
            self.word.fetch_or(0, Ordering::AcqRel),
            LookAtQueuedByLoad => self.word.load(Ordering::Acquire)
        );
        word & QUEUED != 0
    }

    /// Begins a hold. Only the owner or the holder of another hold may begin one while an owner awaits
    /// the end of all holds.
    pub(crate) fn hold(&self) {
        self.word.fetch_add(HOLD, Ordering::Relaxed);
    }

    /// Returns true if there is a hold.
    pub(crate) fn is_held(&self) -> bool {
        self.word.load(Ordering::Relaxed) >= HOLD
    }

    /// Ends a hold. If it was the last one and its end is awaited, leaves `done`. Returns the right to
    /// run if no thread has it then.
    #[must_use]
    pub(crate) fn end_hold(&self, done: Marks) -> Option<Running<'_, T>> {
        // Release: pairs with the Acquire of `await_holds`.
        let ordering = mutant!(Ordering::Release, EndHoldRelaxed => Ordering::Relaxed);
        let before = self.word.fetch_sub(HOLD, ordering);
        let is_awaited = mutant!(before & AWAITS != 0, HoldsEndUntold => false);
        if is_awaited && before < 2 * HOLD { self.notify(done) } else { None }
    }

    /// Returns true if there is no hold. From now on the last hold to end leaves a mark. Called by the
    /// owner.
    pub(crate) fn await_holds(&self) -> bool {
        // Acquire: pairs with the Release of `end_hold`, so the writes of the holders are visible.
        let ordering = mutant!(Ordering::AcqRel, AwaitHoldsRelaxed => Ordering::Relaxed);
        self.word.fetch_or(AWAITS, ordering) < HOLD
    }

    fn running(&self, marks: Marks) -> Running<'_, T> {
        Running { runner: self, value: self.value.get_mut(), marks }
    }
}

impl<T> fmt::Debug for Runner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Ordering::Relaxed);
        let state = match word & (OWNED | QUEUED) {
            0 => "idle",
            OWNED => "running",
            _ => "queued",
        };
        f.debug_struct("Runner")
            .field("state", &state)
            .field("marks", &Marks(word & MARKS))
            .finish()
    }
}

/// Wakes the owner of a [`Runner`] that waits for a mark.
#[derive(Debug)]
pub(crate) struct Bell {
    /// Set when the owner must look at the marks again.
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { rung: Mutex::new(false), changed: Condvar::new() }
    }

    fn ring(&self) {
        *lock(&self.rung) = true;
        self.changed.notify_one();
    }

    fn wait(&self, limit: Option<Duration>) {
        let (mut rung, _) = wait_while(&self.changed, lock(&self.rung), limit, |rung| !*rung);
        *rung = false;
    }
}

/// State in which [`Running::run`] leaves a [`Runner`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// No mark is left.
    Idle,
    /// A mark is left. The caller pushes the right to run to a queue.
    Queued,
}

/// Rounds of one owner before it queues.
pub(crate) const ROUNDS: u32 = 16;

/// Right to work on the value of a [`Runner`].
///
/// If it is dropped without [`finish`](Self::finish) or [`queue`](Self::queue), by a panic, it
/// gives up the right and leaves the marks for the next notifier.
#[must_use = "marks are looked at by `finish`"]
pub(crate) struct Running<'a, T> {
    runner: &'a Runner<T>,
    value: MutPtr<T>,
    /// Marks that the owner has taken already, beside those in the word.
    marks: Marks,
}

impl<T> Running<'_, T> {
    /// Calls `round` with the marks until none is left. Queues if there are marks after `most` rounds,
    /// or after a round that breaks.
    pub(crate) fn run(
        mut self,
        most: u32,
        mut round: impl FnMut(&mut Self, Marks) -> ControlFlow<()>,
    ) -> Ended {
        for rounds in 1.. {
            let marks = self.take_marks();
            let flow = round(&mut self, marks);
            match self.finish() {
                None => break,
                Some(again) if rounds < most && flow.is_continue() => self = again,
                Some(again) => {
                    mutant!(again.queue(), HandOverLetsGo => drop(again));
                    return Ended::Queued;
                }
            }
        }
        Ended::Idle
    }

    /// Takes the marks that were left so far.
    pub(crate) fn take_marks(&mut self) -> Marks {
        let mut marks = mem::take(&mut self.marks);
        // If this load misses a mark, `finish` finds it.
        if self.runner.word.load(Ordering::Relaxed) & MARKS != 0 {
            // Acquire: pairs with the Release of `notify`.
            marks |= Marks(self.runner.word.fetch_and(!MARKS, Ordering::AcqRel) & MARKS);
        }
        marks
    }

    /// Leaves marks for a later `take_marks`: by this owner, or after `queue` by the thread that
    /// resumes.
    pub(crate) fn mark(&mut self, marks: Marks) {
        self.marks |= marks;
    }

    /// Sets or clears the flag that `is_owned_or_flagged` shows after the run.
    pub(crate) fn set_flag(&self, on: bool) {
        // Only owners change the flag. So this load is exact, and in the usual case no locked
        // instruction is needed.
        if on == (self.runner.word.load(Ordering::Relaxed) & FLAG != 0) {
            return;
        }
        if mutant!(on, FlagForgotten => false) {
            self.runner.word.fetch_or(FLAG, Ordering::Relaxed);
        } else {
            self.runner.word.fetch_and(!FLAG, Ordering::Relaxed);
        }
    }

    /// Ends the run. If a mark was left meanwhile, returns the right again, and the owner has to
    /// recheck.
    pub(crate) fn finish(self) -> Option<Self> {
        self.finish_with(0)
    }

    /// Like [`finish`](Self::finish). If the run ends, it leaves a hold.
    pub(crate) fn finish_and_hold(self) -> Option<Self> {
        self.finish_with(mutant!(HOLD, FinishWithoutHold => 0))
    }

    fn finish_with(self, hold: u64) -> Option<Self> {
        if !self.marks.is_empty() {
            return Some(self);
        }
        let runner = self.runner;
        // The access to the value must end before the right to it is given up.
        self.end_access();
        let mut word = runner.word.load(Ordering::Relaxed);
        while mutant!(word & MARKS == 0, FinishWithoutLook => true) {
            // Release: pairs with the Acquire of `notify`.
            match runner.word.compare_exchange_weak(
                word,
                (word & !OWNED) + hold,
                mutant!(Ordering::Release, FinishRelaxed => Ordering::Relaxed),
                Ordering::Relaxed,
            ) {
                Ok(_) => return None,
                Err(now) => word = now,
            }
        }
        Some(runner.running(Marks::NONE))
    }

    /// Ends the run. If a mark was left meanwhile, gives the right to a queue and returns `true`:
    /// the caller pushes it there. The marks stay for the thread that resumes.
    pub(crate) fn finish_or_queue(self) -> bool {
        let again = self.finish();
        again.map(Self::queue).is_some()
    }

    /// Gives the right to a queue; the caller pushes it there.
    pub(crate) fn queue(self) {
        let runner = self.runner;
        let marks = self.marks;
        self.end_access();
        // Release: pairs with the Acquire of `resume`. Acquire: pairs with the Release of `is_queued`.
        let ordering = mutant!(Ordering::AcqRel, QueueRelaxed => Ordering::Relaxed);
        runner.word.fetch_or(marks.0 | QUEUED, ordering);
    }

    fn end_access(self) {
        let this = mem::ManuallyDrop::new(self);
        // SAFETY: `this` is never touched again, so the pointer is moved out once.
        let _ended = unsafe { std::ptr::read(&raw const this.value) };
    }
}

impl<T> Deref for Running<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: `OWNED` was clear when this `Running` was made and is set until it ends, so no
        // other thread has access; the borrow of `self` bounds the reference.
        unsafe { self.value.deref() }
    }
}

impl<T> DerefMut for Running<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and `self` is borrowed mutably.
        unsafe { self.value.deref() }
    }
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        self.runner.word.fetch_or(self.marks.0, Ordering::Relaxed);
        // Release: as in `finish`.
        let ordering = mutant!(Ordering::Release, LetGoRelaxed => Ordering::Relaxed);
        self.runner.word.fetch_and(!OWNED, ordering);
    }
}

#[cfg(all(test, loom))]
mod model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const A: Marks = Marks::bit(0);
    const B: Marks = Marks::bit(15);

    #[test]
    fn the_first_notifier_runs_and_the_second_leaves_its_mark() {
        let runner = Runner::new(0);
        let mut running = runner.notify(A).expect("idle");
        assert!(runner.notify(B).is_none());
        *running += 1;
        assert_eq!(running.take_marks(), A | B);
        assert!(runner.notify(A).is_none());
        let mut again = running.finish().expect("a mark was left");
        assert_eq!(again.take_marks(), A);
        assert_eq!(*again, 1);
        assert!(again.finish().is_none());
    }

    #[test]
    fn what_is_queued_runs_by_resume_only() {
        let runner = Runner::new(());
        assert!(runner.resume().is_none());
        runner.notify(A).expect("idle").queue();
        assert!(runner.notify(B).is_none());
        let mut running = runner.resume().expect("queued");
        assert!(runner.resume().is_none());
        assert_eq!(running.take_marks(), A | B);
        assert!(running.finish().is_none());
        assert!(!runner.is_owned_or_flagged());
    }

    #[test]
    fn a_run_queues_if_it_finds_marks_after_each_of_its_rounds() {
        let runner = Runner::new(0);
        // Others leave a mark in each round.
        let endless = |running: &mut Running<'_, u32>, _| {
            **running += 1;
            assert!(runner.notify(A).is_none());
            ControlFlow::Continue(())
        };
        assert_eq!(runner.notify(A).expect("idle").run(3, endless), Ended::Queued);
        assert!(runner.notify(B).is_none(), "it is for the queue");
        let mut last = Marks::NONE;
        let resumed = runner.resume().expect("queued");
        assert_eq!(*resumed, 3);
        let ended = resumed.run(1, |_, marks| {
            last |= marks;
            ControlFlow::Continue(())
        });
        assert_eq!((ended, last), (Ended::Idle, A | B));
    }

    #[test]
    fn a_run_that_breaks_queues_what_it_leaves() {
        let runner = Runner::new(());
        let breaks = |left| {
            move |running: &mut Running<'_, ()>, _| {
                running.mark(left);
                ControlFlow::Break(())
            }
        };
        let running = runner.notify(A).expect("idle");
        assert_eq!(running.run(9, breaks(Marks::NONE)), Ended::Idle);
        assert_eq!(runner.notify(A).expect("idle").run(9, breaks(B)), Ended::Queued);
        assert_eq!(runner.resume().expect("queued").take_marks(), B);
    }

    #[test]
    fn a_panic_lets_go_and_the_flag_stays() {
        let runner = Runner::new(());
        let running = runner.notify(Marks::NONE).expect("idle");
        running.set_flag(true);
        drop(running);
        assert!(runner.is_owned_or_flagged());
        let running = runner.notify(Marks::NONE).expect("idle again");
        running.set_flag(false);
        assert!(running.finish().is_none());
        assert!(!runner.is_owned_or_flagged());
    }
}

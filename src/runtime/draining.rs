//! Protocol between the start of a drain and the threads that register, queue and end sources at
//! the same time.
//!
//! ```text
//! registers:  register, fence, read Begun             drain:  set Begun, fence, notify all registered
//! queues:     enter Intake, fence, read, queue, leave         set Begun, fence, wait for Intake, stop
//! ends:       count down, fence, read, notify Changes         set Begun, fence, read the count, wait
//! ```

use std::time::Duration;

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while, yield_now};

/// Flag that a drain has begun. Set by the drain, read by all threads. It stays set.
#[derive(Debug, Default)]
pub(super) struct Begun(AtomicBool);

impl Begun {
    /// Sets the flag. Returns true if it was not set before. Reads that follow see the writes
    /// before each [`is_seen_after`](Self::is_seen_after) that did not see the flag.
    pub(super) fn begin(&self) -> bool {
        let first = !self.0.swap(true, Ordering::AcqRel);
        // SeqCst: pairs with the fence in `is_seen_after`.
        mutant!(fence(Ordering::SeqCst), DrainWithoutFence => ());
        first
    }

    pub(super) fn is_seen(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Reads the flag after a change that the drain has to see. Either this read sees the drain, or
    /// the drain sees the change.
    pub(super) fn is_seen_after(&self) -> bool {
        // SeqCst: pairs with the fence in `begin`.
        mutant!(fence(Ordering::SeqCst), LookForDrainWithoutFence => ());
        self.is_seen()
    }
}

/// Counts the threads between the check of the flag and the end of their push.
#[derive(Debug, Default)]
pub(super) struct Intake {
    within: AtomicU32,
}

impl Intake {
    /// Calls `queue` unless the drain has begun. If it is called, the queued task is visible when
    /// [`wait_until_empty`](Self::wait_until_empty) returns.
    pub(super) fn pass<R>(&self, begun: &Begun, queue: impl FnOnce() -> R) -> Option<R> {
        mutant!(_ = self.within.fetch_add(1, Ordering::Relaxed), IntakeUncounted => ());
        let queued = (!begun.is_seen_after()).then(queue);
        // Release: pairs with the Acquire of `wait_until_empty`.
        let release = mutant!(Ordering::Release, IntakeLeftRelaxed => Ordering::Relaxed);
        mutant!(_ = self.within.fetch_sub(1, release), IntakeUncounted => ());
        queued
    }

    /// Waits until no thread is queuing. To be called after the drain has begun.
    pub(super) fn wait_until_empty(&self) {
        while self.within.load(Ordering::Acquire) > 0 {
            yield_now();
        }
    }
}

/// Place where a drain waits for sources to end.
#[derive(Debug, Default)]
pub(super) struct Changes {
    lock: Mutex<()>,
    changed: Condvar,
}

impl Changes {
    /// Waits until `done` holds or the limit has passed. Returns true if `done` holds. It is
    /// checked again after each change that is notified. To be called after [`Begun::begin`].
    pub(super) fn wait_until(&self, limit: Option<Duration>, done: impl Fn() -> bool) -> bool {
        !wait_while(&self.changed, lock(&self.lock), limit, |()| !done()).1
    }

    /// Notifies a change that a drain may wait for.
    pub(super) fn tell(&self, begun: &Begun) {
        if begun.is_seen_after() {
            // A thread that has checked and does not sleep yet holds the lock.
            mutant!(drop(lock(&self.lock)), ChangeToldWithoutLock => ());
            self.changed.notify_all();
        }
    }
}

#[cfg(all(test, loom))]
mod model {
    //! Models of a drain while another thread registers, queues or ends sources. Left out:
    //! deadlines (a drain in a model waits without limit), and the second flag, for outgoing
    //! connections. That is another [`Begun`] with the same use.

    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, AtomicU32, Ordering};
    use loom::thread;

    use super::{Begun, Changes, Intake};
    use crate::sync::mutant::{explore, mutants};

    /// A connection is registered, and checks if it came too late to be notified.
    fn one_registers() {
        explore(|| {
            let runtime = Arc::new((Begun::default(), AtomicBool::new(false)));
            let here = Arc::clone(&runtime);
            let connection = thread::spawn(move || {
                here.1.store(true, Ordering::Relaxed);
                here.0.is_seen_after()
            });
            assert!(runtime.0.begin(), "the first");
            let told = runtime.1.load(Ordering::Relaxed);
            let sees = connection.join().expect("no panic");
            assert!(told || sees, "nobody tells the connection");
        });
    }

    struct Queue {
        begun: Begun,
        intake: Intake,
        tasks: UnsafeCell<u32>,
    }

    /// `spawn` queues while the drain ends the queue. Each accepted task is visible to the drain.
    fn one_spawns() {
        explore(|| {
            let (begun, intake) = (Begun::default(), Intake::default());
            let queue = Arc::new(Queue { begun, intake, tasks: UnsafeCell::new(0) });
            let here = Arc::clone(&queue);
            let spawns = thread::spawn(move || {
                let queue = || here.tasks.with_mut(|_| ());
                here.intake.pass(&here.begun, queue)
            });
            queue.begun.begin();
            queue.intake.wait_until_empty();
            // The cell detects a task that is queued after this point or at the same time.
            queue.tasks.with_mut(|_| ());
            spawns.join().expect("no panic");
            assert!(queue.intake.pass(&queue.begun, || ()).is_none(), "nothing is taken in");
        });
    }

    /// Two connections end while the drain starts to wait for them.
    fn two_end() {
        explore(|| {
            let (begun, changes) = (Begun::default(), Changes::default());
            let runtime = Arc::new((begun, changes, AtomicU32::new(2)));
            let connections = [(); 2].map(|()| {
                let here = Arc::clone(&runtime);
                thread::spawn(move || {
                    here.2.fetch_sub(1, Ordering::AcqRel);
                    here.1.tell(&here.0);
                })
            });
            runtime.0.begin();
            assert!(runtime.1.wait_until(None, || runtime.2.load(Ordering::Acquire) == 0));
            connections.into_iter().for_each(|conn| conn.join().expect("no panic"));
        });
    }

    #[test]
    fn registered_beside_the_drain() {
        one_registers();
    }

    #[test]
    fn spawned_beside_the_drain() {
        one_spawns();
    }

    #[test]
    fn ended_beside_the_drain() {
        two_end();
    }

    mutants! {
        drain_without_fence: DrainWithoutFence, one_registers(), "nobody tells";
        drain_without_fence_beside_an_end: DrainWithoutFence, two_end(), "deadlock";
        look_without_fence: LookForDrainWithoutFence, one_registers(), "nobody tells";
        end_without_fence: LookForDrainWithoutFence, two_end(), "deadlock";
        change_told_to_one_about_to_sleep: ChangeToldWithoutLock, two_end(), "deadlock";
        spawn_without_fence: LookForDrainWithoutFence, one_spawns(), "Causality violation";
        spawn_uncounted: IntakeUncounted, one_spawns(), "Causality violation";
        spawn_without_release: IntakeLeftRelaxed, one_spawns(), "Causality violation";
    }
}

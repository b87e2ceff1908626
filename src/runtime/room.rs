//! [`Room`]: threads wait here for a place in a full queue.

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicUsize, Ordering, fence};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};

/// Threads that wait for places. While no thread waits, a pop of a closure costs one fence and one
/// load for this.
#[derive(Debug, Default)]
pub(super) struct Room {
    lock: Mutex<()>,
    freed: Condvar,
    /// Number of waiting threads. Written by them under the lock; read by threads that make room.
    waiting: AtomicUsize,
}

impl Room {
    /// Waits while the queue is `full`, which is checked under the lock.
    pub(super) fn wait(&self, mut full: impl FnMut() -> bool) {
        let guard = lock(&self.lock);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        // SeqCst: pairs with the fence in `freed`. Either `freed` sees this waiter, or the check of
        // `full` sees the room.
        mutant!(fence(Ordering::SeqCst), WaitForRoomWithoutFence => ());
        let (guard, _) = wait_while(&self.freed, guard, None, |()| full());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        drop(guard);
    }

    /// Notes a free place, and wakes the waiters.
    pub(super) fn freed(&self) {
        // SeqCst: pairs with the fence in `wait`.
        mutant!(fence(Ordering::SeqCst), RoomWithoutFence => ());
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.look_again();
        }
    }

    /// Wakes all waiters to check again, also when a drain begins.
    pub(super) fn look_again(&self) {
        // A thread that has checked and does not sleep yet holds the lock.
        mutant!(drop(lock(&self.lock)), RoomWithoutLock => ());
        // Wakes all of them: they may wait for places in different lanes.
        self.freed.notify_all();
    }
}

#[cfg(all(test, loom))]
mod model {
    //! Threads wait at a full queue while others pop tasks or begin a drain. A forgotten waiter
    //! waits without end, which loom reports as a deadlock. Left out: several queues (all waiters
    //! are woken).

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    use super::Room;
    use crate::runtime::queue::TaskQueue;
    use crate::sync::mutant::{explore, mutants};

    struct Lane {
        queue: TaskQueue<u32>,
        room: Room,
        over: AtomicBool,
    }

    impl Lane {
        fn full() -> Arc<Self> {
            let lane = Self {
                queue: TaskQueue::new(1),
                room: Room::default(),
                over: AtomicBool::new(false),
            };
            assert!(lane.queue.try_push(0).is_ok());
            Arc::new(lane)
        }

        /// `Group::push_wait`.
        fn push(&self, task: u32) -> bool {
            while self.queue.try_push(task).is_err() {
                let is_over = || self.over.load(Ordering::Acquire);
                self.room.wait(|| self.queue.is_full() && !is_over());
                if is_over() {
                    return false;
                }
            }
            true
        }

        /// `Group::pop`.
        fn pop(&self) -> Option<u32> {
            let task = self.queue.pop()?;
            self.room.freed();
            Some(task)
        }

        fn pop_now(&self) -> u32 {
            loop {
                match self.pop() {
                    Some(task) => return task,
                    None => thread::yield_now(),
                }
            }
        }
    }

    fn two_wait_for_one_place_after_the_other() {
        explore(|| {
            let lane = Lane::full();
            let pushers = [1, 2].map(|task| {
                let lane = Arc::clone(&lane);
                thread::spawn(move || assert!(lane.push(task)))
            });
            let mut popped = [0; 3].map(|_: u32| lane.pop_now());
            popped.sort_unstable();
            assert_eq!(popped, [0, 1, 2]);
            pushers.into_iter().for_each(|pusher| pusher.join().expect("no panic"));
        });
    }

    fn one_waits_while_one_is_taken() {
        explore(|| {
            let lane = Lane::full();
            let here = Arc::clone(&lane);
            let pusher = thread::spawn(move || assert!(here.push(1)));
            assert_eq!(lane.pop(), Some(0));
            pusher.join().expect("no panic");
            assert_eq!(lane.pop(), Some(1));
        });
    }

    fn one_waits_while_the_group_ends() {
        explore(|| {
            let lane = Lane::full();
            let here = Arc::clone(&lane);
            let pusher = thread::spawn(move || here.push(1));
            lane.over.store(true, Ordering::Release);
            lane.room.look_again();
            assert!(!pusher.join().expect("no panic"), "nothing was taken out");
        });
    }

    #[test]
    fn room() {
        one_waits_while_one_is_taken();
    }

    #[test]
    fn room_for_two() {
        two_wait_for_one_place_after_the_other();
    }

    #[test]
    fn end_of_who_waits_for_room() {
        one_waits_while_the_group_ends();
    }

    mutants! {
        room_that_a_waiter_asks_for_without_fence: WaitForRoomWithoutFence, one_waits_while_one_is_taken(), "deadlock";
        room_made_without_fence: RoomWithoutFence, one_waits_while_one_is_taken(), "deadlock";
        room_told_to_one_about_to_sleep: RoomWithoutLock, one_waits_while_the_group_ends(), "deadlock";
    }
}

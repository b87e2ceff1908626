//! Task queue of a group: one locked list, first in, first out.
//!
//! If a thread is preempted while it holds the lock, the other threads sleep. In a lock-free ring, a
//! thread that was preempted during its push made all others spin, the idle ones too.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicUsize, Ordering};
use crate::sync::shim::{Mutex, lock};

/// List for many threads on both ends, first in, first out.
///
/// The capacity limits only the waiting tasks of [`try_push`](Self::try_push). [`push`](Self::push)
/// never refuses a task: its tasks are those of sources, each of which is queued at most once, and of
/// timers. They take no place. So a caller that waits for room gets it, although the queue may never
/// get shorter than its capacity.
#[derive(Debug)]
pub(crate) struct TaskQueue<T> {
    capacity: usize,
    inner: CachePadded<Inner<T>>,
}

#[derive(Debug)]
struct Inner<T> {
    list: Mutex<VecDeque<(T, Place)>>,
    /// Length of the list. Written under the lock, read without it.
    len: AtomicUsize,
    /// Number of tasks in the list that take a place. Written under the lock, read without it.
    taken: AtomicUsize,
}

/// Tells if the task counts against the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Taken,
    Extra,
}

/// Length of the queue after a push, compared with its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Queued,
    Overflowed,
}

impl<T> TaskQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        let inner = Inner {
            list: Mutex::new(VecDeque::with_capacity(capacity)),
            len: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        };
        Self { capacity, inner: CachePadded::new(inner) }
    }

    pub(crate) fn push(&self, task: T) -> Pushed {
        self.append(&mut lock(&self.inner.list), task, Place::Extra)
    }

    /// Gives the task back if all places are taken.
    pub(crate) fn try_push(&self, task: T) -> Result<Pushed, T> {
        // Without the lock, so that refusals do not slow down the threads that empty the queue.
        if self.is_full() {
            return Err(task);
        }
        let mut list = lock(&self.inner.list);
        if self.is_full() {
            return Err(task);
        }
        self.inner.taken.fetch_add(1, Ordering::Relaxed);
        Ok(self.append(&mut list, task, Place::Taken))
    }

    fn append(&self, list: &mut VecDeque<(T, Place)>, task: T, place: Place) -> Pushed {
        list.push_back((task, place));
        // Release: pairs with the Acquire in `len`.
        self.inner.len.store(list.len(), Ordering::Release);
        if list.len() > self.capacity { Pushed::Overflowed } else { Pushed::Queued }
    }

    pub(crate) fn pop(&self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let mut list = lock(&self.inner.list);
        let (task, place) = list.pop_front()?;
        if place == Place::Taken {
            self.inner.taken.fetch_sub(1, Ordering::Relaxed);
        }
        if list.is_empty() && list.capacity() > KEPT * self.capacity {
            list.shrink_to(self.capacity);
        }
        let length = list.len();
        mutant!(self.inner.len.store(length, Ordering::Release), LengthWrittenUnlocked => {
            drop(list);
            self.inner.len.store(length, Ordering::Release);
        });
        Some(task)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn len(&self) -> usize {
        self.inner.len.load(Ordering::Acquire)
    }

    /// Number of tasks beyond the capacity.
    pub(crate) fn overflow_len(&self) -> usize {
        self.len().saturating_sub(self.capacity)
    }

    /// Returns true if `try_push` would refuse a task.
    pub(crate) fn is_full(&self) -> bool {
        // Relaxed: fences order this look of a waiter and a pop, see `Room`.
        self.inner.taken.load(Ordering::Relaxed) >= self.capacity
    }
}

/// Memory that an empty list keeps after a burst, in capacities of the queue.
const KEPT: usize = 4;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn tasks_come_out_in_the_order_of_their_pushes_also_beyond_the_capacity() {
        let queue = TaskQueue::new(2);
        assert_eq!(queue.try_push(0), Ok(Pushed::Queued));
        assert_eq!(queue.push(1), Pushed::Queued);
        assert_eq!(queue.push(2), Pushed::Overflowed);
        assert_eq!(queue.try_push(3), Ok(Pushed::Overflowed));
        assert_eq!(queue.try_push(9), Err(9));
        assert_eq!(queue.push(4), Pushed::Overflowed);
        assert_eq!((queue.len(), queue.overflow_len()), (5, 3));
        assert!(std::iter::from_fn(|| queue.pop()).eq(0..5));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_waiter_gets_room_although_the_queue_never_gets_shorter_than_its_capacity() {
        let queue = TaskQueue::new(2);
        assert_eq!([100, 101].map(|task| queue.try_push(task)), [Ok(Pushed::Queued); 2]);
        for source in 0..3 {
            queue.push(source);
        }
        // Each source that runs is queued again, before the waiter looks.
        let mut pops = 0;
        while queue.try_push(102).is_err() {
            let task = queue.pop().expect("it is never empty");
            if task < 100 {
                queue.push(task);
            }
            pops += 1;
            assert!(pops <= 5, "the waiter starves");
        }
    }

    #[test]
    fn an_empty_queue_gives_the_memory_of_a_burst_back() {
        let queue = TaskQueue::new(16);
        for task in 0..4096 {
            queue.push(task);
        }
        while queue.pop().is_some() {}
        assert!(lock(&queue.inner.list).capacity() <= KEPT * 16);
    }
}

//! The task queue of a group: bounded and lock-free, with a list behind it for what may not be lost.

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;

use crate::sync::shim::atomic::{AtomicUsize, Ordering};
use crate::sync::shim::{Mutex, lock};

/// First in, first out, for many on both ends.
///
/// [`try_push`](Self::try_push) respects the bound. [`push`](Self::push) does not fail: what finds the
/// queue full goes to the overflow list, which is bounded by the number of things that are registered
/// (each is queued at most once) and of timers. The list is served in turn with the queue, so neither
/// starves.
#[derive(Debug)]
pub(crate) struct TaskQueue<T> {
    ring: Ring<T>,
    overflow: CachePadded<Overflow<T>>,
}

#[derive(Debug)]
struct Overflow<T> {
    list: Mutex<VecDeque<T>>,
    /// Length of the list. Written under its lock, read by all before they take it.
    len: AtomicUsize,
    /// Pops so far, to serve the list every second time. Statistics.
    pops: AtomicUsize,
}

/// Where a push ended up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    Queued,
    Overflowed,
}

impl<T> TaskQueue<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            ring: Ring::new(capacity),
            overflow: CachePadded::new(Overflow {
                list: Mutex::new(VecDeque::new()),
                len: AtomicUsize::new(0),
                pops: AtomicUsize::new(0),
            }),
        }
    }

    pub(crate) fn push(&self, task: T) -> Pushed {
        let Err(task) = self.try_push(task) else { return Pushed::Queued };
        let mut list = lock(&self.overflow.list);
        list.push_back(task);
        // Release: pairs with the Acquire of `overflow_len`.
        self.overflow.len.store(list.len(), Ordering::Release);
        Pushed::Overflowed
    }

    /// A full queue gives the task back.
    pub(crate) fn try_push(&self, task: T) -> Result<(), T> {
        self.ring.push(task)
    }

    pub(crate) fn pop(&self) -> Option<T> {
        if self.overflow_len() > 0 {
            let turn = self.overflow.pops.fetch_add(1, Ordering::Relaxed);
            if turn.is_multiple_of(2)
                && let Some(task) = self.pop_overflow()
            {
                return Some(task);
            }
        }
        self.ring.pop().or_else(|| self.pop_overflow())
    }

    fn pop_overflow(&self) -> Option<T> {
        if self.overflow_len() == 0 {
            return None;
        }
        let mut list = lock(&self.overflow.list);
        let task = list.pop_front();
        self.overflow.len.store(list.len(), Ordering::Release);
        if list.is_empty() && list.capacity() > KEPT_OVERFLOW {
            list.shrink_to(KEPT_OVERFLOW);
        }
        task
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty() && self.overflow_len() == 0
    }

    /// Tasks in the bounded queue.
    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    /// Tasks in the list behind it.
    pub(crate) fn overflow_len(&self) -> usize {
        self.overflow.len.load(Ordering::Acquire)
    }
}

/// Entries whose memory an empty overflow list keeps.
const KEPT_OVERFLOW: usize = 1024;

#[cfg(not(loom))]
type Ring<T> = crossbeam_queue::ArrayQueue<T>;

/// Crossbeam's queue does not know loom. This stands in for it, so that models check what is built on
/// top. As there, pushing and popping touch words of their own: a pop makes nothing visible to a push.
#[cfg(loom)]
#[derive(Debug)]
struct Ring<T> {
    /// Not loom's: whose turn it is follows from the rest.
    slots: Vec<std::sync::Mutex<Option<T>>>,
    /// Pops and pushes so far, each written under its lock.
    head: AtomicUsize,
    tail: AtomicUsize,
    popping: Mutex<()>,
    pushing: Mutex<()>,
}

#[cfg(loom)]
impl<T> Ring<T> {
    fn new(capacity: usize) -> Self {
        Self {
            slots: (0..capacity).map(|_| std::sync::Mutex::new(None)).collect(),
            head: AtomicUsize::new(0),
            tail: AtomicUsize::new(0),
            popping: Mutex::new(()),
            pushing: Mutex::new(()),
        }
    }

    fn push(&self, task: T) -> Result<(), T> {
        let _lock = lock(&self.pushing);
        let tail = self.tail.load(Ordering::Relaxed);
        if tail - self.head.load(Ordering::Acquire) == self.slots.len() {
            return Err(task);
        }
        *self.slot(tail) = Some(task);
        self.tail.store(tail + 1, Ordering::Release);
        Ok(())
    }

    fn pop(&self) -> Option<T> {
        let _lock = lock(&self.popping);
        let head = self.head.load(Ordering::Relaxed);
        if head == self.tail.load(Ordering::Acquire) {
            return None;
        }
        let task = self.slot(head).take();
        self.head.store(head + 1, Ordering::Release);
        task
    }

    fn slot(&self, n: usize) -> std::sync::MutexGuard<'_, Option<T>> {
        self.slots[n % self.slots.len()].lock().expect("nothing panics under this lock")
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        let head = self.head.load(Ordering::Acquire);
        self.tail.load(Ordering::Acquire).saturating_sub(head)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_finds_the_queue_full_comes_out_too() {
        let queue = TaskQueue::new(2);
        assert_eq!(queue.push(0), Pushed::Queued);
        assert_eq!(queue.push(1), Pushed::Queued);
        assert_eq!(queue.try_push(9), Err(9));
        assert_eq!(queue.push(2), Pushed::Overflowed);
        assert_eq!(queue.push(3), Pushed::Overflowed);
        assert_eq!((queue.len(), queue.overflow_len()), (2, 2));
        let mut seen: Vec<i32> = std::iter::from_fn(|| queue.pop()).collect();
        seen.sort_unstable();
        assert_eq!(seen, [0, 1, 2, 3]);
        assert!(queue.is_empty());
    }
}

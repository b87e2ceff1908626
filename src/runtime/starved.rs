//! [`Starved`]: listeners that wait for a free descriptor.

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicBool, Ordering, fence};
use crate::sync::shim::{Mutex, lock};

/// Listeners that ran out of descriptors, each once. While the list is empty, a close costs one
/// fence and one load for this.
#[derive(Debug)]
pub(super) struct Starved<T> {
    list: Mutex<Vec<T>>,
    /// True if the list is not empty. Written under its lock.
    any: AtomicBool,
}

impl<T> Default for Starved<T> {
    fn default() -> Self {
        Self { list: Mutex::new(Vec::new()), any: AtomicBool::new(false) }
    }
}

impl<T> Starved<T> {
    /// Adds the listener `who` to the list, unless it is there already. Afterwards the caller tries
    /// once more to get a descriptor. Either that succeeds, or a later close sees the entry.
    pub(super) fn join(&self, who: T, is_same: impl Fn(&T, &T) -> bool) {
        {
            let mut list = lock(&self.list);
            if !list.iter().any(|other| is_same(other, &who)) {
                list.push(who);
            }
            self.any.store(true, Ordering::Relaxed);
        }
        // SeqCst: pairs with the fence in `descriptor_closed`.
        mutant!(fence(Ordering::SeqCst), StarveWithoutFence => ());
    }

    /// Called when a descriptor was closed. Returns the listeners that may try again.
    pub(super) fn descriptor_closed(&self) -> Vec<T> {
        // SeqCst: pairs with the fence in `join`.
        mutant!(fence(Ordering::SeqCst), CloseWithoutFence => ());
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut list = lock(&self.list);
        self.any.store(false, Ordering::Relaxed);
        std::mem::take(&mut *list)
    }
}

#[cfg(all(test, loom))]
mod model {
    //! Listeners run out of descriptors while descriptors are closed. Left out: the pauses, after
    //! which listeners try again without a notification. So a lost notification costs a second at
    //! most.

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::Starved;
    use crate::sync::mutant::{explore, mutants};

    struct Process {
        starved: Starved<u32>,
        descriptors: AtomicU32,
    }

    impl Process {
        fn new() -> Arc<Self> {
            Arc::new(Self { starved: Starved::default(), descriptors: AtomicU32::new(0) })
        }

        fn accepts(&self) -> bool {
            // An open that fails reads only the limit and gives no memory order.
            let mut free = self.descriptors.load(Ordering::Relaxed);
            while free > 0 {
                let taken = self.descriptors.compare_exchange(
                    free,
                    free - 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
                match taken {
                    Ok(_) => return true,
                    Err(now) => free = now,
                }
            }
            false
        }

        fn close(&self) -> Vec<u32> {
            self.descriptors.fetch_add(1, Ordering::Relaxed);
            self.starved.descriptor_closed()
        }

        /// Like `Acceptor::turn` in `net/accept.rs`: it asks for a notification and tries once
        /// more.
        fn starves(&self, listener: u32) -> bool {
            !self.accepts() && {
                self.starved.join(listener, u32::eq);
                !self.accepts()
            }
        }
    }

    fn a_close_is_seen_or_told() {
        explore(|| {
            let process = Process::new();
            let here = Arc::clone(&process);
            let listener = thread::spawn(move || here.starves(7));
            let told = process.close();
            let starves = listener.join().expect("no panic");
            assert!(!starves || told == [7], "nobody tells the listener");
        });
    }

    /// A notified listener tries again, as its task would.
    fn two_starve_for_two_descriptors() {
        explore(|| {
            let process = Process::new();
            let here = Arc::clone(&process);
            let first = thread::spawn(move || here.starves(1));
            let here = Arc::clone(&process);
            let second = thread::spawn(move || here.starves(2));
            let mut told = process.close();
            told.extend(process.close());
            for (n, listener) in [(1, first), (2, second)] {
                if listener.join().expect("no panic") {
                    assert!(told.contains(&n), "nobody tells the listener");
                }
            }
        });
    }

    #[test]
    fn starved() {
        a_close_is_seen_or_told();
    }

    #[test]
    fn starved_two() {
        two_starve_for_two_descriptors();
    }

    mutants! {
        starving_without_fence: StarveWithoutFence, a_close_is_seen_or_told(), "nobody tells the listener";
        close_without_fence: CloseWithoutFence, a_close_is_seen_or_told(), "nobody tells the listener";
    }
}

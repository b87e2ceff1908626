//! [`Park`]: where workers rest, and which worker is woken.
//!
//! A worker without work rests in one of two places:
//!
//! * **waiting** in `epoll_wait`, which takes a *poll permit*. While handlers are quick, there is one
//!   permit. A second waiter would be woken by nearly every reply that a client answers. The kernel
//!   lets it preempt that client in the middle of its work (measured, see the guide). While handlers
//!   are slow, every worker may have a permit;
//! * **asleep** on a semaphore.
//!
//! One word holds the counts of resting workers and of permits and the flags of a wake-up, so that
//! they always agree:
//!
//! ```text
//!  sleepers:16 │ pollers:16 │ waiters:16 │ WAKING_SLEEPER, WAKING_WAITER
//! ```
//!
//! Rule of waking:
//!
//! * A push queues its task. Then it wakes a resting worker, unless a wake-up is under way already.
//! * A woken worker ends the wake-up *before* it looks at the queue.
//! * Before a worker starts a run, it looks for waiting work. If there is some, another worker rests
//!   and no wake-up is under way, it wakes that worker first.
//!
//! So wake-ups are passed on, and no task is lost if several wake-ups are merged into one.
//!
//! A worker announces its rest in the word and then looks at the queue once more. A push queues its
//! task and then looks at the word. Both pass a SeqCst fence in between, so one of the two sees the
//! other.

use std::fmt;
use std::time::Duration;

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicU64, Ordering, fence};
use crate::sync::shim::{Condvar, Mutex, lock, wait_while};

/// Way in which a worker must rest. [`Park::rise`] ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Rest {
    /// Wait in epoll until there is an event.
    Wait,
    /// Poll epoll without waiting, because another worker already waits there. If there is no event,
    /// the worker asks again with one permit in demand.
    Look,
    /// Sleep until woken.
    Sleep,
}

/// Kind of the worker to wake, which tells how to wake it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the wake-up is announced and has to be made"]
pub(crate) enum Wake {
    /// Sleeper, woken by [`Park::post`].
    Sleeper,
    /// Waiter in epoll, woken by an edge on the eventfd.
    Waiter,
}

/// Number of pollers that a group wants, and if all of them may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Demand {
    /// Number of poll permits.
    pub(crate) pollers: u64,
    /// If true, all pollers may wait in epoll at once. If false, only one may.
    pub(crate) all_wait: bool,
}

pub(crate) struct Park {
    /// Written by all workers and by threads that push, by read-modify-write only; see the module.
    word: AtomicU64,
    /// Wake-ups that no sleeper has taken.
    tokens: Mutex<u32>,
    posted: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

/// Unit of the count of sleepers. The count is at most the number of threads.
const SLEEPER: u64 = 1;
/// Unit of the count of taken permits, which [`Demand::pollers`] limits.
const POLLER: u64 = 1 << 16;
const WAITER: u64 = 1 << 32;
const WAKING_SLEEPER: u64 = 1 << 48;
const WAKING_WAITER: u64 = 1 << 49;
const COUNT: u64 = 0xffff;

impl Word {
    const fn sleepers(self) -> u64 {
        self.0 & COUNT
    }

    const fn pollers(self) -> u64 {
        self.0 >> 16 & COUNT
    }

    const fn waiters(self) -> u64 {
        self.0 >> 32 & COUNT
    }

    const fn wake_up_under_way(self) -> bool {
        self.0 & (WAKING_SLEEPER | WAKING_WAITER) != 0
    }

    /// Returns the next word, and the way to rest.
    fn rest(self, has_permit: bool, demand: Demand) -> (Self, Rest) {
        let others = self.pollers() - u64::from(has_permit);
        if others < demand.pollers {
            let word = if has_permit { self.0 } else { self.0 + POLLER };
            if demand.all_wait || self.waiters() == 0 {
                return (Self(word + WAITER), Rest::Wait);
            }
            return (Self(word), Rest::Look);
        }
        let word = if has_permit { self.0 - POLLER } else { self.0 };
        (Self(word + SLEEPER), Rest::Sleep)
    }

    fn rise(self, rest: Rest) -> Self {
        let (one, waking) = match rest {
            Rest::Wait => (WAITER, WAKING_WAITER),
            Rest::Sleep => (SLEEPER, WAKING_SLEEPER),
            Rest::Look => return self,
        };
        Self((self.0 - one) & !mutant!(waking, RiseKeepsWakeUp => 0))
    }

    fn wake(self) -> Option<(Self, Wake)> {
        if self.wake_up_under_way() {
            None
        } else if self.sleepers() > 0 {
            Some((Self(self.0 | WAKING_SLEEPER), Wake::Sleeper))
        } else if self.waiters() > 0 {
            Some((Self(self.0 | WAKING_WAITER), Wake::Waiter))
        } else {
            None
        }
    }
}

impl Park {
    pub(crate) fn new() -> Self {
        Self { word: AtomicU64::new(0), tokens: Mutex::new(0), posted: Condvar::new() }
    }

    /// Announces a rest. Afterwards the worker has a permit if it waits or looks, and none if it
    /// sleeps.
    ///
    /// The caller must look at the queue after this call and before it rests.
    pub(crate) fn rest(&self, has_permit: bool, demand: Demand) -> Rest {
        let rest = self.update(|word| {
            let (next, rest) = word.rest(has_permit, demand);
            Some((next, rest))
        });
        // SeqCst: pairs with the fence in `wake`. Either the look at the queue that follows sees the
        // push, or that push sees this rest.
        mutant!(fence(Ordering::SeqCst), RestWithoutFence => ());
        rest.expect("resting is always possible")
    }

    /// Ends a rest, and a wake-up that may have been meant for this worker. The caller must look at the
    /// queue after this call.
    pub(crate) fn rise(&self, rest: Rest) {
        if rest != Rest::Look {
            let _ = self.update(|word| Some((word.rise(rest), ())));
        }
        // SeqCst: pairs with the fences in `wake` and in `Watch::sleep`. If a push saw the wake-up of
        // this worker under way, the look that follows sees the task. The lock of a queue does not
        // suffice, because this worker may take a task from one lane while the push is to another.
        // Also, either the watchdog sees that this worker runs, or the worker sees that the watchdog
        // sleeps.
        mutant!(fence(Ordering::SeqCst), RiseWithoutFence => ());
    }

    /// Ends a wake-up whose edge the caller received. If the caller only looked into epoll, the waiter
    /// that the edge was meant for still waits. The caller must look at the queue after this call.
    pub(crate) fn end_waking(&self) {
        self.word.fetch_and(mutant!(!WAKING_WAITER, EdgeKeepsWakeUp => !0), Ordering::AcqRel);
        // SeqCst: as in `rise`.
        fence(Ordering::SeqCst);
    }

    /// Returns the kind of worker to wake, if a worker rests and no wake-up is under way. Called after
    /// a task was queued or a permit was given back.
    pub(crate) fn wake(&self) -> Option<Wake> {
        // SeqCst: pairs with the fences in `rest`, `rise` and `end_waking`.
        mutant!(fence(Ordering::SeqCst), WakeWithoutFence => ());
        self.update(Word::wake)
    }

    /// Gives a taken permit back, for example before a slow run or an announced wait.
    pub(crate) fn give_permit(&self) {
        self.word.fetch_sub(POLLER, Ordering::AcqRel);
    }

    /// Returns true if too few permits are taken and a worker sleeps that could take one. If not all
    /// may wait, one taken permit is enough: the other workers only look before they sleep.
    pub(crate) fn wants_poller(&self, demand: Demand) -> bool {
        let word = self.word();
        let wanted = if demand.all_wait { demand.pollers } else { demand.pollers.min(1) };
        word.pollers() < wanted && word.sleepers() > 0
    }

    /// Returns true if a worker waits in epoll. The kernel gives new events to it.
    pub(crate) fn has_waiter(&self) -> bool {
        Word(self.word.load(Ordering::Relaxed)).waiters() > 0
    }

    /// Number of workers that wait or sleep.
    pub(crate) fn resting(&self) -> u64 {
        let word = self.word();
        word.sleepers() + word.waiters()
    }

    /// Number of taken permits.
    #[cfg(all(test, loom))]
    pub(crate) fn permits(&self) -> u64 {
        self.word().pollers()
    }

    /// Wakes one sleeper. The caller got [`Wake::Sleeper`].
    pub(crate) fn post(&self) {
        *lock(&self.tokens) += 1;
        self.posted.notify_one();
    }

    /// Sleeps until a post. Returns false if the time was over first.
    pub(crate) fn sleep(&self, limit: Option<Duration>) -> bool {
        let tokens = lock(&self.tokens);
        let (mut tokens, over) = wait_while(&self.posted, tokens, limit, |tokens| *tokens == 0);
        if !over {
            *tokens -= 1;
        }
        !over
    }

    fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    fn update<R>(&self, mut step: impl FnMut(Word) -> Option<(Word, R)>) -> Option<R> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (next, result) = step(Word(word))?;
            // AcqRel: everything that a worker did before it changed the word happens before everything
            // that the next worker to change the word does.
            match self.word.compare_exchange_weak(word, next.0, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Some(result),
                Err(now) => word = now,
            }
        }
    }
}

impl fmt::Debug for Park {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word();
        f.debug_struct("Park")
            .field("sleepers", &word.sleepers())
            .field("pollers", &word.pollers())
            .field("waiters", &word.waiters())
            .field("wake_up_under_way", &word.wake_up_under_way())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CALM: Demand = Demand { pollers: 1, all_wait: false };
    const OPEN: Demand = Demand { pollers: 4, all_wait: true };

    #[test]
    fn calm_one_waits_and_the_others_sleep() {
        let park = Park::new();
        assert_eq!(park.rest(false, CALM), Rest::Wait);
        assert_eq!(park.rest(false, CALM), Rest::Sleep);
        assert_eq!(park.rest(false, CALM), Rest::Sleep);
        assert_eq!(park.resting(), 3);
        park.rise(Rest::Wait);
        assert_eq!(park.rest(true, CALM), Rest::Wait, "the permit is kept");
    }

    #[test]
    fn open_all_wait_and_calm_again_the_surplus_sleeps() {
        let park = Park::new();
        for _ in 0..4 {
            assert_eq!(park.rest(false, OPEN), Rest::Wait);
        }
        for _ in 0..3 {
            park.rise(Rest::Wait);
            assert_eq!(park.rest(true, CALM), Rest::Sleep, "one poller is enough");
        }
        park.rise(Rest::Wait);
        assert_eq!(park.rest(true, CALM), Rest::Wait);
    }

    #[test]
    fn an_extra_poller_looks_while_the_first_waits() {
        let park = Park::new();
        let two = Demand { pollers: 2, all_wait: false };
        assert_eq!(park.rest(false, two), Rest::Wait);
        assert_eq!(park.rest(false, two), Rest::Look);
        park.rise(Rest::Look);
        park.rise(Rest::Wait);
        assert_eq!(park.rest(true, two), Rest::Wait);
    }

    #[test]
    fn one_wake_up_at_a_time_and_sleepers_first() {
        let park = Park::new();
        assert_eq!(park.wake(), None, "nobody rests");
        let waiting = park.rest(false, CALM);
        let sleeping = park.rest(false, CALM);
        assert_eq!(park.wake(), Some(Wake::Sleeper));
        assert_eq!(park.wake(), None, "one is under way");
        park.rise(sleeping);
        assert_eq!(park.wake(), Some(Wake::Waiter));
        park.rise(waiting);
        assert_eq!(park.wake(), None, "nobody rests");
    }
}

//! [`RunQueues`]: the task queues of a group, one for each order of urgency.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crossbeam_utils::CachePadded;

use super::class::Class;
use super::queue::{Pushed, TaskQueue};
use crate::stats::Snapshot;
use crate::sync::shim::atomic::{AtomicUsize, Ordering};
use crate::sys::clock::{self, AtomicInstant, Instant};

/// Four queues: for work in progress (and work of the operator), for logins, for ordinary work, and for
/// ordinary work that has had its share. The last kind is work with at least one of these properties:
///
/// * it has used a whole turn and has more to do;
/// * its runs are long;
/// * it came with too many others at once;
/// * it only has to be cleared away.
///
/// Work in progress goes first, and each of the other queues has a share, see [`PopOrder`].
///
/// A task is counted before it can be found. So the push sees each worker that saw no count and then
/// announced its rest (see [`Park`](super::park)).
#[derive(Debug)]
pub(super) struct RunQueues<T> {
    progress: Lane<T>,
    login: Lane<T>,
    ordinary: Lane<T>,
    /// Ordinary work that has had its share.
    spent: Lane<T>,
    /// Tasks in `progress` and `login`, counted before they are pushed and after they are popped.
    /// With it, a pop of an ordinary task costs one load for both lanes.
    urgent: CachePadded<AtomicUsize>,
}

#[derive(Debug)]
struct Lane<T> {
    queue: TaskQueue<Queued<T>>,
    seen: CachePadded<Seen>,
}

/// Number of lanes. Each has the capacity `epoll_work_queue_capacity`.
pub(crate) const LANES: usize = 4;

#[derive(Debug)]
struct Queued<T> {
    task: T,
    /// Time at which it was queued.
    at: Instant,
}

/// Statistics of a lane. They are std's atomics also in a model, which need not interleave them.
#[derive(Debug, Default)]
struct Seen {
    /// Time at which the task at the head was queued, or the task before it.
    head_at: AtomicInstant,
    high_water: AtomicU64,
}

/// Tasks that a worker may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accepts {
    /// All of them.
    Everything,
    /// Work in progress and logins.
    Urgent,
    /// Work in progress.
    Progress,
}

impl Accepts {
    /// Returns true if a worker that accepts this may run a task of this class.
    pub(super) const fn includes(self, class: Class) -> bool {
        match self {
            Self::Everything => true,
            Self::Urgent => class.is_urgent(),
            Self::Progress => matches!(class, Class::InProgress | Class::Admin),
        }
    }
}

/// Lane that a pop looks at first. If that lane is empty, or the worker does not accept it, the most urgent
/// task goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PopOrder {
    Progress,
    Login,
    Ordinary,
    /// Ordinary work that has had its share. If there is none, other ordinary work.
    Spent,
}

impl PopOrder {
    /// Gives each lane its share of a worker's tasks, so that endless work in one lane starves no
    /// other: one task in 16 is a login, one in 16 is ordinary. Every second ordinary one has had its
    /// share; not every one, because the turns of such work are long.
    pub(super) const fn of(taken: u32) -> Self {
        match taken % 32 {
            0 => Self::Ordinary,
            16 => Self::Spent,
            8 | 24 => Self::Login,
            _ => Self::Progress,
        }
    }
}

impl<T> RunQueues<T> {
    pub(super) fn new(capacity: usize) -> Self {
        let lane = || Lane { queue: TaskQueue::new(capacity), seen: CachePadded::default() };
        Self {
            progress: lane(),
            login: lane(),
            ordinary: lane(),
            spent: lane(),
            urgent: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    fn lane(&self, class: Class) -> &Lane<T> {
        match class {
            Class::Ordinary => &self.ordinary,
            Class::Login => &self.login,
            Class::InProgress | Class::Admin => &self.progress,
        }
    }

    /// Queues a task that must not be lost.
    pub(super) fn push(&self, class: Class, task: T) -> Pushed {
        let pushed = self.push_with(class, task, |queue, task| Ok(queue.push(task)));
        pushed.unwrap_or(Pushed::Overflowed)
    }

    /// Queues a task that has had its share. If it is ordinary, it goes behind ordinary tasks that have
    /// not.
    pub(super) fn push_spent(&self, class: Class, task: T) -> Pushed {
        if class.is_urgent() {
            return self.push(class, task);
        }
        let pushed = self.push_to(&self.spent, task, |queue, task| Ok(queue.push(task)));
        pushed.unwrap_or(Pushed::Overflowed)
    }

    /// Queues a task, or gives it back if the queue is full.
    pub(super) fn try_push(&self, class: Class, task: T) -> Result<Pushed, T> {
        self.push_with(class, task, TaskQueue::try_push)
    }

    fn push_with<R>(
        &self,
        class: Class,
        task: T,
        push: impl FnOnce(&TaskQueue<Queued<T>>, Queued<T>) -> Result<R, Queued<T>>,
    ) -> Result<R, T> {
        if class.is_urgent() {
            self.urgent.fetch_add(1, Ordering::Relaxed);
        }
        let pushed = self.push_to(self.lane(class), task, push);
        if pushed.is_err() && class.is_urgent() {
            self.urgent.fetch_sub(1, Ordering::Relaxed);
        }
        pushed
    }

    fn push_to<R>(
        &self,
        lane: &Lane<T>,
        task: T,
        push: impl FnOnce(&TaskQueue<Queued<T>>, Queued<T>) -> Result<R, Queued<T>>,
    ) -> Result<R, T> {
        let at = clock::now();
        if lane.queue.is_empty() {
            lane.seen.head_at.set(at);
        }
        let pushed = push(&lane.queue, Queued { task, at });
        let length = lane.queue.len() as u64;
        if length > lane.seen.high_water.load(Ordering::Relaxed) {
            lane.seen.high_water.fetch_max(length, Ordering::Relaxed);
        }
        pushed.map_err(|queued| queued.task)
    }

    /// Takes the next task. Returns it with the time at which it was queued.
    pub(super) fn pop(&self, accepts: Accepts, first: PopOrder) -> Option<(T, Instant)> {
        let all = accepts == Accepts::Everything;
        let share = match first {
            PopOrder::Ordinary if all => self.ordinary.pop(),
            PopOrder::Spent if all => self.spent.pop().or_else(|| self.ordinary.pop()),
            _ => None,
        };
        let ordinary = || self.ordinary.pop().or_else(|| self.spent.pop());
        let queued = share
            .or_else(|| self.pop_urgent(accepts, first))
            .or_else(|| if all { ordinary() } else { None })?;
        Some((queued.task, queued.at))
    }

    fn pop_urgent(&self, accepts: Accepts, first: PopOrder) -> Option<Queued<T>> {
        if self.urgent.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let login = || if accepts == Accepts::Progress { None } else { self.login.pop() };
        let queued = if first == PopOrder::Login {
            login().or_else(|| self.progress.pop())
        } else {
            self.progress.pop().or_else(login)
        }?;
        self.urgent.fetch_sub(1, Ordering::Relaxed);
        Some(queued)
    }

    /// Returns true if there is a task that the worker accepts.
    ///
    /// The count alone does not tell: it is raised before a push, and lowered after a pop.
    pub(super) fn has(&self, accepts: Accepts) -> bool {
        let urgent = self.urgent.load(Ordering::Acquire) > 0;
        let progress = || urgent && !self.progress.queue.is_empty();
        let logins = || urgent && !self.login.queue.is_empty();
        match accepts {
            Accepts::Everything => {
                !self.ordinary.queue.is_empty()
                    || !self.spent.queue.is_empty()
                    || progress()
                    || logins()
            }
            Accepts::Urgent => progress() || logins(),
            Accepts::Progress => progress(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has(Accepts::Everything)
    }

    /// Returns true if `try_push` would refuse a task of this class.
    pub(super) fn is_full(&self, class: Class) -> bool {
        self.lane(class).queue.is_full()
    }

    /// Number of tasks in all queues.
    pub(super) fn len(&self) -> usize {
        self.run_queues().iter().map(|lane| lane.queue.len()).sum()
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        for lane in self.run_queues() {
            let (queued, overflow) = (lane.queue.len(), lane.queue.overflow_len());
            snapshot.queue_len += queued.saturating_sub(overflow) as u64;
            snapshot.overflow_len += overflow as u64;
        }
        snapshot.urgent_queue_len += self.urgent.load(Ordering::Relaxed) as u64;
        snapshot.queue_high_water = snapshot.queue_high_water.max(self.high_water());
        snapshot.oldest_task_age = snapshot.oldest_task_age.max(self.oldest(clock::now()));
    }

    /// Largest number of tasks that one of the queues ever held.
    fn high_water(&self) -> u64 {
        let marks = self.run_queues().map(|lane| lane.seen.high_water.load(Ordering::Relaxed));
        marks.into_iter().max().unwrap_or(0)
    }

    /// Age of the oldest task. It may be too high, by the time between that task and the one before it.
    fn oldest(&self, now: Instant) -> Duration {
        let waiting = self.run_queues().into_iter().filter(|lane| !lane.queue.is_empty());
        let ages = waiting.map(|lane| now.duration_since(lane.seen.head_at.get()));
        ages.max().unwrap_or_default()
    }

    fn run_queues(&self) -> [&Lane<T>; LANES] {
        [&self.progress, &self.login, &self.ordinary, &self.spent]
    }
}

impl<T> Lane<T> {
    fn pop(&self) -> Option<Queued<T>> {
        let queued = self.queue.pop()?;
        self.seen.head_at.set(queued.at);
        Some(queued)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn filled() -> RunQueues<u32> {
        let run_queues = RunQueues::new(8);
        for (class, task) in [
            (Class::Ordinary, 1),
            (Class::Login, 2),
            (Class::InProgress, 3),
            (Class::Admin, 4),
            (Class::Ordinary, 5),
        ] {
            assert_eq!(run_queues.push(class, task), Pushed::Queued);
        }
        run_queues
    }

    const FIRST: [PopOrder; 4] =
        [PopOrder::Progress, PopOrder::Login, PopOrder::Ordinary, PopOrder::Spent];

    fn drained(run_queues: &RunQueues<u32>, accepts: Accepts) -> Vec<u32> {
        std::iter::from_fn(|| next(run_queues, accepts, PopOrder::Progress)).collect()
    }

    fn next(run_queues: &RunQueues<u32>, accepts: Accepts, first: PopOrder) -> Option<u32> {
        run_queues.pop(accepts, first).map(|(task, _)| task)
    }

    #[test]
    fn the_most_urgent_comes_first() {
        let run_queues = filled();
        assert_eq!(run_queues.urgent.load(Ordering::Relaxed), 3);
        assert_eq!(drained(&run_queues, Accepts::Everything), [3, 4, 2, 1, 5]);
        assert!(run_queues.is_empty());
        assert_eq!(run_queues.urgent.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn each_takes_what_it_may() {
        let run_queues = filled();
        assert_eq!(next(&run_queues, Accepts::Everything, PopOrder::Ordinary), Some(1));
        assert_eq!(drained(&run_queues, Accepts::Progress), [3, 4]);
        assert!(!run_queues.has(Accepts::Progress) && run_queues.has(Accepts::Urgent));
        assert_eq!(drained(&run_queues, Accepts::Urgent), [2]);
        assert!(!run_queues.has(Accepts::Urgent) && run_queues.has(Accepts::Everything));
        assert_eq!(drained(&run_queues, Accepts::Everything), [5]);
    }

    #[test]
    fn what_has_had_its_turn_stands_behind_what_has_not_but_for_its_share() {
        let run_queues = RunQueues::new(8);
        for task in [1, 2] {
            assert_eq!(run_queues.push_spent(Class::Ordinary, task), Pushed::Queued);
        }
        run_queues.push(Class::Ordinary, 3);
        run_queues.push(Class::Login, 4);
        // An urgent task stays urgent.
        run_queues.push_spent(Class::InProgress, 5);
        assert_eq!(run_queues.len(), 5);
        assert_eq!(next(&run_queues, Accepts::Everything, PopOrder::Spent), Some(1));
        assert_eq!(drained(&run_queues, Accepts::Urgent), [5, 4]);
        assert!(!run_queues.is_empty());
        assert_eq!(drained(&run_queues, Accepts::Everything), [3, 2]);
        assert!(
            run_queues.is_empty()
                && next(&run_queues, Accepts::Everything, PopOrder::Spent).is_none()
        );
    }

    #[test]
    fn a_full_lane_does_not_count_what_it_gives_back() {
        let run_queues = RunQueues::new(1);
        assert_eq!(run_queues.try_push(Class::Login, 1), Ok(Pushed::Queued));
        assert_eq!(run_queues.try_push(Class::Login, 2), Err(2));
        assert_eq!(run_queues.push(Class::Login, 3), Pushed::Overflowed);
        let seen = || {
            let mut seen = Snapshot::default();
            run_queues.add_to(&mut seen);
            [seen.urgent_queue_len, seen.queue_len, seen.overflow_len, seen.queue_high_water]
        };
        assert_eq!(seen(), [2, 1, 1, 2]);
        drained(&run_queues, Accepts::Everything);
        assert_eq!(seen(), [0, 0, 0, 2]);
    }

    #[test]
    fn a_push_that_has_only_been_announced_keeps_nobody_awake() {
        let run_queues = RunQueues::<u32>::new(8);
        // Another worker is about to push a task, or has popped one and not yet lowered the count.
        run_queues.urgent.fetch_add(1, Ordering::Relaxed);
        for accepts in [Accepts::Everything, Accepts::Urgent, Accepts::Progress] {
            assert!(!run_queues.has(accepts), "{accepts:?}");
            for first in FIRST {
                assert_eq!(next(&run_queues, accepts, first), None, "{accepts:?}, {first:?}");
            }
        }
    }

    #[test]
    fn the_age_is_that_of_the_head() {
        let start = Instant::now();
        let run_queues = RunQueues::new(8);
        assert_eq!(run_queues.oldest(start), Duration::ZERO, "nobody waits");
        run_queues.push(Class::Ordinary, 1);
        run_queues.push(Class::Ordinary, 2);
        let later = Instant::now() + Duration::from_secs(1);
        assert!(run_queues.oldest(later) >= Duration::from_secs(1));
        let (_, at) =
            run_queues.pop(Accepts::Everything, PopOrder::Progress).expect("two were pushed");
        assert!(at >= start && at <= Instant::now());
        assert!(run_queues.oldest(later) <= later - at);
        next(&run_queues, Accepts::Everything, PopOrder::Progress);
        assert_eq!(run_queues.oldest(later), Duration::ZERO);
    }

    #[test]
    fn what_has_had_its_share_is_first_when_it_is_its_turn_and_ordinary_work_if_there_is_none() {
        let run_queues = filled();
        run_queues.push_spent(Class::Ordinary, 6);
        let next = || next(&run_queues, Accepts::Everything, PopOrder::Spent);
        assert_eq!([next(), next(), next()], [Some(6), Some(1), Some(5)]);
        assert_eq!(next(), Some(3), "nothing of either");
    }
    #[test]
    fn a_login_is_first_when_it_is_its_turn_unless_the_taste_excludes_it() {
        let run_queues = filled();
        assert_eq!(next(&run_queues, Accepts::Progress, PopOrder::Login), Some(3));
        assert_eq!(next(&run_queues, Accepts::Urgent, PopOrder::Login), Some(2));
        assert_eq!(
            next(&run_queues, Accepts::Urgent, PopOrder::Login),
            Some(4),
            "no login is left"
        );
        assert_eq!(run_queues.urgent.load(Ordering::Relaxed), 0);
        run_queues.push(Class::Login, 6);
        run_queues.push(Class::InProgress, 7);
        assert_eq!(next(&run_queues, Accepts::Everything, PopOrder::Login), Some(6));
        assert_eq!(next(&run_queues, Accepts::Everything, PopOrder::Login), Some(7));
        assert_eq!(drained(&run_queues, Accepts::Everything), [1, 5]);
    }

    #[test]
    fn a_turn_of_ordinary_work_gives_none_of_it_to_the_reserve() {
        for first in [PopOrder::Ordinary, PopOrder::Spent] {
            let run_queues = filled();
            run_queues.push_spent(Class::Ordinary, 6);
            let taken = std::iter::from_fn(|| next(&run_queues, Accepts::Urgent, first));
            assert_eq!(taken.collect::<Vec<_>>(), [3, 4, 2], "{first:?}");
        }
    }

    #[test]
    fn each_lane_has_its_share_of_the_tasks_of_a_worker() {
        for start in [0, 7, 1_000_000] {
            let turns = (start..start + 32).map(PopOrder::of);
            let count = |first| turns.clone().filter(|turn| *turn == first).count();
            assert_eq!(FIRST.map(count), [28, 2, 1, 1]);
        }
        let of = |first| (0..64).filter(|taken| PopOrder::of(*taken) == first).collect::<Vec<_>>();
        assert_eq!(of(PopOrder::Login), [8, 24, 40, 56], "no more than fifteen tasks between two");
    }
}

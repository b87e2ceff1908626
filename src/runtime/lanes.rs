//! [`Lanes`]: the task queues of a group, one for each order of urgency.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::class::Class;
use super::queue::{Pushed, TaskQueue};
use crate::stats::Snapshot;
use crate::sys::clock;

/// Four queues: for work in progress (and the operator), for logins, for everything else, and for
/// what of that has had its share: it has had a whole turn and has more to do, is known to bring much,
/// came with too many others at once, or only has to be cleared away. Whoever comes with little to do
/// does not stand behind those with much; and these get their part, see [`Taste::SpentFirst`].
///
/// What is pushed is counted before it can be found, so that whoever sees no count, and then announces
/// its rest, is seen by the push (see [`Park`](super::park)).
#[derive(Debug)]
pub(super) struct Lanes<T> {
    started: Instant,
    progress: Lane<T>,
    login: Lane<T>,
    ordinary: Lane<T>,
    /// Ordinary, and has had its share.
    spent: Lane<T>,
    /// Tasks in `progress` and `login`, counted before they are pushed and after they are popped: one
    /// look on the way of everything that is ordinary.
    urgent: CachePadded<AtomicUsize>,
}

#[derive(Debug)]
struct Lane<T> {
    queue: TaskQueue<Queued<T>>,
    seen: CachePadded<Seen>,
}

#[derive(Debug)]
struct Queued<T> {
    task: T,
    /// Nanoseconds after the start of the group.
    at: u64,
}

/// Statistics of a lane.
#[derive(Debug, Default)]
struct Seen {
    /// When the task at the head was queued, or the one before it.
    head_at: AtomicU64,
    high_water: AtomicUsize,
}

/// What a worker may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taste {
    /// The most urgent first.
    Everything,
    /// The same, but this time something ordinary first, so that it never starves.
    OrdinaryFirst,
    /// The same, but something that has had its share first, or else something ordinary.
    SpentFirst,
    /// Work in progress and logins.
    Urgent,
    /// Work in progress.
    Progress,
}

impl Taste {
    /// Order in which a worker looks for its next task, after `taken` others.
    pub(super) const fn of_turn(taken: u32) -> Self {
        if !taken.is_multiple_of(ORDINARY_SHARE) {
            return Self::Everything;
        }
        let share = taken / ORDINARY_SHARE;
        if share % SPENT_SHARE == SPENT_SHARE - 1 { Self::SpentFirst } else { Self::OrdinaryFirst }
    }

    /// Whether who has it may run this.
    pub(super) const fn includes(self, class: Class) -> bool {
        match self {
            Self::Everything | Self::OrdinaryFirst | Self::SpentFirst => true,
            Self::Urgent => class.is_urgent(),
            Self::Progress => matches!(class, Class::InProgress | Class::Admin),
        }
    }
}

/// Every so many tasks an ordinary one goes first, so that urgent ones without end starve none.
const ORDINARY_SHARE: u32 = 16;
/// Of these, every so many is one that has had its share: of time that is more, as its turns are long.
const SPENT_SHARE: u32 = 2;

impl<T> Lanes<T> {
    pub(super) fn new(capacity: usize, now: Instant) -> Self {
        let lane = || Lane { queue: TaskQueue::new(capacity), seen: CachePadded::default() };
        Self {
            started: now,
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

    /// Queues what may not be lost.
    pub(super) fn push(&self, class: Class, task: T) -> Pushed {
        let pushed = self.push_with(class, task, |queue, task| Ok(queue.push(task)));
        pushed.unwrap_or(Pushed::Overflowed)
    }

    /// Queues what has had its share: behind what is as urgent and has not.
    pub(super) fn push_spent(&self, class: Class, task: T) -> Pushed {
        if class.is_urgent() {
            return self.push(class, task);
        }
        let pushed = self.push_to(&self.spent, task, |queue, task| Ok(queue.push(task)));
        pushed.unwrap_or(Pushed::Overflowed)
    }

    /// A full queue gives the task back.
    pub(super) fn try_push(&self, class: Class, task: T) -> Result<(), T> {
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
        let at = self.nanos(clock::now());
        if lane.queue.is_empty() {
            lane.seen.head_at.store(at, Ordering::Relaxed);
        }
        let pushed = push(&lane.queue, Queued { task, at });
        let length = lane.len();
        if length > lane.seen.high_water.load(Ordering::Relaxed) {
            lane.seen.high_water.fetch_max(length, Ordering::Relaxed);
        }
        pushed.map_err(|queued| queued.task)
    }

    /// The next task, and when it was queued.
    pub(super) fn pop(&self, taste: Taste) -> Option<(T, Instant)> {
        let first = match taste {
            Taste::OrdinaryFirst => self.ordinary.pop(),
            Taste::SpentFirst => self.spent.pop().or_else(|| self.ordinary.pop()),
            _ => None,
        };
        let queued = first.or_else(|| self.pop_urgent(taste)).or_else(|| match taste {
            Taste::Everything | Taste::OrdinaryFirst | Taste::SpentFirst => {
                self.ordinary.pop().or_else(|| self.spent.pop())
            }
            Taste::Urgent | Taste::Progress => None,
        })?;
        Some((queued.task, self.started + Duration::from_nanos(queued.at)))
    }

    fn pop_urgent(&self, taste: Taste) -> Option<Queued<T>> {
        if self.urgent.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let logins = taste != Taste::Progress;
        let queued =
            self.progress.pop().or_else(|| if logins { self.login.pop() } else { None })?;
        self.urgent.fetch_sub(1, Ordering::Relaxed);
        Some(queued)
    }

    /// Whether there is anything for who has this taste.
    ///
    /// The count alone does not say so: it is raised before a push, and lowered after a pop.
    pub(super) fn has(&self, taste: Taste) -> bool {
        let urgent = self.urgent.load(Ordering::Acquire) > 0;
        let progress = || urgent && !self.progress.queue.is_empty();
        let logins = || urgent && !self.login.queue.is_empty();
        match taste {
            Taste::Everything | Taste::OrdinaryFirst | Taste::SpentFirst => {
                !self.ordinary.queue.is_empty()
                    || !self.spent.queue.is_empty()
                    || progress()
                    || logins()
            }
            Taste::Urgent => progress() || logins(),
            Taste::Progress => progress(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        !self.has(Taste::Everything)
    }

    /// Tasks in the bounded queue of this class.
    pub(super) fn len_of(&self, class: Class) -> usize {
        self.lane(class).queue.len()
    }

    /// Tasks in all queues, and in the lists behind them.
    pub(super) fn len(&self) -> usize {
        self.lanes().iter().map(|lane| lane.len()).sum()
    }

    pub(super) fn add_to(&self, snapshot: &mut Snapshot) {
        let overflow: usize = self.lanes().iter().map(|lane| lane.queue.overflow_len()).sum();
        let queued: usize = self.lanes().iter().map(|lane| lane.queue.len()).sum();
        snapshot.queue_len += queued as u64;
        snapshot.overflow_len += overflow as u64;
        snapshot.urgent_queue_len += self.urgent.load(Ordering::Relaxed) as u64;
        snapshot.queue_high_water = snapshot.queue_high_water.max(self.high_water() as u64);
        snapshot.oldest_task_age = snapshot.oldest_task_age.max(self.oldest(clock::now()));
    }

    /// The most that one of the queues ever held.
    fn high_water(&self) -> usize {
        let marks = self.lanes().map(|lane| lane.seen.high_water.load(Ordering::Relaxed));
        marks.into_iter().max().unwrap_or(0)
    }

    /// For how long the oldest task has waited, and perhaps as much longer as the one before it was
    /// queued earlier.
    fn oldest(&self, now: Instant) -> Duration {
        let now = self.nanos(now);
        let waiting = self.lanes().into_iter().filter(|lane| !lane.queue.is_empty());
        let ages =
            waiting.map(|lane| now.saturating_sub(lane.seen.head_at.load(Ordering::Relaxed)));
        Duration::from_nanos(ages.max().unwrap_or(0))
    }

    fn lanes(&self) -> [&Lane<T>; 4] {
        [&self.progress, &self.login, &self.ordinary, &self.spent]
    }

    fn nanos(&self, at: Instant) -> u64 {
        clock::nanos_between(self.started, at)
    }
}

impl<T> Lane<T> {
    fn len(&self) -> usize {
        self.queue.len() + self.queue.overflow_len()
    }

    fn pop(&self) -> Option<Queued<T>> {
        if self.queue.is_empty() {
            return None;
        }
        let queued = self.queue.pop()?;
        self.seen.head_at.store(queued.at, Ordering::Relaxed);
        Some(queued)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled() -> Lanes<u32> {
        let lanes = Lanes::new(8, Instant::now());
        for (class, task) in [
            (Class::Ordinary, 1),
            (Class::Login, 2),
            (Class::InProgress, 3),
            (Class::Admin, 4),
            (Class::Ordinary, 5),
        ] {
            assert_eq!(lanes.push(class, task), Pushed::Queued);
        }
        lanes
    }

    fn drained(lanes: &Lanes<u32>, taste: Taste) -> Vec<u32> {
        std::iter::from_fn(|| lanes.pop(taste)).map(|(task, _)| task).collect()
    }

    #[test]
    fn the_most_urgent_comes_first() {
        let lanes = filled();
        assert_eq!(lanes.urgent.load(Ordering::Relaxed), 3);
        assert_eq!(drained(&lanes, Taste::Everything), [3, 4, 2, 1, 5]);
        assert!(lanes.is_empty());
        assert_eq!(lanes.urgent.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn each_takes_what_it_may() {
        let lanes = filled();
        assert_eq!(lanes.pop(Taste::OrdinaryFirst).map(|(task, _)| task), Some(1));
        assert_eq!(drained(&lanes, Taste::Progress), [3, 4]);
        assert!(!lanes.has(Taste::Progress) && lanes.has(Taste::Urgent));
        assert_eq!(drained(&lanes, Taste::Urgent), [2]);
        assert!(!lanes.has(Taste::Urgent) && lanes.has(Taste::Everything));
        assert_eq!(drained(&lanes, Taste::Everything), [5]);
    }

    #[test]
    fn what_has_had_its_turn_stands_behind_what_has_not_but_for_its_share() {
        let lanes = Lanes::new(8, Instant::now());
        for task in [1, 2] {
            assert_eq!(lanes.push_spent(Class::Ordinary, task), Pushed::Queued);
        }
        lanes.push(Class::Ordinary, 3);
        lanes.push(Class::Login, 4);
        // What is urgent stays so.
        lanes.push_spent(Class::InProgress, 5);
        assert_eq!(lanes.len(), 5);
        assert_eq!(lanes.pop(Taste::SpentFirst).map(|(task, _)| task), Some(1));
        assert_eq!(drained(&lanes, Taste::Urgent), [5, 4]);
        assert!(!lanes.is_empty());
        assert_eq!(drained(&lanes, Taste::Everything), [3, 2]);
        assert!(lanes.is_empty() && lanes.pop(Taste::SpentFirst).is_none());
    }

    #[test]
    fn a_full_lane_does_not_count_what_it_gives_back() {
        let lanes = Lanes::new(1, Instant::now());
        assert_eq!(lanes.try_push(Class::Login, 1), Ok(()));
        assert_eq!(lanes.try_push(Class::Login, 2), Err(2));
        assert_eq!(lanes.push(Class::Login, 3), Pushed::Overflowed);
        let seen = || {
            let mut seen = Snapshot::default();
            lanes.add_to(&mut seen);
            [seen.urgent_queue_len, seen.queue_len, seen.overflow_len, seen.queue_high_water]
        };
        assert_eq!(seen(), [2, 1, 1, 2]);
        drained(&lanes, Taste::Everything);
        assert_eq!(seen(), [0, 0, 0, 2]);
    }

    #[test]
    fn a_push_that_has_only_been_announced_keeps_nobody_awake() {
        let lanes = Lanes::<u32>::new(8, Instant::now());
        // Somebody is about to push, or has popped and is about to say so.
        lanes.urgent.fetch_add(1, Ordering::Relaxed);
        let all = [Taste::Everything, Taste::OrdinaryFirst, Taste::SpentFirst];
        for taste in all.into_iter().chain([Taste::Urgent, Taste::Progress]) {
            assert!(!lanes.has(taste) && lanes.pop(taste).is_none(), "{taste:?}");
        }
    }

    #[test]
    fn the_age_is_that_of_the_head() {
        let start = Instant::now();
        let lanes = Lanes::new(8, start);
        assert_eq!(lanes.oldest(start), Duration::ZERO, "nobody waits");
        lanes.push(Class::Ordinary, 1);
        lanes.push(Class::Ordinary, 2);
        let later = Instant::now() + Duration::from_secs(1);
        assert!(lanes.oldest(later) >= Duration::from_secs(1));
        let (_, at) = lanes.pop(Taste::Everything).expect("two were pushed");
        assert!(at >= start && at <= Instant::now());
        assert!(lanes.oldest(later) <= later - at);
        let _ = lanes.pop(Taste::Everything);
        assert_eq!(lanes.oldest(later), Duration::ZERO);
    }

    #[test]
    fn what_has_had_its_share_is_first_when_it_is_its_turn_and_ordinary_work_if_there_is_none() {
        let lanes = filled();
        lanes.push_spent(Class::Ordinary, 6);
        let next = || lanes.pop(Taste::SpentFirst).map(|(task, _)| task);
        assert_eq!([next(), next(), next()], [Some(6), Some(1), Some(5)]);
        assert_eq!(next(), Some(3), "nothing of either");
    }
}

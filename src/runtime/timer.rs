//! The deadline heap of a group: the due timers, and the next deadline.
//!
//! A pure data structure. It reads no clock (`now` is an argument), arms no descriptor, takes no
//! lock and runs no callback. Its owner does, see `alarm.rs` and `group.rs`.
//!
//! ```text
//!   heap (by deadline, then age)          slab
//!   ┌ t=3 age 7 slot 1 ┐                  0: age 9, payload
//!   │ t=5 age 4 slot 0 │ ← dead: slot 0   1: age 7, payload
//!   └ t=8 age 9 slot 0 ┘   has age 9 now  2: vacant
//! ```
//!
//! A payload lives in a slab, its deadline in a heap. Both carry the *age*, a number that is never
//! used twice. A cancellation empties the slot at once and returns the payload. The heap entry
//! stays, but it is dead, as no slot has its age any more. Dead entries leave when they reach the
//! top, or all together when they are more than half of the heap. So a cancellation is O(1) on
//! average, and memory stays in proportion to the live timers.

#![forbid(unsafe_code)]

use crate::sys::clock::Instant;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Timers with a payload each, ordered by deadline. Timers with equal deadlines fire in order of
/// insertion.
///
/// *Shape*: owned by one group behind its timer lock. Memory follows the largest number of live
/// timers of the recent past: about 32 bytes for the heap and 16 plus the payload for the slab.
#[derive(Debug)]
pub(crate) struct TimerHeap<T> {
    heap: BinaryHeap<Entry>,
    slots: Vec<Slot<T>>,
    /// First vacant slot, linked through [`Slot::Vacant`].
    free: Option<u32>,
    /// Number of live timers, which is the number of occupied slots. The other entries of `heap`
    /// are dead.
    live: usize,
    next_age: u64,
    /// Number of timers that left the slab since the last attempt to shrink it.
    departures: usize,
}

impl<T> TimerHeap<T> {
    pub(crate) const fn new() -> Self {
        Self {
            heap: BinaryHeap::new(),
            slots: Vec::new(),
            free: None,
            live: 0,
            next_age: 0,
            departures: 0,
        }
    }

    /// Adds a timer. O(log n).
    ///
    /// # Panics
    ///
    /// With 2³² live timers, which no machine has the memory for.
    pub(crate) fn insert(&mut self, deadline: Instant, payload: T) -> TimerId {
        let age = self.next_age;
        self.next_age += 1;
        let occupied = Slot::Occupied { age, payload };
        let slot = match self.free {
            Some(slot) => {
                match std::mem::replace(&mut self.slots[slot as usize], occupied) {
                    Slot::Vacant { next } => self.free = next,
                    Slot::Occupied { .. } => unreachable!("the free list holds vacant slots only"),
                }
                slot
            }
            None => {
                let slot = u32::try_from(self.slots.len()).expect("fewer than 2^32 timers");
                self.slots.push(occupied);
                slot
            }
        };
        self.live += 1;
        self.heap.push(Entry { deadline, age, slot });
        TimerId { age, slot }
    }

    /// Removes a timer before it fires and returns its payload. Returns `None` if it has fired or
    /// was cancelled before, however long ago. O(1), amortised over the sweeps.
    pub(crate) fn cancel(&mut self, id: TimerId) -> Option<T> {
        let payload = self.vacate(id.slot, id.age)?;
        self.sweep();
        self.shrink_slots();
        Some(payload)
    }

    /// Returns the deadline of the next live timer, due or not. Drops the dead entries before it.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some(top) = self.heap.peek() {
            if self.is_live(top) {
                return Some(top.deadline);
            }
            self.heap.pop();
        }
        None
    }

    /// Takes the next timer whose deadline is at or before `now`. O(log n).
    ///
    /// To be called until it returns `None`. The id is that of [`Self::insert`]; a later
    /// cancellation of it does nothing.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<(TimerId, T)> {
        while let Some(&Entry { deadline, age, slot }) = self.heap.peek() {
            if deadline > now && self.occupied_by(slot, age) {
                return None;
            }
            self.heap.pop();
            if let Some(payload) = self.vacate(slot, age) {
                self.sweep();
                self.shrink_slots();
                return Some((TimerId { age, slot }, payload));
            }
        }
        None
    }

    /// Returns the payloads of the live timers, in any order.
    pub(crate) fn into_payloads(self) -> impl Iterator<Item = T> {
        self.slots.into_iter().filter_map(|slot| match slot {
            Slot::Occupied { payload, .. } => Some(payload),
            Slot::Vacant { .. } => None,
        })
    }

    /// Number of live timers: inserted, neither fired nor cancelled.
    pub(crate) const fn len(&self) -> usize {
        self.live
    }

    fn is_live(&self, entry: &Entry) -> bool {
        self.occupied_by(entry.slot, entry.age)
    }

    /// `shrink_slots` may have removed the slot; then it counts as vacant.
    fn occupied_by(&self, slot: u32, age: u64) -> bool {
        matches!(self.slots.get(slot as usize), Some(Slot::Occupied { age: a, .. }) if *a == age)
    }

    fn vacate(&mut self, slot: u32, age: u64) -> Option<T> {
        if !self.occupied_by(slot, age) {
            return None;
        }
        let vacant = Slot::Vacant { next: self.free };
        let Slot::Occupied { payload, .. } =
            std::mem::replace(&mut self.slots[slot as usize], vacant)
        else {
            unreachable!("looked at above");
        };
        self.free = Some(slot);
        self.live -= 1;
        self.departures += 1;
        Some(payload)
    }

    /// Drops all dead entries once they are more than half of the heap. A sweep costs O(1) per
    /// cancellation: since the last sweep there were at least as many cancellations as entries
    /// stay.
    fn sweep(&mut self) {
        let dead = self.heap.len() - self.live;
        if dead > SWEEP_MIN && dead > self.live {
            let slots = &self.slots;
            self.heap.retain(|entry| {
                matches!(
                    slots.get(entry.slot as usize),
                    Some(Slot::Occupied { age, .. }) if *age == entry.age
                )
            });
            debug_assert_eq!(self.heap.len(), self.live, "every live timer has one heap entry");
        }
        if self.heap.capacity() > SHRINK_MIN && self.heap.len() < self.heap.capacity() / 4 {
            self.heap.shrink_to(self.heap.len() * 2);
        }
    }

    /// Frees the tail of the slab when it is mostly vacant. It is checked only after as many timers
    /// have left as there are slots, so a single timer at the very end costs little. The vacant
    /// slots are then linked lowest first, so new timers move to the front over time.
    fn shrink_slots(&mut self) {
        if self.slots.len() <= SHRINK_MIN
            || self.live >= self.slots.len() / 4
            || self.departures < self.slots.len()
        {
            return;
        }
        self.departures = 0;
        while matches!(self.slots.last(), Some(Slot::Vacant { .. })) {
            self.slots.pop();
        }
        self.slots.shrink_to(self.slots.len() + SHRINK_MIN);
        self.free = None;
        for (index, slot) in self.slots.iter_mut().enumerate().rev() {
            if let Slot::Vacant { next } = slot {
                // No truncation: `insert` checked this position when it made the slot.
                *next = self.free.replace(index as u32);
            }
        }
    }
}

/// Identifier of a timer in a heap. It is never reused: its age is new even when its slot is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerId {
    age: u64,
    slot: u32,
}

#[derive(Debug)]
enum Slot<T> {
    Occupied { age: u64, payload: T },
    Vacant { next: Option<u32> },
}

/// Entry of the heap. The greatest is the next to fire: earliest deadline, then lowest age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    deadline: Instant,
    age: u64,
    slot: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.deadline.cmp(&self.deadline).then_with(|| other.age.cmp(&self.age))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Number of dead entries up to which a sweep is not worth its cost.
const SWEEP_MIN: usize = 64;

/// Capacity up to which shrinking is not worth its cost.
const SHRINK_MIN: usize = 256;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    fn drain<T>(heap: &mut TimerHeap<T>, now: Instant) -> Vec<T> {
        std::iter::from_fn(|| heap.pop_due(now)).map(|(_, payload)| payload).collect()
    }

    #[test]
    fn an_empty_heap_has_nothing() {
        let mut heap = TimerHeap::<()>::new();
        assert_eq!(heap.next_deadline(), None);
        assert_eq!(heap.pop_due(Instant::now()), None);
        assert_eq!(heap.len(), 0);
    }

    #[test]
    fn equal_deadlines_fire_in_insertion_order() {
        let start = Instant::now();
        let mut heap = TimerHeap::new();
        for payload in 0..100 {
            heap.insert(after(start, 5), payload);
        }
        heap.insert(after(start, 4), 1000);
        let fired = drain(&mut heap, after(start, 5));
        assert_eq!(fired[0], 1000);
        assert!(fired[1..].iter().copied().eq(0..100));
    }

    #[test]
    fn a_timer_is_due_at_its_deadline_and_not_before() {
        let start = Instant::now();
        let mut heap = TimerHeap::new();
        let id = heap.insert(after(start, 5), 'a');
        assert_eq!(heap.pop_due(after(start, 4)), None);
        assert_eq!(heap.pop_due(after(start, 5)), Some((id, 'a')));
    }

    #[test]
    fn cancel_gives_the_payload_back_once() {
        let start = Instant::now();
        let mut heap = TimerHeap::new();
        let id = heap.insert(start, 'a');
        assert_eq!(heap.cancel(id), Some('a'));
        assert_eq!(heap.cancel(id), None);
        assert_eq!(heap.pop_due(start), None);
        assert_eq!((heap.len(), heap.next_deadline()), (0, None));
    }

    #[test]
    fn an_old_id_does_not_touch_the_next_user_of_its_slot() {
        let start = Instant::now();
        let mut heap = TimerHeap::new();
        let cancelled = heap.insert(start, 'a');
        assert_eq!(heap.cancel(cancelled), Some('a'));
        let fired = heap.insert(start, 'b');
        assert_eq!(fired.slot, cancelled.slot, "the test needs the slot to be used again");
        assert_eq!(heap.cancel(cancelled), None);
        assert_eq!(heap.pop_due(start), Some((fired, 'b')));
        heap.insert(start, 'c');
        assert_eq!(heap.cancel(fired), None);
        assert_eq!(heap.len(), 1);
    }

    #[test]
    fn a_dead_top_does_not_hide_the_next_deadline() {
        let start = Instant::now();
        let mut heap = TimerHeap::new();
        let first = heap.insert(after(start, 1), 'a');
        heap.insert(after(start, 2), 'b');
        assert_eq!(heap.next_deadline(), Some(after(start, 1)));
        heap.cancel(first);
        assert_eq!(heap.next_deadline(), Some(after(start, 2)));
    }

    #[test]
    fn a_cancelled_timer_in_the_future_does_not_hold_back_anything() {
        let start = Instant::now();
        let mut heap = TimerHeap::new();
        let id = heap.insert(after(start, 1), 'a');
        heap.insert(after(start, 2), 'b');
        heap.cancel(id);
        assert_eq!(heap.pop_due(start), None);
        assert_eq!(drain(&mut heap, after(start, 2)), ['b']);
    }

    #[test]
    fn cancelled_entries_never_exceed_the_live_ones_by_much() {
        let start = Instant::now();
        let mut heap = TimerHeap::new();
        heap.insert(after(start, 1_000_000), 0);
        for round in 0..100_000 {
            let id = heap.insert(after(start, round), round);
            assert_eq!(heap.cancel(id), Some(round));
            assert!(heap.heap.len() <= 2 * heap.len() + SWEEP_MIN + 1, "{}", heap.heap.len());
        }
        assert!(heap.heap.capacity() <= SHRINK_MIN, "{}", heap.heap.capacity());
        assert_eq!(heap.slots.len(), 2);
    }

    #[test]
    fn memory_is_given_back_after_a_peak() {
        let start = Instant::now();
        for fire in [true, false] {
            let mut heap = TimerHeap::new();
            let ids: Vec<_> = (0..100_000).map(|n| heap.insert(after(start, n), n)).collect();
            if fire {
                assert_eq!(drain(&mut heap, after(start, 100_000)).len(), 100_000);
            } else {
                for id in ids {
                    assert!(heap.cancel(id).is_some());
                }
            }
            assert_eq!(heap.len(), 0);
            assert!(heap.heap.capacity() <= 4 * SHRINK_MIN, "{}", heap.heap.capacity());
            assert!(heap.slots.capacity() <= 4 * SHRINK_MIN, "{}", heap.slots.capacity());
        }
    }

    #[test]
    fn a_timer_at_the_end_of_the_slab_survives_the_shrinking() {
        let start = Instant::now();
        let mut heap = TimerHeap::new();
        let ids: Vec<_> = (0..10_000).map(|n| heap.insert(after(start, n), n)).collect();
        for &id in &ids[..9_999] {
            heap.cancel(id);
        }
        let id = heap.insert(after(start, 1), 10_000);
        assert!(id.slot < 10_000, "vacant slots are used before new ones");
        assert_eq!(drain(&mut heap, after(start, 10_000)), [10_000, 9_999]);
    }

    #[derive(Clone, Debug)]
    enum Op {
        Insert { millis: u64 },
        Cancel { nth: usize },
        Advance { millis: u64 },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (0..200_u64).prop_map(|millis| Op::Insert { millis }),
            3 => any::<usize>().prop_map(|nth| Op::Cancel { nth }),
            1 => (0..30_u64).prop_map(|millis| Op::Advance { millis }),
        ];
        prop::collection::vec(op, 0..1500)
    }

    /// The naive twin: a list in insertion order, searched from end to end each time.
    #[derive(Default)]
    struct Naive(Vec<(Instant, usize)>);

    impl Naive {
        fn next_deadline(&self) -> Option<Instant> {
            self.0.iter().map(|&(deadline, _)| deadline).min()
        }

        fn drain(&mut self, now: Instant) -> Vec<usize> {
            let mut due: Vec<_> = self.0.extract_if(.., |(deadline, _)| *deadline <= now).collect();
            due.sort_by_key(|&(deadline, _)| deadline); // stable: equal ones stay in order
            due.into_iter().map(|(_, payload)| payload).collect()
        }

        fn cancel(&mut self, payload: usize) -> Option<usize> {
            let at = self.0.iter().position(|&(_, p)| p == payload)?;
            Some(self.0.remove(at).1)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_the_naive_twin(ops in ops()) {
            let mut now = Instant::now();
            let mut heap = TimerHeap::new();
            let mut naive = Naive::default();
            let mut ids = Vec::new();
            for op in ops {
                match op {
                    Op::Insert { millis } => {
                        let payload = ids.len();
                        ids.push(heap.insert(after(now, millis), payload));
                        naive.0.push((after(now, millis), payload));
                    }
                    // Also ids that fired or were cancelled long ago.
                    Op::Cancel { nth } if !ids.is_empty() => {
                        let payload = nth % ids.len();
                        prop_assert_eq!(heap.cancel(ids[payload]), naive.cancel(payload));
                    }
                    Op::Cancel { .. } => {}
                    Op::Advance { millis } => {
                        now = after(now, millis);
                        prop_assert_eq!(drain(&mut heap, now), naive.drain(now));
                    }
                }
                prop_assert_eq!(heap.len(), naive.0.len());
                prop_assert_eq!(heap.next_deadline(), naive.next_deadline());
                prop_assert!(heap.heap.len() <= 2 * heap.len() + SWEEP_MIN + 1);
            }
        }
    }
}

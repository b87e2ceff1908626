//! [`Waiters`]: who waits, in order; anyone may leave from anywhere in constant time.
//!
//! ```text
//!   slots  ┌─────┬─────┬─────┬─────┬─────┐      first ─▶ 3 ◀─▶ 0 ◀─▶ 4 ◀─ last
//!          │  0  │  1  │  2  │  3  │  4  │
//!          └─────┴─────┴─────┴─────┴─────┘      vacant ─▶ 2 ─▶ 1
//! ```
//!
//! A list whose links are numbers of slots. A slot that is used again has a new generation, so that an
//! id of somebody who has left finds nobody.

/// Names somebody who waits or waited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WaiterId {
    slot: u32,
    generation: u32,
}

/// First come, first served.
#[derive(Debug)]
pub(super) struct Waiters<W> {
    slots: Vec<Slot<W>>,
    vacant: u32,
    first: u32,
    last: u32,
    len: usize,
    /// Of slots that are added: beyond all that were ever dropped.
    fresh: u32,
}

#[derive(Debug)]
struct Slot<W> {
    generation: u32,
    /// Neighbours in the list; of a vacant slot `next` is the next vacant one.
    before: u32,
    next: u32,
    waiter: Option<W>,
}

const NONE: u32 = u32::MAX;

/// So many slots are kept when nobody waits.
const KEPT: usize = 1024;

impl<W> Waiters<W> {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), vacant: NONE, first: NONE, last: NONE, len: 0, fresh: 0 }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push_back(&mut self, waiter: W) -> WaiterId {
        let id = self.insert(waiter, self.last, NONE);
        self.link(id.slot);
        id
    }

    /// For who was first before, and comes again.
    pub(super) fn push_front(&mut self, waiter: W) -> WaiterId {
        let id = self.insert(waiter, NONE, self.first);
        self.link(id.slot);
        id
    }

    pub(super) fn first(&self) -> Option<&W> {
        self.slots.get(self.first as usize)?.waiter.as_ref()
    }

    pub(super) fn pop_front(&mut self) -> Option<W> {
        (self.first != NONE).then(|| self.take(self.first)).flatten()
    }

    /// `None`: that one has left.
    pub(super) fn remove(&mut self, id: WaiterId) -> Option<W> {
        if !self.contains(id) {
            return None;
        }
        self.take(id.slot)
    }

    pub(super) fn contains(&self, id: WaiterId) -> bool {
        let slot = self.slots.get(id.slot as usize);
        slot.is_some_and(|slot| slot.generation == id.generation && slot.waiter.is_some())
    }

    fn insert(&mut self, waiter: W, before: u32, next: u32) -> WaiterId {
        self.len += 1;
        let slot = self.vacant;
        if let Some(place) = self.slots.get_mut(slot as usize) {
            self.vacant = place.next;
            (place.before, place.next, place.waiter) = (before, next, Some(waiter));
            return WaiterId { slot, generation: place.generation };
        }
        let slot = u32::try_from(self.slots.len()).expect("bounded by max_waiting");
        let generation = self.fresh;
        self.slots.push(Slot { generation, before, next, waiter: Some(waiter) });
        WaiterId { slot, generation }
    }

    /// Makes the neighbours of a slot point to it.
    fn link(&mut self, slot: u32) {
        let (before, next) = (self.slots[slot as usize].before, self.slots[slot as usize].next);
        match self.slots.get_mut(before as usize) {
            Some(place) => place.next = slot,
            None => self.first = slot,
        }
        match self.slots.get_mut(next as usize) {
            Some(place) => place.before = slot,
            None => self.last = slot,
        }
    }

    fn take(&mut self, slot: u32) -> Option<W> {
        let place = self.slots.get_mut(slot as usize)?;
        let waiter = place.waiter.take()?;
        place.generation = place.generation.wrapping_add(1);
        let (before, next) = (place.before, place.next);
        place.next = self.vacant;
        self.vacant = slot;
        self.len -= 1;
        match self.slots.get_mut(before as usize) {
            Some(place) => place.next = next,
            None => self.first = next,
        }
        match self.slots.get_mut(next as usize) {
            Some(place) => place.before = before,
            None => self.last = before,
        }
        Some(waiter)
    }

    /// Gives back the memory of a crowd that has left.
    pub(super) fn shrink(&mut self) {
        if self.is_empty() && self.slots.len() > KEPT {
            let dropped = self.slots.drain(KEPT..).map(|slot| slot.generation);
            self.fresh = dropped.fold(self.fresh, u32::max).wrapping_add(1);
            self.slots.shrink_to_fit();
            self.vacant = NONE;
            for (number, slot) in self.slots.iter_mut().enumerate() {
                slot.next = std::mem::replace(&mut self.vacant, number as u32);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Back,
        Front,
        Pop,
        Remove(usize),
        Shrink,
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => Just(Op::Back),
            1 => Just(Op::Front),
            2 => Just(Op::Pop),
            3 => any::<usize>().prop_map(Op::Remove),
            1 => Just(Op::Shrink),
        ];
        prop::collection::vec(op, 0..500)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn agrees_with_the_naive_twin(ops in ops()) {
            let mut waiters = Waiters::new();
            let mut naive: Vec<usize> = Vec::new();
            let mut ids = Vec::new();
            for op in ops {
                let number = ids.len();
                match op {
                    Op::Back => {
                        ids.push(waiters.push_back(number));
                        naive.push(number);
                    }
                    Op::Front => {
                        ids.push(waiters.push_front(number));
                        naive.insert(0, number);
                    }
                    Op::Pop => {
                        let first = (!naive.is_empty()).then(|| naive.remove(0));
                        prop_assert_eq!(waiters.pop_front(), first);
                    }
                    // Also those who have left long ago.
                    Op::Remove(nth) if number > 0 => {
                        let waiter = nth % number;
                        let at = naive.iter().position(|&n| n == waiter);
                        let expected = at.map(|at| naive.remove(at));
                        prop_assert_eq!(waiters.contains(ids[waiter]), expected.is_some());
                        prop_assert_eq!(waiters.remove(ids[waiter]), expected);
                    }
                    Op::Remove(_) => {}
                    Op::Shrink => waiters.shrink(),
                }
                prop_assert_eq!(waiters.len(), naive.len());
                prop_assert_eq!(waiters.first(), naive.first());
            }
        }
    }

    #[test]
    fn memory_of_a_crowd_is_given_back() {
        let mut waiters = Waiters::new();
        let ids: Vec<_> = (0..20_000).map(|n| waiters.push_back(n)).collect();
        for &id in &ids {
            assert!(waiters.remove(id).is_some());
        }
        waiters.shrink();
        assert_eq!(waiters.slots.capacity(), KEPT);
        let again: Vec<_> = (0..20_000).map(|n| waiters.push_back(n)).collect();
        assert!(ids.iter().all(|&id| !waiters.contains(id)), "an old id finds nobody");
        assert!(again.iter().all(|&id| waiters.contains(id)));
        assert_eq!(waiters.pop_front(), Some(0));
    }
}

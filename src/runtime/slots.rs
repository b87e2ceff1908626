//! Slots: safe lookup of a registered source by the bits that the kernel returns.
//!
//! The kernel returns the 64 bits that it got at registration. It may return them to a worker that
//! leaves `epoll_wait` while the source is deregistered. So these bits are not a pointer but a
//! [`Token`]: a slot number and a version. Slots live in chunks that are not freed before the
//! table, so any token can be looked up at any time. A stale token is detected: its version
//! differs, or the slot has no reference any more.
//!
//! ```text
//!  insert: (v, 1) ──pin──▶ (v, n) ──release──▶ (v, 0) ──take──▶ (v + 1, 0) free ──insert──▶ …
//!                                               returns Last      by the reclaimer, which gets
//!                                                                 the value and drops it
//! ```
//!
//! The registration owns one reference, each event in a batch one, and each queued task one.
#![allow(unsafe_code)]

use std::fmt;
use std::ptr;

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicPtr, AtomicU64, Ordering};
use crate::sync::shim::{Mutex, UnsafeCell, lock};

/// Slot number and version, as stored in `epoll_event.data`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Token {
    slot: u32,
    /// Never 0. So numbers below [`Token::FIRST`] are free for descriptors without a slot.
    version: u32,
}

impl Token {
    /// Lower bound of encoded tokens.
    pub(crate) const FIRST: u64 = 1 << 32;

    /// Returns the bits for the kernel. Only this function makes them.
    pub(crate) const fn encode(self) -> u64 {
        (self.version as u64) << 32 | self.slot as u64
    }

    /// Returns the token in the bits from the kernel. Only this function reads them.
    pub(crate) const fn decode(data: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "takes the halves apart")]
        Self { slot: data as u32, version: (data >> 32) as u32 }
    }

    /// Encodes the token with five more bits, which slot numbers leave free.
    pub(crate) const fn encode_with(self, bits: u8) -> u64 {
        debug_assert!(self.slot < 1 << SLOT_BITS && bits < 32);
        self.encode() | (bits as u64) << SLOT_BITS
    }

    /// Decodes the result of [`encode_with`](Self::encode_with).
    pub(crate) const fn decode_with(data: u64) -> (Self, u8) {
        let bits = data >> SLOT_BITS & 0x1f;
        (Self::decode(data & !(0x1f << SLOT_BITS)), bits as u8)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}v{}", self.slot, self.version)
    }
}

/// Result of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the last one has to see to the reclaim"]
pub(crate) enum Released {
    /// Other references to the slot exist.
    Alive,
    /// This was the last reference. The caller must have the slot taken by [`Slots::take`], once.
    Last,
}

/// Table of slots.
pub(crate) struct Slots<T> {
    /// Chunk `k` has `FIRST_CHUNK << k` slots. Each pointer is written once, under `free`; read by
    /// all threads.
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    free: Mutex<Free>,
}

/// Slot that was found by its token, while the finder has a reference to it. A copy is no further
/// reference.
pub(crate) struct Pinned<'s, T>(&'s Slot<T>);

struct Slot<T> {
    /// Version in the upper half, number of references in the lower. Written by read-modify-write.
    /// The exceptions are the plain stores of `insert_with` and `take`, while no other thread may
    /// write.
    word: AtomicU64,
    /// Written by `insert_with` and `take`, while there is no reference; read by holders of a
    /// reference.
    value: UnsafeCell<Option<T>>,
}

struct Free {
    /// Free slots, used last in, first out, so that memory stays warm.
    slots: Vec<u32>,
    /// Number of slots in the chunks that exist.
    capacity: usize,
}

#[cfg(not(loom))]
const FIRST_CHUNK: usize = 64;
#[cfg(loom)]
const FIRST_CHUNK: usize = 1;
const CHUNKS: usize = 21;
/// Number of bits of a slot number.
const SLOT_BITS: u32 = 27;
const _: () = assert!(FIRST_CHUNK << CHUNKS <= 1 << SLOT_BITS);

// SAFETY: values are shared by reference between the holders of references (`T: Sync`) and leave
// by `take` on any thread (`T: Send`).
unsafe impl<T: Send + Sync> Sync for Slots<T> {}
// SAFETY: sending the table sends the values.
unsafe impl<T: Send> Send for Slots<T> {}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self {
            chunks: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            free: Mutex::new(Free { slots: Vec::new(), capacity: 0 }),
        }
    }

    /// Puts a value into a free slot, with one reference, which belongs to the caller. `make` gets
    /// the token before any other thread can find the value.
    ///
    /// `None`: all 2^27 slots are in use.
    pub(crate) fn insert_with(&self, make: impl FnOnce(Token) -> T) -> Option<Token> {
        let index = self.free_slot()?;
        let slot = self.slot(index)?;
        let version = version(slot.word.load(Ordering::Relaxed));
        let token = Token { slot: index, version };
        let value = make(token);
        {
            let cell = slot.value.get_mut();
            // SAFETY: the slot is free and this thread took it from the free list. So no reference
            // exists, and none can come to be before the store below.
            *unsafe { cell.deref() } = Some(value);
        }
        // Release: pairs with the Acquire of `pin`, which then sees the value.
        let ordering = mutant!(Ordering::Release, InsertRelaxed => Ordering::Relaxed);
        slot.word.store(pack(version, 1), ordering);
        Some(token)
    }

    #[cfg(test)]
    pub(crate) fn insert(&self, value: T) -> Option<Token> {
        self.insert_with(|_| value)
    }

    /// Adds a reference, unless the token is stale.
    pub(crate) fn pin(&self, token: Token) -> Option<Pinned<'_, T>> {
        let slot = self.slot(token.slot)?;
        let mut word = slot.word.load(Ordering::Relaxed);
        loop {
            let same = mutant!(version(word) == token.version, PinIgnoresVersion => true);
            let alive = mutant!(references(word) > 0, PinRevives => true);
            if !same || !alive {
                return None;
            }
            // Acquire: pairs with the Release of `insert_with`.
            match slot.word.compare_exchange_weak(
                word,
                word + 1,
                mutant!(Ordering::Acquire, PinRelaxed => Ordering::Relaxed),
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Pinned(slot)),
                Err(now) => word = now,
            }
        }
    }

    /// Returns the slot of a token. The caller has a reference to it, by `insert_with` or `pin`.
    pub(crate) fn pinned(&self, token: Token) -> Pinned<'_, T> {
        let slot = self.slot(token.slot).expect("a pinned slot exists");
        debug_assert_eq!(version(slot.word.load(Ordering::Relaxed)), token.version, "not pinned");
        Pinned(slot)
    }

    /// Takes the value out and frees the slot. Called once, after [`Released::Last`].
    pub(crate) fn take(&self, token: Token) -> Option<T> {
        let slot = self.slot(token.slot)?;
        // Acquire: pairs with the Release of each `release`.
        let word = slot.word.load(Ordering::Acquire);
        if version(word) != token.version || references(word) != 0 {
            debug_assert!(false, "{token:?} was taken while it is {word:#x}");
            return None;
        }
        let value = {
            let cell = slot.value.get_mut();
            // SAFETY: no reference exists, and none can come to be (`pin` fails at 0). Only the
            // caller that got `Last` gets here.
            unsafe { cell.deref() }.take()
        };
        let next = match token.version.wrapping_add(1) {
            0 => 1,
            next => next,
        };
        // Release: pairs with `insert_with`, through the lock of the free list.
        slot.word.store(pack(next, 0), Ordering::Release);
        lock(&self.free).slots.push(token.slot);
        value
    }

    /// Returns the number of slots, and how many of them are free.
    pub(crate) fn usage(&self) -> (usize, usize) {
        let free = lock(&self.free);
        (free.capacity, free.slots.len())
    }

    /// Returns the tokens of all values registered at the moment, pinned. The caller releases them.
    pub(crate) fn pin_all(&self) -> Vec<Token> {
        let (capacity, _) = self.usage();
        let tokens = (0..u32::try_from(capacity).unwrap_or(u32::MAX)).filter_map(|index| {
            let word = self.slot(index)?.word.load(Ordering::Relaxed);
            let token = Token { slot: index, version: version(word) };
            self.pin(token).map(|_| token)
        });
        tokens.collect()
    }

    fn free_slot(&self) -> Option<u32> {
        let mut free = lock(&self.free);
        if let Some(index) = free.slots.pop() {
            return Some(index);
        }
        let chunk = (0..CHUNKS).find(|k| self.chunks[*k].load(Ordering::Relaxed).is_null())?;
        let start = free.capacity;
        let slots: Box<[Slot<T>]> = (0..FIRST_CHUNK << chunk)
            .map(|_| Slot { word: AtomicU64::new(pack(1, 0)), value: UnsafeCell::new(None) })
            .collect();
        free.capacity += slots.len();
        // Release: pairs with the Acquire of `slot`, which then sees the slots.
        self.chunks[chunk].store(Box::into_raw(slots).cast(), Ordering::Release);
        let range = u32::try_from(start).ok()?..u32::try_from(free.capacity).ok()?;
        free.slots.extend(range.rev());
        free.slots.pop()
    }

    fn slot(&self, index: u32) -> Option<&Slot<T>> {
        let (chunk, offset) = locate(index);
        // Acquire: pairs with the Release of `free_slot`.
        let slots = self.chunks.get(chunk)?.load(Ordering::Acquire);
        if slots.is_null() {
            return None;
        }
        // SAFETY: chunk `chunk` has `FIRST_CHUNK << chunk` slots and `offset` is below that.
        let slot = unsafe { slots.add(offset) };
        // SAFETY: chunks are freed only when the table is dropped, which `self` outlives.
        Some(unsafe { &*slot })
    }
}

impl<'s, T> Pinned<'s, T> {
    /// Returns the value.
    ///
    /// # Safety
    ///
    /// The caller has a reference to the slot, and keeps it for as long as it uses the value.
    pub(crate) unsafe fn get(self) -> &'s T {
        debug_assert!(references(self.0.word.load(Ordering::Relaxed)) > 0, "not pinned");
        // SAFETY: with a reference held the value is there and only read.
        unsafe { value_of(self.0) }
    }

    /// Releases a reference.
    pub(crate) fn release(self) -> Released {
        // Release: all uses of the value happen before it is taken. Acquire: the thread that
        // releases the last reference sees all of them when it passes the slot on.
        let ordering = mutant!(Ordering::AcqRel, ReleaseRelaxed => Ordering::Relaxed);
        let before = self.0.word.fetch_sub(1, ordering);
        debug_assert!(references(before) > 0, "released too often");
        if references(before) == 1 { Released::Last } else { Released::Alive }
    }
}

impl<T> Clone for Pinned<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Pinned<'_, T> {}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        for (k, chunk) in self.chunks.iter().enumerate() {
            let slots = chunk.load(Ordering::Relaxed);
            if !slots.is_null() {
                let slots = ptr::slice_from_raw_parts_mut(slots, FIRST_CHUNK << k);
                // SAFETY: made by `Box::into_raw` from a boxed slice of this length, in `free_slot`.
                drop(unsafe { Box::from_raw(slots) });
            }
        }
    }
}

impl<T> fmt::Debug for Slots<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (allocated, free) = self.usage();
        f.debug_struct("Slots").field("allocated", &allocated).field("free", &free).finish()
    }
}

/// # Safety
///
/// The caller holds a reference to the slot.
unsafe fn value_of<T>(slot: &Slot<T>) -> &T {
    let cell = slot.value.get();
    // SAFETY: while a reference exists no thread writes the value, see `Slot::value`.
    let value: *const Option<T> = unsafe { cell.deref() };
    // SAFETY: as above, and the slot lives as long as the table: the borrow of the local `cell`
    // was shorter than what it points to.
    let value = unsafe { &*value };
    value.as_ref().expect("a slot with references has a value")
}

/// Chunk and offset of a slot number.
const fn locate(index: u32) -> (usize, usize) {
    // Chunk `k` begins at `(FIRST_CHUNK << k) - FIRST_CHUNK`.
    let n = index as u64 + FIRST_CHUNK as u64;
    let first = n.ilog2();
    ((first - FIRST_CHUNK.ilog2()) as usize, (n - (1 << first)) as usize)
}

const fn pack(version: u32, references: u32) -> u64 {
    (version as u64) << 32 | references as u64
}

const fn version(word: u64) -> u32 {
    (word >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
const fn references(word: u64) -> u32 {
    word as u32
}

#[cfg(all(test, loom))]
mod model;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slot_numbers_are_dense_over_chunks() {
        let mut seen = 0;
        for chunk in 0..4 {
            for offset in 0..FIRST_CHUNK << chunk {
                assert_eq!(locate(seen), (chunk, offset), "slot {seen}");
                seen += 1;
            }
        }
    }

    #[test]
    fn a_stale_token_does_not_reach_the_next_user_of_the_slot() {
        let slots = Slots::new();
        let first = slots.insert("first").expect("room");
        assert!(slots.pin(first).is_some());
        assert_eq!(slots.pinned(first).release(), Released::Alive);
        assert_eq!(slots.pinned(first).release(), Released::Last);
        assert!(slots.pin(first).is_none(), "nobody refers to it any more");
        assert_eq!(slots.take(first), Some("first"));

        let second = slots.insert("second").expect("room");
        assert_eq!(second.slot, first.slot, "the slot is used again");
        assert!(slots.pin(first).is_none());
        assert!(slots.pin(second).is_some());
        // SAFETY: pinned in the line above.
        assert_eq!(*unsafe { slots.pinned(second).get() }, "second");
        assert!(Token::decode(second.encode()) == second && second.encode() >= Token::FIRST);
        assert!(Token::decode_with(second.encode_with(0x1f)) == (second, 0x1f));
    }

    #[test]
    fn after_the_last_version_comes_the_first_one_and_never_0() {
        let slots = Slots::new();
        let first = slots.insert(0).expect("room");
        assert_eq!(slots.pinned(first).release(), Released::Last);
        assert_eq!(slots.take(first), Some(0));
        // The slot has been reused 2^32 - 3 times.
        let slot = slots.slot(first.slot).expect("it exists");
        slot.word.store(pack(u32::MAX - 1, 0), Ordering::Relaxed);
        let mut stale = Vec::new();
        for version in [u32::MAX - 1, u32::MAX, 1, 2] {
            let token = slots.insert(version).expect("room");
            assert_eq!((token.slot, token.version), (first.slot, version));
            assert!(token.encode() >= Token::FIRST && Token::decode(token.encode()) == token);
            assert!(stale.iter().all(|stale| slots.pin(*stale).is_none()), "{token:?}");
            assert!(slots.pin(token).is_some());
            assert_eq!(slots.pinned(token).release(), Released::Alive);
            assert_eq!(slots.pinned(token).release(), Released::Last);
            assert_eq!(slots.take(token), Some(version));
            stale.push(token);
        }
    }

    #[test]
    fn memory_follows_the_largest_number_at_once() {
        let slots = Slots::new();
        let mut capacity = 0;
        for round in 0..10 {
            let tokens: Vec<Token> = (0..1_000).map(|n| slots.insert(n).expect("room")).collect();
            if round == 0 {
                capacity = slots.usage().0;
            }
            for token in tokens {
                assert_eq!(slots.pinned(token).release(), Released::Last);
                assert!(slots.take(token).is_some());
            }
        }
        assert_eq!(slots.usage(), (capacity, capacity));
    }

    #[test]
    fn a_token_that_was_never_given_out_is_refused() {
        let slots = Slots::<()>::new();
        assert!(slots.pin(Token::decode(u64::MAX)).is_none());
        assert!(slots.pin(Token::decode(Token::FIRST)).is_none());
    }
}

//! [`Chance`]: the choices of one seed.

use std::cell::RefCell;

use lab::random::Random;

/// Numbers of a seed, the same each time.
#[derive(Debug)]
pub struct Chance(RefCell<Random>);

impl Chance {
    pub const fn new(seed: u64) -> Self {
        Self(RefCell::new(Random(seed)))
    }

    pub fn next(&self) -> u64 {
        self.0.borrow_mut().next()
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    pub fn index(&self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// From `least` to `most`.
    pub fn between(&self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    pub fn one_in(&self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// True `per_million` times in a million.
    pub fn happens(&self, per_million: u32) -> bool {
        self.below(1_000_000) < u64::from(per_million)
    }

    pub fn pick<T: Copy>(&self, of: &[T]) -> T {
        of[self.index(of.len())]
    }

    /// Random index, by weight.
    pub fn weighted(&self, weights: &[u32]) -> usize {
        let sum = weights.iter().map(|&weight| u64::from(weight)).sum();
        let mut left = self.below(sum);
        for (index, &weight) in weights.iter().enumerate() {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        0
    }
}

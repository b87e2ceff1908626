//! Randomness with a seed that a failing test names.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A seed: the one in `EG_TEST_SEED`, or a new one.
pub fn seed() -> u64 {
    let given = std::env::var("EG_TEST_SEED").ok();
    let given = given.map(|text| text.parse().expect("EG_TEST_SEED is a number"));
    given.unwrap_or_else(|| RandomState::new().build_hasher().finish())
}

/// Number of times that something is done: the number in this variable, or `ordinary`.
pub fn times(variable: &str, ordinary: u64) -> u64 {
    let given = std::env::var(variable).ok();
    given.map_or(ordinary, |text| text.parse().expect("the variable holds a number"))
}

/// One step of SplitMix64: spreads the bits of a number over all of its bytes.
///
/// The relay of faults and the simulation draw through it, because their recorded seeds name faults
/// and histories that another generator would not repeat.
pub const fn splitmix(number: u64) -> u64 {
    let mut z = number.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64, number by number.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub const fn next(&mut self) -> u64 {
        let number = splitmix(self.0);
        self.0 = self.0.wrapping_add(GOLDEN);
        number
    }

    /// A number below `bound`.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// True in `of_100` of 100 cases.
    pub const fn percent(&mut self, of_100: u64) -> bool {
        self.below(100) < of_100
    }

    /// An element of `of`.
    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).expect("an index")].clone()
    }
}

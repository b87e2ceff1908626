//! [`Dice`]: what is drawn depends on the seed, the connection and the position, and on nothing else.
#![forbid(unsafe_code)]

/// Draws for one direction of one connection.
#[derive(Clone, Copy, Debug)]
pub struct Dice(u64);

/// What is drawn: draws for one purpose say nothing of those for another.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    Share,
    Jitter,
    Chop,
    Flip,
    Bit,
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Dice {
    /// `lane` tells the directions apart.
    pub const fn new(seed: u64, connection: u64, lane: u64) -> Self {
        Self(mix(mix(mix(seed) ^ connection) ^ lane))
    }

    /// A number for what stands at `position`, always the same.
    pub const fn at(self, purpose: Purpose, position: u64) -> u64 {
        mix(mix(self.0 ^ purpose as u64) ^ position)
    }

    /// The same as a fraction: at least 0, below 1.
    pub const fn fraction(self, purpose: Purpose, position: u64) -> f64 {
        (self.at(purpose, position) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The mixer of SplitMix64.
const fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

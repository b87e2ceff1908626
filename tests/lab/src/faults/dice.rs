//! [`Dice`]: what is drawn depends on the seed, the connection and the position, and on nothing else.
#![forbid(unsafe_code)]

use crate::random::mix;

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

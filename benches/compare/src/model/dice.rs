//! Chance.

/// Throws of the dice, the same ones for the same seed (xorshift, multiplied).
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Seeds that are neighbours throw differently.
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = Self((seed << 1 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        for _ in 0..8 {
            dice.chance();
        }
        dice
    }

    /// At least 0 and below 1.
    pub(crate) fn chance(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn below(&mut self, sides: usize) -> usize {
        (self.chance() * sides as f64) as usize
    }

    pub(crate) fn exponential(&mut self, mean: u64) -> u64 {
        if mean == 0 { 0 } else { (-(1.0 - self.chance()).ln() * mean as f64).round() as u64 }
    }
}

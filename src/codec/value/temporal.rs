//! Dates, times of day and durations in MySQL's sense.

mod date;
mod text;
mod time;

pub use date::{Date, DateTime};
pub use time::Time;

/// Seconds and their fraction: the common part of a time of day and a duration.
const MAX_MINUTE: u64 = 59;
const MAX_SECOND: u64 = 59;
const MAX_MICROSECOND: u64 = 999_999;

/// Bits of the packed forms: six each for second and minute, 24 for the microseconds.
const MICROSECOND_BITS: u32 = 24;
const HMS_BITS: u32 = 17;

/// Splits `value` into its low `bits` and the rest.
const fn split(value: u64, bits: u32) -> (u64, u64) {
    (value.wrapping_shr(bits), value & !u64::MAX.wrapping_shl(bits))
}

#[cfg(test)]
mod tests;

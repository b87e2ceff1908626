//! Dates, times of day and durations in MySQL's sense.

mod date;
mod text;
mod time;

pub use date::{Date, DateTime};
pub use time::Time;

/// Largest minute, second and microsecond of a time of day and of a duration.
const MAX_MINUTE: u64 = 59;
const MAX_SECOND: u64 = 59;
const MAX_MICROSECOND: u64 = 999_999;

/// Bits of the packed forms: 24 for the microseconds; 17 for the time of a day, of which hour has
/// 5, minute and second 6 each.
const MICROSECOND_BITS: u32 = 24;
const HMS_BITS: u32 = 17;

/// Splits the low `bits` off `value`. Returns the rest and these bits.
const fn split(value: u64, bits: u32) -> (u64, u64) {
    (value.wrapping_shr(bits), value & !u64::MAX.wrapping_shl(bits))
}

#[cfg(test)]
mod tests;

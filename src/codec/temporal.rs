//! Dates, times of day and durations as MySQL has them.
//!
//! They are not those of a calendar library, and no conversion to one is offered: MySQL stores
//! `0000-00-00`, `2024-02-00` and, with the right mode, `2024-02-31`, and its TIME is a duration of
//! either sign up to 838:59:59.999999. What is checked here is that each part is in its range. The
//! parts are public through accessors, so a conversion is one line where it is wanted.
//!
//! Three forms on the wire, each the business of one file: parts of varying number in rows
//! ([`row`](super::row)), one packed integer in chunks (`to_packed`, `from_packed`), text nowhere, but
//! people read it.

mod date;
mod text;
mod time;

pub use date::{Date, DateTime};
pub use time::Time;

/// Seconds and their fraction: what is the same in a time of day and in a duration.
const MAX_MINUTE: u64 = 59;
const MAX_SECOND: u64 = 59;
const MAX_MICROSECOND: u64 = 999_999;

/// Bits of the packed forms: six each for second and minute, 24 for the microseconds.
const MICROSECOND_BITS: u32 = 24;
const HMS_BITS: u32 = 17;

/// The low `bits` of `value`, and what is above them.
const fn split(value: u64, bits: u32) -> (u64, u64) {
    (value.wrapping_shr(bits), value & !u64::MAX.wrapping_shl(bits))
}

#[cfg(test)]
mod tests;

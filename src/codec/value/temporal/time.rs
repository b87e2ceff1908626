//! TIME.

use std::cmp::Ordering;

use super::{MAX_MICROSECOND, MAX_MINUTE, MAX_SECOND, MICROSECOND_BITS, split};
use crate::codec::value::{Sign, ValueError, within};

/// A duration of either sign, up to 838:59:59.999999.
///
/// *Shape*: 12 bytes, `Copy`, ordered by length with the sign. There is no negative zero. The
/// default is zero.
///
/// *Units*: hour 0 to 838, minute and second 0 to 59, microsecond 0 to 999 999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Time {
    sign: Sign,
    minute: u8,
    second: u8,
    hour: u16,
    microsecond: u32,
}

impl Time {
    const ZERO: Self = Self { sign: Sign::Plus, hour: 0, minute: 0, second: 0, microsecond: 0 };

    /// `838:59:59.999999`.
    pub const MAX: Self =
        Self { sign: Sign::Plus, hour: 838, minute: 59, second: 59, microsecond: 999_999 };

    /// `-838:59:59.999999`.
    pub const MIN: Self = Self { sign: Sign::Minus, ..Self::MAX };

    /// Creates a duration; the sign of zero is ignored.
    ///
    /// # Errors
    ///
    /// [`ValueError::OutOfRange`].
    pub const fn new(
        sign: Sign,
        hour: u16,
        minute: u8,
        second: u8,
        microsecond: u32,
    ) -> Result<Self, ValueError> {
        Self::from_parts(sign, hour as u64, minute as u64, second as u64, microsecond as u64)
    }

    /// Creates a duration from parts of any size, as they come from the wire.
    #[expect(clippy::cast_possible_truncation, reason = "each is compared with its maximum")]
    pub(in crate::codec) const fn from_parts(
        sign: Sign,
        hour: u64,
        minute: u64,
        second: u64,
        microsecond: u64,
    ) -> Result<Self, ValueError> {
        match (
            within("hour", hour, 838),
            within("minute", minute, MAX_MINUTE),
            within("second", second, MAX_SECOND),
            within("microsecond", microsecond, MAX_MICROSECOND),
        ) {
            (Ok(0), Ok(0), Ok(0), Ok(0)) => Ok(Self::ZERO),
            (Ok(hour), Ok(minute), Ok(second), Ok(microsecond)) => Ok(Self {
                sign,
                hour: hour as u16,
                minute: minute as u8,
                second: second as u8,
                microsecond: microsecond as u32,
            }),
            (Err(error), ..) | (_, Err(error), ..) | (.., Err(error), _) | (.., Err(error)) => {
                Err(error)
            }
        }
    }

    /// Sign of the duration; [`Sign::Plus`] for zero.
    #[inline]
    #[must_use]
    pub const fn sign(self) -> Sign {
        self.sign
    }

    /// Hour, 0 to 838.
    #[inline]
    #[must_use]
    pub const fn hour(self) -> u16 {
        self.hour
    }

    /// Minute, 0 to 59.
    #[inline]
    #[must_use]
    pub const fn minute(self) -> u8 {
        self.minute
    }

    /// Second, 0 to 59.
    #[inline]
    #[must_use]
    pub const fn second(self) -> u8 {
        self.second
    }

    /// Microsecond, 0 to 999 999.
    #[inline]
    #[must_use]
    pub const fn microsecond(self) -> u32 {
        self.microsecond
    }

    /// Packed integer of chunks, which orders like the value. It is made of the magnitude
    ///
    /// ```text
    ///  45   36 35   30 29   24 23          0
    /// ┌───────┬───────┬───────┬─────────────┐
    /// │ hour  │ minute│ second│ microsecond │    below zero: its negation
    /// └───────┴───────┴───────┴─────────────┘
    /// ```
    #[inline]
    #[must_use]
    pub const fn to_packed(self) -> i64 {
        let hms = (self.hour as i64) << 12 | (self.minute as i64) << 6 | self.second as i64;
        let magnitude = hms << MICROSECOND_BITS | self.microsecond as i64;
        match self.sign {
            Sign::Plus => magnitude,
            Sign::Minus => magnitude.wrapping_neg(),
        }
    }

    /// The inverse of [`to_packed`](Self::to_packed).
    ///
    /// # Errors
    ///
    /// [`ValueError::OutOfRange`].
    pub const fn from_packed(packed: i64) -> Result<Self, ValueError> {
        let sign = if packed < 0 { Sign::Minus } else { Sign::Plus };
        let (rest, microsecond) = split(packed.unsigned_abs(), MICROSECOND_BITS);
        let (rest, second) = split(rest, 6);
        let (hour, minute) = split(rest, 6);
        Self::from_parts(sign, hour, minute, second, microsecond)
    }
}

impl Default for Time {
    fn default() -> Self {
        Self::ZERO
    }
}

impl Ord for Time {
    fn cmp(&self, other: &Self) -> Ordering {
        self.to_packed().cmp(&other.to_packed())
    }
}

impl PartialOrd for Time {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

//! DATE, DATETIME and TIMESTAMP.

use super::{HMS_BITS, MAX_MICROSECOND, MAX_MINUTE, MAX_SECOND, MICROSECOND_BITS, split};
use crate::codec::value::{ValueError, within};

/// A day, or MySQL's incomplete dates: `0000-00-00`, `2024-02-00`.
///
/// *Shape*: 4 bytes, `Copy`, ordered by time. The default is `0000-00-00`.
///
/// *Units*: year 0 to 9999, month 0 to 12, day 0 to 31. The day is not checked against the length
/// of the month, because MySQL can be configured to skip that check too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Date {
    year: u16,
    month: u8,
    day: u8,
}

impl Date {
    /// Creates a day.
    ///
    /// # Errors
    ///
    /// [`ValueError::OutOfRange`].
    pub const fn new(year: u16, month: u8, day: u8) -> Result<Self, ValueError> {
        Self::from_parts(year as u64, month as u64, day as u64)
    }

    /// Creates a day from parts of any size, as they come from the wire.
    #[expect(clippy::cast_possible_truncation, reason = "each is compared with its maximum")]
    pub(in crate::codec) const fn from_parts(
        year: u64,
        month: u64,
        day: u64,
    ) -> Result<Self, ValueError> {
        match (within("year", year, 9999), within("month", month, 12), within("day", day, 31)) {
            (Ok(year), Ok(month), Ok(day)) => {
                Ok(Self { year: year as u16, month: month as u8, day: day as u8 })
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => Err(error),
        }
    }

    /// Year, 0 to 9999.
    #[inline]
    #[must_use]
    pub const fn year(self) -> u16 {
        self.year
    }

    /// Month, 0 (none) to 12.
    #[inline]
    #[must_use]
    pub const fn month(self) -> u8 {
        self.month
    }

    /// Day, 0 (none) to 31.
    #[inline]
    #[must_use]
    pub const fn day(self) -> u8 {
        self.day
    }

    /// This day at 00:00:00.
    #[must_use]
    pub const fn midnight(self) -> DateTime {
        DateTime { date: self, hour: 0, minute: 0, second: 0, microsecond: 0 }
    }

    /// Packed integer of chunks: that of [`midnight`](Self::midnight).
    #[must_use]
    pub const fn to_packed(self) -> u64 {
        self.midnight().to_packed()
    }

    /// The inverse of [`to_packed`](Self::to_packed).
    ///
    /// # Errors
    ///
    /// [`ValueError::OutOfRange`] for a part that is too large, and for a time that is not midnight.
    pub const fn from_packed(packed: u64) -> Result<Self, ValueError> {
        match DateTime::from_packed(packed) {
            Ok(DateTime { date, hour: 0, minute: 0, second: 0, microsecond: 0 }) => Ok(date),
            Ok(at) => {
                let (_, time) = split(at.to_packed(), HMS_BITS.wrapping_add(MICROSECOND_BITS));
                Err(ValueError::OutOfRange { part: "time of a date", value: time, max: 0 })
            }
            Err(error) => Err(error),
        }
    }
}

/// A day and a time of that day: DATETIME, TIMESTAMP.
///
/// *Shape*: 12 bytes, `Copy`, ordered by time. The default is `0000-00-00 00:00:00`.
///
/// *Units*: a [`Date`], hour 0 to 23, minute and second 0 to 59, microsecond 0 to 999 999. There is
/// no time zone: a TIMESTAMP is in the time zone of the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DateTime {
    date: Date,
    hour: u8,
    minute: u8,
    second: u8,
    microsecond: u32,
}

impl DateTime {
    /// Creates a time of a day.
    ///
    /// # Errors
    ///
    /// [`ValueError::OutOfRange`].
    pub const fn new(
        date: Date,
        hour: u8,
        minute: u8,
        second: u8,
        microsecond: u32,
    ) -> Result<Self, ValueError> {
        Self::from_parts(date, hour as u64, minute as u64, second as u64, microsecond as u64)
    }

    /// Creates a time from parts of any size, as they come from the wire.
    #[expect(clippy::cast_possible_truncation, reason = "each is compared with its maximum")]
    pub(in crate::codec) const fn from_parts(
        date: Date,
        hour: u64,
        minute: u64,
        second: u64,
        microsecond: u64,
    ) -> Result<Self, ValueError> {
        match (
            within("hour", hour, 23),
            within("minute", minute, MAX_MINUTE),
            within("second", second, MAX_SECOND),
            within("microsecond", microsecond, MAX_MICROSECOND),
        ) {
            (Ok(hour), Ok(minute), Ok(second), Ok(microsecond)) => Ok(Self {
                date,
                hour: hour as u8,
                minute: minute as u8,
                second: second as u8,
                microsecond: microsecond as u32,
            }),
            (Err(error), ..) | (_, Err(error), ..) | (.., Err(error), _) | (.., Err(error)) => {
                Err(error)
            }
        }
    }

    /// The day.
    #[inline]
    #[must_use]
    pub const fn date(self) -> Date {
        self.date
    }

    /// Hour, 0 to 23.
    #[inline]
    #[must_use]
    pub const fn hour(self) -> u8 {
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

    /// Packed integer of chunks, which orders like the value:
    ///
    /// ```text
    ///  63      46 45  41 40  36 35   30 29   24 23          0
    /// ┌──────────┬──────┬──────┬───────┬───────┬─────────────┐
    /// │ 13y + m  │ day  │ hour │ minute│ second│ microsecond │
    /// └──────────┴──────┴──────┴───────┴───────┴─────────────┘
    /// ```
    #[inline]
    #[must_use]
    pub const fn to_packed(self) -> u64 {
        let month = (self.date.year as u64).wrapping_mul(13).wrapping_add(self.date.month as u64);
        let day = month << 5 | self.date.day as u64;
        let hms = (self.hour as u64) << 12 | (self.minute as u64) << 6 | self.second as u64;
        (day << HMS_BITS | hms) << MICROSECOND_BITS | self.microsecond as u64
    }

    /// The inverse of [`to_packed`](Self::to_packed).
    ///
    /// # Errors
    ///
    /// [`ValueError::OutOfRange`].
    pub const fn from_packed(packed: u64) -> Result<Self, ValueError> {
        let (rest, microsecond) = split(packed, MICROSECOND_BITS);
        let (rest, second) = split(rest, 6);
        let (rest, minute) = split(rest, 6);
        let (rest, hour) = split(rest, 5);
        let (month, day) = split(rest, 5);
        match Date::from_parts(month / 13, month % 13, day) {
            Ok(date) => Self::from_parts(date, hour, minute, second, microsecond),
            Err(error) => Err(error),
        }
    }
}

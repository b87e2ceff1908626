//! Display and parsing: `2024-02-29`, `2024-02-29 13:05:09.000123`, `-838:59:59`.
//!
//! Without a precision the fraction is as short as possible, and left out when it is zero. With a
//! precision (`{:.3}`) that many digits are shown, up to six. A column with that many fractional
//! digits shows the same.

use std::fmt;
use std::str::FromStr;

use super::{Date, DateTime, Time};
use crate::codec::value::{Sign, ValueError};

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year(), self.month(), self.day())
    }
}

impl fmt::Display for DateTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = (self.hour(), self.minute(), self.second());
        write!(f, "{} {hour:02}:{minute:02}:{second:02}", self.date())?;
        write_fraction(f, self.microsecond())
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.sign() == Sign::Minus { "-" } else { "" };
        let (hour, minute, second) = (self.hour(), self.minute(), self.second());
        write!(f, "{sign}{hour:02}:{minute:02}:{second:02}")?;
        write_fraction(f, self.microsecond())
    }
}

fn write_fraction(f: &mut fmt::Formatter<'_>, microsecond: u32) -> fmt::Result {
    let (mut digits, mut shown) = (6_usize, microsecond);
    match f.precision() {
        None => {
            while shown.is_multiple_of(10) && digits > 0 {
                shown /= 10;
                digits = digits.saturating_sub(1);
            }
        }
        Some(precision) => {
            while digits > precision {
                shown /= 10;
                digits = digits.saturating_sub(1);
            }
        }
    }
    if digits == 0 { Ok(()) } else { write!(f, ".{shown:0digits$}") }
}

/// Accepts four digits, two and two, separated by hyphens.
impl FromStr for Date {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let mut parts = text.split('-');
        let year = number(parts.next(), 4, 4)?;
        let month = number(parts.next(), 2, 2)?;
        let day = number(parts.next(), 2, 2)?;
        if parts.next().is_some() {
            return Err(ValueError::Syntax);
        }
        Self::from_parts(year, month, day)
    }
}

/// Accepts a date, a space or `T`, and a time with up to six digits behind the point.
impl FromStr for DateTime {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (date, time) = text.split_once([' ', 'T']).ok_or(ValueError::Syntax)?;
        let [hour, minute, second, microsecond] = clock(time, 2)?;
        Self::from_parts(date.parse()?, hour, minute, second, microsecond)
    }
}

/// Accepts an optional minus, two or three digits of hours, minutes, seconds, and up to six digits
/// behind the point.
impl FromStr for Time {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (sign, time) = match text.strip_prefix('-') {
            Some(time) => (Sign::Minus, time),
            None => (Sign::Plus, text),
        };
        let [hour, minute, second, microsecond] = clock(time, 3)?;
        Self::from_parts(sign, hour, minute, second, microsecond)
    }
}

/// Hour, minute, second, microsecond.
fn clock(text: &str, hour_digits: usize) -> Result<[u64; 4], ValueError> {
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (text, None),
    };
    let mut parts = whole.split(':');
    let hour = number(parts.next(), 2, hour_digits)?;
    let minute = number(parts.next(), 2, 2)?;
    let second = number(parts.next(), 2, 2)?;
    if parts.next().is_some() {
        return Err(ValueError::Syntax);
    }
    let mut microsecond = 0;
    if let Some(fraction) = fraction {
        microsecond = number(Some(fraction), 1, 6)?;
        for _ in fraction.len()..6 {
            microsecond = microsecond.saturating_mul(10);
        }
    }
    Ok([hour, minute, second, microsecond])
}

fn number(digits: Option<&str>, least: usize, most: usize) -> Result<u64, ValueError> {
    let digits = digits.ok_or(ValueError::Syntax)?;
    // `parse` would accept a sign.
    if digits.len() < least || digits.len() > most || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ValueError::Syntax);
    }
    digits.parse().map_err(|_| ValueError::Syntax)
}

//! Decimal numbers of up to 65 digits, in the packed form of the wire.

use std::fmt::{self, Write as _};
use std::str::FromStr;

use crate::codec::value::{Sign, ValueError, within};

/// Decimal number: sign, digits, and the number of digits behind the point.
///
/// *Shape*: 35 bytes, `Copy`, no allocation. It is kept in its wire format, so that writing it is a
/// copy.
///
/// *Units*: up to 65 digits, at least one of them before the point, without further leading zeros.
/// There is no negative zero.
///
/// Two numbers are equal if value *and* scale are equal: `1.5` and `1.50` differ, as they do when
/// shown.
///
/// ```
/// use epoll_group::codec::value::Decimal;
///
/// let price: Decimal = "-12.3401".parse()?;
/// assert_eq!(price.scale(), 4);
/// assert_eq!(price.coefficient(), Some(-123_401));
/// assert_eq!(price.to_string(), "-12.3401");
/// assert_eq!(Decimal::from_coefficient(-123_401, 4)?, price);
/// # Ok::<(), epoll_group::codec::value::ValueError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Decimal {
    /// Scale, digits, sign, padding; zeros behind `len`.
    packed: [u8; MAX_PACKED_BYTES],
    len: u8,
}

impl Decimal {
    /// `coefficient` × 10^−`scale`.
    ///
    /// # Errors
    ///
    /// [`ValueError::OutOfRange`] when the scale is above 64. All digits of an `i128` fit.
    pub fn from_coefficient(coefficient: i128, scale: u8) -> Result<Self, ValueError> {
        let mut digits = [0_u8; 40];
        let mut rest = coefficient.unsigned_abs();
        for digit in digits.iter_mut().rev() {
            *digit = u8::try_from(rest % 10).unwrap_or_default();
            rest /= 10;
        }
        let sign = if coefficient < 0 { Sign::Minus } else { Sign::Plus };
        Self::from_digits(sign, digits.into_iter(), scale)
    }

    /// Creates a number from digits 0 to 9, the most significant first. Digits that the scale needs
    /// and the input lacks are zero.
    ///
    /// # Errors
    ///
    /// [`ValueError::OutOfRange`] when there are too many digits, a digit is above 9, or the scale is
    /// above [`MAX_SCALE`].
    fn from_digits(
        sign: Sign,
        digits: impl Iterator<Item = u8> + Clone,
        scale: u8,
    ) -> Result<Self, ValueError> {
        within("scale", u64::from(scale), u64::from(MAX_SCALE))?;
        let significant = digits.skip_while(|&digit| digit == 0);
        // One digit above the limit suffices for the error, however long the input.
        let count = significant.clone().take(MAX_DIGITS.saturating_add(1)).count();
        let least = usize::from(scale).saturating_add(1);
        within("digits", count.max(least) as u64, MAX_DIGITS as u64)?;

        let is_zero = count == 0;
        let mut nibbles = Nibbles::new(scale);
        for _ in count..least {
            nibbles.push(0);
        }
        for digit in significant {
            nibbles.push(u8::try_from(within("digit", u64::from(digit), 9)?).unwrap_or(9));
        }
        nibbles.push(if sign == Sign::Minus && !is_zero { MINUS >> 4 } else { PLUS >> 4 });
        Ok(nibbles.finish())
    }

    /// Reads a cell, or a value of a chunk.
    ///
    /// Reading is more lenient than writing. Leading zeros may be missing or too many, and all
    /// usual sign nibbles are accepted (`a`, `c`, `e`, `f` plus, `b`, `d` minus).
    ///
    /// # Errors
    ///
    /// [`ValueError::BadDecimal`] without digits, without sign, or if anything but one zero nibble
    /// follows the sign; [`ValueError::OutOfRange`] with more than 65 digits.
    pub fn from_packed(packed: &[u8]) -> Result<Self, ValueError> {
        let (&scale, rest) = packed.split_first().ok_or(ValueError::BadDecimal)?;
        let (&last, before) = rest.split_last().ok_or(ValueError::BadDecimal)?;
        // The sign is the last nibble, or the nibble before it if the last is zero.
        let (sign, extra) = match (last >> 4, last & 0xf) {
            (sign @ 0xa.., 0) => (sign, None),
            (digit @ ..=9, sign @ 0xa..) => (sign, Some(digit)),
            _ => return Err(ValueError::BadDecimal),
        };
        if before.iter().any(|&byte| byte >> 4 > 9 || byte & 0xf > 9) {
            return Err(ValueError::BadDecimal);
        }
        if before.is_empty() && extra.is_none() {
            return Err(ValueError::BadDecimal);
        }
        let sign = if matches!(sign, 0xb | 0xd) { Sign::Minus } else { Sign::Plus };
        let digits = before.iter().flat_map(|&byte| [byte >> 4, byte & 0xf]).chain(extra);
        Self::from_digits(sign, digits, scale)
    }

    /// Wire format: scale, packed digits, sign.
    #[inline]
    #[must_use]
    pub fn as_packed(&self) -> &[u8] {
        self.packed.get(..usize::from(self.len)).unwrap_or_default()
    }

    /// Digits behind the point.
    #[inline]
    #[must_use]
    pub const fn scale(&self) -> u8 {
        let [scale, ..] = self.packed;
        scale
    }

    /// Sign of the number; [`Sign::Plus`] for zero.
    #[must_use]
    pub fn sign(&self) -> Sign {
        let sign = match self.as_packed().last().copied().unwrap_or(PLUS) {
            byte if byte & 0xf == 0 => byte & 0xf0,
            byte => byte << 4,
        };
        if sign == MINUS { Sign::Minus } else { Sign::Plus }
    }

    /// All digits, each 0 to 9, the most significant first: at least one more than the scale.
    pub fn digits(&self) -> impl Iterator<Item = u8> + Clone + '_ {
        let nibbles = self.as_packed().iter().skip(1).flat_map(|&byte| [byte >> 4, byte & 0xf]);
        nibbles.take_while(|&nibble| nibble <= 9)
    }

    /// All digits as one number, with the sign; `None` when it does not fit.
    #[must_use]
    pub fn coefficient(&self) -> Option<i128> {
        let magnitude = self.digits().try_fold(0_i128, |sum, digit| {
            let digit = i128::from(digit);
            // The sum is negative, because the lowest number has no positive counterpart.
            sum.checked_mul(10)?.checked_sub(digit)
        })?;
        if self.sign() == Sign::Minus { Some(magnitude) } else { magnitude.checked_neg() }
    }

    /// The nearest double.
    #[must_use]
    pub fn to_f64(&self) -> f64 {
        // The standard library rounds correctly for any number of digits.
        self.to_string().parse().unwrap_or(f64::NAN)
    }
}

/// Digits with a point, without an exponent. A precision (`{:.2}`) has no effect: the number of
/// digits is part of the value.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sign() == Sign::Minus {
            f.write_char('-')?;
        }
        let whole = self.digits().count().saturating_sub(usize::from(self.scale()));
        for (at, digit) in self.digits().enumerate() {
            if at == whole {
                f.write_char('.')?;
            }
            f.write_char(char::from(digit.saturating_add(b'0')))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Decimal({self})")
    }
}

/// Accepts `-12.50`, `+3`, `.5`, `7.`: an optional sign, digits, an optional point, no exponent, no
/// spaces.
impl FromStr for Decimal {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (sign, number) = match text.as_bytes() {
            [b'-', number @ ..] => (Sign::Minus, number),
            [b'+', number @ ..] | number => (Sign::Plus, number),
        };
        let mut parts = number.splitn(2, |&byte| byte == b'.');
        let (whole, fraction) =
            (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        if whole.is_empty() && fraction.is_empty() {
            return Err(ValueError::Syntax);
        }
        if !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
            return Err(ValueError::Syntax);
        }
        let scale = within("scale", fraction.len() as u64, MAX_SCALE.into())?;
        let scale = u8::try_from(scale).unwrap_or(u8::MAX);
        Self::from_digits(sign, whole.iter().chain(fraction).map(|byte| byte & 0xf), scale)
    }
}

/// Writer of nibbles behind the scale byte, the high nibble of each byte first.
struct Nibbles {
    packed: [u8; MAX_PACKED_BYTES],
    /// Nibbles written, the two of the scale among them.
    count: usize,
}

impl Nibbles {
    const fn new(scale: u8) -> Self {
        let mut packed = [0; MAX_PACKED_BYTES];
        packed[0] = scale;
        Self { packed, count: 2 }
    }

    fn push(&mut self, nibble: u8) {
        // The caller has checked the count: 65 digits and a sign fit.
        if let Some(place) = self.packed.get_mut(self.count >> 1) {
            *place |= if self.count & 1 == 0 { nibble << 4 } else { nibble };
        }
        self.count = self.count.saturating_add(1);
    }

    fn finish(self) -> Decimal {
        let len = u8::try_from(self.count.div_ceil(2)).unwrap_or(u8::MAX);
        Decimal { packed: self.packed, len }
    }
}

/// Greatest number of digits, before and behind the point together: the limit of MySQL's DECIMAL.
const MAX_DIGITS: usize = 65;

/// Greatest number of digits behind the point; one digit always precedes the point. MySQL's columns
/// have 30 at most.
const MAX_SCALE: u8 = 64;

/// Bytes of the scale, and of 65 digits and the sign, two a byte.
const MAX_PACKED_BYTES: usize = 1 + 33;
const PLUS: u8 = 0xc0;
const MINUS: u8 = 0xd0;

#[cfg(test)]
mod tests;

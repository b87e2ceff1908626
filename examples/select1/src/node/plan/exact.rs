//! Exact numbers with a fraction: what MySQL computes as DECIMAL.

use std::cmp::Ordering;

use epoll_group::codec::value::Decimal;

/// `coefficient` × 10^−`scale`.
///
/// *Units*: up to 38 digits, where MySQL has 65. What does not fit is `None`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    coefficient: i128,
    scale: u8,
}

/// Most digits behind the point of a result, as MySQL has them.
pub(super) const MAX_SCALE: u8 = 30;

/// Digits behind the point that a quotient has more than what is divided
/// (`div_precision_increment`).
pub(super) const QUOTIENT_DIGITS: u8 = 4;

impl Exact {
    pub(super) const ZERO: Self = Self { coefficient: 0, scale: 0 };

    pub(super) const fn new(coefficient: i128, scale: u8) -> Self {
        Self { coefficient, scale }
    }

    /// A text of digits, a sign in front and a point among them at most.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let decimal: Decimal = text.parse().ok()?;
        Some(Self { coefficient: decimal.coefficient()?, scale: decimal.scale() })
    }

    /// The nearest with so many digits behind the point.
    pub(super) fn from_f64(value: f64, scale: u8) -> Option<Self> {
        if !value.is_finite() || value.abs() >= 1e30 {
            return None;
        }
        Self::parse(&format!("{value:.*}", usize::from(scale)))
    }

    pub(super) fn to_decimal(self) -> Option<Decimal> {
        Decimal::from_coefficient(self.coefficient, self.scale).ok()
    }

    pub(super) fn to_f64(self) -> f64 {
        self.to_decimal().map_or(f64::NAN, |decimal| decimal.to_f64())
    }

    pub(super) const fn is_zero(self) -> bool {
        self.coefficient == 0
    }

    /// With so many digits behind the point; half is rounded away from zero.
    pub(super) fn rescale(self, scale: u8) -> Option<Self> {
        let coefficient = if scale >= self.scale {
            self.coefficient.checked_mul(power(scale - self.scale)?)?
        } else {
            match power(self.scale - scale) {
                Some(divisor) => divide_rounded(self.coefficient, divisor),
                None => 0,
            }
        };
        Some(Self { coefficient, scale })
    }

    /// The integer that is left without the fraction.
    pub(super) fn truncate(self) -> i128 {
        power(self.scale).map_or(0, |divisor| self.coefficient / divisor)
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let (left, right, scale) = self.align(other)?;
        Some(Self { coefficient: left.checked_add(right)?, scale })
    }

    pub(super) fn sub(self, other: Self) -> Option<Self> {
        let (left, right, scale) = self.align(other)?;
        Some(Self { coefficient: left.checked_sub(right)?, scale })
    }

    pub(super) fn mul(self, other: Self) -> Option<Self> {
        let coefficient = self.coefficient.checked_mul(other.coefficient)?;
        let product = Self { coefficient, scale: self.scale.checked_add(other.scale)? };
        product.rescale(product.scale.min(MAX_SCALE))
    }

    /// The quotient, rounded; `other` is not zero.
    pub(super) fn div(self, other: Self) -> Option<Self> {
        let scale = self.scale.saturating_add(QUOTIENT_DIGITS).min(MAX_SCALE);
        // a / 10^s ÷ b / 10^t = (a × 10^(scale + t − s) ÷ b) / 10^scale
        let raised = i16::from(scale) + i16::from(other.scale) - i16::from(self.scale);
        let step = power(u8::try_from(raised.unsigned_abs()).ok()?)?;
        let (left, right) = if raised >= 0 {
            (self.coefficient.checked_mul(step)?, other.coefficient)
        } else {
            (self.coefficient, other.coefficient.checked_mul(step)?)
        };
        Some(Self { coefficient: divide_rounded(left, right), scale })
    }

    /// Remainder of the division, with the sign of `self`; `other` is not zero.
    pub(super) fn rem(self, other: Self) -> Option<Self> {
        let (left, right, scale) = self.align(other)?;
        Some(Self { coefficient: left.checked_rem(right)?, scale })
    }

    /// The quotient without its fraction; `other` is not zero.
    pub(super) fn int_div(self, other: Self) -> Option<i128> {
        let (left, right, _) = self.align(other)?;
        left.checked_div(right)
    }

    pub(super) fn compare(self, other: Self) -> Ordering {
        match self.align(other) {
            Some((left, right, _)) => left.cmp(&right),
            // The one of the smaller scale has more digits than fit: it is the larger in amount.
            None if self.scale < other.scale => self.coefficient.cmp(&0),
            None => 0.cmp(&other.coefficient),
        }
    }

    /// The same for all numbers of the same value.
    pub(super) fn normal(self) -> (i128, u8) {
        let (mut coefficient, mut scale) = (self.coefficient, self.scale);
        while scale > 0 && coefficient % 10 == 0 {
            coefficient /= 10;
            scale -= 1;
        }
        (coefficient, scale)
    }

    fn align(self, other: Self) -> Option<(i128, i128, u8)> {
        let scale = self.scale.max(other.scale);
        Some((self.rescale(scale)?.coefficient, other.rescale(scale)?.coefficient, scale))
    }
}

fn power(exponent: u8) -> Option<i128> {
    10_i128.checked_pow(exponent.into())
}

/// `divisor` is not zero. The smallest number by −1 saturates.
fn divide_rounded(value: i128, divisor: i128) -> i128 {
    let (Some(quotient), Some(rest)) = (value.checked_div(divisor), value.checked_rem(divisor))
    else {
        return i128::MAX;
    };
    let is_half = rest.unsigned_abs() >= divisor.unsigned_abs().div_ceil(2);
    let away = if (value < 0) == (divisor < 0) { 1 } else { -1 };
    if rest != 0 && is_half { quotient.saturating_add(away) } else { quotient }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(text: &str) -> Exact {
        Exact::parse(text).expect("a number")
    }

    fn text(value: Option<Exact>) -> Option<String> {
        Some(value?.to_decimal()?.to_string())
    }

    #[test]
    fn arithmetic_keeps_the_digits_that_mysql_keeps() {
        let cases = [
            (exact("1.5").add(exact("2.25")), "3.75"),
            (exact("1.5").sub(exact("2.25")), "-0.75"),
            (exact("1.5").mul(exact("-2.25")), "-3.375"),
            (exact("2").div(exact("3")), "0.6667"),
            (exact("-2").div(exact("3")), "-0.6667"),
            (exact("1.00").div(exact("0.3")), "3.333333"),
            (exact("-7.5").rem(exact("2")), "-1.5"),
            (exact("2.5").rescale(0), "3"),
            (exact("-2.5").rescale(0), "-3"),
            (exact("2.49").rescale(1), "2.5"),
        ];
        for (result, expected) in cases {
            assert_eq!(text(result).as_deref(), Some(expected));
        }
        assert_eq!(exact("7.9").int_div(exact("-2")), Some(-3));
        assert_eq!(exact("-7.9").truncate(), -7);
    }

    #[test]
    fn what_has_too_many_digits_is_none_and_compares_all_the_same() {
        let large = Exact::new(i128::MAX, 0);
        let fine = Exact::new(1, 30);
        assert!(large.add(fine).is_none() && large.mul(large).is_none());
        assert_eq!(large.compare(fine), Ordering::Greater);
        assert_eq!(fine.compare(large), Ordering::Less);
        assert_eq!(Exact::new(i128::MIN, 0).compare(fine), Ordering::Less);
        assert_eq!(exact("1.50").compare(exact("1.5")), Ordering::Equal);
        assert_eq!(exact("1.50").normal(), exact("1.5").normal());
    }
}

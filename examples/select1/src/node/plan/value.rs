//! Values while they are computed with.

use std::borrow::Cow;
use std::cmp::Ordering;

use epoll_group::codec::message::ScalarValue;
use epoll_group::codec::proto::value::Scalar;
use epoll_group::session::SessionError;

use super::exact::Exact;
use super::refuse;

/// A value of a row, a literal, or what came out of an expression.
///
/// *Shape*: dates and times are texts here, as they are in the table; the type of the column says
/// what they are.
#[derive(Clone, Debug)]
pub(super) enum Val<'a> {
    Null,
    Int(i64),
    Uint(u64),
    Exact(Exact),
    Double(f64),
    Text(Cow<'a, [u8]>),
}

/// A number, when arithmetic or a comparison needs one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Num {
    Int(i64),
    Uint(u64),
    Exact(Exact),
    Double(f64),
}

impl<'a> Val<'a> {
    /// A literal or a parameter.
    pub(super) fn of_scalar(scalar: &'a Scalar) -> Result<Self, SessionError> {
        Ok(match scalar.value().map_err(refuse)? {
            ScalarValue::Null => Self::Null,
            ScalarValue::Signed(value) => Self::Int(value),
            ScalarValue::Unsigned(value) => Self::Uint(value),
            ScalarValue::Bool(value) => Self::Int(value.into()),
            ScalarValue::Double(value) => Self::Double(value),
            ScalarValue::Float(value) => Self::Double(value.into()),
            ScalarValue::String(text, _) | ScalarValue::Octets(text) => {
                Self::Text(Cow::Borrowed(text))
            }
            other => return Err(refuse(format_args!("{} is no value", name_of(&other)))),
        })
    }

    /// The same, borrowed.
    pub(super) fn borrow(&self) -> Val<'_> {
        match self {
            Self::Text(text) => Val::Text(Cow::Borrowed(text)),
            Self::Null => Val::Null,
            Self::Int(value) => Val::Int(*value),
            Self::Uint(value) => Val::Uint(*value),
            Self::Exact(value) => Val::Exact(*value),
            Self::Double(value) => Val::Double(*value),
        }
    }

    pub(super) fn into_owned(self) -> Val<'static> {
        match self {
            Self::Text(text) => Val::Text(Cow::Owned(text.into_owned())),
            Self::Null => Val::Null,
            Self::Int(value) => Val::Int(value),
            Self::Uint(value) => Val::Uint(value),
            Self::Exact(value) => Val::Exact(value),
            Self::Double(value) => Val::Double(value),
        }
    }

    pub(super) const fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }

    /// `None` for NULL; a text is the number at its start.
    pub(super) fn number(&self) -> Option<Num> {
        Some(match self {
            Self::Null => return None,
            Self::Int(value) => Num::Int(*value),
            Self::Uint(value) => Num::Uint(*value),
            Self::Exact(value) => Num::Exact(*value),
            Self::Double(value) => Num::Double(*value),
            Self::Text(text) => Num::Double(leading_number(text)),
        })
    }

    /// Returns the truth of the value; `None` for NULL.
    pub(super) fn truth(&self) -> Option<bool> {
        Some(match self.number()? {
            Num::Int(value) => value != 0,
            Num::Uint(value) => value != 0,
            Num::Exact(value) => !value.is_zero(),
            Num::Double(value) => value != 0.0,
        })
    }

    /// Returns the text; `None` for NULL.
    pub(super) fn text(&self) -> Option<Cow<'_, [u8]>> {
        Some(match self {
            Self::Null => return None,
            Self::Text(text) => Cow::Borrowed(text),
            Self::Int(value) => Cow::Owned(value.to_string().into_bytes()),
            Self::Uint(value) => Cow::Owned(value.to_string().into_bytes()),
            Self::Double(value) => Cow::Owned(value.to_string().into_bytes()),
            Self::Exact(value) => {
                let decimal = value.to_decimal();
                Cow::Owned(decimal.map(|value| value.to_string()).unwrap_or_default().into_bytes())
            }
        })
    }
}

impl Num {
    pub(super) fn to_f64(self) -> f64 {
        match self {
            Self::Int(value) => value as f64,
            Self::Uint(value) => value as f64,
            Self::Exact(value) => value.to_f64(),
            Self::Double(value) => value,
        }
    }

    /// Returns the exact number; `None` for one with a floating point, or that is too large.
    pub(super) fn to_exact(self) -> Option<Exact> {
        match self {
            Self::Int(value) => Some(Exact::new(value.into(), 0)),
            Self::Uint(value) => Some(Exact::new(value.into(), 0)),
            Self::Exact(value) => Some(value),
            Self::Double(_) => None,
        }
    }

    /// Returns an integer of any sign; a fraction is rounded.
    pub(super) fn to_integer(self) -> i128 {
        match self {
            Self::Int(value) => value.into(),
            Self::Uint(value) => value.into(),
            Self::Exact(value) => value.rescale(0).map_or(0, Exact::truncate),
            Self::Double(value) => value.round_ties_even() as i128,
        }
    }

    /// Compares as MySQL does: in floating point if one number has it, exactly otherwise.
    pub(super) fn compare(self, other: Self) -> Ordering {
        match (self.to_exact(), other.to_exact()) {
            (Some(left), Some(right)) => left.compare(right),
            _ => self.to_f64().partial_cmp(&other.to_f64()).unwrap_or(Ordering::Equal),
        }
    }
}

/// The number at the start of a text, as MySQL reads it; 0 if there is none.
pub(in crate::node) fn leading_number(text: &[u8]) -> f64 {
    let text = text.trim_ascii_start();
    let digits = |from: usize| {
        let digits = text.iter().skip(from).take_while(|byte| byte.is_ascii_digit());
        digits.count()
    };
    let at = |index: usize| text.get(index).copied();
    let mut end = usize::from(matches!(at(0), Some(b'+' | b'-')));
    let whole = digits(end);
    end += whole;
    let mut fraction = 0;
    if at(end) == Some(b'.') {
        fraction = digits(end + 1);
        if whole + fraction > 0 {
            end += 1 + fraction;
        }
    }
    if whole + fraction == 0 {
        return 0.0;
    }
    if matches!(at(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(at(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let number = text.get(..end).and_then(|number| std::str::from_utf8(number).ok());
    number.and_then(|number| number.parse().ok()).unwrap_or(0.0)
}

/// Name of the kind of a value, for the texts of errors.
pub(super) const fn name_of(value: &ScalarValue<'_>) -> &'static str {
    match value {
        ScalarValue::Signed(_) => "V_SINT",
        ScalarValue::Unsigned(_) => "V_UINT",
        ScalarValue::Null => "V_NULL",
        ScalarValue::Octets(_) => "V_OCTETS",
        ScalarValue::Double(_) => "V_DOUBLE",
        ScalarValue::Float(_) => "V_FLOAT",
        ScalarValue::Bool(_) => "V_BOOL",
        ScalarValue::String(..) => "V_STRING",
        ScalarValue::Placeholder(_) => "V_PLACEHOLDER",
        ScalarValue::Identifier(_) => "V_IDENTIFIER",
        ScalarValue::RawString(_) => "V_RAW_STRING",
        _ => "a value of an unknown type",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_the_number_at_its_start() {
        let cases: [(&[u8], f64); 12] = [
            (b"", 0.0),
            (b"x7", 0.0),
            (b" 7x", 7.0),
            (b"-1.5e2y", -150.0),
            (b"1e", 1.0),
            (b"1e+", 1.0),
            (b".5", 0.5),
            (b"-.", 0.0),
            (b"5.", 5.0),
            (b"+3", 3.0),
            (b"0x10", 0.0),
            (b"nan", 0.0),
        ];
        for (text, number) in cases {
            assert_eq!(leading_number(text), number, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn numbers_of_any_kind_compare_by_value() {
        let largest = Num::Uint(u64::MAX);
        assert_eq!(Num::Int(-1).compare(largest), Ordering::Less);
        assert_eq!(Num::Exact(Exact::new(15, 1)).compare(Num::Double(1.5)), Ordering::Equal);
        assert_eq!(Num::Exact(Exact::new(15, 1)).compare(Num::Int(1)), Ordering::Greater);
        assert_eq!(Num::Int(i64::MAX).compare(Num::Uint(1 << 63)), Ordering::Less);
    }
}

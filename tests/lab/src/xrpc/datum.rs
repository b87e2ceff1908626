//! Values of cells that outlive their frames, and when two of them mean the same.

use std::fmt;

use epoll_group::codec::value::{Date, DateTime, Decimal, Sign, Time, Value};

/// One cell.
#[derive(Clone, PartialEq)]
pub enum Datum {
    Null,
    Signed(i64),
    Unsigned(u64),
    Bit(u64),
    Float(f32),
    Double(f64),
    Decimal(Decimal),
    Date(Date),
    DateTime(DateTime),
    Time(Time),
    Bytes(Vec<u8>),
    Enum(Vec<u8>),
    Set(Vec<Vec<u8>>),
}

impl Datum {
    /// Text, or the name of an enum's member.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) | Self::Enum(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// An integer of any type.
    pub fn integer(&self) -> Option<i128> {
        match *self {
            Self::Signed(value) => Some(value.into()),
            Self::Unsigned(value) | Self::Bit(value) => Some(value.into()),
            _ => None,
        }
    }

    /// A number of any type, or a text that is one, as it is written.
    fn number(&self) -> Option<(bool, String)> {
        match self {
            Self::Signed(_) | Self::Unsigned(_) | Self::Bit(_) => {
                self.integer().map(|value| (true, value.to_string()))
            }
            Self::Float(value) => Some((false, value.to_string())),
            Self::Double(value) => Some((false, value.to_string())),
            Self::Decimal(value) => Some((true, decimal_text(value))),
            Self::Bytes(_) | Self::Enum(_) => {
                let text = self.text()?;
                text.parse::<f64>().is_ok().then(|| (true, text.to_owned()))
            }
            _ => None,
        }
    }

    /// True if both mean the same to a person. Types of numbers and of texts do not matter. A
    /// binary fraction equals a decimal one if it is the nearest.
    pub fn same(&self, other: &Self) -> bool {
        if self == other {
            return true;
        }
        if let (Some(a), Some(b)) = (self.integer(), other.integer()) {
            return a == b;
        }
        if let (Self::Bytes(a) | Self::Enum(a), Self::Bytes(b) | Self::Enum(b)) = (self, other) {
            return a == b;
        }
        let (Some((exact, a)), Some((other_exact, b))) = (self.number(), other.number()) else {
            return false;
        };
        if exact && other_exact {
            return plain(&a) == plain(&b);
        }
        if let (Self::Float(_), _) | (_, Self::Float(_)) = (self, other) {
            return a.parse::<f32>().ok() == b.parse::<f32>().ok();
        }
        a.parse::<f64>().ok() == b.parse::<f64>().ok()
    }
}

/// Strips zeros without meaning.
fn plain(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    };
    let digits = digits.trim_start_matches('0');
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    };
    if digits.is_empty() { "0".into() } else { format!("{sign}{digits}") }
}

fn decimal_text(decimal: &Decimal) -> String {
    let mut text: String = decimal.digits().map(|digit| char::from(b'0' + digit)).collect();
    let scale = usize::from(decimal.scale());
    while text.len() <= scale {
        text.insert(0, '0');
    }
    if scale > 0 {
        text.insert(text.len() - scale, '.');
    }
    if decimal.sign() == Sign::Minus { format!("-{text}") } else { text }
}

impl From<Value<'_>> for Datum {
    fn from(value: Value<'_>) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Signed(value) => Self::Signed(value),
            Value::Unsigned(value) => Self::Unsigned(value),
            Value::Bit(value) => Self::Bit(value),
            Value::Float(value) => Self::Float(value),
            Value::Double(value) => Self::Double(value),
            Value::Decimal(value) => Self::Decimal(value),
            Value::Date(value) => Self::Date(value),
            Value::DateTime(value) => Self::DateTime(value),
            Value::Time(value) => Self::Time(value),
            Value::Bytes(bytes) => Self::Bytes(bytes.to_vec()),
            Value::Enum(bytes) => Self::Enum(bytes.to_vec()),
            Value::Set(set) => Self::Set(set.iter().map(<[u8]>::to_vec).collect()),
            other => panic!("a new kind of value: {other:?}"),
        }
    }
}

impl From<i64> for Datum {
    fn from(value: i64) -> Self {
        Self::Signed(value)
    }
}

impl From<&str> for Datum {
    fn from(text: &str) -> Self {
        Self::Bytes(text.into())
    }
}

impl fmt::Debug for Datum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Unsigned(value) => write!(f, "{value}u"),
            Self::Bit(value) => write!(f, "b{value:b}"),
            Self::Float(value) => write!(f, "{value:?}f"),
            Self::Double(value) => write!(f, "{value:?}"),
            Self::Decimal(value) => write!(f, "{}d", decimal_text(value)),
            Self::Date(value) => write!(f, "{value:?}"),
            Self::DateTime(value) => write!(f, "{value:?}"),
            Self::Time(value) => write!(f, "{value:?}"),
            Self::Bytes(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Self::Enum(bytes) => write!(f, "enum \"{}\"", bytes.escape_ascii()),
            Self::Set(members) => {
                let names = members.iter().map(|member| member.escape_ascii().to_string());
                f.debug_set().entries(names).finish()
            }
        }
    }
}

//! Values as text: the accepted texts, and the valid ranges.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::error::ConfigError;
use super::fields::Unit;

/// Reason why a text is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoValue {
    /// The text has another form.
    Malformed,
    /// The text has the right form, but the type cannot hold its value.
    Beyond,
}

/// A type of tunable. `Debug` of each is text that `parse` understands, without loss.
pub(super) trait Value: Copy + PartialOrd + fmt::Debug {
    fn parse(text: &str, unit: Unit) -> Result<Self, NoValue>;
}

impl Value for usize {
    fn parse(text: &str, unit: Unit) -> Result<Self, NoValue> {
        if unit != Unit::Bytes {
            return integer(text);
        }
        let (number, suffix) = split(text);
        let shift = match suffix.to_ascii_lowercase().as_str() {
            "" | "b" => 0,
            "k" | "kib" => 10,
            "m" | "mib" => 20,
            "g" | "gib" => 30,
            _ => return Err(NoValue::Malformed),
        };
        integer::<Self>(number)?.checked_mul(1 << shift).ok_or(NoValue::Beyond)
    }
}

impl Value for u32 {
    fn parse(text: &str, unit: Unit) -> Result<Self, NoValue> {
        Self::try_from(usize::parse(text, unit)?).map_err(|_| NoValue::Beyond)
    }
}

impl Value for u8 {
    fn parse(text: &str, unit: Unit) -> Result<Self, NoValue> {
        Self::try_from(usize::parse(text, unit)?).map_err(|_| NoValue::Beyond)
    }
}

impl Value for bool {
    fn parse(text: &str, _: Unit) -> Result<Self, NoValue> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "on" | "1" => Ok(true),
            "false" | "off" | "0" => Ok(false),
            _ => Err(NoValue::Malformed),
        }
    }
}

impl Value for Duration {
    fn parse(text: &str, unit: Unit) -> Result<Self, NoValue> {
        let (number, suffix) = split(text);
        let nanos = match (suffix.to_lowercase().as_str(), unit) {
            ("ns", _) => 1,
            // Both micro signs: that of Latin-1, which `Debug` writes, and the Greek letter.
            ("us" | "\u{b5}s" | "\u{3bc}s", _) => 1_000,
            ("s", _) | ("", Unit::Seconds) => 1_000_000_000,
            ("ms" | "", _) => 1_000_000,
            ("m" | "min", _) => 60_000_000_000,
            ("h", _) => 3_600_000_000_000,
            _ => return Err(NoValue::Malformed),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
        let whole = integer::<u64>(whole)?.checked_mul(nanos).ok_or(NoValue::Beyond)?;
        // Nine digits are a nanosecond of a second; the type holds no finer value.
        if fraction.len() > 9 || fraction.starts_with('-') {
            return Err(NoValue::Malformed);
        }
        let scale = 10_u128.pow(fraction.len() as u32);
        let part = u128::from(integer::<u64>(fraction)?) * u128::from(nanos);
        if part % scale != 0 {
            return Err(NoValue::Malformed);
        }
        let part = u64::try_from(part / scale).map_err(|_| NoValue::Beyond)?;
        whole.checked_add(part).map(Self::from_nanos).ok_or(NoValue::Beyond)
    }
}

/// Parses a text of digits. With a minus before them, the number is outside every range.
fn integer<T: std::str::FromStr>(text: &str) -> Result<T, NoValue> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NoValue::Malformed);
    }
    text.parse().map_err(|_| NoValue::Beyond)
}

/// Returns the number and the text behind it.
fn split(text: &str) -> (&str, &str) {
    let end = text.find(char::is_alphabetic).unwrap_or(text.len());
    (text[..end].trim_end(), &text[end..])
}

/// Valid values of a tunable.
#[derive(Clone, Debug)]
pub(super) enum Allowed<T> {
    Any,
    Within(RangeInclusive<T>),
    ZeroOr(RangeInclusive<T>),
}

/// On or off, the only values of the type.
pub(super) const SWITCH: Allowed<bool> = Allowed::Any;

/// 0 has a meaning of its own, outside the range.
pub(super) const fn zero_or(range: RangeInclusive<usize>) -> Allowed<usize> {
    Allowed::ZeroOr(range)
}

impl<T> From<RangeInclusive<T>> for Allowed<T> {
    fn from(range: RangeInclusive<T>) -> Self {
        Self::Within(range)
    }
}

impl<T: Value + Default> Allowed<T> {
    pub(super) fn check(&self, name: &'static str, value: T) -> Result<(), ConfigError> {
        let allowed = match self {
            Self::Any => true,
            Self::Within(range) => range.contains(&value),
            Self::ZeroOr(range) => value == T::default() || range.contains(&value),
        };
        if allowed {
            return Ok(());
        }
        Err(ConfigError::out_of_range(name, value, self.to_string()))
    }

    pub(super) fn parse(
        &self,
        name: &'static str,
        unit: Unit,
        text: &str,
    ) -> Result<T, ConfigError> {
        let text = text.trim();
        let value = T::parse(text, unit).map_err(|why| match why {
            NoValue::Malformed => ConfigError::malformed(name, text, unit, self.to_string()),
            NoValue::Beyond => {
                ConfigError::out_of_range(name, format_args!("{text}"), self.to_string())
            }
        })?;
        self.check(name, value)?;
        Ok(value)
    }
}

/// `0..=128`, `0 or 2048..=2097152`, `true or false`.
impl<T: fmt::Debug> fmt::Display for Allowed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => write!(f, "true or false"),
            Self::Within(range) => write!(f, "{range:?}"),
            Self::ZeroOr(range) => write!(f, "0 or {range:?}"),
        }
    }
}

/// Returns the name that was probably meant: at most one in four letters has to change.
pub(super) fn nearest(
    given: &str,
    names: impl Iterator<Item = &'static str>,
) -> Option<&'static str> {
    names
        .map(|name| (distance(given, name), name))
        .filter(|(distance, name)| *distance <= name.len() / 4)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

/// Letters to insert, to delete or to replace (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_bytes_or_have_a_binary_unit() {
        let parse = |text| usize::parse(text, Unit::Bytes);
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64KiB", 65_536),
            ("64 kib", 65_536),
            ("64k", 65_536),
            ("1MiB", 1 << 20),
            ("3G", 3 << 30),
            ("17B", 17),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "KiB", "1.5MiB", "64kB", "64 KiB KiB", "+1", "0x10", "1_000", "- 1"] {
            assert_eq!(parse(text), Err(NoValue::Malformed), "{text}");
        }
        for text in ["-1", "18446744073709551616", "99999999999GiB"] {
            assert_eq!(parse(text), Err(NoValue::Beyond), "{text}");
        }
        assert_eq!(usize::parse("1KiB", Unit::Count), Err(NoValue::Malformed), "a count");
        assert_eq!(u32::parse("4294967296", Unit::Count), Err(NoValue::Beyond));
    }

    #[test]
    fn times_have_a_unit_or_take_that_of_the_tunable() {
        let parse = |text| Duration::parse(text, Unit::Milliseconds);
        for (text, nanos) in [
            ("250", 250_000_000),
            ("250ms", 250_000_000),
            ("10 s", 10_000_000_000),
            ("1.5S", 1_500_000_000),
            ("1m", 60_000_000_000),
            ("2h", 7_200_000_000_000),
            ("0.5m", 30_000_000_000),
            ("7us", 7_000),
            ("1.000000001s", 1_000_000_001),
            ("0ns", 0),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in
            ["", "s", "1d", "1.s", ".5s", "1.0000000001s", "1,5s", "1.-5s", "1.5ns", "1h 30m"]
        {
            assert_eq!(parse(text), Err(NoValue::Malformed), "{text}");
        }
        assert_eq!(parse("-5s"), Err(NoValue::Beyond));
        assert_eq!(parse("99999999999999h"), Err(NoValue::Beyond));
        assert_eq!(Duration::parse("30", Unit::Seconds), Ok(Duration::from_secs(30)));
    }

    #[test]
    fn what_a_time_is_written_as_is_read_back() {
        for nanos in [0, 1, 999, 1_000, 1_500, 10_000_001, 1_000_000_001, 7_200_000_000_000] {
            let time = Duration::from_nanos(nanos);
            assert_eq!(Duration::parse(&format!("{time:?}"), Unit::Seconds), Ok(time), "{time:?}");
        }
    }

    #[test]
    fn only_a_name_that_is_close_is_suggested() {
        let names = || ["epoll_groups", "max_threads"].into_iter();
        assert_eq!(nearest("epol_group", names()), Some("epoll_groups"));
        assert_eq!(nearest("max_thraeds", names()), Some("max_threads"));
        assert_eq!(nearest("something", names()), None);
        assert_eq!(nearest("", names()), None);
    }

    #[test]
    fn the_distance_is_that_of_the_textbook() {
        for (a, b, expected) in [("", "", 0), ("", "abc", 3), ("kitten", "sitting", 3)] {
            assert_eq!(distance(a, b), expected);
            assert_eq!(distance(b, a), expected);
        }
    }
}

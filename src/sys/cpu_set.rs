//! Set of CPUs, in the kernel's notation: `0-3,8`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// A set of CPU numbers.
///
/// *Shape*: a plain value, possibly empty; sorted ranges, so all CPUs of a machine are one entry.
/// Its text is the kernel's cpulist (cpuset(7), "List format"), in both directions.
///
/// ```
/// use epoll_group::placement::CpuSet;
///
/// let set: CpuSet = "8,0-2,3".parse()?;
/// assert_eq!(set.to_string(), "0-3,8");
/// assert_eq!(set.len(), 5);
/// # Ok::<(), epoll_group::placement::ParseCpuSetError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct CpuSet {
    /// Ascending ranges. Invariant: between two of them at least one CPU is missing.
    ranges: Vec<RangeInclusive<usize>>,
}

impl CpuSet {
    /// The set without a CPU.
    #[must_use]
    pub const fn new() -> Self {
        Self { ranges: Vec::new() }
    }

    /// Returns true if the set contains the CPU.
    #[must_use]
    pub fn contains(&self, cpu: usize) -> bool {
        let at = self.ranges.partition_point(|range| *range.end() < cpu);
        self.ranges.get(at).is_some_and(|range| range.contains(&cpu))
    }

    /// Number of CPUs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.iter().map(|range| range.end() - range.start() + 1).sum()
    }

    /// Returns true if the set has no CPU.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Its CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.ranges.iter().cloned().flatten()
    }

    /// CPUs that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|&cpu| other.contains(cpu)).collect()
    }

    /// Returns true if the other set contains each CPU of this one.
    #[must_use]
    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|cpu| other.contains(cpu))
    }

    fn from_ranges(mut given: Vec<RangeInclusive<usize>>) -> Self {
        given.sort_unstable_by_key(|range| *range.start());
        let mut ranges: Vec<RangeInclusive<usize>> = Vec::new();
        for range in given {
            match ranges.last_mut() {
                Some(last) if *range.start() <= last.end().saturating_add(1) => {
                    *last = *last.start()..=*range.end().max(last.end());
                }
                _ => ranges.push(range),
            }
        }
        Self { ranges }
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        Self::from_ranges(cpus.into_iter().map(|cpu| cpu..=cpu).collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for range in &self.ranges {
            if !text.is_empty() {
                text.push(',');
            }
            text.push_str(&range.start().to_string());
            if range.start() < range.end() {
                text.push('-');
                text.push_str(&range.end().to_string());
            }
        }
        f.pad(&text)
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuSetError;

    /// Reads a cpulist: numbers and ranges in any order, white space around the whole of it. An
    /// empty text is the empty set.
    fn from_str(text: &str) -> Result<Self, ParseCpuSetError> {
        let text = text.trim();
        if text.is_empty() {
            return Ok(Self::new());
        }
        let ranges: Result<Vec<_>, _> = text.split(',').map(range).collect();
        Ok(Self::from_ranges(ranges?))
    }
}

fn range(text: &str) -> Result<RangeInclusive<usize>, ParseCpuSetError> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first, text)?, number(last, text)?);
    if first > last {
        return Err(ParseCpuSetError::Backwards { first, last });
    }
    Ok(first..=last)
}

fn number(digits: &str, item: &str) -> Result<usize, ParseCpuSetError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseCpuSetError::NoNumber { item: item.chars().take(SHOWN).collect() });
    }
    match digits.parse() {
        Ok(number) if number <= MAX_CPU => Ok(number),
        _ => Err(ParseCpuSetError::TooLarge { number: digits.chars().take(SHOWN).collect() }),
    }
}

/// Largest CPU number that can be read or bound to. Kernels are built for 8192 CPUs at most.
pub(crate) const MAX_CPU: usize = 65_535;

/// Characters of a malformed text that the error repeats.
const SHOWN: usize = 32;

/// Reason why a text is no list of CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseCpuSetError {
    /// An item is neither a number nor a range of them.
    #[non_exhaustive]
    NoNumber {
        /// The item, or its first 32 characters.
        item: String,
    },
    /// A number is larger than that of any CPU.
    #[non_exhaustive]
    TooLarge {
        /// The number, or its first 32 digits.
        number: String,
    },
    /// A range ends before it begins.
    #[non_exhaustive]
    Backwards {
        /// Number before the `-`.
        first: usize,
        /// Number behind it.
        last: usize,
    },
}

impl fmt::Display for ParseCpuSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNumber { item } => write!(f, "`{item}` is not a CPU or range such as 8 or 0-3"),
            Self::TooLarge { number } => write!(f, "CPU {number} is outside 0..={MAX_CPU}"),
            Self::Backwards { first, last } => write!(f, "range {first}-{last} runs backwards"),
        }
    }
}

impl Error for ParseCpuSetError {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn text_is_the_kernels_list_format() {
        for (text, canonical, cpus) in [
            ("", "", &[][..]),
            ("\n", "", &[]),
            ("0\n", "0", &[0]),
            ("0-3,8", "0-3,8", &[0, 1, 2, 3, 8]),
            ("8,2-3,0-1", "0-3,8", &[0, 1, 2, 3, 8]),
            ("1-3,2-2,3-4", "1-4", &[1, 2, 3, 4]),
            ("65535", "65535", &[65_535]),
        ] {
            let set: CpuSet = text.parse().expect(text);
            assert_eq!(set.to_string(), canonical);
            assert_eq!(set.iter().collect::<Vec<_>>(), cpus);
        }
    }

    #[test]
    fn rubbish_is_an_error_that_names_it() {
        for (text, error) in [
            ("a", "`a` is not a CPU or range such as 8 or 0-3"),
            ("0,,1", "`` is not a CPU or range such as 8 or 0-3"),
            ("1-", "`1-` is not a CPU or range such as 8 or 0-3"),
            ("-1", "`-1` is not a CPU or range such as 8 or 0-3"),
            ("+1", "`+1` is not a CPU or range such as 8 or 0-3"),
            ("0-7:1/2", "`0-7:1/2` is not a CPU or range such as 8 or 0-3"),
            ("3-1", "range 3-1 runs backwards"),
            ("0-65536", "CPU 65536 is outside 0..=65535"),
            ("99999999999999999999999", "CPU 99999999999999999999999 is outside 0..=65535"),
        ] {
            assert_eq!(text.parse::<CpuSet>().expect_err(text).to_string(), error);
        }
    }

    proptest! {
        #[test]
        fn it_behaves_like_an_ordered_set(
            a in prop::collection::btree_set(0_usize..200, 0..100),
            b in prop::collection::btree_set(0_usize..200, 0..100),
        ) {
            let set = |cpus: &BTreeSet<usize>| cpus.iter().copied().collect::<CpuSet>();
            let (x, y) = (set(&a), set(&b));
            prop_assert!(x.iter().eq(a.iter().copied()));
            prop_assert_eq!(x.len(), a.len());
            prop_assert_eq!(x.is_empty(), a.is_empty());
            prop_assert_eq!(x.is_subset(&y), a.is_subset(&b));
            prop_assert!((0..210).all(|cpu| x.contains(cpu) == a.contains(&cpu)));
            prop_assert!(x.intersection(&y).iter().eq(a.intersection(&b).copied()));
            prop_assert_eq!(x.to_string().parse(), Ok(x));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9,\\-: \\n]{0,20}|\\PC{0,20}") {
            let _ = text.parse::<CpuSet>();
        }
    }
}

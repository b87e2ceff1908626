//! Set of CPUs, in the kernel's notation: `0-3,8`.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

/// A set of CPU numbers.
///
/// *Shape*: a plain value, possibly empty; sorted ranges, so all CPUs of a machine are one entry.
/// It is read from the kernel's cpulist (cpuset(7), "List format").
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct CpuSet {
    /// Ascending ranges. Invariant: between two of them at least one CPU is missing.
    ranges: Vec<RangeInclusive<usize>>,
}

impl CpuSet {
    /// Reads a cpulist: numbers and ranges in any order, white space around the whole of it. An
    /// empty text is the empty set. Returns `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Some(Self::default());
        }
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        Some(Self::from_ranges(ranges?))
    }

    /// Returns true if the set contains the CPU.
    pub(crate) fn contains(&self, cpu: usize) -> bool {
        let at = self.ranges.partition_point(|range| *range.end() < cpu);
        self.ranges.get(at).is_some_and(|range| range.contains(&cpu))
    }

    /// Number of CPUs.
    pub(crate) fn len(&self) -> usize {
        self.ranges.iter().map(|range| range.end() - range.start() + 1).sum()
    }

    /// Returns true if the set has no CPU.
    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Its CPUs, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.ranges.iter().cloned().flatten()
    }

    /// CPUs that are in both sets.
    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|&cpu| other.contains(cpu)).collect()
    }

    /// Returns true if the other set contains each CPU of this one.
    #[cfg(test)]
    pub(crate) fn is_subset(&self, other: &Self) -> bool {
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

#[cfg(test)]
impl std::fmt::Display for CpuSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
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

fn range(text: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some(first..=last)
}

fn number(digits: &str) -> Option<usize> {
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    let number: usize = digits.parse().ok()?;
    (all_digits && number <= MAX_CPU).then_some(number)
}

/// Largest CPU number that can be read or bound to. Kernels are built for 8192 CPUs at most.
pub(crate) const MAX_CPU: usize = 65_535;

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
            let set = CpuSet::parse(text).expect(text);
            assert_eq!(set.to_string(), canonical);
            assert_eq!(set.iter().collect::<Vec<_>>(), cpus);
        }
    }

    #[test]
    fn rubbish_is_no_set() {
        for text in
            ["a", "0,,1", "1-", "-1", "+1", "0-7:1/2", "3-1", "0-65536", "99999999999999999999999"]
        {
            assert_eq!(CpuSet::parse(text), None, "{text}");
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
            prop_assert_eq!(CpuSet::parse(&x.to_string()), Some(x));
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9,\\-: \\n]{0,20}|\\PC{0,20}") {
            let _ = CpuSet::parse(&text);
        }
    }
}

//! What is drawn in characters: sparklines, strips of a histogram, a bar of threads.

use super::line::{Line, Style};

const LEVELS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The powers of two that a strip shows: from 128 ns to 17 s, what is beyond at its ends.
pub(super) const POWERS: std::ops::RangeInclusive<usize> = 8..=34;

/// One character for each value, as high as it is compared with the highest.
pub(super) fn sparkline(values: impl ExactSizeIterator<Item = f64> + Clone) -> String {
    let most = values.clone().fold(0.0, f64::max);
    values.map(|value| LEVELS[level(value / most)]).collect()
}

/// One character for each power of two, as high as the logarithm of its samples, so that a single
/// slow one among millions shows.
pub(super) fn strip(buckets: impl Iterator<Item = (usize, u64)>, chars_each: usize) -> String {
    let mut counts = vec![0_u64; POWERS.count()];
    for (power, count) in buckets {
        counts[power.clamp(*POWERS.start(), *POWERS.end()) - POWERS.start()] += count;
    }
    let most = counts.iter().copied().max().unwrap_or(0) as f64;
    let mut strip = String::new();
    for count in counts {
        let char = match count {
            0 => '·',
            count => LEVELS[level((count as f64).ln_1p() / most.ln_1p())],
        };
        strip.extend(std::iter::repeat_n(char, chars_each));
    }
    strip
}

/// The times under a strip.
pub(super) fn axis(chars_each: usize) -> String {
    let mut axis = String::new();
    // The character of power p shows what took at least 2^(p-1) ns.
    for (power, name) in [(10, "1µs"), (15, "32µs"), (20, "1ms"), (25, "33ms"), (30, "1s")] {
        let column = (power + 1 - POWERS.start()) * chars_each;
        let gap = column.saturating_sub(axis.chars().count());
        axis.extend(std::iter::repeat_n(' ', gap));
        axis.push_str(name);
    }
    axis
}

/// A bar whose parts are as long as their share of the sum; one that is not zero shows.
pub(super) fn shares(line: Line, parts: &[(Style, char, f64)], chars: usize) -> Line {
    let sum: f64 = parts.iter().map(|(_, _, part)| part).sum();
    let scale = if sum <= chars as f64 { 1.0 } else { chars as f64 / sum };
    parts.iter().fold(line, |line, &(style, char, part)| {
        let length = (part * scale).round().max(f64::from(part > 0.0)) as usize;
        line.with(style, String::from(char).repeat(length))
    })
}

/// 0 to 7; NaN, which is nothing out of nothing, is 0.
fn level(part: f64) -> usize {
    (part * 7.0).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_slow_sample_among_millions_shows() {
        let text = strip([(12, 1_000_000), (34, 1)].into_iter(), 1);
        assert_eq!(text, "····█·····················▁");
        let text = strip([(1, 1), (60, 1)].into_iter(), 2);
        assert!(text.starts_with("██··") && text.ends_with("··██"), "{text}");
        assert_eq!(strip(std::iter::empty(), 1), "·".repeat(27));
    }

    #[test]
    fn lines_have_a_character_for_each_value() {
        assert_eq!(sparkline([0.0, 7.0, 14.0].into_iter()), "▁▅█");
        assert_eq!(sparkline([0.0, 0.0].into_iter()), "▁▁");
        assert_eq!(axis(1).chars().position(|char| char == '1'), Some(3));
    }

    #[test]
    fn a_share_that_is_not_zero_shows() {
        let parts =
            [(Style::Plain, 'a', 1.0), (Style::Plain, 'b', 999.0), (Style::Plain, 'c', 0.0)];
        let text = shares(Line::default(), &parts, 10).text(80, super::super::Look::Plain);
        assert_eq!(text, "abbbbbbbbbb");
    }
}

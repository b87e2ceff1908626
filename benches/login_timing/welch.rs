//! Welch's t-test of the times of two kinds.

use serde::Serialize;

/// Result of a comparison.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) tries: usize,
    /// Nanoseconds of each kind.
    pub(crate) medians: [f64; 2],
    /// The statistic of all tries.
    pub(crate) t: f64,
    /// The test without the slowest tries, for several parts of them. The last one has all tries.
    pub(crate) crops: Vec<Crop>,
    /// The largest |t| of a crop.
    pub(crate) worst: f64,
    /// The largest |t| that both halves of the tries agree on. A crop counts if its halves have the same sign
    /// and its means differ by enough to matter; its value is the smaller |t| of its halves.
    pub(crate) confirmed: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Crop {
    pub(crate) kept: f64,
    pub(crate) t: f64,
    /// Difference of the means in nanoseconds.
    pub(crate) difference: f64,
    /// The statistics of both halves of the tries.
    pub(crate) halves: [f64; 2],
}

/// Smaller differences of means, in nanoseconds, do not matter. Two million tries in a process can show a
/// tenth of one. Over a network, where times vary by 10 µs, one nanosecond takes about
/// 2 (4.5 · 10 000)² = 4 000 000 000 logins.
const MATTERS: f64 = 1.0;

const CROPS: [f64; 9] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0];

/// Times in nanoseconds with their kind, 0 or 1, in the order of the tries.
pub(crate) fn compare(times: &[(u32, u8)]) -> Verdict {
    let mut sorted: Vec<u32> = times.iter().map(|&(time, _)| time).collect();
    sorted.sort_unstable();
    let (first, second) = times.split_at(times.len() / 2);
    let crops = CROPS.map(|kept| {
        let place = (sorted.len() as f64 * kept) as usize;
        let limit = sorted[place.min(sorted.len() - 1)];
        let of =
            |times: &[(u32, u8)]| welch(times.iter().copied().filter(|&(time, _)| time <= limit));
        let (t, difference) = of(times);
        Crop { kept, t, difference, halves: [of(first).0, of(second).0] }
    });
    let worst = crops.iter().map(|crop| crop.t.abs()).fold(0.0, f64::max);
    let confirmed = crops.iter().map(Crop::confirmed).fold(0.0, f64::max);
    let medians = [0, 1].map(|kind| median(times, kind));
    let t = crops[CROPS.len() - 1].t;
    Verdict { tries: times.len(), medians, t, crops: crops.to_vec(), worst, confirmed }
}

impl Crop {
    fn confirmed(&self) -> f64 {
        let [a, b] = self.halves;
        let counts = a * b > 0.0 && self.difference.abs() >= MATTERS;
        if counts { a.abs().min(b.abs()) } else { 0.0 }
    }
}

/// The difference of the means divided by its standard error, and the difference.
fn welch(times: impl Iterator<Item = (u32, u8)>) -> (f64, f64) {
    let mut kinds = [Moments::default(); 2];
    for (time, kind) in times {
        kinds[usize::from(kind)].add(f64::from(time));
    }
    let [a, b] = kinds;
    let error = (a.variance() / a.count + b.variance() / b.count).sqrt();
    let difference = a.mean - b.mean;
    (if error > 0.0 { difference / error } else { 0.0 }, difference)
}

/// Mean and variance in one pass, after Welford.
#[derive(Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let off = value - self.mean;
        self.mean += off / self.count;
        self.squares += off * (value - self.mean);
    }

    fn variance(&self) -> f64 {
        self.squares / (self.count - 1.0).max(1.0)
    }
}

fn median(times: &[(u32, u8)], kind: u8) -> f64 {
    let of_kind = times.iter().filter(|&&(_, other)| other == kind);
    let mut own: Vec<u32> = of_kind.map(|&(time, _)| time).collect();
    own.sort_unstable();
    own.get(own.len() / 2).copied().map_or(0.0, f64::from)
}

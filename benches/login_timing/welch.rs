//! Welch's t-test of the times of two kinds.

use serde::Serialize;

/// What the times say.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Verdict {
    pub(crate) tries: usize,
    /// Nanoseconds, of either kind.
    pub(crate) medians: [f64; 2],
    /// Of all tries.
    pub(crate) t: f64,
    /// Without the tries that are slower than such a part of all, which is 1 at last.
    pub(crate) crops: Vec<Crop>,
    /// The largest |t| of a crop.
    pub(crate) worst: f64,
    /// The largest |t| that the first half of the tries and the second agree on: of a crop whose
    /// halves have one sign, the smaller; of those that differ by enough to matter.
    pub(crate) confirmed: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Crop {
    pub(crate) kept: f64,
    pub(crate) t: f64,
    /// Nanoseconds, of the means.
    pub(crate) difference: f64,
    /// The statistic of the first half of the tries, and of the second.
    pub(crate) halves: [f64; 2],
}

/// Means that differ by fewer nanoseconds do not matter. Two million tries in a process see a tenth of
/// one; from elsewhere, where times vary by 10 µs, telling one nanosecond takes some
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

/// The statistic, which is the difference of the means by its standard error; and that difference.
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

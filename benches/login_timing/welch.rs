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
    /// Without the tries that are slower than such a part of all.
    pub(crate) crops: Vec<Crop>,
    /// The largest |t|.
    pub(crate) worst: f64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Crop {
    pub(crate) kept: f64,
    pub(crate) t: f64,
}

const CROPS: [f64; 8] = [0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99, 0.999];

/// Times in nanoseconds with their kind, 0 or 1.
pub(crate) fn compare(times: &[(u32, u8)]) -> Verdict {
    let mut sorted: Vec<u32> = times.iter().map(|&(time, _)| time).collect();
    sorted.sort_unstable();
    let crops: Vec<Crop> = CROPS
        .iter()
        .map(|&kept| {
            let place = (sorted.len() as f64 * kept) as usize;
            let limit = sorted[place.min(sorted.len() - 1)];
            Crop { kept, t: welch(times.iter().copied().filter(|&(time, _)| time <= limit)) }
        })
        .collect();
    let t = welch(times.iter().copied());
    let worst = crops.iter().map(|crop| crop.t.abs()).fold(t.abs(), f64::max);
    let medians = [0, 1].map(|kind| median(times, kind));
    Verdict { tries: times.len(), medians, t, crops, worst }
}

/// The statistic: the difference of the means by its standard error.
fn welch(times: impl Iterator<Item = (u32, u8)>) -> f64 {
    let mut kinds = [Moments::default(); 2];
    for (time, kind) in times {
        kinds[usize::from(kind)].add(f64::from(time));
    }
    let [a, b] = kinds;
    let error = (a.variance() / a.count + b.variance() / b.count).sqrt();
    if error > 0.0 { (a.mean - b.mean) / error } else { 0.0 }
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

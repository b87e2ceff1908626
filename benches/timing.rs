//! Times of criterion, so short that all benches with it together end within ten minutes.
//! `-- --measurement-time 10` measures longer.

use std::time::Duration;

use criterion::Criterion;

pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
}

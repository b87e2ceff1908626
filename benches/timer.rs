//! Cost of setting, cancelling and firing a deadline beside 10, 10 000 and a million others. Guards regressions.

mod timing;

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use epoll_group::internal::Timers;

const PENDING: [u64; 3] = [10, 10_000, 1_000_000];

/// Timers, spread in no order over an hour that begins in a second.
fn pending(count: u64, from: Instant) -> Timers {
    let mut timers = Timers::new();
    for payload in 0..count {
        timers.insert(from + delay(payload), payload);
    }
    timers
}

fn delay(number: u64) -> Duration {
    Duration::from_micros(1_000_000 + number.wrapping_mul(0x9e37_79b9_7f4a_7c15) % 3_600_000_000)
}

fn timers(c: &mut Criterion) {
    let mut group = c.benchmark_group("timer");
    group.throughput(Throughput::Elements(1));
    let start = Instant::now();
    for count in PENDING {
        let mut timers = pending(count, start);
        let mut number = count;
        group.bench_function(format!("set and cancel, {count} pending"), |b| {
            b.iter(|| {
                number += 1;
                let set = timers.insert(start + delay(number), black_box(number));
                assert_eq!(timers.cancel(set), Some(number));
            });
        });
        assert_eq!(timers.len() as u64, count);
        group.bench_function(format!("set and fire, {count} pending"), |b| {
            b.iter(|| {
                // Earlier than all the others.
                timers.insert(start, black_box(7));
                assert_eq!(timers.pop_due(start), Some(7));
            });
        });
        assert_eq!(timers.len() as u64, count);
    }
    group.sample_size(10);
    for count in PENDING {
        group.throughput(Throughput::Elements(count));
        group.bench_function(format!("fire all of {count}"), |b| {
            b.iter_batched(
                || pending(count, start),
                |mut timers| {
                    let end = start + Duration::from_secs(3601);
                    let fired = std::iter::from_fn(|| timers.pop_due(end)).count();
                    assert_eq!(fired as u64, count);
                },
                criterion::BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = timing::criterion();
    targets = timers
}
criterion_main!(benches);

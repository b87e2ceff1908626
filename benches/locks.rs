//! Cost of a free lock, ours against std's, on an ordinary thread and on a worker, where they should tie, and
//! of announcing a wait. Guards regressions.

mod timing;

use std::hint::black_box;
use std::sync;

use criterion::{Criterion, criterion_group, criterion_main};
use epoll_group::internal::Stalls;
use epoll_group::stall;
use epoll_group::sync::{Mutex, RwLock};

/// One comparison, so that both see the same machine.
macro_rules! compare {
    ($c:expr, $name:literal, $lock:ident, $take:ident) => {{
        let mut group = $c.benchmark_group($name);
        let (theirs, ours) = (sync::$lock::new(0_u64), $lock::new(0_u64));
        group.bench_function("std", |b| b.iter(|| touch(black_box(&theirs).$take())));
        group.bench_function("ours", |b| b.iter(|| touch(black_box(&ours).$take())));
        let stalls = Stalls::listen();
        group.bench_function("ours, heard", |b| b.iter(|| touch(black_box(&ours).$take())));
        assert_eq!(stalls.count(), 0, "nobody had to wait");
        group.finish();
    }};
}

fn touch<G: std::ops::Deref<Target = u64>>(guard: sync::LockResult<G>) {
    black_box(*guard.expect("no poison"));
}

fn uncontended(c: &mut Criterion) {
    compare!(c, "locks/Mutex::lock", Mutex, lock);
    compare!(c, "locks/RwLock::read", RwLock, read);
    compare!(c, "locks/RwLock::write", RwLock, write);
}

fn announce(c: &mut Criterion) {
    let mut group = c.benchmark_group("locks/stall::run");
    group.bench_function("elsewhere", |b| b.iter(|| stall::run(|| black_box(1))));
    let stalls = Stalls::listen();
    let mut runs = 0;
    group.bench_function("heard", |b| {
        b.iter(|| {
            runs += 1;
            stall::run(|| black_box(1))
        });
    });
    assert_eq!(stalls.count(), runs, "each was heard");
    group.finish();
}

criterion_group! {
    name = benches;
    config = timing::criterion();
    targets = uncontended, announce
}
criterion_main!(benches);

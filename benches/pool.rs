//! Cost of a checkout and return of an idle connection on one thread, by key and through a resolved backend.
//! Guards regressions.

mod timing;

use std::convert::Infallible;
use std::hash::Hash;
use std::hint::black_box;
use std::marker::PhantomData;
use std::time::Instant;

use criterion::{Criterion, criterion_group, criterion_main};
use epoll_group::pool::{Manage, Pool, Target};

const BACKENDS: u64 = 16;

/// Connections are numbers.
struct Numbers<K>(PhantomData<K>);

impl<K: Clone + Eq + Hash + Send + Sync + 'static> Manage for Numbers<K> {
    type Key = K;
    type Connection = u64;
    type Error = Infallible;

    fn connect(&self, _: &Target<'_, K>, _: Instant) -> Result<u64, Infallible> {
        Ok(7)
    }
}

fn checkout(c: &mut Criterion) {
    let mut group = c.benchmark_group("pool");
    group.bench_function("the clock alone, twice", |b| {
        b.iter(|| (black_box(Instant::now()), black_box(Instant::now())));
    });

    let pool = Pool::builder(Numbers::<u64>(PhantomData)).build().expect("a pool");
    let backends: Vec<_> =
        (0..BACKENDS).map(|key| pool.backend(&key).expect("it is open")).collect();
    for backend in &backends {
        assert_eq!(*backend.get().expect("connects"), 7);
    }
    group.bench_function("by a number", |b| {
        b.iter(|| assert_eq!(*pool.get(black_box(&5)).expect("idle"), 7));
    });
    let backend = &backends[5];
    group.bench_function("through a resolved backend", |b| {
        b.iter(|| assert_eq!(*black_box(backend).get().expect("idle"), 7));
    });
    assert_eq!(backend.status().totals.connects, 1);

    let named = Pool::builder(Numbers::<String>(PhantomData)).build().expect("a pool");
    let names: Vec<_> = (0..BACKENDS).map(|key| format!("SPT{key}")).collect();
    for name in &names {
        assert_eq!(*named.get(name).expect("connects"), 7);
    }
    group.bench_function("by a name", |b| {
        b.iter(|| assert_eq!(*named.get(black_box(&names[5])).expect("idle"), 7));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = timing::criterion();
    targets = checkout
}
criterion_main!(benches);

//! Cost of a push and a pop of a task, on one thread and on several. Guards regressions. `park` measures the
//! cost of a task in service.

mod timing;

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use epoll_group::internal::Queue;

fn one_thread(c: &mut Criterion) {
    let mut group = c.benchmark_group("queue");
    group.throughput(Throughput::Elements(1));
    let queue = Queue::new(256);
    group.bench_function("push and pop, one thread", |b| {
        b.iter(|| {
            assert!(queue.try_push(black_box(7)));
            assert_eq!(queue.pop(), Some(7));
        });
    });
    let full = Queue::new(128);
    while full.try_push(1) {}
    group.bench_function("push to a full queue", |b| b.iter(|| assert!(!full.try_push(1))));
    group.bench_function("push and pop past a full queue", |b| {
        b.iter(|| {
            full.push(1);
            assert_eq!(full.pop(), Some(1));
        });
    });
    group.bench_function("push on one thread, pop on another", |b| b.iter_custom(two_threads));
    group.finish();
}

/// All numbers must arrive, in order.
fn two_threads(count: u64) -> Duration {
    let queue = Queue::new(256);
    thread::scope(|scope| {
        let began = Instant::now();
        scope.spawn(|| {
            for number in 0..count {
                while !queue.try_push(number) {
                    thread::yield_now();
                }
            }
        });
        for number in 0..count {
            let popped = loop {
                match queue.pop() {
                    Some(popped) => break popped,
                    None => thread::yield_now(),
                }
            };
            assert_eq!(popped, number);
        }
        began.elapsed()
    })
}

criterion_group! {
    name = benches;
    config = timing::criterion();
    targets = one_thread
}
criterion_main!(benches);

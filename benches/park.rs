//! Time from `spawn` to the task's first instruction on a worker that sleeps, and number of wake-ups that found
//! nothing. Predicts service, because it is the whole way of a task through an idle runtime.

#![expect(clippy::print_stderr, reason = "a bench reports what criterion does not")]

mod timing;

use std::sync::mpsc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};
use hdrhistogram::Histogram;

fn wake_up(c: &mut Criterion) {
    let mut group = c.benchmark_group("park");
    for threads in [1, 4] {
        let runtime = Runtime::builder()
            .config(Config::default().epoll_groups(1).epoll_threads_per_group(threads))
            .start();
        let runtime = runtime.expect("a runtime");
        let handle = runtime.handle();
        let mut latencies = Histogram::<u64>::new_with_max(60_000_000_000, 3).expect("a minute");
        let mut tasks = 0;
        group.bench_function(format!("spawn to run, {threads} workers"), |b| {
            b.iter_custom(|count| {
                let mut total = Duration::ZERO;
                for _ in 0..count {
                    let (tell, told) = mpsc::sync_channel(1);
                    let spawned = Instant::now();
                    let code = move || tell.send(spawned.elapsed()).expect("waited for");
                    handle.spawn(code).expect("room");
                    let latency = told.recv().expect("it runs");
                    latencies.saturating_record(u64::try_from(latency.as_nanos()).expect("short"));
                    total += latency;
                }
                tasks += count;
                total
            });
        });
        let stats = runtime.stats();
        assert_eq!(stats.get(Counter::TasksRun), tasks, "each task ran once");
        eprintln!(
            "{threads} workers, {tasks} tasks: p50 {} ns, p99 {} ns, p99.9 {} ns; wake-ups sent {}, \
             useful {}, futile {}",
            latencies.value_at_quantile(0.5),
            latencies.value_at_quantile(0.99),
            latencies.value_at_quantile(0.999),
            stats.get(Counter::WakeupsSent),
            stats.get(Counter::WakeupsUseful),
            stats.get(Counter::WakeupsFutile),
        );
    }
    group.finish();
}

/// Cost of a task without a wake-up, because a burst keeps the workers awake.
fn burst(c: &mut Criterion) {
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(2))
        .start()
        .expect("a runtime");
    let handle = runtime.handle();
    c.bench_function("park/spawn and run, in bursts of 200", |b| {
        b.iter_custom(|count| {
            let (tell, told) = mpsc::channel();
            let began = Instant::now();
            let mut left = count;
            while left > 0 {
                let burst = left.min(200);
                for _ in 0..burst {
                    let tell = tell.clone();
                    handle.spawn_wait(move || tell.send(()).expect("waited for")).expect("runs");
                }
                assert_eq!(told.iter().take(burst as usize).count() as u64, burst);
                left -= burst;
            }
            began.elapsed()
        });
    });
}

criterion_group! {
    name = benches;
    config = timing::criterion();
    targets = wake_up, burst
}
criterion_main!(benches);

//! Time of a request over loopback, in this crate and in servers that work like other libraries. Predicts
//! service, client included. `compare` measures many connections and the server's own CPU time.

#![expect(clippy::print_stderr, reason = "a bench reports what criterion does not")]

mod timing;

use std::time::Instant;

use baselines::Server;
use baselines::client::{Client, ECHO, frame};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use hdrhistogram::Histogram;

const SERVERS: [&str; 4] =
    ["epoll-group:4:groups=1", "limit:1", "easy-sync:2", "easy-async:2:workers=2"];

fn echo(c: &mut Criterion) {
    let request = frame(ECHO, &[7; 51]);
    assert_eq!(request.len(), 64);
    let mut group = c.benchmark_group("echo of 64 bytes");
    for name in SERVERS {
        let any = ([127, 0, 0, 1], 0).into();
        let server = Server::start(&name.parse().expect("a server"), any).expect("it starts");
        for connections in [1, 64] {
            let connect = |_| Client::connect(server.address());
            let mut peers: Vec<_> = (0..connections).map(connect).collect();
            let mut latencies =
                Histogram::<u64>::new_with_max(60_000_000_000, 3).expect("a minute");
            group.throughput(Throughput::Elements(connections));
            group.bench_function(format!("{name}, {connections} connections"), |b| {
                b.iter(|| {
                    let asked = Instant::now();
                    peers.iter_mut().for_each(|peer| peer.ask(&request));
                    peers.iter_mut().for_each(|peer| peer.expect(&request));
                    let took = u64::try_from(asked.elapsed().as_nanos()).expect("short");
                    latencies.saturating_record(took);
                });
            });
            eprintln!(
                "{name}, {connections} connections, a round: p50 {} ns, p99 {} ns, p99.9 {} ns",
                latencies.value_at_quantile(0.5),
                latencies.value_at_quantile(0.99),
                latencies.value_at_quantile(0.999),
            );
        }
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = timing::criterion();
    targets = echo
}
criterion_main!(benches);

//! What does a request cost end to end over loopback? Predicts service, client included; `examples/echo` measures with
//! many connections and the server's own CPU time.

#![expect(clippy::print_stderr, reason = "a bench reports what criterion does not")]

mod timing;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use epoll_group::Runtime;
use epoll_group::net::{Close, Connection, Input, Protocol};
use hdrhistogram::Histogram;

struct Echo;

impl Protocol for Echo {
    type State = ();

    fn opened(&self, _: &Connection) {}

    fn received(&self, conn: &Connection, (): &mut (), input: &mut Input<'_>) -> Result<(), Close> {
        conn.send(input.take_all());
        Ok(())
    }
}

const REQUEST: [u8; 64] = [7; 64];

fn echo(c: &mut Criterion) {
    let runtime = Runtime::builder().groups(1).threads_per_group(4).start().expect("a runtime");
    let listener = runtime.listen("127.0.0.1:0", Echo).expect("a listener");
    let address = listener.local_addr().to_string();
    let mut group = c.benchmark_group("echo");
    for connections in [1, 64] {
        let mut peers: Vec<_> = (0..connections).map(|_| connect(&address)).collect();
        let mut latencies = Histogram::<u64>::new_with_max(60_000_000_000, 3).expect("a minute");
        group.throughput(Throughput::Elements(connections));
        group.bench_function(format!("64 bytes there and back, {connections} connections"), |b| {
            b.iter(|| {
                let asked = Instant::now();
                for peer in &mut peers {
                    peer.write_all(&REQUEST).expect("sent");
                }
                for peer in &mut peers {
                    let mut answer = [0; REQUEST.len()];
                    peer.read_exact(&mut answer).expect("answered");
                    assert_eq!(answer, REQUEST);
                }
                let took = u64::try_from(asked.elapsed().as_nanos()).expect("short");
                latencies.saturating_record(took);
            });
        });
        eprintln!(
            "{connections} connections, a round: p50 {} ns, p99 {} ns, p99.9 {} ns",
            latencies.value_at_quantile(0.5),
            latencies.value_at_quantile(0.99),
            latencies.value_at_quantile(0.999),
        );
    }
    group.finish();
    drop(listener);
}

fn connect(address: &str) -> TcpStream {
    let peer = TcpStream::connect(address).expect("connected");
    peer.set_nodelay(true).expect("no delay");
    peer
}

criterion_group! {
    name = benches;
    config = timing::criterion();
    targets = echo
}
criterion_main!(benches);

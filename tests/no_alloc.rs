//! In steady state a request costs no heap allocation: counted on the workers by the allocator itself.
#![cfg(feature = "server")]

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use epoll_group::stats::Counter;
use epoll_group::{Config, Runtime};
use lab::Peer;
use lab::allocator::Noting;
use lab::peer::frame;
use lab::protocol::{Bytes, Frames, echo};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static COUNTED: Cell<bool> = const { Cell::new(false) };
}

fn note(taken: usize, _: usize) {
    // A thread may allocate when its thread-locals are gone already.
    if taken > 0 && COUNTED.try_with(Cell::get).unwrap_or(false) {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    }
}

#[global_allocator]
static ALLOCATOR: Noting = Noting(note);

const CONNECTIONS: usize = 32;
const ROUNDS: usize = 1000;
/// What may happen now and then, whatever the number of requests.
const FEW: u64 = 16;

/// One round: a request on every connection, then all the answers.
fn round(peers: &mut [Peer], request: &[u8], answer: &mut [u8]) {
    for peer in &mut *peers {
        peer.send(request);
    }
    for peer in peers {
        std::io::Read::read_exact(peer, answer).expect("an answer");
        assert!(answer == request);
    }
}

#[test]
fn a_request_allocates_nothing_once_its_connection_is_warm() {
    let runtime = Runtime::builder()
        .config(Config::default().epoll_groups(1).epoll_threads_per_group(4))
        .on_thread_start(|_| COUNTED.set(true))
        .start()
        .expect("a runtime");
    let plain = runtime.listen("127.0.0.1:0", Bytes::new(echo)).expect("a listener");
    let framed = runtime.listen("127.0.0.1:0", Frames::default()).expect("a listener");
    let request = frame(7, &[1; 64]);
    for listener in [&plain, &framed] {
        let mut answer = vec![0; request.len()];
        let connect = || Peer::connect(listener.local_addr());
        let mut peers: Vec<_> = std::iter::repeat_with(connect).take(CONNECTIONS).collect();
        for _ in 0..ROUNDS {
            round(&mut peers, &request, &mut answer);
        }
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        assert!(before > 0, "the workers are counted");
        let received = runtime.stats().get(Counter::Receives);
        for _ in 0..ROUNDS {
            round(&mut peers, &request, &mut answer);
        }
        let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
        let requests = runtime.stats().get(Counter::Receives) - received;
        assert!(requests >= (CONNECTIONS * ROUNDS) as u64);
        assert!(allocations <= FEW, "{allocations} allocations in {requests} requests");
    }
}

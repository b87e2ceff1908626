//! Sessions that wait for each other in a chain of locks, in the middle of a crowd that waits, too.

use epoll_group::Config;
use epoll_group::stats::{Counter, Snapshot};
use lab::rows::{COMMIT, LOCK, LOCK_AND_COMMIT, Rows, Served, TOUCH};
use lab::threads::Observer;
use lab::workers::threads_named;
use lab::{LONG, Peer, eventually};

const CHAIN: u8 = 50;

/// Each session of the chain holds a lock and waits for the lock of the session before it.
/// Outsiders wait for any of the locks. Then the first session releases its lock. Returns the
/// highest number of threads, and the counters.
fn a_chain_unwinds(name: &str, config: Config, outsiders: usize) -> (u64, Snapshot) {
    let served = Served::start(name, config, &Rows::new(CHAIN.into(), true));
    let observer = Observer::watch(&served.runtime.handle());
    let mut chain: Vec<Peer> = (0..CHAIN).map(|_| served.ordinary()).collect();
    for (peer, row) in chain.iter_mut().zip(0..) {
        peer.echo(&[LOCK, row]);
    }
    let mut crowd: Vec<_> =
        (0..outsiders).map(|n| (served.ordinary(), (n % usize::from(CHAIN)) as u8)).collect();
    crowd.iter_mut().for_each(|(peer, row)| peer.send(&[TOUCH, *row]));
    // The chain starts to wait only after the crowd has taken all threads that it can get.
    eventually(LONG, || {
        let stats = served.runtime.stats();
        let all = stats.base_threads + stats.dynamic_threads;
        stats.stalled_threads >= all.min(outsiders as u64)
    });
    for (peer, before) in chain[1..].iter_mut().zip(0..) {
        peer.send(&[LOCK_AND_COMMIT, before]);
    }
    chain[0].echo(&[COMMIT, 0]);
    for (peer, before) in chain[1..].iter_mut().zip(0..) {
        assert_eq!(peer.receive(2), [LOCK_AND_COMMIT, before]);
    }
    for (peer, row) in &mut crowd {
        assert_eq!(peer.receive(2), [TOUCH, *row]);
    }
    let system = threads_named(&format!("{name}-0-")).len() as u64;
    (observer.end().max(system), served.runtime.stats())
}

#[test]
fn a_chain_of_sessions_unwinds_beside_a_crowd_for_which_threads_are_too_few() {
    let most = 128;
    let config = lab::config().max_threads(most);
    let (threads, stats) = a_chain_unwinds("ch-l", config, 1000);
    assert!(threads <= most as u64, "{threads}:\n{stats}");
    assert!(stats.get(Counter::ThreadsLimited) > 0, "{stats}");
}

#[test]
fn a_chain_of_sessions_unwinds_beside_a_crowd_for_which_there_are_threads() {
    let config = lab::config();
    let (threads, stats) = a_chain_unwinds("ch-u", config, 500);
    assert!(threads <= 1024, "{threads}:\n{stats}");
    assert_eq!(stats.get(Counter::ThreadsLimited), 0, "{stats}");
}

#[test]
fn a_chain_longer_than_all_threads_unwinds_by_its_reserve() {
    // Every session in progress has a thread, as long as no thread was added before for a waiter.
    // Hence the tasker is off, which would add threads for a long queue.
    let most = 4 + 1 + usize::from(CHAIN);
    let config = lab::config().max_threads(most).enable_tasker(false);
    let (threads, stats) = a_chain_unwinds("ch-r", config, 200);
    assert!(threads <= most as u64, "{threads}:\n{stats}");
    assert!(stats.get(Counter::ThreadsStartedReserve) > 0, "{stats}");
    assert!(stats.get(Counter::ThreadsLimited) > 0, "{stats}");
}

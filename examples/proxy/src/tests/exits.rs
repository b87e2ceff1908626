//! Clients that go without a word.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use epoll_group::client::{Client, Request};
use epoll_group::codec::proto::value::Scalar;
use epoll_group::stats::Counter;

use super::{World, rows, until};

/// Clients that are cut off, and sessions of each in the middle of transactions.
const ROUNDS: usize = 50;
const SESSIONS: usize = 200;

#[test]
fn ten_thousand_exits_in_transactions_leave_nothing_behind() {
    let world = World::new();
    for round in 0..ROUNDS {
        let options = world.fleet.options().connections(2);
        let client = Client::new(&world.runtime.handle(), options).expect("its options are good");
        let answered = Arc::new(AtomicUsize::new(0));
        let mut sessions = Vec::with_capacity(SESSIONS);
        for number in 0..SESSIONS {
            let mut session = client.session().expect("the proxy is there");
            session.execute_then("begin", |_| {});
            // Some wait for the right to write when they are cut, one has it.
            let id = 1 + number as i64 % 8;
            let request = if number % 10 == 0 {
                Request::sql("update sbtest1 set k = 0 where id = ?")
            } else {
                Request::sql("select k from sbtest1 where id = ?")
            };
            let answered = Arc::clone(&answered);
            session.execute_then(request.arg(Scalar::signed(id)).cached(), move |answer| {
                if answer.is_ok() {
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
            sessions.push(session);
        }
        // In the odd rounds the client closes while most requests are under way.
        if round % 2 == 0 {
            let readers = SESSIONS * 9 / 10;
            until("transactions are open", || answered.load(Ordering::Relaxed) >= readers);
        }
        client.close();
        drop(sessions);
    }
    until("the proxy has no sessions", || world.fleet.proxy.stats().sessions == 0);
    world.settled();
    // Only the sessions that the pool keeps are left at the data nodes.
    let idle = || -> usize { world.fleet.nodes.status().iter().map(|status| status.idle).sum() };
    let open = || -> u64 {
        world.fleet.primaries.iter().flatten().map(|node| node.stats().sessions).sum()
    };
    until("data nodes have closed the rest", || open() <= idle() as u64);
    let mut session = world.session();
    assert_eq!(rows(&mut session, "select sum(k) from sbtest1"), "360;");
    let stats = world.fleet.proxy.stats();
    assert!(stats.get(Counter::SessionsOpened) >= (ROUNDS * SESSIONS) as u64 / 2);
    assert_eq!(stats.get(Counter::Panics) + stats.get(Counter::RequestPanics), 0);
}

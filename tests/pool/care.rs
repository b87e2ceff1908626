//! Maintenance: connections made ahead, connections that are idle or old, unused backends.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::pool::{Discard, Observer, Pooled, Target, Version};

use crate::support::{Key, assert_at_rest, build, limits, pool, status};
use lab::{LONG, eventually};

const A: &str = "SPT0";
const SHORT: Duration = Duration::from_millis(20);

#[test]
fn some_are_made_ahead_and_replaced() {
    let (pool, fake) = pool(limits(5).min_idle(2));
    let _backend = pool.backend(&A).unwrap();
    eventually(LONG, || status(&pool, A).idle == 2);
    let held = pool.get(&A).unwrap();
    Pooled::discard(held);
    eventually(LONG, || status(&pool, A).idle == 2);
    assert_at_rest(&pool, &fake, A);
    assert_eq!(fake.made.load(SeqCst), 3);
}

#[test]
fn some_are_made_ahead_after_the_backend_was_dead() {
    let (pool, fake) = pool(limits(5).min_idle(2));
    fake.set(&fake.dead, true);
    let _backend = pool.backend(&A).unwrap();
    eventually(LONG, || fake.connects.load(SeqCst) > 3);
    assert!(fake.most_connecting.load(SeqCst) <= 2);
    fake.set(&fake.dead, false);
    eventually(LONG, || status(&pool, A).idle == 2);
}

#[test]
fn the_coldest_go_first_and_the_minimum_stays() {
    let (pool, fake) = pool(limits(4).min_idle(1).idle_timeout(SHORT));
    let [one, two, three] = [(); 3].map(|()| pool.get(&A).unwrap());
    eventually(LONG, || status(&pool, A).idle == 1);
    let hot = two.number;
    let mut cold = vec![three.number, one.number];
    let ahead = (1..=4).find(|number| *number != hot && !cold.contains(number));
    cold.insert(0, ahead.expect("there are four"));
    drop(three);
    drop(one);
    drop(two);
    eventually(LONG, || fake.closed().len() == 3);
    assert_eq!(fake.closed(), cold, "the coldest first");
    thread::sleep(SHORT * 2);
    assert_eq!(pool.get(&A).unwrap().number, hot, "one stays");
}

#[test]
fn the_old_ones_are_closed_idle_or_as_they_come_back() {
    let (pool, fake) = pool(limits(2).max_age(SHORT));
    let held = pool.get(&A).unwrap();
    drop(pool.get(&A).unwrap());
    eventually(LONG, || fake.opened() == 1);
    assert_eq!(held.number, 1);
    thread::sleep(SHORT);
    drop(held);
    assert_eq!(fake.opened(), 0);
}

/// The backend itself is looked at later.
#[test]
fn an_idle_one_is_closed_at_its_age() {
    let (pool, fake) = pool(limits(2).max_age(SHORT).unused_after(60 * LONG));
    drop(pool.get(&A).unwrap());
    eventually(LONG, || fake.opened() == 0);
}

#[test]
fn broken_ones_are_removed_on_demand_and_the_others_stay_in_order() {
    let (pool, fake) = pool(limits(3));
    let held = [(); 3].map(|()| pool.get(&A).unwrap());
    drop(held);
    fake.broken_one.store(2, SeqCst);
    assert!(pool.remove_broken(&A));
    assert_eq!((fake.closed(), status(&pool, A).idle), (vec![2], 2));
    let held = [(); 2].map(|()| pool.get(&A).unwrap());
    assert_eq!(held.each_ref().map(|conn| conn.number), [3, 1]);
    drop(held);

    pool.set_limits(limits(3).min_idle(2)).unwrap();
    fake.order_panic(&["has_broken"]);
    fake.broken_one.store(3, SeqCst);
    assert!(pool.remove_broken(&A));
    assert_eq!(fake.closed(), [2, 1, 3]);
    eventually(LONG, || status(&pool, A).idle == 2);
    assert!(!pool.remove_broken(&"other"));
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_caller_that_comes_during_a_check_gets_the_connection_checked_by_the_host() {
    let (pool, fake) = pool(limits(1).check_after(Duration::ZERO));
    drop(pool.get(&A).unwrap());
    let (answer, answers) = mpsc::channel();
    let (here, backend) = (pool.clone(), pool.backend(&A).unwrap());
    *fake.in_has_broken.lock().unwrap() = Some(Box::new(move || {
        backend.get_then(Instant::now() + LONG, move |got| {
            answer.send((got.map(|conn| conn.number), thread::current().id())).unwrap();
        });
        // Does not nest: the check that runs begins again.
        here.remove_broken(&A);
    }));
    assert!(pool.remove_broken(&A));
    let (got, by) = answers.recv_timeout(LONG).unwrap();
    assert_eq!(got.unwrap(), 1);
    assert_ne!(by, thread::current().id());
    assert_eq!(fake.checks.load(SeqCst), 1);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_backend_that_nobody_uses_vanishes() {
    let (pool, fake) = pool(limits(2).min_idle(1).unused_after(SHORT));
    drop(pool.get(&A).unwrap());
    eventually(LONG, || pool.status().is_empty() && fake.opened() == 0);
    let conn = pool.get(&A).unwrap();
    drop(conn);
    eventually(LONG, || pool.status().is_empty());
}

/// Counts the returned connections.
#[derive(Clone, Default)]
struct Returns(Arc<AtomicUsize>);

impl Observer<Key> for Returns {
    fn returned(&self, _: &Target<'_, Key>) {
        self.0.fetch_add(1, SeqCst);
    }
}

#[test]
fn the_observer_is_told_of_a_return_only_if_the_connection_is_kept() {
    let returns = Returns::default();
    let (pool, fake) = build(limits(3), |builder| builder.observer(returns.clone()));
    let [kept, surplus, paused] = [(); 3].map(|()| pool.get(&A).unwrap());
    pool.set_limits(limits(2)).unwrap();
    drop(surplus);
    assert_eq!((returns.0.load(SeqCst), fake.opened()), (0, 2), "closed: too many");
    drop(kept);
    assert_eq!((returns.0.load(SeqCst), fake.opened()), (1, 2));
    assert!(pool.pause(&A, Instant::now()).is_err());
    drop(paused);
    assert_eq!((returns.0.load(SeqCst), fake.opened()), (1, 0), "closed: paused");
}

/// Reports each connection that is about to be dropped.
struct Discards(mpsc::Sender<(Key, Discard)>);

impl Observer<Key> for Discards {
    fn discarded(&self, target: &Target<'_, Key>, why: Discard) {
        let _ = self.0.send((*target.key, why));
    }
}

#[test]
fn a_backend_that_vanishes_tells_the_observer_of_its_idle_connection() {
    let (discarded, discards) = mpsc::channel();
    let (pool, fake) =
        build(limits(1).unused_after(SHORT), |builder| builder.observer(Discards(discarded)));
    drop(pool.get(&A).unwrap());
    eventually(LONG, || pool.status().is_empty() && fake.opened() == 0);
    assert_eq!(discards.try_iter().collect::<Vec<_>>(), [(A, Discard::Closed)]);
}

#[test]
fn a_backend_with_a_handle_a_borrower_or_a_version_stays() {
    let (pool, _) = pool(limits(2).unused_after(SHORT));
    let handle = pool.backend(&"handle").unwrap();
    let conn = pool.get(&"borrower").unwrap();
    pool.fail_over(&"version", Version::default()).unwrap();
    drop(pool.get(&"nothing").unwrap());
    eventually(LONG, || pool.status_of(&"nothing").is_none());
    thread::sleep(SHORT * 3);
    assert_eq!(pool.status().len(), 3);
    drop((handle, conn));
    eventually(LONG, || pool.status().len() == 1);
    assert_eq!(status(&pool, "version").version.0, 1);
}

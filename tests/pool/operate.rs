//! Operations: pause, resume, disable, fail over, resize, retire, close; and the status of
//! connections.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use epoll_group::pool::{BackendState, Cause, GetError, Limits, PauseError, Pooled, Version};

use crate::support::{assert_at_rest, late, limits, pool, soon, status, until_waiting};
use lab::{LONG, eventually};

const A: &str = "SPT0";
const B: &str = "SPT1";

#[test]
fn a_pause_waits_for_work_in_progress() {
    let (pool, fake) = pool(limits(2));
    let held = pool.get(&A).unwrap();
    drop(pool.get(&A).unwrap());
    let here = pool.clone();
    let pause = thread::spawn(move || here.pause(&A, late()).map_err(|error| error.to_string()));
    eventually(LONG, || status(&pool, A).state == BackendState::Paused);
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).unwrap().number);
    until_waiting(&pool, A, 1);
    assert!(!pause.is_finished());
    drop(held);
    pause.join().unwrap().unwrap();
    assert_eq!(fake.opened(), 0, "nothing is kept in a pause");

    let error = pool.backend(&A).unwrap().get_before(soon()).unwrap_err();
    assert!(matches!(error, GetError::Timeout { cause: Cause::Paused, .. }), "{error}");
    assert!(!waiter.is_finished());
    assert!(pool.resume(&A));
    waiter.join().unwrap();
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn a_pause_says_who_still_has_a_connection() {
    let (pool, _) = pool(limits(2));
    let here = pool.clone();
    let name = "router-3".to_owned();
    let borrower = thread::Builder::new().name(name).spawn(move || here.get(&A).unwrap());
    let held = borrower.unwrap().join().unwrap();
    let Err(PauseError::StillHeld(holders)) = pool.pause(&A, soon()) else {
        panic!("it is held");
    };
    assert_eq!(holders.len(), 1);
    assert_eq!((holders[0].key, holders[0].thread.as_deref()), (A, Some("router-3")));
    assert_eq!(holders[0].location.file(), file!());
    assert!(holders[0].to_string().contains(" on router-3"), "{}", holders[0]);
    assert_eq!(status(&pool, A).state, BackendState::Paused, "it stays paused");
    drop(held);
    pool.pause(&A, late()).unwrap();
}

#[test]
fn a_resume_ends_the_wait_of_a_pause() {
    let (pool, _) = pool(limits(2));
    let held = pool.get(&A).unwrap();
    let (here, deadline) = (pool.clone(), late());
    let pause = thread::spawn(move || here.pause(&A, deadline));
    eventually(LONG, || status(&pool, A).state == BackendState::Paused);
    // The pause may not wait yet. Then it finds later that the backend is not paused.
    assert!(pool.resume(&A));
    assert!(matches!(pause.join().unwrap(), Err(PauseError::Interrupted)));
    assert!(Instant::now() < deadline, "it did not wait for that");
    drop(held);
}

#[test]
fn a_disabled_backend_refuses_at_once() {
    let (pool, fake) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).map(drop));
    until_waiting(&pool, A, 1);
    pool.disable(&A).unwrap();
    assert!(matches!(waiter.join().unwrap(), Err(GetError::Disabled)));
    assert!(matches!(pool.get(&A), Err(GetError::Disabled)));
    assert!(pool.get(&B).is_ok(), "the others serve");
    drop(held);
    assert_eq!(fake.closed(), [1]);
    assert!(pool.resume(&A));
    assert_eq!(pool.get(&A).unwrap().number, 3);
}

#[test]
fn a_fail_over_drains_the_old_version() {
    let (pool, fake) = pool(limits(3));
    let held = [(); 3].map(|()| pool.get(&A).unwrap());
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).unwrap());
    until_waiting(&pool, A, 1);
    let old = Pooled::version(&held[0]);
    let new = pool.fail_over(&A, old).unwrap();
    assert_eq!((old, new.0), (Version::default(), 1));
    assert_eq!(pool.fail_over(&A, old), Err(new), "who comes late moves nothing");

    let served = waiter.join().unwrap();
    assert_eq!((&*served.target, Pooled::version(&served)), ("SPT0#1", new));
    assert_ne!(Pooled::version(&held[0]), status(&pool, A).version);
    let text = status(&pool, A).to_string();
    assert!(text.starts_with("SPT0#1 (open, 1 in use, 0 idle"), "{text}");
    assert!(text.ends_with("\nSPT0#0 (leaving, 3 in use)"), "{text}");

    // Connections of the old version do not count against the maximum.
    let more = [pool.get(&A).unwrap(), pool.get(&A).unwrap()];
    drop(held);
    assert_eq!(fake.closed().len(), 3);
    assert!(status(&pool, A).leaving.is_empty());
    drop((served, more));
    assert_at_rest(&pool, &fake, A);
    assert_eq!(status(&pool, A).idle, 3);
    pool.fail_over(&A, new).unwrap();
    assert_eq!(fake.opened(), 0, "idle ones are closed at once");
}

#[test]
fn a_connect_to_the_old_version_is_of_no_use() {
    let (pool, fake) = pool(limits(1));
    fake.gate.close();
    let here = pool.clone();
    let caller = thread::spawn(move || here.get(&A).unwrap().target.clone());
    eventually(LONG, || fake.connecting.load(SeqCst) == 1);
    let new = pool.fail_over(&A, Version::default()).unwrap();
    assert_eq!(status(&pool, A).leaving[0].connecting, 1);
    fake.gate.open();
    assert_eq!(caller.join().unwrap(), "SPT0#1");
    assert_eq!(fake.targets.lock().unwrap()[..], ["SPT0#0", "SPT0#1"]);
    assert_eq!(pool.get(&A).map(|conn| Pooled::version(&conn)).unwrap(), new);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn more_connections_serve_who_waits_and_fewer_are_closed() {
    let (pool, fake) = pool(limits(1));
    let first = pool.get(&A).unwrap();
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).unwrap());
    until_waiting(&pool, A, 1);
    pool.set_limits(limits(3)).unwrap();
    let second = waiter.join().unwrap();
    let third = pool.get(&A).unwrap();
    drop((first, second));
    assert_eq!(status(&pool, A).idle, 2);
    pool.set_limits(limits(2)).unwrap();
    assert_eq!(fake.closed(), [1], "the coldest, at once");
    pool.set_limits(limits(1)).unwrap();
    assert_eq!(fake.closed(), [1, 2]);
    drop(third);
    assert_eq!(status(&pool, A).idle, 1);
    assert_at_rest(&pool, &fake, A);
}

#[test]
fn borrowed_connections_above_a_lower_maximum_are_closed_as_they_come_back() {
    let (pool, fake) = pool(limits(3));
    let held = [(); 3].map(|()| pool.get(&A).unwrap());
    pool.set_limits(limits(1)).unwrap();
    assert_eq!(fake.opened(), 3);
    drop(held);
    assert_eq!((fake.opened(), status(&pool, A).idle), (1, 1));
}

#[test]
fn limits_of_its_own_stay() {
    let (pool, _) = pool(limits(1));
    pool.set_limits_of(&A, limits(7)).unwrap();
    drop(pool.get(&B).unwrap());
    pool.set_limits(limits(5)).unwrap();
    assert_eq!((status(&pool, A).max, status(&pool, B).max), (7, 5));
    let error = pool.set_limits(limits(0)).unwrap_err();
    assert_eq!(error.to_string(), "max 0 is outside 1..=1048576");
    assert_eq!(status(&pool, B).max, 5);
}

#[test]
fn a_time_limit_that_does_not_work_as_zero_is_refused() {
    let (pool, _) = pool(limits(1));
    let setters = [Limits::wait_timeout, Limits::connect_timeout, Limits::max_age];
    for (set, field) in setters.into_iter().zip(["wait_timeout", "connect_timeout", "max_age"]) {
        for (time, text) in [(Duration::ZERO, "0ns"), (Duration::from_micros(999), "999µs")] {
            let error = pool.set_limits(set(limits(1), time)).unwrap_err();
            assert_eq!(error.to_string(), format!("{field} {text} is below 1ms"));
        }
        pool.set_limits(set(limits(1), Duration::from_millis(1))).unwrap();
    }
    let zero = limits(1).idle_timeout(Duration::ZERO).unused_after(Duration::ZERO);
    let zero = zero.check_after(Duration::ZERO).backoff(Duration::ZERO, Duration::ZERO);
    pool.set_limits_of(&A, zero).unwrap();
}

#[test]
fn a_retired_backend_is_forgotten() {
    let (pool, fake) = pool(limits(1));
    let held = pool.get(&A).unwrap();
    let backend = pool.backend(&A).unwrap();
    let here = backend.clone();
    let waiter = thread::spawn(move || here.get().map(drop));
    until_waiting(&pool, A, 1);
    assert!(pool.retire(&A));
    assert!(!pool.retire(&A));
    assert!(matches!(waiter.join().unwrap(), Err(GetError::Closed)));
    assert!(matches!(backend.get(), Err(GetError::Closed)));
    assert_eq!(pool.get(&A).unwrap().number, 2, "a new one");
    drop(held);
    assert_eq!(fake.closed(), [1]);
}

#[test]
fn a_pool_that_is_dropped_while_others_wait_refuses_them() {
    let (pool, fake) = pool(limits(1));
    let backend = pool.backend(&A).unwrap();
    let held = backend.get().unwrap();
    let waiter = thread::spawn(move || backend.get().map(drop));
    until_waiting(&pool, A, 1);
    drop(pool);
    assert!(matches!(waiter.join().unwrap(), Err(GetError::Closed)));
    drop(held);
    assert_eq!(fake.opened(), 0);
}

#[test]
fn a_close_says_what_is_left() {
    let (pool, fake) = pool(limits(2));
    let held = pool.get(&A).unwrap();
    drop(pool.get(&B).unwrap());
    let report = pool.close(soon());
    assert_eq!((report.held.len(), report.connecting), (1, 0));
    assert_eq!(report.held[0].key, A);
    assert!(matches!(pool.get(&B), Err(GetError::Closed)));
    assert!(matches!(pool.get(&"new"), Err(GetError::Closed)));
    drop(held);
    assert!(pool.close(late()).held.is_empty());
    assert_eq!(fake.opened(), 0);
}

#[test]
fn a_close_counts_the_connects_of_old_versions() {
    let (pool, fake) = pool(limits(1));
    fake.gate.close();
    let here = pool.clone();
    let waiter = thread::spawn(move || here.get(&A).map(drop));
    fake.gate.wait_for(1);
    pool.fail_over(&A, Version::default()).unwrap();
    let begun = status(&pool, A).connecting + 1;
    assert_eq!(pool.close(soon()).connecting, begun);
    fake.gate.open();
    assert!(matches!(waiter.join().unwrap(), Err(GetError::Closed)));
}

#[test]
fn leaks_are_found_with_where_they_were_asked_for() {
    let (pool, _) = pool(limits(2));
    let began = Instant::now();
    let held = [pool.get(&B).unwrap(), pool.get(&A).unwrap()];
    let leaks = pool.leaks(Duration::ZERO);
    assert_eq!(leaks.iter().map(|leak| leak.key).collect::<Vec<_>>(), [B, A]);
    assert_eq!(leaks[0].location.line(), leaks[1].location.line());
    assert!(leaks[0].held_for <= began.elapsed());
    assert!(pool.leaks(Duration::from_secs(3600)).is_empty());
    drop(held);
    assert!(pool.leaks(Duration::ZERO).is_empty());
}

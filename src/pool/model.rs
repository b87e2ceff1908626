//! Loom models of a backend: callers, borrowers and an operator, on the shipped code. They leave
//! out time: a wait with a deadline times out at once, the host connects immediately, and `due` is
//! never called later.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{self, Duration};

use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::{Backend, BackendState, GetError, Host, Limits, Manage, Pool, Pooled, Target};
use crate::sync::mutant::{explore, mutants};
use crate::sys::clock::Instant;

/// Makes connections 1, 2, 3 …
#[derive(Default)]
struct Numbers(AtomicU32);

impl Manage for Numbers {
    type Key = u8;
    type Connection = u32;
    type Error = &'static str;

    fn connect(&self, _: &Target<'_, u8>, _: time::Instant) -> Result<u32, &'static str> {
        Ok(self.0.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

struct AtOnce;

impl Host for AtOnce {
    fn spawn(&self, code: Box<dyn FnOnce() + Send>) {
        code();
    }

    fn after(&self, _: Duration, _: Box<dyn FnOnce() + Send>) {}
}

/// One backend with one place, and its connection.
fn one() -> (Pool<Numbers>, Backend<Numbers>, Pooled<Numbers>) {
    let limits = Limits::default().max(1).wait_timeout(Duration::MAX).check_after(Duration::MAX);
    let builder = Pool::builder(Numbers::default()).limits(limits).maintained_by(AtOnce);
    let pool = builder.build().expect("within the ranges");
    let backend = pool.backend(&7).expect("open");
    let conn = backend.get().expect("it connects");
    (pool, backend, conn)
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn assert_at_rest(backend: &Backend<Numbers>, idle: usize) {
    let status = backend.status();
    let found = (status.idle, status.in_use, status.connecting, status.waiting);
    assert_eq!(found, (idle, 0, 0, 0), "at rest");
}

#[test]
fn model_return_is_seen() {
    explore(|| {
        let (_pool, backend, conn) = one();
        let here = backend.clone();
        let waiter = thread::spawn(move || *here.get().expect("no deadline"));
        drop(conn);
        assert_eq!(waiter.join().expect("no panic"), 1);
        assert_at_rest(&backend, 1);
    });
}

#[test]
fn model_hand_off_is_not_lost() {
    explore(|| {
        let (_pool, backend, conn) = one();
        let here = backend.clone();
        let hasty = thread::spawn(move || match here.get_before(far().into()) {
            Ok(conn) => assert_eq!(*conn, 1),
            Err(error) => assert!(matches!(error, GetError::Timeout { .. })),
        });
        let here = backend.clone();
        let patient = thread::spawn(move || *here.get().expect("no deadline"));
        drop(conn);
        hasty.join().expect("no panic");
        assert_eq!(patient.join().expect("no panic"), 1);
        assert_at_rest(&backend, 1);
    });
}

#[test]
fn model_death_lets_all_connect() {
    explore(|| {
        let (_pool, backend, conn) = one();
        let waiters = [(); 2].map(|()| {
            let here = backend.clone();
            thread::spawn(move || Pooled::detach(here.get().expect("no deadline")))
        });
        Pooled::discard(conn);
        let numbers = waiters.map(|waiter| waiter.join().expect("no panic"));
        assert_eq!(numbers.iter().sum::<u32>(), 5, "2 and 3: the first is not handed out again");
        assert_at_rest(&backend, 0);
    });
}

#[test]
fn model_pause_comes_to_rest() {
    explore(|| {
        let (pool, backend, conn) = one();
        let here = backend.clone();
        let caller = thread::spawn(move || drop(here.get().expect("no deadline")));
        let here = backend.clone();
        let operator = thread::spawn(move || {
            here.inner.set_state(BackendState::Paused);
            assert!(here.inner.wait_quiet(BackendState::Paused, None));
            let status = here.status();
            assert_eq!((status.in_use, status.idle), (0, 0), "nothing is kept in a pause");
            pool.resume(&7);
            pool
        });
        drop(conn);
        caller.join().expect("no panic");
        let pool = operator.join().expect("no panic");
        let status = backend.status();
        assert_eq!((status.in_use, status.waiting), (0, 0));
        drop(pool);
    });
}

#[test]
fn model_old_version_is_not_used_again() {
    explore(|| {
        let (pool, backend, conn) = one();
        let here = backend.clone();
        let caller = thread::spawn(move || {
            let conn = here.get().expect("no deadline");
            (Pooled::version(&conn).0, *conn)
        });
        let old = Pooled::version(&conn);
        let operator = thread::spawn(move || {
            pool.fail_over(&7, old).expect("nobody else does");
            pool
        });
        drop(conn);
        let got = caller.join().expect("no panic");
        assert!(got == (0, 1) || got == (1, 2), "{got:?}: of its version");
        let pool = operator.join().expect("no panic");
        assert_eq!(backend.status().leaving.len(), 0);
        let conn = backend.get().expect("no deadline");
        assert_eq!((Pooled::version(&conn).0, *conn), (1, 2));
        drop(conn);
        drop(pool);
    });
}

#[test]
fn model_drop_refuses_who_waits() {
    explore(|| {
        let (pool, backend, conn) = one();
        let here = backend.clone();
        let waiter = thread::spawn(move || here.get().map(|conn| *conn));
        drop(pool);
        drop(conn);
        let got = waiter.join().expect("no panic");
        assert!(matches!(got, Err(GetError::Closed)), "{got:?}");
        assert_at_rest(&backend, 0);
    });
}

#[test]
fn model_new_backend_misses_no_limits() {
    explore(|| {
        let pool = Pool::builder(Numbers::default()).maintained_by(AtOnce).build().expect("open");
        let here = pool.clone();
        let caller = thread::spawn(move || drop(here.backend(&7).expect("open")));
        pool.set_limits_of(&7, Limits::default().max(3)).expect("within the ranges");
        caller.join().expect("no panic");
        assert_eq!(pool.status_of(&7).map(|status| status.max), Some(3), "limits of its own");
    });
}

/// A manager with one connection, which breaks.
struct Breaks(Arc<AtomicBool>);

impl Manage for Breaks {
    type Key = u8;
    type Connection = ();
    type Error = &'static str;

    fn connect(&self, _: &Target<'_, u8>, _: time::Instant) -> Result<(), &'static str> {
        Ok(())
    }

    fn has_broken(&self, _: &Target<'_, u8>, (): &mut ()) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn model_break_is_seen_beside_another_check() {
    explore(|| {
        let is_broken = Arc::new(AtomicBool::new(false));
        let builder = Pool::builder(Breaks(Arc::clone(&is_broken))).maintained_by(AtOnce);
        let pool = builder.build().expect("within the ranges");
        let backend = pool.backend(&7).expect("open");
        drop(backend.get().expect("it connects"));
        let here = backend.clone();
        let other = thread::spawn(move || here.inner.remove_broken());
        is_broken.store(true, Ordering::Relaxed);
        backend.inner.remove_broken();
        other.join().expect("no panic");
        let status = backend.status();
        assert_eq!((status.idle, status.in_use), (0, 0), "nothing broken is idle");
    });
}

mutants! {
    wait_without_another_look: WaitWithoutLook, model_return_is_seen(), "deadlock";
    return_to_idle_only: ReturnServesNobody, model_return_is_seen(), "deadlock";
    deadline_drops_what_is_on_its_way: ExpiryIgnoresGrant, model_hand_off_is_not_lost(), "at rest";
    death_unseen: DeathServesNobody, model_death_lets_all_connect(), "deadlock";
    return_in_a_pause: PauseHandsOver, model_pause_comes_to_rest(), "nothing is kept in a pause";
    quiet_unseen: QuietUntold, model_pause_comes_to_rest(), "deadlock";
    old_version_kept: OldVersionKept, model_old_version_is_not_used_again(), "left == right";
    break_unseen: CheckOnce, model_break_is_seen_beside_another_check(), "nothing broken is idle";
    close_forgets_who_waits: CloseForgets, model_drop_refuses_who_waits(), "deadlock";
}

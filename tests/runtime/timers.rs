//! Timers: never early, never lost, in order, cancellable, whatever the workers do at the moment.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use epoll_group::stats::Counter;
use lab::workers::{Gate, all_rest, only_one_worker, workers};
use lab::{LONG, assert_clean, eventually};

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_timer_fires_once_not_early_and_not_much_late() {
    let runtime = workers(2);
    for delay in [Duration::ZERO, MS, 7 * MS, 40 * MS] {
        let (tell, told) = mpsc::channel();
        let set = Instant::now();
        runtime
            .handle()
            .after(delay, move || tell.send(Instant::now()).expect("waited for"))
            .detach();
        let fired = told.recv_timeout(LONG).expect("it fires") - set;
        assert!(fired >= delay, "{fired:?} is before {delay:?}");
        assert!(fired < delay + 2000 * MS, "{fired:?} is long after {delay:?}");
        assert!(told.recv().is_err(), "it fired once");
    }
    assert_eq!(runtime.stats().get(Counter::TimersFired), 4);
    assert_eq!(runtime.stats().timers_pending, 0);
}

#[test]
fn an_earlier_timer_that_is_set_later_does_not_wait_for_the_first() {
    let runtime = workers(1);
    runtime.handle().after(3600 * 1000 * MS, || unreachable!("in an hour")).detach();
    let (tell, told) = mpsc::channel();
    runtime.handle().after(MS, move || tell.send(()).expect("waited for")).detach();
    told.recv_timeout(LONG).expect("it fires");
    assert_eq!(runtime.stats().timers_pending, 1);
}

#[test]
fn a_repeating_timer_repeats_at_its_distance_until_it_is_cancelled() {
    let runtime = workers(2);
    let (tell, told) = mpsc::channel();
    let set = Instant::now();
    let timer = runtime.handle().every(2 * MS, move || {
        let _ = tell.send(Instant::now());
    });
    let mut before = set;
    for _ in 0..50 {
        let fired = told.recv_timeout(LONG).expect("it goes on");
        assert!(fired - before >= 2 * MS - MS / 2, "too early after the last one");
        before = fired;
    }
    assert!(before - set >= 100 * MS);
    assert!(timer.cancel());
    assert!(!timer.cancel(), "it was cancelled before");
    // The closure is dropped, and its sender with it.
    eventually(LONG, || matches!(told.try_recv(), Err(mpsc::TryRecvError::Disconnected)));
    all_rest(&runtime);
    assert_eq!(runtime.stats().timers_pending, 0);
}

#[test]
fn a_slow_repeating_timer_does_not_overlap_itself() {
    let runtime = workers(4);
    let inside = Arc::new(AtomicUsize::new(0));
    let (tell, told) = mpsc::channel();
    let timer = runtime.handle().every(MS, move || {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        std::thread::park_timeout(4 * MS);
        inside.fetch_sub(1, Ordering::SeqCst);
        let _ = tell.send(());
    });
    for _ in 0..20 {
        told.recv_timeout(LONG).expect("it goes on");
    }
    timer.cancel();
    assert_eq!(runtime.stats().get(Counter::Panics), 0);
}

#[test]
fn a_cancelled_timer_does_not_fire_and_frees_its_closure_at_once() {
    let runtime = workers(2);
    let held = Arc::new(());
    let kept = Arc::clone(&held);
    let timer = runtime.handle().after(LONG, move || drop(kept));
    assert_eq!(Arc::strong_count(&held), 2);
    assert!(timer.cancel());
    assert_eq!(Arc::strong_count(&held), 1);
    assert!(!timer.cancel());
    let stats = runtime.stats();
    assert_eq!((stats.timers_pending, stats.get(Counter::TimersCancelled)), (0, 1));
}

#[test]
fn cancelling_a_timer_that_runs_or_has_run_says_so() {
    let runtime = workers(2);
    let gate = Gate::default();
    let inside = gate.clone();
    let timer = runtime.handle().after(Duration::ZERO, move || inside.pass());
    gate.wait_for(1);
    assert!(!timer.cancel(), "it is running");
    gate.open();
    all_rest(&runtime);
    assert!(!timer.cancel(), "it has run");
    assert_eq!(runtime.stats().get(Counter::TimersCancelled), 0);
}

#[test]
fn a_repeating_timer_can_be_cancelled_by_itself() {
    let runtime = workers(2);
    let own = Arc::new(Mutex::new(None::<epoll_group::Timer>));
    let (tell, told) = mpsc::channel();
    let mut runs = 0;
    let mine = Arc::clone(&own);
    *own.lock().expect("no panic") = Some(runtime.handle().every(MS, move || {
        runs += 1;
        if runs == 3 {
            let guard = mine.lock().expect("no panic");
            assert!(guard.as_ref().expect("set before").cancel());
        }
        tell.send(runs).expect("waited for");
    }));
    assert_eq!(told.iter().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_cancel_that_races_with_the_deadline_has_one_outcome() {
    let runtime = workers(2);
    for round in 0..2000 {
        let ran = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&ran);
        let delay = Duration::from_micros(round % 40 * 50);
        let timer = runtime.handle().after(delay, move || {
            counted.fetch_add(1, Ordering::SeqCst);
        });
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        let cancelled = timer.cancel();
        // The closure is dropped after its run, or without one.
        eventually(LONG, || Arc::strong_count(&ran) == 1);
        assert_eq!(ran.load(Ordering::SeqCst), usize::from(!cancelled), "cancelled: {cancelled}");
    }
}

#[test]
fn dropping_a_timer_cancels_it_and_frees_its_closure() {
    let runtime = workers(1);
    let handle = runtime.handle();
    let held = Arc::new(());
    let (once, again) = (Arc::clone(&held), Arc::clone(&held));
    drop(handle.after(LONG, move || drop(once)));
    drop(handle.every(LONG, move || drop(Arc::clone(&again))));
    assert_eq!(Arc::strong_count(&held), 1);
    let stats = runtime.stats();
    assert_eq!((stats.timers_pending, stats.get(Counter::TimersCancelled)), (0, 2));
}

#[test]
fn a_detached_timer_fires() {
    let runtime = workers(1);
    let (tell, told) = mpsc::channel();
    runtime.handle().after(5 * MS, move || tell.send(()).expect("waited for")).detach();
    told.recv_timeout(LONG).expect("it fires");
    assert_eq!(runtime.stats().get(Counter::TimersCancelled), 0);
}

#[test]
fn timers_fire_in_the_order_of_their_deadlines_under_load() {
    const TIMERS: u32 = 200;
    let runtime = only_one_worker();
    let handle = runtime.handle();
    let busy = Arc::new(AtomicUsize::new(1));
    let (tell, told) = mpsc::channel();
    for timer in (0..TIMERS).rev() {
        let tell = tell.clone();
        let delay = 20 * MS + MS * timer * 2;
        let (set, known) = (Instant::now(), mpsc::channel());
        let code = move || {
            let latest = known.1.recv().expect("told below");
            tell.send((set + delay, latest)).expect("waited for");
        };
        handle.after(delay, code).detach();
        known.0.send(Instant::now() + delay).expect("the timer waits");
    }
    drop(tell);
    for _ in 0..8 {
        keep_busy(&handle, &busy);
    }
    let mut before = None;
    let mut fired = 0;
    for (earliest, latest) in told {
        // Setting may have been interrupted, so each deadline is known within bounds only.
        assert!(before <= Some(latest), "after one with a later deadline");
        before = before.max(Some(earliest));
        fired += 1;
    }
    busy.store(0, Ordering::Relaxed);
    assert_eq!(fired, TIMERS);
}

/// A task that spawns itself again.
fn keep_busy(handle: &epoll_group::Handle, busy: &Arc<AtomicUsize>) {
    let (again, more) = (handle.clone(), Arc::clone(busy));
    let _ = handle.spawn(move || {
        if more.load(Ordering::Relaxed) > 0 {
            keep_busy(&again, &more);
        }
    });
}

#[test]
fn thousands_of_timers_fire_each_once_and_none_early() {
    const TIMERS: usize = 20_000;
    let runtime = workers(4);
    let handle = runtime.handle();
    let (tell, told) = mpsc::channel();
    for timer in 0..TIMERS {
        let tell = tell.clone();
        let deadline = Instant::now() + Duration::from_micros((timer * 7919 % 50_000) as u64);
        let delay = deadline.saturating_duration_since(Instant::now());
        let set = Instant::now();
        let code = move || {
            tell.send((timer, set.elapsed() >= delay)).expect("waited for");
        };
        handle.after(delay, code).detach();
    }
    drop(tell);
    let mut fired = vec![0; TIMERS];
    for (timer, in_time) in &told {
        assert!(in_time, "timer {timer} was early");
        fired[timer] += 1;
    }
    assert!(fired.iter().all(|times| *times == 1));
    assert_eq!(runtime.stats().get(Counter::TimersFired), TIMERS as u64);
}

#[test]
fn a_timer_in_the_far_future_is_kept_and_does_no_harm() {
    let runtime = workers(2);
    let handle = runtime.handle();
    let far = [Duration::MAX, Duration::from_secs(1 << 40), Duration::from_secs(400 * 24 * 3600)];
    let timers = far.map(|delay| handle.after(delay, || unreachable!("not in our time")));
    let (tell, told) = mpsc::channel();
    handle.after(2 * MS, move || tell.send(()).expect("waited for")).detach();
    told.recv_timeout(LONG).expect("the near one fires");
    all_rest(&runtime);
    let stats = runtime.stats();
    assert_eq!((stats.get(Counter::TimersFired), stats.timers_pending), (1, 3));
    assert_eq!(timers.map(|timer| timer.cancel()), [true; 3]);
}

#[test]
fn timers_fire_while_all_workers_but_one_are_blocked() {
    let runtime = workers(4);
    let gate = Gate::default();
    for _ in 0..3 {
        let gate = gate.clone();
        runtime.handle().after(Duration::ZERO, move || gate.pass()).detach();
    }
    gate.wait_for(3);
    for _ in 0..50 {
        let (tell, told) = mpsc::channel();
        runtime.handle().after(MS, move || tell.send(()).expect("waited for")).detach();
        told.recv_timeout(LONG).expect("it fires");
    }
    gate.open();
}

#[test]
fn the_end_of_the_runtime_drops_the_closures_of_timers_that_never_fired() {
    let runtime = workers(2);
    let handle = runtime.handle();
    let held = Arc::new(());
    let (once, again) = (Arc::clone(&held), Arc::clone(&held));
    // Closures that hold a handle of their own runtime, as most do.
    let mine = handle.clone();
    let first = handle.after(LONG, move || drop((once, mine)));
    let mine = handle.clone();
    let second = handle.every(LONG, move || drop((Arc::clone(&again), mine.clone())));
    assert_clean(&runtime.drain(LONG));
    eventually(LONG, || Arc::strong_count(&held) == 1);
    assert!(!first.cancel() && !second.cancel());
    // A timer set after the end never fires, and its closure is not kept.
    let late = Arc::clone(&held);
    handle.after(Duration::ZERO, move || drop(late)).detach();
    eventually(LONG, || Arc::strong_count(&held) == 1);
}

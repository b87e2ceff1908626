//! Loom models of the [`Watch`]: the watchdog lies down while the last worker gets up, or while it is
//! told to stop. One that is not woken sleeps for ever, which loom calls a deadlock. Left out: the
//! length of its naps (a limited wait is over at once).

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;
use crate::runtime::park::{Demand, Park};
use crate::sync::mutant::{explore, mutants};

const CALM: Demand = Demand { pollers: 1, all_wait: false };

/// What a worker does when it is woken, and how the watchdog looks at it.
fn somebody_gets_up() {
    explore(|| {
        let (park, watch) = (Arc::new(Park::new()), Arc::new(Watch::new()));
        let rest = park.rest(false, CALM);
        let (park_2, watch_2) = (Arc::clone(&park), Arc::clone(&watch));
        let worker = thread::spawn(move || {
            park_2.rise(rest);
            mutant!(watch_2.alert(), RiseWithoutAlert => ());
        });
        let woke = watch.sleep(Duration::ZERO, || park.resting() == 1);
        assert_ne!(woke, Woke::Stop);
        worker.join().expect("no panic");
    });
}

/// A task is pushed when the one worker has said that it rests: it sees it and gets up at once, or it
/// sleeps and is woken. Then the task never returns, and the watchdog has to know that somebody runs it.
fn somebody_finds_work_lying_down() {
    explore(|| {
        let (park, watch) = (Arc::new(Park::new()), Arc::new(Watch::new()));
        let queued = Arc::new(AtomicBool::new(false));
        let (park_2, watch_2, queued_2) =
            (Arc::clone(&park), Arc::clone(&watch), Arc::clone(&queued));
        let rest = park.rest(false, Demand::NO_POLLER);
        let worker = thread::spawn(move || {
            if queued_2.load(Ordering::Acquire) {
                park_2.rise(rest);
                mutant!(watch_2.alert(), RiseAtOnceWithoutAlert => ());
            } else {
                let _ = park_2.sleep(rest, None);
                park_2.rise(rest);
                watch_2.alert();
            }
        });
        let (park_3, queued_3) = (Arc::clone(&park), Arc::clone(&queued));
        let pusher = thread::spawn(move || {
            queued_3.store(true, Ordering::Release);
            if let Some(wake) = park_3.wake() {
                park_3.post(wake);
            }
        });
        let all_rest = || park.resting() == 1 && !queued.load(Ordering::Acquire);
        assert_ne!(watch.sleep(Duration::ZERO, all_rest), Woke::Stop);
        worker.join().expect("no panic");
        pusher.join().expect("no panic");
    });
}

fn told_to_stop() {
    explore(|| {
        let watch = Arc::new(Watch::new());
        let watch_2 = Arc::clone(&watch);
        let other = thread::spawn(move || watch_2.stop());
        assert_eq!(watch.sleep(Duration::ZERO, || true), Woke::Stop);
        other.join().expect("no panic");
    });
}

#[test]
fn whoever_gets_up_wakes_the_watchdog() {
    somebody_gets_up();
}

#[test]
fn whoever_finds_work_lying_down_wakes_the_watchdog() {
    somebody_finds_work_lying_down();
}

#[test]
fn a_stop_wakes_the_watchdog() {
    told_to_stop();
}

mutants! {
    nobody_alerts: RiseWithoutAlert, somebody_gets_up(), "deadlock";
    nobody_alerts_at_once: RiseAtOnceWithoutAlert, somebody_finds_work_lying_down(), "deadlock";
    the_flag_is_not_seen: WatchWithoutFence, somebody_gets_up(), "deadlock";
    the_rise_is_not_seen: RiseWithoutFence, somebody_gets_up(), "deadlock";
}

//! Loom models of the [`Watch`]. The watchdog falls asleep while a worker begins to run or to hold
//! something, or while the runtime ends. If the watchdog is not woken, it sleeps for ever, which loom
//! calls a deadlock. Left out: naps and limits, which end by themselves.

use loom::sync::Arc;
use loom::sync::atomic::AtomicBool;
use loom::thread;

use super::*;
use crate::runtime::aside::Aside;
use crate::runtime::park::{Demand, Park, Rest, Wake};
use crate::runtime::seat::SeatState;
use crate::sync::mutant::{explore, mutants};

const CALM: Demand = Demand { pollers: 1, all_wait: false };

/// A worker and the watchdog of its runtime.
struct Both {
    park: Park,
    seat: SeatState,
    aside: Aside<()>,
    events: AtomicBool,
    watch: Watch,
}

impl Both {
    fn new() -> Arc<Self> {
        let (park, seat) = (Park::new(), SeatState::default());
        let events = AtomicBool::new(false);
        Arc::new(Self { park, seat, aside: Aside::new(), events, watch: Watch::new() })
    }

    /// `Worker::rise`.
    fn rise(&self, rest: Rest) {
        self.seat.run(rest == Rest::Wait);
        self.park.rise(rest);
        mutant!(self.watch.alert(), RiseWithoutAlert => ());
    }

    /// `Group::show_to_watchdog`.
    fn show(&self) {
        mutant!(fence(Ordering::SeqCst), ShowWithoutFence => ());
        self.watch.alert();
    }

    /// `Group::any_holds`.
    fn holds(&self) -> bool {
        let events = || self.events.load(Ordering::Relaxed);
        self.seat.runs() && (self.seat.has_permit() || !self.aside.is_empty() || events())
    }
}

/// Runs the worker beside a watchdog that falls asleep while `quiet` returns true.
fn beside(
    both: &Arc<Both>,
    quiet: impl Fn(&Both) -> bool,
    worker: impl FnOnce(&Both) + Send + 'static,
) {
    let here = Arc::clone(both);
    let worker = thread::spawn(move || worker(&here));
    assert_eq!(both.watch.sleep(None, || quiet(both)), Woke::Alerted);
    worker.join().expect("no panic");
}

/// The watchdog sleeps while all workers rest, and the last worker ends its rest.
fn a_worker_gets_up() {
    explore(|| {
        let both = Both::new();
        let rest = both.park.rest(false, CALM);
        beside(&both, |both| both.park.resting() == 1, move |both| both.rise(rest));
    });
}

/// The watchdog sleeps beside a handler that holds nothing. Another worker ends its rest, with the
/// permit.
fn a_worker_gets_up_with_the_permit() {
    explore(|| {
        let both = Both::new();
        let rest = both.park.rest(false, CALM);
        beside(&both, |both| !both.holds(), move |both| both.rise(rest));
    });
}

/// The watchdog sleeps beside a handler that holds nothing, and that handler sets work aside.
fn work_is_set_aside() {
    explore(|| {
        let both = Both::new();
        both.seat.run(false);
        beside(
            &both,
            |both| !both.holds(),
            |both| {
                both.aside.put(());
                both.show();
            },
        );
    });
}

/// A worker gets up with the permit, takes events, and gives the permit up for the first of them. The
/// watchdog, which may see that it has no permit any more, has to see the events.
fn events_are_taken_before_the_permit_is_given_up() {
    explore(|| {
        let both = Both::new();
        let rest = both.park.rest(false, CALM);
        beside(
            &both,
            |both| !both.holds(),
            move |both| {
                both.rise(rest);
                // `Event::put`.
                both.events.store(true, Ordering::Release);
                mutant!(both.show(), EventsNotShown => ());
                if both.seat.take_permit() {
                    both.park.give_permit();
                }
            },
        );
    });
}

/// A task is pushed when the only worker has announced its rest. The worker sees the task and ends its
/// rest at once, or it sleeps and is woken. Then the task never returns, and the watchdog must see that
/// a worker runs it.
fn a_worker_finds_work_when_it_comes_to_rest() {
    explore(|| {
        let both = Both::new();
        let queued = Arc::new(AtomicBool::new(false));
        let rest = both.park.rest(false, Demand { pollers: 0, all_wait: false });
        let (here, queued_2) = (Arc::clone(&both), Arc::clone(&queued));
        let worker = thread::spawn(move || {
            if !queued_2.load(Ordering::Acquire) {
                let _ = here.park.sleep(None);
            }
            here.rise(rest);
        });
        let (here, queued_3) = (Arc::clone(&both), Arc::clone(&queued));
        let pusher = thread::spawn(move || {
            queued_3.store(true, Ordering::Release);
            if here.park.wake() == Some(Wake::Sleeper) {
                here.park.post();
            }
        });
        let all_rest = || both.park.resting() == 1 && !queued.load(Ordering::Acquire);
        assert_eq!(both.watch.sleep(None, all_rest), Woke::Alerted);
        worker.join().expect("no panic");
        pusher.join().expect("no panic");
    });
}

fn the_runtime_ends() {
    explore(|| {
        let watch = Arc::new(Watch::new());
        let watch_2 = Arc::clone(&watch);
        let other = thread::spawn(move || watch_2.stop());
        assert_eq!(watch.sleep(None, || true), Woke::Stopped);
        other.join().expect("no panic");
    });
}

#[test]
fn a_worker_that_gets_up_wakes_the_watchdog() {
    a_worker_gets_up();
}

#[test]
fn a_worker_that_gets_up_with_the_permit_wakes_the_watchdog() {
    a_worker_gets_up_with_the_permit();
}

#[test]
fn events_wake_the_watchdog_also_without_the_permit() {
    events_are_taken_before_the_permit_is_given_up();
}

#[test]
fn stealable_work_wakes_the_watchdog() {
    work_is_set_aside();
}

#[test]
fn a_worker_that_finds_work_wakes_the_watchdog() {
    a_worker_finds_work_when_it_comes_to_rest();
}

#[test]
fn a_stop_wakes_the_watchdog() {
    the_runtime_ends();
}

mutants! {
    rise_without_alert: RiseWithoutAlert, a_worker_gets_up(), "deadlock";
    rise_with_work_without_alert: RiseWithoutAlert, a_worker_finds_work_when_it_comes_to_rest(), "deadlock";
    sleep_without_fence: WatchWithoutFence, a_worker_gets_up(), "deadlock";
    rise_without_fence: RiseWithoutFence, a_worker_gets_up_with_the_permit(), "deadlock";
    events_not_shown: EventsNotShown, events_are_taken_before_the_permit_is_given_up(), "deadlock";
    show_without_fence: ShowWithoutFence, work_is_set_aside(), "deadlock";
}

//! Loom models of the [`Alarm`]: an insert, the worker that takes due timers, and a cancellation
//! run at the same time. The kernel is a clock and one timer. Time moves in two steps, so each
//! reading of the clock may be old. Left out: the sweeps of the heap (it is pure, and tested so).

use std::time::Duration;

use loom::sync::{Arc, Mutex};
use loom::thread;

use super::{Alarm, Arm};
use crate::sync::mutant::{explore, mutants};
use crate::sys::clock::Instant;

/// Milliseconds since the start of the model.
type Millis = u64;

#[derive(Default)]
struct Timer {
    now: Millis,
    expires: Option<Millis>,
    /// An expiry that no worker received yet.
    edge: bool,
}

#[derive(Clone, Default)]
struct Kernel(Arc<Mutex<Timer>>);

impl Arm for Kernel {
    fn arm(&self, delay: Duration) {
        let mut timer = self.0.lock().expect("no panic");
        let delay = Millis::try_from(delay.as_millis()).expect("short");
        timer.expires = Some(timer.now + delay);
        timer.edge = false;
    }
}

impl Kernel {
    fn now(&self) -> Millis {
        self.0.lock().expect("no panic").now
    }

    fn advance(&self, now: Millis) {
        let mut timer = self.0.lock().expect("no panic");
        timer.now = now;
        if timer.expires.is_some_and(|expires| expires <= now) {
            timer.expires = None;
            timer.edge = true;
        }
    }

    fn take_edge(&self) -> bool {
        std::mem::take(&mut self.0.lock().expect("no panic").edge)
    }
}

struct Group {
    start: Instant,
    kernel: Kernel,
    alarm: Alarm<char, Kernel>,
}

impl Group {
    fn at(&self, millis: Millis) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    /// A worker that reads `now` from the clock.
    fn poll(&self, now: Millis) -> Vec<char> {
        let mut due = Vec::new();
        self.kernel.advance(now);
        if self.kernel.take_edge() {
            let now = self.kernel.now();
            let _ = self.alarm.take_due(self.at(now), &mut due);
        }
        due.into_iter().map(|(_, what)| what).collect()
    }
}

fn insert_take_cancel() {
    explore(|| {
        let kernel = Kernel::default();
        let (start, alarm) = (Instant::now(), Alarm::new(kernel.clone()));
        let group = Arc::new(Group { start, kernel, alarm });
        let (a, _) = group.alarm.insert(group.at(20), start, 'a');
        let _ = group.alarm.insert(group.at(1000), start, 'c');

        let here = Arc::clone(&group);
        let worker = thread::spawn(move || here.poll(25));
        let here = Arc::clone(&group);
        let canceller = thread::spawn(move || here.alarm.cancel(a));
        let now = group.kernel.now();
        let _ = group.alarm.insert(group.at(40), group.at(now), 'b');

        let mut out = worker.join().expect("no panic");
        out.extend(canceller.join().expect("no panic"));
        // An old reading delays the kernel's timer by its age, 25 ms at most.
        let armed = {
            let timer = group.kernel.0.lock().expect("no panic");
            timer.edge || timer.expires.is_some_and(|expires| expires <= 40 + 25 + 1)
        };
        assert!(armed, "the kernel's timer is not set for the earliest deadline");
        for now in [70, 140] {
            out.extend(group.poll(now));
        }
        out.sort_unstable();
        assert_eq!(out, ['a', 'b'], "each once, fired or cancelled");
        assert_eq!(group.alarm.len(), 1);
        assert!(group.kernel.0.lock().expect("no panic").expires.is_some(), "c is waited for");
    });
}

#[test]
fn timers() {
    insert_take_cancel();
}

mutants! {
    kernel_told_out_of_order: ArmAfterUnlock, insert_take_cancel(), "the kernel's timer is not set";
    expired_timer_taken_for_armed: ArmedIsKept, insert_take_cancel(), "the kernel's timer is not set";
    later_timer_taken_for_soon_enough: LaterIsKept, insert_take_cancel(), "the kernel's timer is not set";
}

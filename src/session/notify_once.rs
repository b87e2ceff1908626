//! [`NotifyOnce`]: coalesces the notifications of many senders to one receiver.
#![forbid(unsafe_code)]

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicBool, Ordering};

/// The first sender after each look notifies the receiver. Later senders rely on that notification.
///
/// Invariant: while the flag is set, a notification is pending or the receiver has not looked yet.
#[derive(Debug, Default)]
pub(super) struct NotifyOnce(AtomicBool);

impl NotifyOnce {
    /// Marks a change. Returns true if the caller must notify the receiver.
    #[must_use]
    pub(super) fn mark(&self) -> bool {
        // AcqRel: pairs with `clear`. Either the receiver sees the change, or this call returns
        // true.
        !self.0.swap(true, mutant!(Ordering::AcqRel, NotifyRelaxed => Ordering::Relaxed))
    }

    /// Called by the receiver before it looks. Changes marked from now on notify again.
    pub(super) fn clear(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }

    pub(super) fn is_marked(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Called by the receiver when it stops looking. No later change notifies.
    pub(super) fn close(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod model {
    //! A relay whose frames come from another thread, run by the session's [`Runner`] as shipped.
    //! The frames are relaxed flags, so only [`NotifyOnce`] orders them. Left out: two concurrent
    //! senders (a relay has one source), and the end of the relay.

    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicBool, Ordering};
    use loom::thread;

    use super::NotifyOnce;
    use crate::sync::mutant::{explore, mutant, mutants};
    use crate::sync::runner::{Marks, Runner, Running};

    const WAKE: Marks = Marks::bit(0);

    struct Session {
        runner: Runner<[bool; 2]>,
        notified: NotifyOnce,
        frames: [AtomicBool; 2],
    }

    impl Session {
        fn run(&self, mut running: Running<'_, [bool; 2]>) {
            loop {
                let _ = running.take_marks();
                mutant!(self.notified.clear(), ClearBehindTheFrames => ());
                for (seen, frame) in running.iter_mut().zip(&self.frames) {
                    *seen |= frame.load(Ordering::Relaxed);
                }
                mutant!((), ClearBehindTheFrames => self.notified.clear());
                match running.finish() {
                    Some(again) => running = again,
                    None => return,
                }
            }
        }

        fn add(&self, n: usize) {
            self.frames[n].store(true, Ordering::Relaxed);
            if self.notified.mark()
                && let Some(running) = self.runner.notify(WAKE)
            {
                self.run(running);
            }
        }
    }

    fn every_frame_is_seen() {
        explore(|| {
            let (runner, frames) = (Runner::new([false; 2]), Default::default());
            let session = Arc::new(Session { runner, notified: NotifyOnce::default(), frames });
            let here = Arc::clone(&session);
            let source = thread::spawn(move || (0..2).for_each(|n| here.add(n)));
            // First run of the session: its request has begun.
            if let Some(running) = session.runner.notify(WAKE) {
                session.run(running);
            }
            source.join().expect("no panic");
            let running = session.runner.notify(Marks::NONE).expect("idle at the end");
            assert_eq!(*running, [true; 2], "a frame without a notification");
            assert!(running.finish().is_none());
        });
    }

    #[test]
    fn every_frame_is_seen_in_any_order() {
        every_frame_is_seen();
    }

    mutants! {
        marked_without_order: NotifyRelaxed, every_frame_is_seen(), "a frame without a notification";
        cleared_behind_the_frames: ClearBehindTheFrames, every_frame_is_seen(), "a frame without a notification";
    }
}

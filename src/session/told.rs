//! [`NotifyOnce`]: coalesces the notifications of many senders to one receiver.
#![forbid(unsafe_code)]

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicBool, Ordering};

/// The first sender after each look notifies the receiver. Later senders rely on that notification.
///
/// Invariant: while the flag is set, a notification is pending or the receiver has not looked yet.
#[derive(Debug, Default)]
pub(super) struct Told(AtomicBool);

impl Told {
    /// Marks a change. Returns true if the caller must notify the receiver.
    #[must_use]
    pub(super) fn tell(&self) -> bool {
        // AcqRel: pairs with `clear`. Either the receiver sees the change, or this call returns
        // true.
        !self.0.swap(true, mutant!(Ordering::AcqRel, ToldRelaxed => Ordering::Relaxed))
    }

    /// Called by the receiver before it looks. Changes marked from now on notify again.
    pub(super) fn look(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Called by the receiver when it stops looking. No later change notifies.
    pub(super) fn end(&self) {
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

    use super::Told;
    use crate::sync::mutant::{explore, mutant, mutants};
    use crate::sync::runner::{Marks, Runner, Running};

    const WAKE: Marks = Marks::bit(0);

    struct Session {
        runner: Runner<[bool; 2]>,
        told: Told,
        frames: [AtomicBool; 2],
    }

    impl Session {
        fn run(&self, mut running: Running<'_, [bool; 2]>) {
            loop {
                let _ = running.take_marks();
                mutant!(self.told.look(), LookBehindTheFrames => ());
                for (seen, frame) in running.iter_mut().zip(&self.frames) {
                    *seen |= frame.load(Ordering::Relaxed);
                }
                mutant!((), LookBehindTheFrames => self.told.look());
                match running.finish() {
                    Some(again) => running = again,
                    None => return,
                }
            }
        }

        fn add(&self, n: usize) {
            self.frames[n].store(true, Ordering::Relaxed);
            if self.told.tell()
                && let Some(running) = self.runner.notify(WAKE)
            {
                self.run(running);
            }
        }
    }

    fn every_frame_is_seen() {
        explore(|| {
            let (runner, frames) = (Runner::new([false; 2]), Default::default());
            let session = Arc::new(Session { runner, told: Told::default(), frames });
            let here = Arc::clone(&session);
            let source = thread::spawn(move || (0..2).for_each(|n| here.add(n)));
            // First run of the session: its request has begun.
            if let Some(running) = session.runner.notify(WAKE) {
                session.run(running);
            }
            source.join().expect("no panic");
            let running = session.runner.notify(Marks::NONE).expect("idle at the end");
            assert_eq!(*running, [true; 2], "a frame that nobody was told of");
            assert!(running.finish().is_none());
        });
    }

    #[test]
    fn told() {
        every_frame_is_seen();
    }

    mutants! {
        told_without_order: ToldRelaxed, every_frame_is_seen(), "a frame that nobody was told of";
        told_while_looking: LookBehindTheFrames, every_frame_is_seen(), "a frame that nobody was told of";
    }
}

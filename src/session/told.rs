//! [`Told`]: whether somebody is on the way to one who has to look again.
#![forbid(unsafe_code)]

use crate::sync::mutant::mutant;
use crate::sync::shim::atomic::{AtomicBool, Ordering};

/// Set by who has added something, taken back by who is about to look. As long as it is set somebody is
/// on the way to that one, or it knows.
#[derive(Debug, Default)]
pub(super) struct Told(AtomicBool);

impl Told {
    /// Something was added. `true`: it is up to the caller to say so.
    #[must_use]
    pub(super) fn tell(&self) -> bool {
        // AcqRel: pairs with `look`. Either that sees what was added before, or it is told again.
        !self.0.swap(true, mutant!(Ordering::AcqRel, ToldRelaxed => Ordering::Relaxed))
    }

    /// What was added before is seen from here on, and what comes behind tells again.
    pub(super) fn look(&self) {
        self.0.swap(false, Ordering::AcqRel);
    }

    pub(super) fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    /// Nobody looks any more.
    pub(super) fn end(&self) {
        self.0.store(true, Ordering::Release);
    }
}

#[cfg(all(test, loom))]
mod model {
    //! A relay whose frames come from another thread, run by the session's [`Runner`] as shipped. What
    //! was added is a flag without an order of its own, so that only [`Told`] can make it seen. Left
    //! out: two who add at once (a relay's source is one), and the end of the relay.

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
            // The session's first run: its request has begun.
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

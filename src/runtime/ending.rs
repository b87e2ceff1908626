//! How a group ends: its workers are told, and the last one to leave sees to what is left.

use std::cell::Cell;

use super::end::RUN;
use super::group::Group;
use super::lanes::{First, Taste};
use super::slots::Token;
use super::source::{CUT, Lent, Turn};
use super::stalls::Lap;
use super::task::{Task, guard};
use crate::sys::clock;

impl Group {
    pub(super) fn stop(&self, how: u8) {
        self.end.advance(how);
        // Every sleeper gets a token of its own. Of the waiters one is woken, who wakes the next
        // when it leaves. Who comes later sees the stage.
        for _ in 0..self.crew.seats.count() {
            self.park.post();
        }
        self.crew.stop();
        self.eventfd.signal();
        self.room.look_again();
    }

    pub(super) fn stopping(&self) -> u8 {
        self.end.stage()
    }

    /// What is left when the workers leave: registered things end, contexts whose last reference is
    /// gone are reclaimed. Everything else that is still queued belongs to nobody any more.
    pub(super) fn sweep(&self) {
        // What this queues meanwhile is taken by the loop that is at work already: one level deep.
        if std::ptr::eq(SWEEPING.get(), self) {
            return;
        }
        let _reset = ResetSweeping(SWEEPING.replace(self));
        while let Some((task, _)) = self.pop(Taste::Everything, First::Progress) {
            self.note_ended(&task);
            match task {
                Task::Source(token) => drop(guard(self, "cut", || self.cut(token))),
                Task::Reclaim(token) => drop(guard(self, "drop", || self.reclaim(token))),
                task @ (Task::Work(_) | Task::Run(..) | Task::Discard(_)) => {
                    guard(self, "drop", || drop(task));
                }
            }
        }
    }

    /// Ends something that was queued. Its code is not called any more, but for the last word.
    fn cut(&self, token: Token) {
        let now = clock::now();
        let mut lent =
            Lent { turn: Turn::ALONE, read_buf: &mut [], lap: Lap::from(now), runnable_at: now };
        self.with_pinned(token, &mut lent, |source, lent| {
            // If it is queued already, the mark stays with it.
            let _ = source.queue_marks(CUT);
            source.resume(lent);
        });
    }

    /// The last to leave sees to what is queued, and from then on whoever queues something does.
    pub(super) fn exit(&self) {
        Self::forget_current();
        if self.stopping() != RUN {
            // Of the others that wait, one is woken, who does the same.
            self.eventfd.signal();
        }
        if self.end.leave() {
            // What is still registered waits for events that nobody receives any more: behind a
            // handler that outlived the drain, or registered too late to be told.
            self.notify_all(CUT);
            self.sweep();
        }
    }
}

thread_local! {
    /// The group whose queue this thread sweeps.
    static SWEEPING: Cell<*const Group> = const { Cell::new(std::ptr::null()) };
}

struct ResetSweeping(*const Group);

impl Drop for ResetSweeping {
    fn drop(&mut self) {
        SWEEPING.set(self.0);
    }
}

//! The end of a group: its workers are notified, and the last one to leave sweeps the queue.

use std::cell::Cell;

use super::cost::Lap;
use super::group::Group;
use super::run_queues::{Accepts, PopOrder};
use super::schedule::Schedule;
use super::slots::Token;
use super::source::{CUT, Turn, WorkerContext};
use super::task::Task;
use crate::sys::clock;

impl Group {
    /// Handles the tasks that are left when the workers leave. Registered sources end, and contexts
    /// without references are reclaimed. All other queued tasks are dropped.
    pub(super) fn sweep(&self) {
        // Tasks that the sweep itself queues are taken by the loop that runs already, so it is one
        // level deep.
        if std::ptr::eq(SWEEPING.get(), self) {
            return;
        }
        let _reset = ResetSweeping(SWEEPING.replace(self));
        while let Some((task, _)) = self.pop(Accepts::Everything, PopOrder::Progress) {
            self.note_ended(&task);
            match task {
                Task::Source(token) => drop(self.guard("cut", || self.cut(token))),
                Task::Reclaim(token) => drop(self.guard("drop", || self.reclaim(token))),
                task @ (Task::Work(_) | Task::Run(..) | Task::Discard(_)) => {
                    self.guard("drop", || drop(task));
                }
            }
        }
    }

    /// Ends a queued source. Its code is not called any more, except for the call about its end.
    fn cut(&self, token: Token) {
        let now = clock::now();
        let mut context = WorkerContext {
            turn: Turn::ALONE,
            read_buf: &mut [],
            lap: Lap::from(now),
            runnable_at: now,
        };
        self.with_pinned(token, &mut context, |source, context| {
            // If the source is queued already, the mark stays with it.
            let _ = source.queue_marks(CUT);
            source.resume(context);
        });
    }

    /// Notes that the current thread, a worker, leaves the group.
    pub(super) fn exit(&self) {
        Self::forget_current();
        self.note_left();
    }

    /// Notes that a worker has left, or that its thread could not be started. After the last one the
    /// queue is swept, and from then on by each thread that queues a task.
    pub(super) fn note_left(&self) {
        if self.leave() {
            self.end_rest();
        }
    }

    /// Ends what is left when no worker serves the group: all have left, or are stuck.
    pub(super) fn end_rest(&self) {
        // Sources that are still registered would wait for events that no worker receives. They
        // belong to a handler that outlived the drain, or were registered too late to be notified.
        self.notify_all(CUT);
        self.sweep();
        self.end_timers();
    }
}

thread_local! {
    /// Group whose queue this thread sweeps.
    static SWEEPING: Cell<*const Group> = const { Cell::new(std::ptr::null()) };
}

struct ResetSweeping(*const Group);

impl Drop for ResetSweeping {
    fn drop(&mut self) {
        SWEEPING.set(self.0);
    }
}

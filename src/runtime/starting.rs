//! How threads of a runtime start.

use std::cell::Cell;
use std::io;
use std::sync::{Arc, mpsc};
use std::thread;

use super::group::Group;
use super::schedule::Schedule;
use super::source::CUT;
use super::threads::{Exit, Hook, Refusal, Table, Thread, ThreadInfo, ThreadReason, Threads};
use super::worker::{Role, Worker};
use super::worker_slot::ThreadKind;
use crate::sync::shim::atomic::AtomicBool;
use crate::sync::shim::lock;
use crate::sys::clock;

thread_local! {
    /// Held until the destructors of the other thread-locals have run, because they may wait.
    /// Thread-locals are destroyed in the reverse order of their first use, and this one is used first.
    static EXIT: Cell<Option<Exit>> = const { Cell::new(None) };
}

impl Threads {
    /// Starts a thread for the life of the runtime. `ready` is dropped when the thread is about to
    /// work.
    pub(super) fn start_permanent(
        &self,
        group: &Arc<Group>,
        kind: ThreadKind,
        ready: mpsc::Sender<()>,
    ) -> Result<(), (String, io::Error)> {
        let mut table = lock(&self.table);
        if let Err(error) = self.launch(&mut table, group, kind, ThreadReason::Start, Some(ready)) {
            drop(table);
            // Without the lock, as in `start_added`.
            group.note_left();
            return Err(error);
        }
        table.permanent += 1;
        table.permanent_reserve += usize::from(kind == ThreadKind::Reserve);
        Ok(())
    }

    /// Starts another thread if the limit allows it. Returns its name.
    pub(super) fn start_added(
        &self,
        group: &Arc<Group>,
        kind: ThreadKind,
        reason: ThreadReason,
    ) -> Result<String, Refusal> {
        // No thread is joined here: a handler that is about to wait may hold a lock that the
        // destructors of the other thread want.
        //
        // The lock is held while the thread is made, so that a drain that starts now either finds the
        // thread or prevents it.
        let launched = {
            let mut table = lock(&self.table);
            if table.closed {
                return Err(Refusal::Ended);
            }
            if !self.has_room(&table, kind) {
                return Err(Refusal::Limited);
            }
            self.launch(&mut table, group, kind, reason, None)
        };
        launched.map_err(|(_, error)| {
            // Without the lock of the table, because `note_left` may sweep the queue.
            group.note_left();
            Refusal::Failed(error)
        })
    }

    /// Starts a thread that ends what the stuck threads of a group keep, even beyond `max_threads`. If the
    /// system refuses it, a stuck thread does so when it goes on. Until then only the handlers learn that
    /// their connections end.
    pub(super) fn start_ending(&self, group: &Arc<Group>) {
        let (kind, reason) = (ThreadKind::Worker, ThreadReason::Drain);
        let launched = self.launch(&mut lock(&self.table), group, kind, reason, None);
        if launched.is_err() {
            group.notify_all(CUT);
            group.note_left();
        }
    }

    fn launch(
        &self,
        table: &mut Table,
        group: &Arc<Group>,
        kind: ThreadKind,
        reason: ThreadReason,
        ready: Option<mpsc::Sender<()>>,
    ) -> Result<String, (String, io::Error)> {
        let slot = group.thread_set.occupy(kind);
        let info = ThreadInfo {
            name: format!("{}-{}-{}{slot}", self.prefix, group.index(), kind.letter()),
            group: group.index(),
            worker: slot,
            kind,
            reason,
        };
        let (name, info_2) = (info.name.clone(), info.clone());
        let left = Arc::new(AtomicBool::new(false));
        let exit = self.exits.enter(&left);
        let (group_2, hooks) = (Arc::clone(group), self.hooks.clone());
        let body = move || {
            EXIT.set(Some(exit));
            run_hook(&group_2, hooks.start.as_ref(), &info_2);
            let role = if ready.is_some() { Role::StandingBy } else { Role::Called };
            drop(ready);
            if reason == ThreadReason::Drain {
                group_2.end_rest();
            }
            Worker::new(Arc::clone(&group_2), slot, kind).run(role);
            run_hook(&group_2, hooks.stop.as_ref(), &info_2);
            // The slot is freed before the thread's place: so no more slots are taken than threads
            // are allowed.
            group_2.thread_set.vacate(slot);
            group_2.threads.note_left(kind);
        };
        match group.start_worker(|| thread::Builder::new().name(name.clone()).spawn(body)) {
            Ok(handle) => {
                table.threads.push(Thread { info, started: clock::now(), handle, left });
                table.alive += 1;
                table.reserve += usize::from(kind == ThreadKind::Reserve);
                Ok(name)
            }
            Err(error) => {
                group.thread_set.vacate(slot);
                Err((name, error))
            }
        }
    }
}

fn run_hook(group: &Group, hook: Option<&Hook>, info: &ThreadInfo) {
    if let Some(hook) = hook {
        group.guard("thread hook", || hook(info));
    }
}

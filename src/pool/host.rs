//! [`Host`]: who runs what no caller's thread can do.

#[cfg(not(loom))]
pub(super) use thread::OwnThread;

use std::time::Duration;

/// Runs code for a pool: connects for callers that have no thread or no time for it, what is due at
/// some time, and looks at connections for callers that do not wait.
///
/// A [`Handle`](crate::Handle) is one: everything runs on the workers of its runtime. Without a host a
/// pool has a thread of its own, named `pool`, for what is due; and starts one named `pool-connect`
/// for each connect, which ends with it.
///
/// Code that a host drops instead of running it does no harm: a connect counts as failed.
pub trait Host: Send + Sync + 'static {
    /// Runs code soon, on another thread. It may wait for a backend, for as long as
    /// [`connect_timeout`](super::Limits::connect_timeout), and says so to a runtime.
    fn spawn(&self, code: Box<dyn FnOnce() + Send>);

    /// Runs code once, at or after `delay` from now, on another thread. It is quick, but for the drop
    /// of connections.
    fn after(&self, delay: Duration, code: Box<dyn FnOnce() + Send>);
}

#[cfg(not(loom))]
mod thread {
    use std::collections::BTreeMap;
    use std::fmt;
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    use super::Host;
    use crate::pool::turns::shielded;
    use crate::sync::shim::{Condvar, Mutex, lock, wait_while};

    type Code = Box<dyn FnOnce() + Send>;

    /// A thread that waits for deadlines. Ended and joined when this is dropped.
    pub(in crate::pool) struct OwnThread {
        agenda: Arc<Agenda>,
        thread: Option<JoinHandle<()>>,
    }

    #[derive(Default)]
    struct Agenda {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Default)]
    struct State {
        /// The number tells apart what is due at the same time.
        entries: BTreeMap<(Instant, u64), Code>,
        number: u64,
        ended: bool,
    }

    impl OwnThread {
        pub(in crate::pool) fn start() -> std::io::Result<Self> {
            let agenda = Arc::<Agenda>::default();
            let here = Arc::clone(&agenda);
            let thread = thread::Builder::new().name("pool".into()).spawn(move || here.run())?;
            Ok(Self { agenda, thread: Some(thread) })
        }
    }

    impl Agenda {
        fn run(&self) {
            let mut state = lock(&self.state);
            while !state.ended {
                let next = state.entries.first_key_value().map(|((at, _), _)| *at);
                let now = Instant::now();
                if next.is_some_and(|at| at <= now) {
                    let (_, code) = state.entries.pop_first().expect("it is there");
                    drop(state);
                    shielded(code);
                    state = lock(&self.state);
                    continue;
                }
                let limit = next.map(|at| at - now);
                let number = state.number;
                let unchanged = |state: &mut State| !state.ended && state.number == number;
                state = wait_while(&self.changed, state, limit, unchanged).0;
            }
        }
    }

    impl Host for OwnThread {
        fn spawn(&self, code: Code) {
            // A thread that cannot be started drops the code.
            let _ = thread::Builder::new().name("pool-connect".into()).spawn(|| {
                shielded(code);
            });
        }

        fn after(&self, delay: Duration, code: Code) {
            let Some(at) = Instant::now().checked_add(delay) else { return };
            let mut state = lock(&self.agenda.state);
            if state.ended {
                drop(state);
                return;
            }
            state.number += 1;
            let number = state.number;
            state.entries.insert((at, number), code);
            drop(state);
            self.agenda.changed.notify_one();
        }
    }

    impl Drop for OwnThread {
        fn drop(&mut self) {
            let mut state = lock(&self.agenda.state);
            state.ended = true;
            let entries = std::mem::take(&mut state.entries);
            drop(state);
            drop(entries);
            self.agenda.changed.notify_one();
            if let Some(thread) = self.thread.take()
                && thread.thread().id() != thread::current().id()
            {
                // It catches what its code panics with.
                let _ = thread.join();
            }
        }
    }

    impl fmt::Debug for OwnThread {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let due = lock(&self.agenda.state).entries.len();
            f.debug_struct("OwnThread").field("due", &due).finish_non_exhaustive()
        }
    }
}

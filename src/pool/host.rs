//! [`Host`] and [`Observer`]: services of the program around a pool, and events for it.

#[cfg(not(loom))]
pub(super) use thread::OwnThread;

use std::time::Duration;

use super::error::GetError;
use super::manage::{ManageError, Target, Version};
use super::status::Discard;

/// Runner of code for a pool: connects for callers without a thread or without time, checks of
/// connections for callers that do not wait, and code that is due at a certain time.
///
/// A `Handle` of a runtime is a host: the workers of its runtime run everything. Without a host
/// a pool has a thread of its own, named `pool`, for code that is due. It starts a thread
/// `pool-connect` for each connect, which ends with the connect.
///
/// A host may drop code instead of running it. A connect then counts as failed.
pub trait Host: Send + Sync + 'static {
    /// Runs code soon, on another thread. The code may wait for a backend for
    /// [`connect_timeout`](super::Limits::connect_timeout), and announces the wait to a runtime.
    fn spawn(&self, code: Box<dyn FnOnce() + Send>);

    /// Runs code once, on another thread, at or after `delay` from now. The code is quick, apart from
    /// drops of connections.
    fn after(&self, delay: Duration, code: Box<dyn FnOnce() + Send>);
}

/// Receiver of the events of a pool, for logs and metrics.
///
/// *Shape*: called on the thread of the event, while no lock of the pool is held. Calls are
/// frequent and should be quick. By default each method does nothing. A panic ends the call and
/// nothing else.
pub trait Observer<K>: Send + Sync + 'static {
    /// A connection was made within this time.
    fn connected(&self, target: &Target<'_, K>, took: Duration) {
        let _ = (target, took);
    }

    /// A connection could not be made.
    fn connect_failed(&self, target: &Target<'_, K>, error: &ManageError) {
        let _ = (target, error);
    }

    /// A connection was handed to a caller that had waited for this time.
    fn handed_out(&self, target: &Target<'_, K>, waited: Duration) {
        let _ = (target, waited);
    }

    /// A connection was returned, and can be used again.
    fn returned(&self, target: &Target<'_, K>) {
        let _ = target;
    }

    /// A connection is about to be dropped.
    fn discarded(&self, target: &Target<'_, K>, why: Discard) {
        let _ = (target, why);
    }

    /// A caller got no connection.
    fn refused(&self, key: &K, error: &GetError) {
        let _ = (key, error);
    }

    /// A backend has a new version.
    fn failed_over(&self, key: &K, from: Version, to: Version) {
        let _ = (key, from, to);
    }
}

#[cfg(not(loom))]
mod thread {
    use std::collections::BTreeMap;
    use std::fmt;
    use std::sync::Arc;
    use std::thread::{self, JoinHandle};
    use std::time::{Duration, Instant};

    use super::Host;
    use crate::pool::guard::shielded;
    use crate::sync::shim::{Condvar, Mutex, lock, wait_while};

    type Code = Box<dyn FnOnce() + Send>;

    /// Thread of a pool that waits for deadlines. It ends and is joined when this is dropped.
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
        /// Keys are unique by a number, because several entries may be due at the same time.
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
            // If the thread cannot be started, the code is dropped.
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
                // The thread catches panics of the code, so there is no error.
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

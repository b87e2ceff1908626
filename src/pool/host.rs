//! Code outside of a pool: its [`Host`] and its [`Observer`], and calls of the user's code.

use std::any::Any;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
#[cfg(not(loom))]
use std::{
    cell::RefCell,
    collections::{BTreeMap, VecDeque},
    sync::mpsc::{self, Receiver, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Instant,
};

use super::error::GetError;
use super::manage::{BoxError, Target, Version};
use super::status::Discard;
use crate::sync::payload::{contain, discard};

#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub(super) use crate::stall::{Wait, run_as as waiting};

#[cfg(not(loom))]
type Code = Box<dyn FnOnce() + Send>;

/// Callback with its result, or the next question on behalf of a callback.
#[cfg(not(loom))]
type Turn = Box<dyn FnOnce()>;

/// Runner of code for a pool: connects for callers without a thread or without time, checks of
/// connections for callers that do not wait, and code that is due at a certain time.
///
/// A `Handle` of a runtime is a host: the workers of its runtime run everything. Without a host
/// a pool has a thread of its own, named `pool`, for code that is due. It starts a thread
/// `pool-connect` for each connect, and for each check for a caller that does not wait. The thread ends
/// with the connect or check.
///
/// A host may drop code instead of running it. A connect or a check then counts as failed. If it
/// drops code that was given to [`after`](Self::after), the pool gives it such code again with the
/// next caller of the same backend that waits for a connection or returns one.
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
    fn connect_failed(&self, target: &Target<'_, K>, error: &(dyn Error + Send + Sync + 'static)) {
        let _ = (target, error);
    }

    /// A connection was handed to a caller that had waited for this time.
    fn handed_out(&self, target: &Target<'_, K>, waited: Duration) {
        let _ = (target, waited);
    }

    /// A connection was returned, and is idle or was handed to a caller that waits. For a returned
    /// connection that is closed, there is only [`discarded`](Self::discarded).
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

/// Code for a host. It is called with true when it runs, or with false if the host drops it.
pub(super) struct Job<F: FnOnce(bool)>(Option<F>);

impl<F: FnOnce(bool)> Job<F> {
    pub(super) const fn new(code: F) -> Self {
        Self(Some(code))
    }

    pub(super) fn run(mut self) {
        if let Some(code) = self.0.take() {
            code(true);
        }
    }
}

impl<F: FnOnce(bool)> Drop for Job<F> {
    fn drop(&mut self) {
        if let Some(code) = self.0.take() {
            code(false);
        }
    }
}

/// Threads of a pool without a host. The drop ends and joins the thread for code that is due.
#[cfg(not(loom))]
pub(super) struct OwnThread {
    /// Present until the drop.
    due: Option<Sender<(Instant, Code)>>,
    thread: Option<JoinHandle<()>>,
}

#[cfg(not(loom))]
impl OwnThread {
    pub(super) fn start() -> std::io::Result<Self> {
        let (due, given) = mpsc::channel();
        let thread = thread::Builder::new().name("pool".into()).spawn(move || run_due(&given))?;
        Ok(Self { due: Some(due), thread: Some(thread) })
    }
}

/// Runs each code at its time, until the sender is dropped.
#[cfg(not(loom))]
fn run_due(given: &Receiver<(Instant, Code)>) {
    let mut entries = BTreeMap::<(Instant, u64), Code>::new();
    // Keys are unique by a number, because several entries may be due at the same time.
    for number in 0_u64.. {
        let next = entries.first_key_value().map(|(&(at, _), _)| at);
        let left = next.map(|at| at.duration_since(Instant::now()));
        let got = match left {
            Some(Duration::ZERO) => Err(RecvTimeoutError::Timeout),
            Some(left) => given.recv_timeout(left),
            None => given.recv().map_err(RecvTimeoutError::from),
        };
        match got {
            Ok((at, code)) => drop(entries.insert((at, number), code)),
            Err(RecvTimeoutError::Timeout) => {
                if let Some((_, code)) = entries.pop_first() {
                    contain(code);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(not(loom))]
impl Host for OwnThread {
    fn spawn(&self, code: Code) {
        // If the thread cannot be started, the code is dropped.
        let _ = thread::Builder::new().name("pool-connect".into()).spawn(|| contain(code));
    }

    fn after(&self, delay: Duration, code: Code) {
        if let (Some(at), Some(due)) = (Instant::now().checked_add(delay), &self.due) {
            // The receiver lives until the drop.
            let _ = due.send((at, code));
        }
    }
}

#[cfg(not(loom))]
impl Drop for OwnThread {
    fn drop(&mut self) {
        self.due = None;
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // The thread catches panics of the code, so there is no error.
            let _ = thread.join();
        }
    }
}

/// Runs code of the user. A panic becomes an error.
pub(super) fn guarded<T, E: Into<BoxError>>(
    code: impl FnOnce() -> Result<T, E>,
) -> Result<T, BoxError> {
    let code = || code().map_err(Into::into);
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|payload| {
        let error = panicked(&*payload);
        discard(payload);
        Err(error)
    })
}

fn panicked(payload: &(dyn Any + Send)) -> BoxError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("(no text)")).into()
}

#[cfg(not(loom))]
thread_local! {
    /// Callbacks that wait until the present one has returned. `None`: no callback runs.
    static TURNS: RefCell<Option<VecDeque<Turn>>> = const { RefCell::new(None) };
}

/// Runs a callback at once, or right after the running callback of this thread.
///
/// A callback that returns its connection serves the next waiter, whose callback returns it in turn. If
/// they nested, the stack would overflow.
#[cfg(not(loom))]
pub(super) fn in_turn(code: impl FnOnce() + 'static) {
    let mut code = Some(code);
    let first = TURNS.try_with(|turns| match &mut *turns.borrow_mut() {
        Some(later) => {
            later.push_back(Box::new(code.take().expect("taken once")));
            false
        }
        turns => {
            *turns = Some(VecDeque::new());
            true
        }
    });
    if let Some(code) = code {
        contain(code);
    }
    while first == Ok(true)
        && let Some(next) = next_turn()
    {
        contain(next);
    }
}

/// Takes the next callback. `None`: there is none, and no callback runs from now on.
#[cfg(not(loom))]
fn next_turn() -> Option<Turn> {
    TURNS.with(|turns| {
        let mut turns = turns.borrow_mut();
        let next = turns.as_mut()?.pop_front();
        if next.is_none() {
            *turns = None;
        }
        next
    })
}

/// In a model the threads share the thread-locals.
#[cfg(loom)]
pub(super) fn in_turn(code: impl FnOnce() + 'static) {
    contain(code);
}

/// Reason for which a thread waits. Without a runtime it is not announced.
#[cfg(not(all(feature = "server", target_os = "linux", not(loom))))]
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    Other,
    Network,
}

/// Runs code that waits.
#[cfg(not(all(feature = "server", target_os = "linux", not(loom))))]
pub(super) fn waiting<T>(_: Wait, code: impl FnOnce() -> T) -> T {
    code()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::rc::Rc;

    use super::*;

    fn nest(depth: usize, calls: Rc<RefCell<usize>>) {
        in_turn(move || {
            *calls.borrow_mut() += 1;
            if depth > 0 {
                nest(depth - 1, calls);
            }
        });
    }

    #[test]
    fn callbacks_within_callbacks_take_no_stack() {
        let calls = Rc::default();
        nest(1_000_000, Rc::clone(&calls));
        assert_eq!(*calls.borrow(), 1_000_001);
    }

    #[test]
    fn a_panic_does_not_end_the_turns() {
        let calls = Rc::default();
        let inner = Rc::clone(&calls);
        in_turn(move || {
            nest(1, inner);
            panic!("on purpose");
        });
        nest(0, Rc::clone(&calls));
        assert_eq!(*calls.borrow(), 3);
    }

    #[test]
    fn a_panic_becomes_an_error_with_its_text() {
        let error = guarded::<(), &str>(|| panic!("number {}", 7)).expect_err("it panics");
        assert_eq!(error.to_string(), "panicked: number 7");
    }
}

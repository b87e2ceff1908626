//! Calls of the user's code: panics end there, callbacks do not nest, waits are announced.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(not(loom))]
use std::{cell::RefCell, collections::VecDeque};

use super::manage::ManageError;

/// Runs code of the user. A panic becomes an error.
pub(super) fn guarded<T>(code: impl FnOnce() -> Result<T, ManageError>) -> Result<T, ManageError> {
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(|payload| Err(panicked(&*payload)))
}

/// Runs code of the user. Returns false if it panicked.
pub(super) fn shielded(code: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(code)).is_ok()
}

fn panicked(payload: &(dyn Any + Send)) -> ManageError {
    let text = payload.downcast_ref::<&str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("(no text)")).into()
}

#[cfg(not(loom))]
type Code = Box<dyn FnOnce()>;

#[cfg(not(loom))]
thread_local! {
    /// Callbacks that wait until the present one has returned. `None`: no callback runs.
    static TURNS: RefCell<Option<VecDeque<Code>>> = const { RefCell::new(None) };
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
        shielded(code);
    }
    while first == Ok(true)
        && let Some(next) = next_turn()
    {
        shielded(next);
    }
}

/// Takes the next callback. `None`: there is none, and no callback runs from now on.
#[cfg(not(loom))]
fn next_turn() -> Option<Code> {
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
    shielded(code);
}

/// Reason for which a thread waits, for the announcement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// A connection, or the return of connections.
    Other,
    /// A backend.
    Network,
}

/// Runs code that waits, as an announced stall if the crate has a runtime.
#[cfg(all(feature = "server", target_os = "linux", not(loom)))]
pub(super) fn waiting<T>(wait: Wait, code: impl FnOnce() -> T) -> T {
    use crate::sync::stall;

    let wait = match wait {
        Wait::Other => stall::Wait::Other,
        Wait::Network => stall::Wait::Network,
    };
    stall::run_as(wait, code)
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
        let error = guarded::<()>(|| panic!("number {}", 7)).expect_err("it panics");
        assert_eq!(error.to_string(), "panicked: number 7");
    }
}

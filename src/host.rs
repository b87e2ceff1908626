//! A runtime maintains pools: the one place that knows both.

use std::time::Duration;

use crate::Handle;
use crate::pool::Host;

/// Delay after which code that a full queue refused runs as a timer.
const AGAIN: Duration = Duration::from_millis(1);

/// Runs the code of a pool on the workers of the runtime, with the class of the handle. Code of an
/// urgent class goes first, see [`with_class`](Handle::with_class). While the runtime drains,
/// `spawn` drops its code. After the drain nothing runs any more.
impl Host for Handle {
    fn spawn(&self, code: Box<dyn FnOnce() + Send>) {
        if let Err(error) = Self::spawn(self, code)
            && error.is_full()
        {
            Self::after(self, AGAIN, error.into_inner()).detach();
        }
    }

    fn after(&self, delay: Duration, code: Box<dyn FnOnce() + Send>) {
        Self::after(self, delay, code).detach();
    }
}

//! A runtime maintains pools: the one place that knows both.

use std::time::Duration;

use crate::Handle;
use crate::pool::Host;

/// What a full queue refused is tried again after this.
const AGAIN: Duration = Duration::from_millis(1);

/// On the workers of the runtime; with [`with_class`](Handle::with_class) of a class that goes first.
/// When the runtime drains, nothing runs any more.
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

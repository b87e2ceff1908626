//! Panics of the user's code, and their payloads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops the payload of a panic. If its destructor panics, the payload of that panic is leaked, because
/// there may be no end of such payloads.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        Box::leak(next);
    }
}

/// Runs code of the user that has no result, such as a log subscriber. Returns false if it panicked.
pub(crate) fn contain(code: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(code)).map_err(discard).is_ok()
}

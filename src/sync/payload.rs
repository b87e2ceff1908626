//! Payloads of caught panics.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Drops the payload of a panic. If its destructor panics, the payload of that panic is leaked, because
/// there may be no end of such payloads.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        Box::leak(next);
    }
}

//! Spans of `tracing` around calls of the user's code.

#[cfg(feature = "spans")]
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

#[cfg(feature = "spans")]
use tracing::Span;

#[cfg(feature = "spans")]
use crate::sync::payload::contain;

/// Evaluates an expression. With the feature `spans` that happens inside the span.
#[cfg(feature = "spans")]
macro_rules! in_span {
    ($code:expr, $($span:tt)+) => {
        $crate::runtime::run_in_span(|| tracing::info_span!($($span)+), || $code)
    };
}
#[cfg(not(feature = "spans"))]
macro_rules! in_span {
    ($code:expr, $($span:tt)+) => {
        $code
    };
}
pub(crate) use in_span;

/// Runs code inside a span. A subscriber that panics ends neither the code nor the thread, also if the
/// code panics.
#[cfg(feature = "spans")]
pub(crate) fn run_in_span<R>(open: impl FnOnce() -> Span, code: impl FnOnce() -> R) -> R {
    let mut span = Span::none();
    contain(|| span = open());
    if span.is_none() {
        return code();
    }
    contain(|| span.with_subscriber(|(id, subscriber)| subscriber.enter(id)).unwrap_or_default());
    let result = catch_unwind(AssertUnwindSafe(code));
    contain(|| span.with_subscriber(|(id, subscriber)| subscriber.exit(id)).unwrap_or_default());
    contain(|| drop(span));
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

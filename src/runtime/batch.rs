//! [`Event`]: what a worker has taken from epoll and not begun, where others can take it over.

use std::sync::atomic::{AtomicU64, Ordering};

use super::slots::Token;
use crate::sys::epoll::Readiness;

/// An event in a batch, token and readiness in one word. Who swaps it out has the event, and the
/// reference to its slot.
///
/// One word, because the owner may put its next event here while a thief still looks at what it took.
#[derive(Debug, Default)]
pub(crate) struct Event(AtomicU64);

impl Event {
    pub(super) fn put(&self, token: Token, readiness: Readiness) {
        // Release: pairs with the Acquire of `take`.
        self.0.store(token.encode_with(readiness.condensed()), Ordering::Release);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    pub(super) fn take(&self) -> Option<(Token, Readiness)> {
        let word = self.0.swap(0, Ordering::AcqRel);
        let (token, condensed) = Token::decode_with(word);
        (word != 0).then(|| (token, Readiness::from_condensed(condensed)))
    }
}

/// The range of `epoll_events_per_thread` ends here.
pub(crate) const MOST_EVENTS: usize = 16;

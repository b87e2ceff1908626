//! [`Event`]: event that a worker has taken from epoll and not begun, which other threads can take
//! over.

use super::slots::Token;
use crate::sync::shim::atomic::{AtomicU64, Ordering};
use crate::sys::epoll::Readiness;

/// Event of a batch, with token and readiness in one word. The thread that swaps the word out owns the
/// event and its reference to the slot.
///
/// It is one word because the owner may put its next event here while another thread takes the last
/// one.
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

/// Upper end of the range of `epoll_events_per_thread`.
pub(crate) const MOST_EVENTS: usize = if cfg!(loom) { 1 } else { 16 };

//! [`Deferred`]: a request that is answered after its handler has returned.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use super::error::SessionError;
use super::output::Output;
use super::reply::Reply;
use super::reply_state::{Pulled, ReplyState};
use super::session_shared::SessionShared;
use crate::runtime::Usage;
use crate::stats::Counter;
use crate::sync::shim::lock;

/// Handle that answers a request from any thread, after its handler has returned.
///
/// [`Reply::defer`] creates it. Until it is finished the session runs no other request, and no
/// thread waits. If the request is cancelled, exceeds its deadline or loses its connection, the
/// layer answers it, and a later [`finish`](Self::finish) has no effect. A handle that is dropped
/// unfinished answers with an error.
///
/// *Shape*: keeps the context of its connection, with the descriptor, until it is finished, dropped
/// or cancelled. The layer cannot stop the work for a cancelled request: its owner checks
/// [`is_cancelled`](Self::is_cancelled) now and then. `deferred_requests` counts the handle until
/// it is dropped.
#[must_use = "dropped, it answers an error"]
pub struct Deferred {
    deferral: Arc<Deferral>,
    /// Counts the handle until it is finished or dropped.
    usage: Option<Arc<Usage>>,
}

/// Part of a [`Deferred`] that its session shares.
pub(super) struct Deferral {
    /// Taken by the side that answers. So a cancelled request keeps no connection, however late its
    /// service drops the handle.
    state: Mutex<Option<Box<ReplyState>>>,
    outcome: Mutex<Option<Outcome>>,
}

/// State of a request after its handler or [`Deferred::finish`] has returned.
pub(super) enum Outcome {
    /// The request was answered completely.
    Ended(Result<(), SessionError>),
    /// The rest of the reply comes from a feed.
    Fed(Box<ReplyState>),
    /// The request was deferred again.
    Deferred(Arc<Deferral>),
}

impl Deferral {
    fn new(state: Option<Box<ReplyState>>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), outcome: Mutex::default() })
    }

    /// Claims the right to answer. Only the first caller gets it. The state may contain a source or
    /// relay, whose drop runs foreign code.
    pub(super) fn claim(&self) -> Option<Box<ReplyState>> {
        lock(&self.state).take()
    }

    pub(super) fn take_outcome(&self) -> Option<Outcome> {
        lock(&self.outcome).take()
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        // The session has ended, so it does not claim the second deferral.
        if let Some(Outcome::Deferred(again)) = self.take_outcome() {
            drop(again.claim());
        }
    }
}

impl Deferred {
    pub(super) fn new(state: ReplyState) -> Self {
        let usage = Arc::clone(state.shared.conn.group().usage());
        usage.deferred_changed(true);
        Self { deferral: Deferral::new(Some(Box::new(state))), usage: Some(usage) }
    }

    /// Handle of a request that has another handle already. It answers nothing.
    pub(super) fn late() -> Self {
        Self { deferral: Deferral::new(None), usage: None }
    }

    pub(super) fn deferral(&self) -> Arc<Deferral> {
        Arc::clone(&self.deferral)
    }

    /// Returns true if the request was cancelled or answered, so that the work for it can stop. The
    /// result may change at any time.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        lock(&self.deferral.state)
            .as_ref()
            .is_none_or(|state| state.shared.is_interrupted() || state.shared.is_dead())
    }

    /// Answers the request. `code` writes the reply on this thread, like a handler, and the layer
    /// writes its end. Returns false, without a call of `code`, if the request was answered before.
    pub fn finish(mut self, code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>) -> bool {
        self.finish_in_place(code).is_some()
    }

    /// Returns the session if this call answered.
    fn finish_in_place(
        &mut self,
        code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>,
    ) -> Option<Arc<SessionShared>> {
        if let Some(usage) = self.usage.take() {
            usage.deferred_changed(false);
        }
        let mut state = self.deferral.claim()?;
        let shared = Arc::clone(&state.shared);
        let mut panicked = None;
        let outcome = Output::with(&shared.conn, |out| {
            out.begin(Some(&shared));
            let mut reply = Reply { state: &mut state, out };
            let result = catch_unwind(AssertUnwindSafe(|| code(&mut reply)));
            let result = result.unwrap_or_else(|payload| {
                panicked = Some(payload);
                Err(SessionError::panicked())
            });
            match state.conclude(out, result) {
                // Often this is the whole rest. Otherwise the session continues.
                Outcome::Fed(state) => feed(state, out, &mut panicked),
                outcome => outcome,
            }
        });
        *lock(&self.deferral.outcome) = Some(outcome);
        shared.wake();
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        Some(shared)
    }
}

/// Sends what the feed has at once.
fn feed(
    mut state: Box<ReplyState>,
    out: &Output,
    panicked: &mut Option<Box<dyn Any + Send>>,
) -> Outcome {
    let pulled = state.pull(out, |payload| {
        *panicked = Some(payload);
        SessionError::panicked()
    });
    match pulled {
        Ok(Pulled::Budget | Pulled::Blocked(_)) => Outcome::Fed(state),
        Ok(Pulled::Done) => Outcome::Ended(state.finish(out, Ok(()))),
        Err(error) => {
            let error = state.shared.reason(error);
            Outcome::Ended(state.finish(out, Err(error)))
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let dropped = "The request was dropped without an answer.";
        let answered = self.finish_in_place(|_| Err(SessionError::unsupported(dropped)));
        if let Some(shared) = answered {
            shared.conn.count(Counter::DeferredDropped);
        }
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

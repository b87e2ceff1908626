//! [`Deferred`]: a request that is finished later.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use super::error::SessionError;
use super::output::Output;
use super::reply::Reply;
use super::state::{Pulled, State};
use crate::stats::Counter;
use crate::sync::shim::lock;

/// Finishes a request from any thread, after its handler has returned.
///
/// Made by [`Reply::defer`]. Until it is finished its session does nothing else, and no thread waits;
/// requests that come meanwhile wait their turn. A client can cancel the request, its deadline can pass
/// and its connection can end: then the client has its answer, and what is finished later goes nowhere.
/// Dropped unfinished, it answers an error.
///
/// *Shape*: keeps the context of its connection, and with it the descriptor, until it is finished or
/// dropped, also when the connection has ended: look at [`is_cancelled`](Self::is_cancelled) now and then.
#[must_use = "dropped, it answers an error"]
pub struct Deferred {
    /// Present until it is finished.
    state: Option<Box<State>>,
    deferral: Arc<Deferral>,
}

/// What a [`Deferred`] shares with its session.
#[derive(Debug)]
pub(super) struct Deferral {
    /// Whose turn it is to answer.
    claim: AtomicU8,
    outcome: Mutex<Option<Outcome>>,
}

/// Nobody has begun to answer.
const OPEN: u8 = 0;
/// Somebody has.
const CLAIMED: u8 = 1;

/// What came of it.
pub(super) enum Outcome {
    /// It was answered, to the end.
    Ended(Result<(), SessionError>),
    /// The rest comes from a feed.
    Fed(Box<State>),
    /// It was put off again.
    Deferred(Arc<Deferral>),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended(_) => "Ended",
            Self::Fed(_) => "Fed",
            Self::Deferred(_) => "Deferred",
        })
    }
}

impl Deferral {
    /// The right to answer, for one caller.
    pub(super) fn claim(&self) -> bool {
        // AcqRel: who loses sees nothing of the winner's; the outcome has its own lock.
        self.claim.swap(CLAIMED, Ordering::AcqRel) == OPEN
    }

    pub(super) fn take_outcome(&self) -> Option<Outcome> {
        lock(&self.outcome).take()
    }
}

impl Deferred {
    pub(super) fn new(state: State) -> Self {
        state.channel.line.group().usage().deferred_changed(true);
        let (claim, outcome) = (AtomicU8::new(OPEN), Mutex::default());
        Self { state: Some(Box::new(state)), deferral: Arc::new(Deferral { claim, outcome }) }
    }

    /// For a request that somebody else answers.
    pub(super) fn late(state: State) -> Self {
        let deferred = Self::new(state);
        deferred.deferral.claim();
        deferred
    }

    pub(super) fn deferral(&self) -> Arc<Deferral> {
        Arc::clone(&self.deferral)
    }

    /// Whether there is no sense in finishing it, because the client has its answer or is gone. It may
    /// change at any time.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.deferral.claim.load(Ordering::Relaxed) != OPEN
            || self
                .state
                .as_ref()
                .is_none_or(|state| state.channel.is_interrupted() || state.channel.is_dead())
    }

    /// Answers the request: `code` writes the reply, on this thread, as a handler would, and its ends
    /// are written by the layer. `false` when it was too late, and `code` was not called.
    pub fn finish(mut self, code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>) -> bool {
        self.finish_in_place(code)
    }

    fn finish_in_place(
        &mut self,
        code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>,
    ) -> bool {
        let Some(mut state) = self.state.take() else { return false };
        let channel = Arc::clone(&state.channel);
        channel.line.group().usage().deferred_changed(false);
        if !self.deferral.claim() {
            return false;
        }
        let mut panicked = None;
        let outcome = Output::with(&channel.line, |out| {
            out.begin(Some(&channel));
            let mut reply = Reply { state: &mut state, out };
            let result = catch_unwind(AssertUnwindSafe(|| code(&mut reply)));
            let result = result.unwrap_or_else(|payload| {
                panicked = Some(payload);
                Err(SessionError::panicked())
            });
            let result = result.map_err(|error| channel.reason(error));
            match (result, state.deferral.take()) {
                (Ok(()), Some(again)) => Outcome::Deferred(again),
                // Whoever has it was quicker: that answer counts.
                (Err(_), Some(again)) if !again.claim() => Outcome::Deferred(again),
                (Ok(()), None) if state.feed.is_some() => feed(state, out, &mut panicked),
                (result, _) => Outcome::Ended(state.finish(out, result)),
            }
        });
        *lock(&self.deferral.outcome) = Some(outcome);
        channel.wake();
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        true
    }
}

/// Takes at once what the feed has: often that is all. The session goes on with the rest.
fn feed(
    mut state: Box<State>,
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
            let error = state.channel.reason(error);
            Outcome::Ended(state.finish(out, Err(error)))
        }
    }
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let Some(state) = &self.state else { return };
        let line = Arc::clone(&state.channel.line);
        let dropped = "The request was dropped without an answer.";
        if self.finish_in_place(|_| Err(SessionError::unsupported(dropped))) {
            line.count(Counter::DeferredDropped);
        }
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

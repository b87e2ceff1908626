//! [`Deferred`]: a request that is finished later.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use super::channel::Channel;
use super::error::SessionError;
use super::output::Output;
use super::reply::Reply;
use super::state::{Pulled, State};
use crate::runtime::Usage;
use crate::stats::Counter;
use crate::sync::shim::lock;

/// Finishes a request from any thread, after its handler has returned.
///
/// Made by [`Reply::defer`]. Until it is finished its session does nothing else, and no thread waits;
/// requests that come meanwhile wait their turn. A client can cancel the request, its deadline can pass
/// and its connection can end: then the client has its answer, and what is finished later goes nowhere.
/// Dropped unfinished, it answers an error.
///
/// *Shape*: keeps the context of its connection, and with it the descriptor, until it is finished,
/// dropped or cancelled. What was cancelled nobody ends but who has this: look at
/// [`is_cancelled`](Self::is_cancelled) now and then. `deferred_requests` counts it until it is let go.
#[must_use = "dropped, it answers an error"]
pub struct Deferred {
    deferral: Arc<Deferral>,
    /// Where it is counted.
    usage: Option<Arc<Usage>>,
}

/// What a [`Deferred`] shares with its session.
pub(super) struct Deferral {
    /// Taken by who answers. So one that was cancelled keeps no connection, however late its service
    /// lets go of it.
    state: Mutex<Option<Box<State>>>,
    outcome: Mutex<Option<Outcome>>,
}

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

impl fmt::Debug for Deferral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferral").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl Deferral {
    fn new(state: Option<Box<State>>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(state), outcome: Mutex::default() })
    }

    /// The right to answer, for one caller, and what the answer consists of. It may have a source or
    /// relay, which is the user's.
    pub(super) fn claim(&self) -> Option<Box<State>> {
        lock(&self.state).take()
    }

    pub(super) fn take_outcome(&self) -> Option<Outcome> {
        lock(&self.outcome).take()
    }
}

impl Drop for Deferral {
    fn drop(&mut self) {
        // The session ended while it was put off again, and does not come for it.
        if let Some(Outcome::Deferred(again)) = self.take_outcome() {
            drop(again.claim());
        }
    }
}

impl Deferred {
    pub(super) fn new(state: State) -> Self {
        let usage = Arc::clone(state.channel.line.group().usage());
        usage.deferred_changed(true);
        Self { deferral: Deferral::new(Some(Box::new(state))), usage: Some(usage) }
    }

    /// For a request that somebody else answers.
    pub(super) fn late() -> Self {
        Self { deferral: Deferral::new(None), usage: None }
    }

    pub(super) fn deferral(&self) -> Arc<Deferral> {
        Arc::clone(&self.deferral)
    }

    /// Whether there is no sense in finishing it, because the client has its answer or is gone. It may
    /// change at any time.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        lock(&self.deferral.state)
            .as_ref()
            .is_none_or(|state| state.channel.is_interrupted() || state.channel.is_dead())
    }

    /// Answers the request: `code` writes the reply, on this thread, as a handler would, and its ends
    /// are written by the layer. `false` when it was too late, and `code` was not called.
    pub fn finish(mut self, code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>) -> bool {
        self.finish_in_place(code).is_some()
    }

    /// Gives back the session that was answered.
    fn finish_in_place(
        &mut self,
        code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>,
    ) -> Option<Arc<Channel>> {
        if let Some(usage) = self.usage.take() {
            usage.deferred_changed(false);
        }
        let mut state = self.deferral.claim()?;
        let channel = Arc::clone(&state.channel);
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
                (Err(error), Some(again)) => match again.claim() {
                    Some(mut state) => Outcome::Ended(state.finish(out, Err(error))),
                    // Whoever has it was quicker: that answer counts.
                    None => Outcome::Deferred(again),
                },
                (Ok(()), None) if state.feed.is_some() => feed(state, out, &mut panicked),
                (result, None) => Outcome::Ended(state.finish(out, result)),
            }
        });
        *lock(&self.deferral.outcome) = Some(outcome);
        channel.wake();
        if let Some(payload) = panicked {
            resume_unwind(payload);
        }
        Some(channel)
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
        let dropped = "The request was dropped without an answer.";
        let answered = self.finish_in_place(|_| Err(SessionError::unsupported(dropped)));
        if let Some(channel) = answered {
            channel.line.count(Counter::DeferredDropped);
        }
    }
}

impl fmt::Debug for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred").field("cancelled", &self.is_cancelled()).finish_non_exhaustive()
    }
}

//! [`Writers`]: bounds the handlers that wait until their peers read.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use crate::sync::shim::lock;

/// Session that waits until its peer has read.
pub(super) trait WaitsForRoom: Send + Sync {
    /// Makes the session look for room again.
    fn wake_for_room(&self);

    /// Cancels the handler that waits in the session. Returns false if it waits no longer.
    fn cancel_writer(&self) -> bool;
}

/// Handlers of one server that write rows and wait for their peers, by group.
///
/// If more than `max_waiting_writers` of a group wait, the longest waiting handler is cancelled. So
/// peers that do not read occupy a bounded number of threads.
#[derive(Default)]
pub(super) struct Writers(Mutex<HashMap<usize, VecDeque<Weak<dyn WaitsForRoom>>>>);

impl Writers {
    /// Adds a handler. Returns the handler to cancel if more than `limit` wait now.
    pub(super) fn enter(
        &self,
        group: usize,
        writer: Weak<dyn WaitsForRoom>,
        limit: usize,
    ) -> Option<Arc<dyn WaitsForRoom>> {
        let mut groups = lock(&self.0);
        let waiting = groups.entry(group).or_default();
        waiting.push_back(writer);
        if waiting.len() <= limit {
            return None;
        }
        waiting.pop_front().as_ref().and_then(Weak::upgrade)
    }

    pub(super) fn leave(&self, group: usize, writer: &Weak<dyn WaitsForRoom>) {
        let mut groups = lock(&self.0);
        let waiting = groups.entry(group).or_default();
        if let Some(at) = waiting.iter().position(|one| one.ptr_eq(writer)) {
            waiting.remove(at);
        }
    }
}

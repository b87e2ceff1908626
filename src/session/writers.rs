//! [`Writers`]: bounds the threads that wait for peers to take rows.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use super::session_shared::SessionShared;
use crate::sync::shim::lock;

/// Handlers of one server that write rows and wait for their peers, by group.
///
/// If more than `max_waiting_writers` of a group wait, the longest waiting handler is cancelled. So
/// peers that do not read occupy a bounded number of threads.
#[derive(Debug, Default)]
pub(super) struct Writers(Mutex<HashMap<usize, VecDeque<Weak<SessionShared>>>>);

impl Writers {
    /// Adds a handler. Returns the handler to cancel if more than `limit` wait now.
    pub(super) fn enter(
        &self,
        group: usize,
        shared: &Arc<SessionShared>,
        limit: usize,
    ) -> Option<Arc<SessionShared>> {
        let mut groups = lock(&self.0);
        let waiting = groups.entry(group).or_default();
        waiting.push_back(Arc::downgrade(shared));
        if waiting.len() <= limit {
            return None;
        }
        waiting.pop_front().as_ref().and_then(Weak::upgrade)
    }

    pub(super) fn leave(&self, group: usize, shared: &Arc<SessionShared>) {
        let mut groups = lock(&self.0);
        let waiting = groups.entry(group).or_default();
        if let Some(at) = waiting.iter().position(|one| one.as_ptr() == Arc::as_ptr(shared)) {
            waiting.remove(at);
        }
    }
}

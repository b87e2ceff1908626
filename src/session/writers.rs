//! [`Writers`]: how many threads may wait for peers to take rows.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};

use super::channel::Channel;
use crate::sync::shim::lock;

/// The handlers of one server that write rows themselves and wait for their peers, by group.
///
/// Above `max_waiting_writers` in a group the one that has waited longest is cut, so peers that do not
/// read take a bounded number of threads.
#[derive(Debug, Default)]
pub(super) struct Writers(Mutex<HashMap<usize, VecDeque<Weak<Channel>>>>);

impl Writers {
    /// One more; the one to be cut, if there are too many now.
    pub(super) fn enter(
        &self,
        group: usize,
        channel: &Arc<Channel>,
        limit: usize,
    ) -> Option<Arc<Channel>> {
        let mut groups = lock(&self.0);
        let waiting = groups.entry(group).or_default();
        waiting.push_back(Arc::downgrade(channel));
        if waiting.len() <= limit {
            return None;
        }
        waiting.pop_front().as_ref().and_then(Weak::upgrade)
    }

    /// It waits no more.
    pub(super) fn leave(&self, group: usize, channel: &Arc<Channel>) {
        let mut groups = lock(&self.0);
        let waiting = groups.entry(group).or_default();
        if let Some(at) = waiting.iter().position(|one| one.as_ptr() == Arc::as_ptr(channel)) {
            waiting.remove(at);
        }
    }
}

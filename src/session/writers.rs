//! [`Writers`]: how many threads may wait for peers to take rows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, Weak};

use super::channel::Channel;
use crate::sync::shim::lock;

/// The handlers of one server that write rows themselves and wait for their peers, by group.
///
/// Above `max_waiting_writers` in a group the one that has waited longest is cut, so peers that do not
/// read take a bounded number of threads.
#[derive(Debug)]
pub(super) struct Writers(Box<[Mutex<VecDeque<Weak<Channel>>>]>);

impl Writers {
    pub(super) fn new(groups: usize) -> Self {
        Self((0..groups).map(|_| Mutex::default()).collect())
    }

    /// One more; the one to be cut, if there are too many now.
    pub(super) fn enter(
        &self,
        group: usize,
        channel: &Arc<Channel>,
        limit: usize,
    ) -> Option<Arc<Channel>> {
        let mut waiting = lock(&self.0[group]);
        waiting.push_back(Arc::downgrade(channel));
        if waiting.len() <= limit {
            return None;
        }
        waiting.pop_front().as_ref().and_then(Weak::upgrade)
    }

    /// It waits no more.
    pub(super) fn leave(&self, group: usize, channel: &Arc<Channel>) {
        let mut waiting = lock(&self.0[group]);
        if let Some(at) = waiting.iter().position(|one| one.as_ptr() == Arc::as_ptr(channel)) {
            waiting.remove(at);
        }
    }
}

//! [`Front`]: what belongs to one session of a client.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoll_group::client::Summary;
use epoll_group::codec::message::notice::Warning;

use crate::cancel::Cancels;

/// A session of a client. Shared with what runs for it.
#[derive(Debug)]
pub(crate) struct Front {
    /// What it is told as its `connection_id()`.
    pub(crate) number: u32,
    pub(crate) user: String,
    pub(crate) cancels: Arc<Cancels>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Of the last statement.
    pub(crate) told: Remembered,
}

/// What the last statement said, for who asks for it later.
#[derive(Debug, Default)]
pub(crate) struct Remembered {
    pub(crate) insert_id: u64,
    pub(crate) affected: i64,
    pub(crate) warnings: Vec<Warning>,
}

impl Front {
    pub(crate) fn new(number: u32, user: &str) -> Self {
        Self {
            number,
            user: user.to_owned(),
            cancels: Arc::default(),
            state: Mutex::default(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Remembered {
    pub(crate) fn note(&mut self, summary: &Summary) {
        if let Some(id) = summary.insert_id {
            self.insert_id = id;
        }
        self.affected = summary.affected.try_into().unwrap_or(i64::MAX);
        self.warnings.clone_from(&summary.warnings);
    }
}

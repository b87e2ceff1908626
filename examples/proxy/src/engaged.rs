//! Owners of a session of a data node while an answer comes in it. They give it back when it has ended.
#![forbid(unsafe_code)]

use std::sync::Arc;

use epoll_group::client::{Request, Summary};
use epoll_group::pool::Pooled;
use epoll_group::session::SessionError;

use crate::ask::Stage;
use crate::cancel::Ticket;
use crate::front::{Front, State};
use crate::nodes::{Lease, Name, Nodes};
use crate::passage::{End, User};

/// A session borrowed for one statement. If its answer does not end, the pool closes the session.
pub struct Borrowed {
    pub front: Arc<Front>,
    pub nodes: Arc<Nodes>,
    pub node: usize,
    pub ticket: Ticket,
    pub lease: Option<Lease>,
}

impl User for Borrowed {
    fn node(&self) -> &Name {
        &self.nodes.get(self.node).name
    }

    fn ended(mut self, end: End<'_>) {
        let front = Arc::clone(&self.front);
        if let End::Lost(_) = end {
            self.lease.take().into_iter().for_each(|lease| self.nodes.lost(self.node, lease));
        }
        drop(self);
        let mut state = front.state();
        match end {
            End::Well(summary) => state.told.note(summary),
            End::Failed(error) | End::Lost(error) => state.told.failed(error),
        }
    }
}

impl Drop for Borrowed {
    /// Runs also if the answer was given up. A later cancel must not hit the session's next statement.
    fn drop(&mut self) {
        self.ticket.ended();
        drop(self.lease.take());
    }
}

/// A session that the client may keep. It goes back to its place even if the answer is given up.
pub struct Engaged {
    front: Arc<Front>,
    nodes: Arc<Nodes>,
    node: usize,
    lease: Option<Lease>,
    /// Number of the last setting that the session has.
    applied: u64,
    ticket: Ticket,
    /// Reason for the statement. `None` when the statement is over and the session was put back.
    purpose: Option<Purpose>,
}

/// The reason for a statement.
pub enum Purpose {
    /// A statement of the transaction, if there is one.
    Statement,
    /// A statement that any node can answer, while the transaction is at no node.
    Aside,
    /// A change of these variables. The flag is [`Own::Set`](crate::route::Own::Set)'s `is_utf8`.
    Set(Vec<String>, Option<bool>, Request),
}

impl Engaged {
    pub const fn new(
        front: Arc<Front>,
        nodes: Arc<Nodes>,
        node: usize,
        lease: Option<Lease>,
        applied: u64,
        ticket: Ticket,
        purpose: Purpose,
    ) -> Self {
        Self { front, nodes, node, lease, applied, ticket, purpose: Some(purpose) }
    }

    /// Ends with this error in place of an answer.
    pub fn failed(mut self, stage: Stage, error: &SessionError) {
        let Some(purpose) = self.purpose.take() else { return };
        let front = Arc::clone(&self.front);
        let mut state = front.state();
        match (stage, &self.lease) {
            // It is unknown which steps were done, so the session is not used again. A transaction
            // that is at this node is lost. Any other one has not begun here.
            (Stage::Before, _) => {
                if state.is_held_for_transaction(self.node) {
                    state.lose(&self.nodes.get(self.node).name);
                }
                drop(state);
                return self.leave_with(false);
            }
            (Stage::Statement, None) => self.lost(&mut state, &purpose),
            (Stage::Statement, Some(_)) => {
                let is_usable = self.refused(&mut state, &purpose, error.code);
                drop(state);
                return self.leave_with(is_usable);
            }
        }
        drop(state);
        self.leave();
    }

    /// Notes that the session is gone.
    fn lost(&self, state: &mut State, purpose: &Purpose) {
        let is_here = match purpose {
            // It may have begun the transaction.
            Purpose::Statement => {
                let transaction = state.transaction.as_ref();
                transaction.is_some_and(|own| own.node.is_none_or(|at| at == self.node))
            }
            Purpose::Aside => false,
            Purpose::Set(..) => state.is_held_for_transaction(self.node),
        };
        if is_here {
            state.is_at(self.node);
            state.lose(&self.nodes.get(self.node).name);
        }
    }

    /// Notes that the data node refused the statement. Returns false if the session must be discarded.
    fn refused(&self, state: &mut State, purpose: &Purpose, code: u32) -> bool {
        match purpose {
            Purpose::Statement => {
                state.is_at(self.node);
                if State::ends_transaction(code) {
                    state.lose(&self.nodes.get(self.node).name);
                }
                true
            }
            Purpose::Aside => true,
            // The data node may have made a part of the changes.
            Purpose::Set(..) => state.discard_after_transaction(self.node),
        }
    }

    fn done(&mut self, state: &mut State, purpose: Purpose, summary: &Summary) {
        state.told.note(summary);
        match purpose {
            Purpose::Statement => state.is_at(self.node),
            Purpose::Aside => {}
            Purpose::Set(names, is_utf8, request) => {
                self.applied = state.set(names, is_utf8, request);
            }
        }
    }

    fn leave_with(&mut self, is_usable: bool) {
        if !is_usable {
            self.lease.take().into_iter().for_each(Pooled::discard);
        }
        self.leave();
    }

    fn leave(&mut self) {
        self.ticket.ended();
        let lease = self.lease.take();
        self.front.put_back(self.node, lease, self.applied);
        self.front.leave();
    }
}

impl User for Engaged {
    fn node(&self) -> &Name {
        &self.nodes.get(self.node).name
    }

    fn ended(mut self, end: End<'_>) {
        let Some(purpose) = self.purpose.take() else { return };
        if let End::Lost(_) = end {
            self.lease.take().into_iter().for_each(|lease| self.nodes.lost(self.node, lease));
        }
        let front = Arc::clone(&self.front);
        let mut state = front.state();
        let is_usable = match end {
            End::Well(summary) => {
                self.done(&mut state, purpose, summary);
                true
            }
            End::Failed(error) => {
                state.told.failed(error);
                self.refused(&mut state, &purpose, error.code)
            }
            End::Lost(error) => {
                state.told.failed(error);
                self.lost(&mut state, &purpose);
                false
            }
        };
        drop(state);
        self.leave_with(is_usable);
    }
}

impl Drop for Engaged {
    /// Gives up the rest of the answer. The session's next statement waits for its end.
    fn drop(&mut self) {
        let Some(purpose) = self.purpose.take() else { return };
        let front = Arc::clone(&self.front);
        let mut state = front.state();
        match purpose {
            Purpose::Statement => state.is_at(self.node),
            Purpose::Aside => {}
            // It is unknown which settings the session has.
            Purpose::Set(..) => {
                self.lost(&mut state, &purpose);
                drop(state);
                return self.leave_with(false);
            }
        }
        drop(state);
        self.leave();
    }
}

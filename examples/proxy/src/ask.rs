//! [`Ask`]: one statement at one data node, without a thread.
//!
//! ```text
//!   session ──▶ steps, one after the other ──▶ statement ──▶ answer
//!   (borrowed,   (settings, begin)                 │
//!    or held)                                      ▼
//!        ▲                        lost: once more, if nothing was done or
//!        └─────────────────────── reading again does no harm
//! ```
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use epoll_group::client::{self, Answer, ErrorKind, Fate, Request};
use epoll_group::codec::error::Scope;
use epoll_group::pool::{GetError, Pooled};
use epoll_group::session::SessionError;

use crate::cancel::Ticket;
use crate::nodes::{Lease, Nodes};
use crate::refuse::{is_busy, no_session, of_node};
use crate::route::Effect;

/// One statement at one data node.
pub struct Ask {
    pub nodes: Arc<Nodes>,
    pub node: usize,
    /// Present until it is sent for the last time.
    pub request: Option<Request>,
    pub effect: Effect,
    /// Requests that the session runs before it.
    pub steps: VecDeque<Request>,
    pub deadline: Instant,
    pub ticket: Ticket,
    /// Number of tries left in other sessions; 0 where another session would make a difference.
    pub retries: u32,
    /// Called once, when the first session is there or none is to be had.
    pub has_borrowed: Option<Box<dyn FnOnce() + Send>>,
}

/// Outcome of an ask.
pub struct Asked {
    /// The session, unless it was lost.
    pub lease: Option<Lease>,
    pub result: Result<Answer, SessionError>,
    /// How far the ask came.
    pub stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The statement was not sent.
    Before,
    /// The statement was sent.
    Statement,
}

/// Called with the outcome, on a worker or on the thread that asks.
pub type Then = Box<dyn FnOnce(Asked) + Send>;

/// Number of tries after the first of a lost statement.
pub const RETRIES: u32 = 2;

impl Ask {
    /// Asks in this session, or in one of the pool.
    pub fn start(mut self, lease: Option<Lease>, then: Then) {
        match lease {
            Some(lease) => {
                self.borrowed();
                self.step(lease, then);
            }
            None => self.borrow(then),
        }
    }

    fn borrow(self, then: Then) {
        let nodes = Arc::clone(&self.nodes);
        let (node, deadline) = (self.node, self.deadline);
        nodes.borrow_then(node, deadline, move |got| self.got(got, then));
    }

    fn borrowed(&mut self) {
        if let Some(code) = self.has_borrowed.take() {
            code();
        }
    }

    fn got(mut self, got: Result<Lease, GetError>, then: Then) {
        self.borrowed();
        match got {
            Ok(lease) if self.ticket.is_cancelled() => {
                drop(lease);
                let result = Err(SessionError::interrupted());
                then(Asked { lease: None, result, stage: Stage::Before });
            }
            Ok(lease) => self.step(lease, then),
            Err(error) => {
                let node = self.nodes.get(self.node);
                let version = node.version();
                let result = Err(no_session(node.at(version), &error));
                // The pool is closed when the proxy ends.
                if !is_busy(&error) && !matches!(error, GetError::Closed) {
                    self.nodes.suspect(self.node, version);
                }
                then(Asked { lease: None, result, stage: Stage::Before });
            }
        }
    }

    /// Runs the steps, and then the statement.
    fn step(mut self, mut lease: Lease, then: Then) {
        let Some(step) = self.steps.pop_front() else { return self.send(lease, then) };
        match lease.send(step.timeout(self.left())) {
            Ok(pending) => pending.then(move |answer| match answer {
                Ok(_) => self.step(lease, then),
                Err(error) => self.failed(lease, &error, Stage::Before, then),
            }),
            Err(error) => self.failed(lease, &error, Stage::Before, then),
        }
    }

    fn send(mut self, mut lease: Lease, then: Then) {
        let request = if self.retries > 0 { self.request.clone() } else { self.request.take() };
        let Some(request) = request else { return };
        match lease.send(request.timeout(self.left())) {
            Ok(pending) => {
                self.ticket.sent(self.node, lease.canceller());
                pending.then(move |answer| match answer {
                    Ok(answer) => {
                        then(Asked {
                            lease: Some(lease),
                            result: Ok(answer),
                            stage: Stage::Statement,
                        });
                    }
                    Err(error) => self.failed(lease, &error, Stage::Statement, then),
                });
            }
            Err(error) => self.failed(lease, &error, Stage::Statement, then),
        }
    }

    /// Time until the deadline.
    fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn failed(mut self, lease: Lease, error: &client::Error, stage: Stage, then: Then) {
        let node = self.nodes.get(self.node);
        let name = node.at(Pooled::version(&lease));
        if is_said(error) {
            self.ticket.left(self.node);
            return then(Asked { lease: Some(lease), result: Err(of_node(name, error)), stage });
        }
        self.nodes.lost(self.node, lease);
        let harmless = match error.fate() {
            Fate::NotSent => true,
            _ => self.effect == Effect::Read && !error.is_timeout(),
        };
        let again = self.retries > 0
            && stage == Stage::Statement
            && harmless
            && !self.ticket.is_cancelled()
            && Instant::now() < self.deadline;
        if again {
            self.retries -= 1;
            return self.borrow(then);
        }
        then(Asked { lease: None, result: Err(of_node(name, error)), stage });
    }
}

/// True if the error came from the data node, or the request was too long to be sent, and the session
/// goes on.
pub fn is_said(error: &client::Error) -> bool {
    match error.kind() {
        ErrorKind::Server(said) => said.scope() == Scope::Request,
        ErrorKind::TooLong { .. } => true,
        _ => false,
    }
}

//! [`Cancels`]: interrupts the statements that data nodes run for a client.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use epoll_group::client::Canceller;

/// Statements that run at data nodes for a session of a client.
#[derive(Debug, Default)]
pub struct Cancels {
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    /// Number of the request.
    request: u64,
    is_cancelled: bool,
    /// Cancellers of running statements, with the numbers of their data nodes.
    at: Vec<(usize, Canceller)>,
}

/// One request of a session, as far as it may be cancelled. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Ticket {
    cancels: Arc<Cancels>,
    request: u64,
}

impl Cancels {
    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the next request. The last one has ended or was cancelled. This one may be cancelled
    /// already.
    pub fn begin(self: &Arc<Self>) -> Ticket {
        let mut running = self.running();
        running.request += 1;
        running.at.clear();
        Ticket { cancels: Arc::clone(self), request: running.request }
    }

    /// The request that was cancelled has ended for the client. Its statements stay cancelled, also
    /// those that are yet to be sent.
    pub fn clear(&self) {
        let mut running = self.running();
        running.request += 1;
        running.is_cancelled = false;
    }

    /// Interrupts what runs.
    pub fn cancel(&self) {
        let mut running = self.running();
        running.is_cancelled = true;
        for (_, canceller) in running.at.drain(..) {
            canceller.cancel();
        }
    }
}

impl Ticket {
    /// True if the client no longer waits for it.
    pub fn is_cancelled(&self) -> bool {
        let running = self.cancels.running();
        running.is_cancelled || running.request != self.request
    }

    /// A statement was sent to a node, and can be interrupted until it [`left`](Self::left) or all have
    /// [`ended`](Self::ended).
    pub fn sent(&self, node: usize, canceller: Canceller) {
        let mut running = self.cancels.running();
        if running.is_cancelled || running.request != self.request {
            canceller.cancel();
        } else {
            running.at.push((node, canceller));
        }
    }

    /// The answer of a node is there: another client may soon have its session.
    pub fn left(&self, node: usize) {
        let mut running = self.cancels.running();
        if running.request == self.request {
            running.at.retain(|(at, _)| *at != node);
        }
    }

    /// All answers are there: other clients may soon have the sessions.
    pub fn ended(&self) {
        let mut running = self.cancels.running();
        if running.request == self.request {
            running.at.clear();
        }
    }
}

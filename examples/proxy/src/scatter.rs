//! One statement at all data nodes, and one answer of theirs.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use epoll_group::pool::Pooled;
use epoll_group::session::{Deferred, SessionError};

use crate::ask::{Ask, Asked, RETRIES, Stage};
use crate::cancel::Ticket;
use crate::front::{Front, Place};
use crate::merge::{Merged, Part};
use crate::nodes::Nodes;
use crate::route::{Effect, Merge};
use crate::turn::{Turn, Work};

/// Answers of the nodes so far.
struct Gathering {
    nodes: Arc<Nodes>,
    front: Arc<Front>,
    ticket: Ticket,
    merge: Vec<Merge>,
    /// Sessions go back to the client, which has left others waiting.
    held: bool,
    parts: Mutex<Parts>,
}

struct Parts {
    came: Vec<Option<Result<Part, SessionError>>>,
    missing: usize,
    /// Until all are there.
    deferred: Option<Deferred>,
}

/// Asks all nodes at the same time: in these sessions, or in borrowed ones.
pub fn start(turn: Turn, places: Option<Vec<Place>>) {
    let Turn { nodes, front, deferred, ticket, deadline, work, request } = turn;
    let Work::Gather { merge } = work else { return };
    let all = nodes.len();
    let held = places.is_some();
    let effect = if merge.is_empty() { Effect::Write } else { Effect::Read };
    let borrowed = || Place { lease: None, steps: VecDeque::new(), applied: 0 };
    let places = places.unwrap_or_else(|| (0..all).map(|_| borrowed()).collect());
    let came = (0..all).map(|_| None).collect();
    let parts = Parts { came, missing: all, deferred: Some(deferred) };
    let gathering = Arc::new(Gathering {
        nodes: Arc::clone(&nodes),
        front,
        ticket: ticket.clone(),
        merge,
        held,
        parts: Mutex::new(parts),
    });
    for (node, place) in places.into_iter().enumerate() {
        let own = place.lease.is_some() || !place.steps.is_empty();
        let ask = Ask {
            nodes: Arc::clone(&nodes),
            node,
            request: Some(request.clone()),
            effect,
            steps: place.steps,
            deadline,
            ticket: ticket.clone(),
            retries: if own { 0 } else { RETRIES },
        };
        let (gathering, applied) = (Arc::clone(&gathering), place.applied);
        ask.start(place.lease, Box::new(move |asked| gathering.take(node, applied, asked)));
    }
}

impl Gathering {
    fn take(&self, node: usize, applied: u64, asked: Asked) {
        let Asked { lease, result, stage } = asked;
        let is_known = stage == Stage::Statement;
        let part = result.and_then(|answer| Part::read(answer, &self.nodes.get(node).name));
        // Others still run: what is cancelled from now on must not be what this session does next.
        self.ticket.left(node);
        if self.held && is_known {
            self.front.put_back(node, lease, applied);
        } else if is_known {
            drop(lease);
        } else {
            lease.into_iter().for_each(Pooled::discard);
        }
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        parts.came[node] = Some(part);
        parts.missing -= 1;
        if parts.missing > 0 {
            return;
        }
        let came: Vec<_> = parts.came.drain(..).flatten().collect();
        let deferred = parts.deferred.take();
        drop(parts);
        self.finish(came, deferred);
    }

    fn finish(&self, came: Vec<Result<Part, SessionError>>, deferred: Option<Deferred>) {
        self.ticket.ended();
        if self.held {
            self.front.leave();
        }
        let Some(deferred) = deferred else { return };
        deferred.finish(|reply| {
            let parts = came.into_iter().collect::<Result<Vec<_>, _>>()?;
            Merged::of(parts, &self.merge)?.write(reply)
        });
    }
}

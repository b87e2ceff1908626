//! One statement at several data nodes at the same time.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use epoll_group::client::{Answer, Summary};
use epoll_group::pool::Pooled;
use epoll_group::session::{Deferred, SessionError};

use crate::ask::{Ask, Asked, RETRIES, Stage, Then, is_said};
use crate::cancel::Ticket;
use crate::front::{Front, Place};
use crate::nodes::{Lease, Nodes};
use crate::refuse::of_node;
use crate::route::{Effect, Merge, RowRange};
use crate::spread::{Spread, add};
use crate::turn::{Turn, Work};

/// Answers of the nodes so far.
struct Gathering {
    lent: Lent,
    merge: Option<(Arc<Merge>, RowRange)>,
    came: Vec<Option<Result<Answer, SessionError>>>,
    missing: usize,
    deferred: Deferred,
}

/// Sessions of data nodes in which a statement runs. Each goes back when its answer has ended.
pub struct Lent {
    nodes: Arc<Nodes>,
    front: Arc<Front>,
    ticket: Ticket,
    /// Set if the client holds the sessions. Its next request waits until this one has ended.
    is_held: bool,
    sessions: Vec<LentSession>,
}

struct LentSession {
    node: usize,
    lease: Option<Lease>,
    /// Number of the last setting that the session has.
    applied: u64,
}

/// Asks these nodes at the same time: in these sessions, or in borrowed ones.
pub fn start(turn: Turn, places: Option<Vec<Place>>) {
    let Turn { nodes, front, deferred, ticket, deadline, work, request } = turn;
    let Work::Gather { nodes: asked, merge } = work else { return };
    let is_held = places.is_some();
    let effect = if merge.is_some() { Effect::Read } else { Effect::Write };
    let places = places.unwrap_or_else(|| asked.iter().map(|_| Place::default()).collect());
    let session = |(node, place): (&usize, &Place)| LentSession {
        node: *node,
        lease: None,
        applied: place.applied,
    };
    let sessions = asked.iter().zip(&places).map(session).collect();
    let lent = Lent { nodes: Arc::clone(&nodes), front, ticket: ticket.clone(), is_held, sessions };
    let came = asked.iter().map(|_| None).collect();
    let gathering = Gathering { lent, merge, came, missing: asked.len(), deferred };
    let gathering = Arc::new(Mutex::new(Some(gathering)));
    let mut asks = VecDeque::new();
    for (at, (node, place)) in asked.into_iter().zip(places).enumerate() {
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
            has_borrowed: None,
        };
        let (gathering, ticket) = (Arc::clone(&gathering), ticket.clone());
        let then: Then = Box::new(move |mut asked| {
            // A session whose answer is complete goes back at once. The answer of another node may
            // take long.
            if let Some(free) = asked.lease.take_if(|lease| !is_held && lease.is_idle()) {
                ticket.left(node);
                drop(free);
            }
            take(&gathering, at, asked);
        });
        asks.push_back((ask, place.lease, then));
    }
    start_in_turn(asks);
}

/// Starts each ask when the one before it has its session. All statements borrow in the order of the
/// nodes. Otherwise two of them could each hold the last session that the other waits for. Only a retry of
/// a lost statement may borrow out of order, until the deadline.
fn start_in_turn(mut asks: VecDeque<(Ask, Option<Lease>, Then)>) {
    let Some((mut ask, lease, then)) = asks.pop_front() else { return };
    ask.has_borrowed = Some(Box::new(move || start_in_turn(asks)));
    ask.start(lease, then);
}

/// Takes the answer of one node. The last one begins the answer to the client.
fn take(gathering: &Mutex<Option<Gathering>>, at: usize, asked: Asked) {
    let Asked { mut lease, result, stage } = asked;
    if stage == Stage::Before {
        // It is unknown which steps were done.
        lease.take().into_iter().for_each(Pooled::discard);
    }
    let mut place = gathering.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(own) = place.as_mut() else { return };
    own.lent.sessions[at].lease = lease;
    own.came[at] = Some(result);
    own.missing -= 1;
    if own.missing > 0 {
        return;
    }
    let Some(Gathering { mut lent, merge, came, deferred, .. }) = place.take() else { return };
    drop(place);
    let came = came.into_iter().flatten();
    let Some((merge, range)) = merge else {
        let summary = define(came, &mut lent);
        let front = Arc::clone(&lent.front);
        drop(lent);
        return front.answer(deferred, |reply| {
            let summary = summary?;
            front.state().told.note(&summary);
            let ending = reply.ending();
            ending.affected = summary.affected;
            for warning in summary.warnings {
                ending.warning(warning.level(), warning.code, warning.msg);
            }
            Ok(())
        });
    };
    match came.collect::<Result<Vec<_>, _>>() {
        Ok(answers) => {
            deferred.finish(|reply| {
                reply.relay(Spread::new(answers, merge, range, lent));
                Ok(())
            });
        }
        Err(error) => {
            let front = Arc::clone(&lent.front);
            drop(lent);
            front.answer(deferred, |_| Err(error));
        }
    }
}

/// Outcome of a definition. Its answers are small, and so there as a whole. If some nodes did it and
/// others failed, the error names both.
fn define(
    came: impl Iterator<Item = Result<Answer, SessionError>>,
    lent: &mut Lent,
) -> Result<Summary, SessionError> {
    let (mut sum, mut first_error) = (Summary::default(), None);
    let (mut done, mut failed) = (vec![], vec![]);
    for (at, result) in came.enumerate() {
        let name = lent.name(at).to_string();
        let finished = result.and_then(|answer| {
            answer.finish().map_err(|error| {
                if !is_said(&error) {
                    lent.lost(at);
                }
                of_node(&name, &error)
            })
        });
        match finished {
            Ok(summary) => {
                add(&mut sum, &summary);
                done.push(name);
            }
            Err(error) => {
                first_error.get_or_insert(error);
                failed.push(name);
            }
        }
    }
    match first_error {
        None => Ok(sum),
        Some(error) if done.is_empty() => Err(error),
        Some(error) => {
            let text = String::from_utf8_lossy(&error.message);
            let text =
                format!("{text}; done on {}; failed on {}", done.join(", "), failed.join(", "));
            Err(SessionError::new(error.code, &error.state, text))
        }
    }
}

impl Lent {
    /// Name of the node of a session.
    pub fn name(&self, at: usize) -> impl std::fmt::Display {
        &self.nodes.get(self.sessions[at].node).name
    }

    pub fn front(&self) -> &Front {
        &self.front
    }

    /// Gives a session back, whose answer has ended or is given up.
    pub fn back(&mut self, at: usize) {
        let LentSession { node, lease, applied } = &mut self.sessions[at];
        // Others still run: a cancel from now on must not hit what this session does next.
        self.ticket.left(*node);
        if self.is_held {
            self.front.put_back(*node, lease.take(), *applied);
        } else {
            drop(lease.take());
        }
    }

    /// Closes a session that was lost.
    pub fn lost(&mut self, at: usize) {
        let LentSession { node, lease, .. } = &mut self.sessions[at];
        lease.take().into_iter().for_each(|lease| self.nodes.lost(*node, lease));
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        for at in 0..self.sessions.len() {
            self.back(at);
        }
        self.ticket.ended();
        if self.is_held {
            self.front.leave();
        }
    }
}

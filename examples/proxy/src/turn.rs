//! [`Turn`]: one request of a client, from when it was understood to its answer.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use epoll_group::client::{Request, Summary};
use epoll_group::codec::proto::tso::Operation;
use epoll_group::pool::Pooled;
use epoll_group::session::{Deferred, Reply, SessionError};

use crate::ask::{Ask, Asked, RETRIES};
use crate::cancel::Ticket;
use crate::engaged::{Borrowed, Engaged, Purpose};
use crate::front::{Front, Place, State, Transaction};
use crate::local;
use crate::nodes::Nodes;
use crate::passage::Passage;
use crate::refuse::{no_savepoint, second_node, unroutable};
use crate::route::{Effect, Merge, Own, RowRange};
use crate::scatter;

/// One request of a client.
pub struct Turn {
    pub nodes: Arc<Nodes>,
    pub front: Arc<Front>,
    pub deferred: Deferred,
    pub ticket: Ticket,
    pub deadline: Instant,
    pub work: Work,
    /// Request to the data node.
    pub request: Request,
}

/// The thing to do.
#[derive(Debug)]
pub enum Work {
    /// A node does it; `None`: any.
    Forward {
        node: Option<usize>,
        effect: Effect,
    },
    /// These nodes do it, and their answers become one. A definition has no rows to merge.
    Gather {
        nodes: Vec<usize>,
        merge: Option<(Arc<Merge>, RowRange)>,
    },
    Own(Own),
}

const COMMIT: &str = "commit";
const ROLLBACK: &str = "rollback";

impl Turn {
    /// True if it leaves the session of the client as it is.
    pub const fn is_free(&self) -> bool {
        matches!(self.work, Work::Forward { .. } | Work::Gather { .. })
    }

    /// Runs it in borrowed sessions, beside whatever else is done for the client.
    pub fn run_freely(self) {
        match &self.work {
            &Work::Forward { node, effect } => {
                let node = node.unwrap_or_else(|| self.nodes.any());
                self.ask(node, effect, Place::default(), move |turn, asked| {
                    let Asked { lease, result, .. } = asked;
                    let Self { nodes, front, ticket, .. } = turn;
                    let borrowed =
                        Borrowed { front: Arc::clone(&front), nodes, node, ticket, lease };
                    front.answer(turn.deferred, move |reply| {
                        reply.relay(Passage::new(result?, borrowed));
                        Ok(())
                    });
                });
            }
            Work::Gather { .. } => scatter::start(self, None),
            Work::Own(_) => self.run(),
        }
    }

    /// Runs the request while no other request of the client is under way. Its end calls
    /// [`Front::leave`].
    pub fn run(mut self) {
        match std::mem::replace(&mut self.work, Work::Own(Own::Nothing)) {
            Work::Forward { node, effect } => self.forward(node, effect),
            Work::Gather { nodes, merge } => self.gather(nodes, merge),
            Work::Own(own) => self.run_own(own),
        }
    }

    /// Answers a request that was cancelled before it ran.
    pub fn interrupt(self) {
        self.deferred.finish(|_| Err(SessionError::interrupted()));
    }

    fn run_own(self, own: Own) {
        match own {
            Own::Told(told) => {
                let front = Arc::clone(&self.front);
                self.tell(move |reply| local::tell(&front, &told, reply));
            }
            Own::Warnings(least) => {
                let front = Arc::clone(&self.front);
                self.tell(move |reply| local::warnings(&front, least, reply));
            }
            Own::Begin => self.end_transaction(COMMIT, |turn, done| {
                if done.is_ok() {
                    turn.front.state().begin(turn.request.clone());
                }
                turn.finish(done);
            }),
            Own::Commit => self.end_transaction(COMMIT, |turn, done| turn.finish(done)),
            Own::Rollback => self.end_transaction(ROLLBACK, |turn, done| turn.finish(done)),
            // The statement commits only if it changes autocommit.
            Own::Autocommit(true) if self.front.state().manual_commit => {
                self.end_transaction(COMMIT, |turn, done| {
                    if done.is_ok() {
                        turn.front.state().manual_commit = false;
                    }
                    turn.finish(done);
                });
            }
            Own::Autocommit(true) => self.finish(Ok(())),
            Own::Autocommit(false) => {
                self.front.state().manual_commit = true;
                self.finish(Ok(()));
            }
            Own::Nothing => self.finish(Ok(())),
            Own::NextTransaction => {
                let done = self.front.state().set_next(self.request.clone());
                self.finish(done);
            }
            Own::Savepoint(name, action) => self.savepoint(&name, action),
            Own::Set { names, is_default: true, .. } if !self.front.state().has_set(&names) => {
                self.finish(Ok(()));
            }
            Own::Set { names, is_utf8, .. } => self.set(names, is_utf8),
        }
    }

    /// Ends a statement of the proxy's own.
    fn finish(self, done: Result<(), SessionError>) {
        if done.is_ok() {
            self.front.state().told.note(&Summary::default());
        }
        self.tell(|_| done);
    }

    /// Answers a statement in place of a data node.
    fn tell(self, code: impl FnOnce(&mut Reply<'_>) -> Result<(), SessionError>) {
        self.ticket.ended();
        self.front.leave();
        self.front.answer(self.deferred, code);
    }

    /// Where a statement of the transaction is to run; an error if it must not.
    fn node_in_transaction(
        &self,
        state: &mut State,
        node: Option<usize>,
    ) -> Result<usize, SessionError> {
        let Some(transaction) = state.transaction_of_statement() else {
            return Ok(node.unwrap_or_else(|| self.nodes.any()));
        };
        if let Some(lost) = &transaction.lost {
            return Err(lost.clone());
        }
        match (transaction.node, node) {
            (Some(first), Some(second)) if first != second => {
                let name = |node: usize| &self.nodes.get(node).name;
                Err(second_node(name(first), name(second)))
            }
            (Some(first), _) => Ok(first),
            (None, node) => Ok(node.unwrap_or_else(|| self.nodes.any())),
        }
    }

    fn forward(self, node: Option<usize>, effect: Effect) {
        let mut state = self.front.state();
        let placed = self.node_in_transaction(&mut state, node).map(|at| {
            if node.is_some() {
                state.drop_next();
            }
            // A statement that any node can answer does not decide where a transaction is.
            let decided = state.transaction.as_ref().is_some_and(|own| own.node.is_some());
            let aside = node.is_none() && !decided;
            let purpose = if aside { Purpose::Aside } else { Purpose::Statement };
            (at, state.place(at, !aside), purpose)
        });
        drop(state);
        match placed {
            Ok((at, place, purpose)) => self.engage(at, effect, place, purpose),
            Err(error) => self.finish(Err(error)),
        }
    }

    fn gather(mut self, nodes: Vec<usize>, merge: Option<(Arc<Merge>, RowRange)>) {
        let mut state = self.front.state();
        if state.is_in_transaction() || merge.is_some() && state.manual_commit {
            let lost = state.transaction.as_ref().and_then(|transaction| transaction.lost.clone());
            drop(state);
            let error = lost.unwrap_or_else(|| match merge {
                Some(_) => {
                    let names = nodes.iter().map(|node| self.nodes.get(*node).name.to_string());
                    let names = names.collect::<Vec<_>>().join(", ");
                    let why = format!(
                        "without two-phase commit it is on one data node, and the rows are on {names}"
                    );
                    unroutable("a select over several data nodes in a transaction", why)
                }
                None => {
                    let why = "it would commit the transaction";
                    unroutable("a definition in a transaction", why)
                }
            });
            return self.finish(Err(error));
        }
        // Texts that come in another character set have another order, and different ones may be equal.
        let has_other_texts = state.has_other_texts;
        let merge = merge.map(|(merge, range)| {
            let texts_by_bytes = merge.texts_by_bytes && !has_other_texts;
            if texts_by_bytes == merge.texts_by_bytes {
                return (merge, range);
            }
            (Arc::new(Merge { texts_by_bytes, ..Merge::clone(&merge) }), range)
        });
        state.drop_next();
        let places = nodes.iter().map(|node| state.place(*node, false)).collect();
        drop(state);
        self.work = Work::Gather { nodes, merge };
        scatter::start(self, Some(places));
    }

    fn savepoint(self, name: &str, action: Operation) {
        let mut state = self.front.state();
        let refused = match state.transaction_of_statement() {
            // Without a transaction it is over at once.
            None if action == Operation::Set => Ok(None),
            None => Err(no_savepoint(name)),
            Some(Transaction { lost: Some(lost), .. }) => Err(lost.clone()),
            Some(Transaction { node: Some(node), .. }) => Ok(Some(*node)),
            Some(transaction) => {
                transaction.plan_savepoint(name, action, &self.request).map(|()| None)
            }
        };
        drop(state);
        match refused {
            Ok(Some(node)) => self.forward(Some(node), Effect::Write),
            Ok(None) => self.finish(Ok(())),
            Err(error) => self.finish(Err(error)),
        }
    }

    fn set(self, names: Vec<String>, is_utf8: Option<bool>) {
        let mut state = self.front.state();
        let request = self.request.clone();
        let lost = state.transaction.as_ref().and_then(|transaction| transaction.lost.clone());
        let placed = lost.map_or(Ok(()), Err).and_then(|()| state.can_set(&names)).map(|()| {
            let node = state.some_held().unwrap_or_else(|| self.nodes.any());
            (node, state.place(node, false))
        });
        drop(state);
        match placed {
            Ok((node, place)) => {
                let purpose = Purpose::Set(names, is_utf8, request);
                self.engage(node, Effect::Write, place, purpose);
            }
            Err(error) => self.finish(Err(error)),
        }
    }

    /// Ends the transaction that there is, and calls `then`; at once if there is none.
    fn end_transaction(
        self,
        how: &'static str,
        then: impl FnOnce(Self, Result<(), SessionError>) + Send + 'static,
    ) {
        let mut state = self.front.state();
        let lost = state.transaction.as_mut().and_then(|transaction| transaction.lost.take());
        let is_spoilt = state.transaction.as_ref().is_some_and(|own| own.is_session_spoilt);
        let taken = state.take_transaction();
        drop(state);
        if let Some(lost) = lost.filter(|_| how == COMMIT) {
            // The session still has the client's settings, and perhaps the node's lost transaction.
            taken.into_iter().for_each(|(_, lease, _)| Pooled::discard(lease));
            return then(self, Err(lost));
        }
        let Some((node, lease, applied)) = taken else { return then(self, Ok(())) };
        let ask = Ask {
            nodes: Arc::clone(&self.nodes),
            node,
            request: Some(Request::sql(how)),
            effect: Effect::Write,
            steps: VecDeque::new(),
            deadline: self.deadline,
            ticket: self.ticket.clone(),
            retries: 0,
            has_borrowed: None,
        };
        let done = move |asked: Asked| {
            let Asked { lease, result, .. } = asked;
            self.ticket.ended();
            let result = match result {
                Ok(answer) => {
                    drop(answer);
                    if is_spoilt {
                        lease.into_iter().for_each(Pooled::discard);
                    } else {
                        self.front.put_back(node, lease, applied);
                    }
                    Ok(())
                }
                // The transaction may still be open: closing its session rolls it back.
                Err(error) => {
                    lease.into_iter().for_each(Pooled::discard);
                    Err(error)
                }
            };
            then(self, result);
        };
        ask.start(Some(lease), Box::new(done));
    }

    /// Asks a node in a session that the client may hold. [`Engaged`] decides whether the session
    /// stays held.
    fn engage(self, node: usize, effect: Effect, place: Place, purpose: Purpose) {
        let applied = place.applied;
        self.ask(node, effect, place, move |turn, asked| {
            let Asked { lease, result, stage } = asked;
            let (front, nodes) = (Arc::clone(&turn.front), Arc::clone(&turn.nodes));
            let ticket = turn.ticket;
            let engaged =
                Engaged::new(Arc::clone(&front), nodes, node, lease, applied, ticket, purpose);
            match result {
                Ok(answer) => {
                    turn.deferred.finish(move |reply| {
                        reply.relay(Passage::new(answer, engaged));
                        Ok(())
                    });
                }
                Err(error) => {
                    engaged.failed(stage, &error);
                    front.answer(turn.deferred, |_| Err(error));
                }
            }
        });
    }

    /// Asks a node, and calls `then` with the turn and the outcome.
    fn ask(
        mut self,
        node: usize,
        effect: Effect,
        place: Place,
        then: impl FnOnce(Self, Asked) + Send + 'static,
    ) {
        let own = place.lease.is_some() || !place.steps.is_empty();
        let request = std::mem::replace(&mut self.request, Request::sql(Vec::new()));
        let ask = Ask {
            nodes: Arc::clone(&self.nodes),
            node,
            request: Some(request),
            effect,
            steps: place.steps,
            deadline: self.deadline,
            ticket: self.ticket.clone(),
            retries: if own { 0 } else { RETRIES },
            has_borrowed: None,
        };
        ask.start(place.lease, Box::new(move |asked| then(self, asked)));
    }
}
